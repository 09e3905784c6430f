"""What a template builds."""

import pytest
from trial import block, engine, fire, indent, plain, text

from dplc.engine.language.evaluate import FACTS, fact
from dplc.engine.rewrite.statements.site import fresh
from dplc.ir.diagnostic import DplcError
from dplc.ir.expr import Var
from dplc.ir.loop import Accumulate
from dplc.ir.node import nodes


@pytest.fixture(autouse=True)
def some_facts():
    before = dict(FACTS)
    fact("test_accumulators(run) -> [record]")(lambda site, body: tuple(nodes(body, Accumulate)))
    fact("test_renaming(run) -> any")(lambda site, run: {s.dst: Var(f"{s.dst}_new") for s in run})
    yield
    FACTS.clear()
    FACTS.update(before)


def rule(match, rewrite, clauses="", level="tile"):
    return f"rule r on {level}\nmatch\n{indent(match)}\n{clauses}rewrite\n{indent(rewrite)}\n"


STAGE = "As = Stage(A, origin=(k*16), box=(t:16@0), depth=3, pad=2)"


def test_an_unmentioned_field_has_its_default():
    made = fire(rule("d = Stage(s, origin=o, box=b)", "d = Stage(s, origin=o, box=b, via=ASYNC)"), STAGE)
    assert made == "As = Stage(A, origin=(k*16), box=(t:16@0), via=ASYNC)"


def test_with_keeps_everything_else():
    made = fire(rule("s: Stage(pad=2)", "s.. with pad=4, slot=k % 3", "let k = 1\n"), STAGE)
    assert made == "As = Stage(A, origin=(k*16), box=(t:16@0), depth=3, slot=1, pad=4)"


def test_with_an_unknown_field_is_a_located_error():
    with pytest.raises(DplcError, match="did you mean `pad`"):
        fire(rule("s: Stage(pad=2)", "s.. with padd=4"), STAGE)


def test_sticky_fields_are_kept():
    program = "Tile(i:4=THREAD, snake=1, cluster=2):\n    Sync()"
    assert fire(rule("Tile(a..):\n    b..", "Tile(a..):\n        Wait()"), program).startswith(
        "Tile(i:4=THREAD, snake=1, cluster=2)"
    )
    assert fire(rule("Tile(a..):\n    b..", "Tile(a.., cluster=3):\n        b.."), program).startswith(
        "Tile(i:4=THREAD, snake=1, cluster=3)"
    )


def test_every_tile_of_a_template_keeps_the_sticky_fields_of_its_own():
    unit = "kernel {}(x: f32[4]) -> {}: f32[4]:\n    Tile(i:4=THREAD, cluster={}):\n        {}[i] = 1.0"
    pattern = "kernel f(_..) -> a..:\n    Tile(xs..):\n        b..\nkernel g(i..) -> o..:\n    Tile(ys..):\n        c.."
    made = "kernel f(i..) -> a..:\n    Tile(xs..):\n        b..\nkernel g(i..) -> o..:\n    Tile(ys..):\n        c.."
    program = unit.format("p", "y", 2, "y") + "\n\n" + unit.format("q", "z", 3, "z")
    changed = made.replace("Tile(xs..)", "Tile(xs..=REG)")
    out = fire(rule(pattern.replace("_..", "i.."), changed, level="module"), program)
    assert out == program.replace("i:4=THREAD, cluster=2", "i:4=REG, cluster=2")


def test_runs_are_spliced_in_any_order():
    made = fire(
        rule("for k in 0..n serial:\n    a = load A[i..]\n    rest..", "rest..\na = load A[i..]"),
        "for k in 0..4 serial:\n    a = load A[0]\n    Sync()\n    Wait()",
    )
    assert made == plain("Sync()\nWait()\na = load A[0]")


def test_runs_of_sibling_blocks_define_names_of_their_own():
    """A block defines a value once: what comes from another block of the pattern makes way, uses and all."""
    made = fire(
        rule(
            "for k in 0..n serial:\n    first..\nfor l in 0..n serial:\n    a..\n    y[i..] = v",
            "for k in 0..n serial:\n    first..\n    a[l := k]..\n    y[i..] = v",
        ),
        "for k in 0..4 serial:\n    t = load A[k]\n    z[k] = t\n"
        "for k in 0..4 serial:\n    t = load B[k]\n    u = exp(t)\n    y[t] = u",
    )
    assert made == plain(
        "for k in 0..4 serial:\n    t = load A[k]\n    z[k] = t\n    t1 = load B[k]\n    u = exp(t1)\n    y[t1] = u"
    )


def test_substitution_of_a_variable():
    made = fire(
        rule("for k in 0..n serial:\n    b..", "b[k := 3]..\nb[k := 4].."), "for k in 0..9 serial:\n    y[k*2] = 1.0"
    )
    assert made == plain("y[6] = 1.0\ny[8] = 1.0")


def test_substitution_stops_at_a_loop_that_binds_the_name():
    made = fire(
        rule("for k in 0..n serial:\n    b..", "b[k := 3].."),
        "for k in 0..9 serial:\n    y[k] = 1.0\n    for k in 0..2 serial:\n        z[k] = 1.0",
    )
    assert made == plain("y[3] = 1.0\nfor k in 0..2 serial:\n    z[k] = 1.0")


def test_several_substitutions_happen_at_once():
    made = fire(
        rule(
            "for i in 0..n free:\n    for j in 0..m free:\n        b..",
            "for i in 0..m free:\n    for j in 0..n free:\n        b[i := j, j := i]..",
        ),
        "for i in 0..2 free:\n    for j in 0..3 free:\n        y[i, j] = 1.0",
    )
    assert made == plain("for i in 0..3 free:\n    for j in 0..2 free:\n        y[j, i] = 1.0")


def test_affine_substitution():
    made = fire(
        rule(
            "Tile(j:T=THREAD, r:F=REG):\n    b..",
            "Tile(j:T=THREAD, q:F // 2=REG, r:2=REG):\n    b[j*F + r := q*(T*2) + j*2 + r]..",
        ),
        "Tile(j:8=THREAD, r:4=REG):\n    a = load A[o*64 + j*4 + r]\n    y[j*8 + r*2 + 1] = a",
    )
    assert made == plain(
        "Tile(j:8=THREAD, q:2=REG, r:2=REG):\n    a = load A[o*64 + q*16 + j*2 + r]\n    y[q*32 + j*4 + r*2 + 1] = a"
    )


def test_substitution_of_lists_and_of_renamings_that_facts_made():
    made = fire(
        rule(
            "Tile(axes..=THREAD):\n    b..",
            "Tile(axes..):\n    b[names.. := twice..]..",
            "let names = [a.name for a in axes]\nlet twice = [2*n for n in names]\n",
        ),
        "Tile(i:4=THREAD, j:4=THREAD):\n    y[i, j] = 1.0",
    )
    assert made == plain("Tile(i:4=THREAD, j:4=THREAD):\n    y[i*2, j*2] = 1.0")
    made = fire(
        rule("Sync()\na: Load()+\nrest..", "a[test_renaming(a)]..\nrest[test_renaming(a)].."),
        "Sync()\nc = load A[1]\ny[0] = c",
    )
    assert made == plain("c_new = load A[1]\ny[0] = c_new")


def test_roles_of_runs_of_axes():
    made = fire(
        rule("Tile(axes..=THREAD):\n    b..", "Tile(axes..=BLOCK, t:32=THREAD):\n    b.."),
        "Tile(i:4=THREAD, j:4=THREAD):\n    Sync()",
    )
    assert made == plain("Tile(i:4=BLOCK, j:4=BLOCK, t:32=THREAD):\n    Sync()")


def test_each_emits_its_block_once_per_element_and_renames_later_copies():
    made = fire(
        rule("for k in 0..n serial:\n    b..", "each j in 0..n:\n    b[k := j].."),
        "for k in 0..3 serial:\n    a = load A[k]\n    p = multiply(a, a)\n    acc <- add(acc, p)",
    )
    assert made == plain(
        "a = load A[0]\np = multiply(a, a)\nacc <- add(acc, p)\na1 = load A[1]\n"
        "p1 = multiply(a1, a1)\nacc <- add(acc, p1)\na2 = load A[2]\np2 = multiply(a2, a2)\n"
        "acc <- add(acc, p2)"
    )


def test_each_over_records_of_a_fact():
    made = fire(
        rule(
            "for k in 0..n reduce:\n    b..",
            "for k in 0..n reduce:\n    b..\neach a in test_accumulators(b):\n    Combine(a.acc, a.fn, over=[k])",
        ),
        "for k in 0..4 reduce:\n    s <- add(s, k)\n    m <- maximum(m, k)",
    )
    assert made.endswith("Combine(s, add, over=(k))\nCombine(m, maximum, over=(k))")


LOADS = "a = load A[i, k]\nfor j in 0..2 serial:\n    b = load B[k]\n    c = load A[j, 0] if j < 1 else 2.0"


def test_arms_rewrite_every_load_that_fits():
    made = fire(rule("x = load A[_..]\nrest..", "rest.. with load b[i..] => load b[7, i..]"), LOADS)
    assert made == plain("for j in 0..2 serial:\n    b = load B[7, k]\n    c = load A[7, j, 0] if j < 1 else 2.0")


def test_an_arm_with_a_bound_buffer_leaves_the_others_alone():
    made = fire(rule("x = load A[i..]\nrest..", "rest.. with load A[p, q] => load A[q, p]"), LOADS)
    assert made == plain("for j in 0..2 serial:\n    b = load B[k]\n    c = load A[0, j] if j < 1 else 2.0")


def test_an_arm_with_a_condition_and_a_domain():
    made = fire(
        rule(
            "x = load A[i..]\nrest..",
            "x = load A[i..]\nrest.. with load b[j..] => load n[j..] for n in names where b == A",
            "let names = [x, A]\n",
        ),
        LOADS,
    )
    assert made == plain(
        "a = load A[i, k]\nfor j in 0..2 serial:\n    b = load B[k]\n    c = load a[j, 0] if j < 1 else 2.0"
    )


def test_an_arm_keeps_the_guard_of_a_load_unless_it_speaks_of_it():
    program = "a = load A[i] if i < 4 else 1.0"
    whole = rule("for k in 0..1 serial:\n    s..", "s.. with load B[i] => load B[i + 1]")
    guarded = "for k in 0..1 serial:\n    " + program
    assert fire(whole, guarded) == "a = load A[i + 1] if i < 4 else 1.0"
    dropped = rule("for k in 0..1 serial:\n    s..", "s.. with load B[i] if c else z => load B[i]")
    assert fire(dropped, guarded) == "a = load A[i]"
    changed = rule("for k in 0..1 serial:\n    s..", "s.. with load B[i] if c else z => load B[i] if i < 2 else z")
    assert fire(changed, guarded) == "a = load A[i] if i < 2 else 1.0"


def test_an_arm_is_about_loads():
    with pytest.raises(DplcError, match="an arm rewrites loads"):
        fire(rule("s: Wait()", "s.. with exp(x) => exp2(x)"), "Wait()")


LOCAL = """
rule outer on tile
match
    Tile(i:n=THREAD):
        body..
rewrite
    Tile(i:n=BLOCK):
        body.. with rule inner(i, 32)

@local
rule inner(t, T) on tile
match
    for k in 0..K role:
        body..
require K > 2                                else "short"
rewrite
    for k in t..K by T role:
        m = multiply(k, k)
        body..
"""


def test_local_rules_run_bottom_up_in_one_pass_and_keep_hygiene():
    program = """
    Tile(i:4=THREAD):
        for k in 0..8 reduce:
            for l in 0..4 free:
                y[l] = 1.0
        for s in 0..2 free:
            y[s] = 2.0
    """
    assert fire(LOCAL, program) == plain("""
    Tile(i:4=BLOCK):
        for k in i..8 by 32 reduce:
            m1 = multiply(k, k)
            for l in i..4 by 32 free:
                m = multiply(l, l)
                y[l] = 1.0
        for s in 0..2 free:
            y[s] = 2.0
    """)


def test_a_local_rule_takes_its_arguments():
    with pytest.raises(DplcError, match="takes 2 arguments, not 1"):
        fire(LOCAL.replace("inner(i, 32)", "inner(i)"), "Tile(i:4=THREAD):\n    Sync()")
    with pytest.raises(DplcError, match="did you mean `inner`"):
        fire(LOCAL.replace("with rule inner", "with rule iner"), "Tile(i:4=THREAD):\n    Sync()")


def test_inside_plugs_the_hole():
    made = fire(
        rule(
            "Tile(a..):\n    inside ctx:\n        for k in 0..n serial:\n            b..",
            "Tile(a..):\n    inside ctx:\n        Sync()\n        b[k := 0]..",
        ),
        "Tile(i:4=THREAD):\n    Wait()\n    if i < 2:\n        for k in 0..1 serial:\n"
        "            y[k] = 1.0\n        Wait()",
    )
    assert made == plain(
        "Tile(i:4=THREAD):\n    Wait()\n    if i < 2:\n        Sync()\n        y[0] = 1.0\n        Wait()"
    )


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [("1 < 2", "Wait()"), ("2 < 1", "pass"), ("i < 2", "if i < 2:\n    Wait()"), ("i < i", "pass")],
)
def test_if_folds(condition, wanted):
    program = "for i in 0..4 serial:\n    Sync()"
    made = fire(
        rule(
            "for i in 0..4 serial:\n    Sync()", f"for i in 0..4 serial unroll=2:\n    if {condition}:\n        Wait()"
        ),
        program,
    )
    assert made == plain("for i in 0..4 serial unroll=2:\n" + indent(wanted))


def test_an_if_around_nothing_leaves_nothing():
    made = fire(rule("for i in 0..4 serial:\n    b..", "Sync()\nif i < 2:\n    b.."), "for i in 0..4 serial:\n    pass")
    assert made == "Sync()"


def test_pass_and_drop_leave_nothing():
    assert fire(rule("for i in 0..4 serial:\n    b..", "pass"), "for i in 0..4 serial:\n    Sync()") == "pass"
    assert (
        fire(rule("for i in 0..4 serial:\n    b..", "Wait()\ndrop b.."), "for i in 0..4 serial:\n    Sync()")
        == "Wait()"
    )


def test_names_that_the_template_defines_are_fresh():
    made = fire(
        rule("d = exp(x)\nrest..", "p = multiply(x, x)\nd = exp2(p)\nrest.."),
        "p = multiply(a, b)\np1 = add(p, p)\nd = exp(p1)",
    )
    assert made == plain("p = multiply(a, b)\np1 = add(p, p)\np2 = multiply(p1, p1)\nd = exp2(p2)")


def test_fresh_derives_a_name():
    made = fire(
        rule(
            "for k in 0..n serial:\n    b..",
            "for ko in 0..n serial:\n    for k in 0..1 serial:\n        b[k := ko + k]..",
            'let ko = fresh(k, "o")\n',
        ),
        "for k in 0..8 serial:\n    k_o = load A[k]",
    )
    assert made.startswith("for k_o1 in 0..8 serial:\n    for k in 0..1 serial:\n        k_o = load A[k_o1 + k]")


def test_fresh_is_pure():
    made = engine(rule("Sync()", "Wait()"))
    site = next(made.sites("r", block("Sync()"), None)).env["@site"]
    assert fresh(site, "t") == fresh(site, "t") == Var("t")
    assert fresh(site, Var("k"), "o") == Var("k_o")
    assert fresh(site, "exp") == Var("exp1")  # a reserved word is not a name


def test_fresh_knows_the_accumulators_of_a_merge():
    merge = "for k in 0..8 reduce:\n    (m, l) <- online((m, l), (x, 1.0))"
    made = fire(rule("Sync()\nrest..", "Scale(a, 2.0)\nrest..", 'let a = fresh("m")\n'), f"Sync()\n{merge}")
    assert made == plain(f"Scale(m1, 2.0)\n{merge}")


def test_a_captured_merge_is_changed_by_a_local_rule():
    rules = """
rule outer on tile
match
    for k in 0..n reduce:
        sums: Merge(accs=(m, _), fn=online, vals=(x, 1.0))
rewrite
    for k in 0..n reduce:
        sums.. with rule inner(m, x)

@local
rule inner(m, x) on tile
match
    (_, l) <- online((_, l), (_, 1.0))
rewrite
    m <- maximum(m, x)
    l <- add(l, 1.0)
"""
    made = fire(rules, "for k in 0..8 reduce:\n    (a, b) <- online((a, b), (y, 1.0))")
    assert made == plain("for k in 0..8 reduce:\n    a <- maximum(a, y)\n    b <- add(b, 1.0)")


def test_labels_of_a_shared_tile_stay_their_own():
    made = fire(
        rule("Tile(t:n=THREAD):\n    b..", "Tile(t:n=THREAD):\n    b[t := t + 1]..\n    Sync()"),
        "Tile(t:16=THREAD):\n    As = Stage(A, origin=(0), box=(t:16@0))\n    a = load As[t]",
    )
    assert made == plain(
        "Tile(t:16=THREAD):\n    As = Stage(A, origin=(0), box=(t:16@0))\n    a = load As[t + 1]\n    Sync()"
    )


def test_a_template_makes_kernels_with_fresh_names_and_parameters():
    rules = rule(
        "kernel f(ins..) -> C: dt[dims..]:\n    body..",
        "kernel partial(ins..) -> part: f32[2, dims..]:\n    part[0] = 1.0\n"
        "kernel f(ins.., part: f32[2, dims..]) -> C: dt[dims..]:\n    body..",
        'let partial = fresh(f, "partial")\n', "module",
    )  # fmt: skip
    made = fire(rules, "kernel g(part: f32[4]) -> y: f32[8]:\n    y[0] = 1.0")
    assert made == (
        "kernel g_partial(part: f32[4]) -> part1: f32[2, 8]:\n    part1[0] = 1.0\n\n"
        "kernel g(part: f32[4], part1: f32[2, 8]) -> y: f32[8]:\n    y[0] = 1.0"
    )


def test_an_unbound_name_in_a_template_is_a_located_error():
    with pytest.raises(DplcError, match="unbound variable `bodi`"):
        fire(rule("for k in 0..n serial:\n    body..", "bodi.."), "for k in 0..4 serial:\n    Sync()")


def test_output_does_not_depend_on_the_run():
    program = "for k in 0..3 serial:\n    a = load A[k]\n    b = load B[k]\n    y[k] = a"
    rules = rule("for k in 0..n serial:\n    b..", "each j in 0..n:\n    b[k := j]..")
    assert len({fire(rules, program) for _ in range(5)}) == 1
    assert text(block(fire(rules, program))) == fire(rules, program)


@pytest.mark.parametrize(("role", "barriers"), [("serial", 1), ("free", 2)])
def test_a_role_is_known_when_the_template_is_built(role: str, barriers: int) -> None:
    rule = (
        "rule a on tile\nmatch\n    for k in 0..K role:\n        body..\nrewrite\n    for k in 0..K role unroll=2:\n"
        "        body..\n    Sync()\n    if role != serial:\n        Sync()\n"
    )
    made = fire(rule, f"for k in 0..4 {role}:\n    acc <- add(acc, 1.0)")
    assert made == f"for k in 0..4 {role} unroll=2:\n    acc <- add(acc, 1.0)" + "\nSync()" * barriers
