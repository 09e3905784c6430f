"""What a pattern matches, and in which order."""

import pytest
from trial import fire, matches, plain

from dplc.engine.rewrite.matcher import same
from dplc.ir.diagnostic import DplcError
from dplc.ir.expr import Sum, Var
from dplc.ir.text.print_statements import print_block, print_expr

LOADS = """
a = load A[i, k]
b = load B[k]
c = load A[i, k]
"""


def shown(value):
    if isinstance(value, tuple):
        return "; ".join(" ".join(print_block((x,)).split()) if hasattr(x, "dst") else print_expr(x) for x in value)
    return print_expr(value)


def test_a_pattern_is_tried_at_every_start_and_may_end_anywhere():
    found = matches("x = load B[i..]", LOADS)
    assert [(shown(m["x"]), shown(m["B"])) for m in found] == [("a", "A"), ("b", "B"), ("c", "A")]


def test_blocks_are_visited_in_pre_order():
    program = """
    for i in 0..4 free:
        a = load A[i]
        for j in 0..4 free:
            b = load B[j]
        c = load C[i]
    d = load D[0]
    """
    assert [m["x"].name for m in matches("x = load _[_]", program)] == ["d", "a", "c", "b"]


def test_a_variable_used_twice_must_be_equal():
    assert len(matches("x = load B[i..]\nmid..\ny = load B[i..]", LOADS)) == 1
    assert not matches("x = load B[i..]\ny = load B[i..]", LOADS)


def test_names_and_variables_are_one_value():
    program = "for k in 0..8 reduce:\n    a = load A[k]\nfor j in 0..8 reduce:\n    a = load A[k]"
    assert [m["k"] for m in matches("for k in 0..8 reduce:\n    a = load A[k]", program)] == [Var("k")]


def test_a_constant_of_the_language_is_no_variable():
    """Of a float, `nan` too: it matches nan, and no number."""
    for written, other in (("nan", "1.0"), ("inf", "nan"), ("1.0", "nan")):
        program = f"a = load A[i] if i < 4 else {written}"
        assert len(matches(f"x = load A[i] if c else {written}", program)) == 1
        assert not matches(f"x = load A[i] if c else {other}", program)


def test_the_underscore_binds_nothing():
    assert matches("_ = load _[_.., _]", "a = load A[i, j]") == [{}]


def test_an_unmentioned_field_is_a_wildcard():
    program = "As = Stage(A, origin=(0), box=(t:16@0), depth=3, via=ASYNC, pad=4)"
    assert len(matches("s: Stage(depth=3)", program)) == 1
    assert not matches("s: Stage(depth=2)", program)


@pytest.mark.parametrize("header", ["for k in 0..8 by 2 reduce", "for k in 0..8 reduce unroll=4"])
def test_loop_headers_are_matched_exactly(header):
    program = f"{header}:\n    a = load A[k]"
    assert not matches("for k in 0..8 reduce:\n    b..", program)
    assert len(matches(f"{header}:\n    b..", program)) == 1
    assert len(matches("for k in 0..8 by s reduce unroll=u:\n    b..", program)) == 1


def test_the_role_of_a_loop_is_part_of_its_header():
    program = "for k in 0..8 reduce:\n    a = load A[k]"
    assert not matches("for k in 0..8 serial:\n    b..", program)
    assert not matches("for k in 0..8:\n    b..", program)
    assert matches("for k in 0..8 role:\n    b..", program)[0]["role"] == Var("reduce")


def test_a_load_without_a_guard_matches_unguarded_loads_only():
    program = "a = load A[i] if i < 4 else 0.0\nb = load A[i]"
    assert [m["x"].name for m in matches("x = load A[i]", program)] == ["b"]
    assert [m["x"].name for m in matches("x = load A[i] if c else z", program)] == ["a", "b"]


def test_runs_are_tried_shortest_first():
    found = matches("xs..\nb = load _[_..]\nrest..", LOADS)
    assert [(len(m["xs"]), len(m["rest"])) for m in found if len(m["xs"]) + len(m["rest"]) == 2] == [
        (0, 2),
        (1, 1),
        (2, 0),
    ]


def test_all_splits_of_two_runs():
    found = matches("for k in 0..4 serial:\n    xs..\n    ys..", "for k in 0..4 serial:\n    Sync()\n    Wait()")
    assert [(len(m["xs"]), len(m["ys"])) for m in found] == [(0, 2), (1, 1), (2, 0)]


def test_a_final_run_goes_to_the_end_of_the_block():
    assert [len(m["rest"]) for m in matches("x = load A[_..]\nrest..", LOADS) if m["x"] == Var("a")] == [2]


def test_a_body_is_matched_to_its_end():
    program = "for k in 0..4 serial:\n    Sync()\n    Wait()"
    assert not matches("for k in 0..4 serial:\n    Sync()", program)
    assert matches("for k in 0..4 serial:\n    Sync()\n    _..", program)


def test_runs_of_axes_by_role():
    program = "Tile(a:2=BLOCK, b:3=THREAD, c:4=THREAD, d:5=REG):\n    Sync()"
    found = matches("Tile(outer..=BLOCK, threads..=THREAD, regs..=REG):\n    body..", program)
    assert [[x.name for x in found[0][k]] for k in ("outer", "threads", "regs")] == [["a"], ["b", "c"], ["d"]]
    assert not matches("Tile(axes..=THREAD):\n    body..", program)
    assert len(matches("Tile(axes..=_):\n    body..", program)) == 1
    assert [len(m["pre"]) for m in matches("Tile(pre.., x:n=THREAD, post..):\n    body..", program)] == [1, 2]


def test_one_statement_is_captured():
    assert matches("s: Stage(via=SYNC)", "As = Stage(A, origin=(0), box=(t:4@0))")[0]["s"].dst == "As"


STAGES = """
As = Stage(A, origin=(0), box=(t:4@0), depth=2)
Bs = Stage(B, origin=(0), box=(t:4@0), depth=2)
Cs = Stage(C, origin=(0), box=(t:4@0), depth=3)
Sync()
"""


def test_a_plus_capture_is_maximal_and_shares_its_variables():
    found = matches("ss: Stage(depth=N)+\nrest..", STAGES)
    assert [(m["N"], len(m["ss"])) for m in found] == [(2, 2), (2, 1), (3, 1)]
    assert [len(m["ss"]) for m in matches("ss: Stage()+\nSync()", STAGES)] == [3, 2, 1]


def test_a_star_capture_may_be_empty():
    found = matches("ss: Stage(depth=9, via=V)*\nSync()", STAGES)
    assert [(m["ss"], "V" in m) for m in found] == [((), False)]


def test_what_a_star_capture_may_have_bound_binds_later():
    pattern = "for k in 0..4 serial:\n    ss: Stage(depth=N)*\n    Sync()\n    x: Wait(keep=N)"
    with_stage = (
        "for k in 0..4 serial:\n    As = Stage(A, origin=(0), box=(t:4@0), depth={})\n    Sync()\n    Wait(keep=2)"
    )
    assert matches(pattern, with_stage.format(2))[0]["N"] == 2
    assert not matches(pattern, with_stage.format(3))
    assert matches(pattern, "for k in 0..4 serial:\n    Sync()\n    Wait(keep=7)")[0]["N"] == 7


@pytest.mark.parametrize("repeat", "+*")
def test_a_capture_that_reaches_the_end_leaves_nothing_for_the_next_item(repeat):
    assert not matches(f"ss: Sync(){repeat}\nWait()", "Sync()\nSync()")
    assert not matches(
        f"for k in _.._ serial:\n    ss: Sync(){repeat}\n    t: Sync()", "for k in 0..4 serial:\n    Sync()"
    )
    assert len(matches(f"ss: Sync(){repeat}\nWait()", "Sync()\nSync()\nWait()")) == (2 if repeat == "+" else 3)


def test_captures_that_may_be_empty_share_a_variable():
    pattern = "for k in 0..4 serial:\n    ss: Stage(depth=N)*\n    Sync()\n    ws: Wait(keep=N)*\n    y[N] = 1.0"
    program = "for k in 0..4 serial:\n    {}\n    Sync()\n    {}\n    y[{}] = 1.0"
    stage, nothing = "As = Stage(A, origin=(0), box=(t:4@0), depth=3)", "pass"
    for first, second, index, count in (
        (stage, "Wait(keep=3)", 3, 1), (stage, "Wait(keep=2)", 3, 0), (stage, "Wait(keep=3)", 2, 0),
        (nothing, "Wait(keep=2)", 2, 1), (nothing, "Wait(keep=2)", 3, 0), (stage, nothing, 3, 1),
        (stage, nothing, 2, 0), (nothing, nothing, 7, 1),
    ):  # fmt: skip
        found = matches(pattern, program.format(first, second, index))
        assert [match["N"] for match in found] == [index] * count, (first, second, index)


def test_a_variable_of_an_empty_capture_may_stand_in_a_negation():
    pattern = "for k in 0..4 serial:\n    ss: Stage(depth=N)*\n    Sync()\n    Wait(keep=not N)"
    program = (
        "for k in 0..4 serial:\n    As = Stage(A, origin=(0), box=(t:4@0), depth=3)\n    Sync()\n    Wait(keep={})"
    )
    assert [len(matches(pattern, program.format(keep))) for keep in (2, 3)] == [1, 0]


def test_a_plus_capture_with_runs_inside():
    program = "As = Stage(A, origin=(0, 1), box=(t:4@0, u:8@1))\nBs = Stage(B, origin=(0), box=(u:8@1))"
    found = matches("ss: Stage(box=(_.., u:C@_))+", program)
    assert [(m["C"], m["u"].name, len(m["ss"])) for m in found] == [(8, "u", 2), (8, "u", 1)]


def test_negation_binds_nothing():
    program = "As = Stage(A, origin=(0), box=(t:4@0), via={})"
    assert matches("s: Stage(via=not TMA)", program.format("ASYNC"))
    assert not matches("s: Stage(via=not TMA)", program.format("TMA"))
    assert not matches("s: Stage(slot=not _)", program.format("ASYNC"))
    assert matches("Wait(keep=not (n + 1))", "Wait(keep=3)") == [{}]


def test_a_field_of_a_captured_statement_is_a_value():
    program = "As = Stage(A, origin=(0), box=(t:4@0))\na = load {}[t]"
    assert matches("s: Stage()\nx = load s.dst[i..]", program.format("As"))
    assert not matches("s: Stage()\nx = load s.dst[i..]", program.format("Bs"))


def test_inside_finds_its_body_at_any_depth():
    program = """
    Tile(i:4=THREAD):
        Sync()
        for a in 0..2 serial:
            for k in 0..8 reduce:
                x = load A[k]
        for k in 0..8 reduce:
            y = load A[k]
    """
    found = matches("Tile(axes..):\n    inside ctx:\n        for k in 0..8 reduce:\n            body..", program)
    assert [m["body"][0].dst for m in found] == ["y", "x"]
    assert [m["ctx"].path for m in found] == [(), (1,)]


def test_nothing_may_follow_inside():
    with pytest.raises(DplcError, match="nothing can follow"):
        matches("Tile(axes..):\n    inside ctx:\n        Sync()\n    Wait()", "Sync()")


def test_kernels_are_a_run_on_module_level():
    program = """
kernel f(x: f32[4, 8], w: f32[8]) -> h: f32[4]:
    h[0] = 1.0

kernel g(h: f32[4]) -> y: i32[4, 2]:
    y[0, 0] = 1.0
"""
    found = matches("kernel a(ins.., last: t[n]) -> out: d[dims..]:\n    body..", program, "module")
    assert [(m["a"].name, len(m["ins"]), m["last"].name, m["d"].name, m["dims"]) for m in found] == [
        ("f", 1, "w", "f32", (4,)), ("g", 0, "h", "i32", (4, 2)),
    ]  # fmt: skip
    pair = "kernel a(_..) -> h: _[_..]:\n    _..\nkernel b(h: _[_..]) -> _..:\n    _.."
    assert [(m["a"].name, m["b"].name) for m in matches(pair, program, "module")] == [("f", "g")]


def test_each_kernel_of_a_run_has_its_own_statements():
    pair = "kernel a(_..) -> _..:\n    Sync()\nkernel b(_..) -> _..:\n    Wait()"
    program = """
kernel f(x: f32[4]) -> h: f32[4]:
    Sync()

kernel g(h: f32[4]) -> y: f32[4]:
    Wait()
"""
    assert [(m["a"].name, m["b"].name) for m in matches(pair, program, "module")] == [("f", "g")]


def test_loop_rules_do_not_see_a_tile():
    program = "Tile(i:4=THREAD):\n    a = load A[i]"
    assert matches("a = load A[i]", program)
    assert not matches("a = load A[i]", program, "loop")
    assert matches("a = load A[i]", "a = load A[i]", "loop")


# ---- values


SAME = [("1", "1"), ("0.0", "0.0"), ("inf", "inf")]
OTHER = [("1", "2"), ("1", "1.0"), ("1.0", "1"), ("0.0", "-0.0")]


@pytest.mark.parametrize(("pattern", "value", "hit"), [(*p, True) for p in SAME] + [(*p, False) for p in OTHER])
def test_numbers_match_themselves_with_their_type(pattern, value, hit):
    assert bool(matches(f"y[i] = {pattern}", f"y[i] = {value}")) is hit


def test_true_is_not_one():
    stage = "As = Stage(A, origin=(0), box=(t:4@0))"
    assert matches("s: Stage(when=true)", stage)
    assert not matches("s: Stage(when=1)", stage)


@pytest.mark.parametrize(
    ("pattern", "value", "bound"),
    [
        ("a*16", "k*16", {"a": "k"}),
        ("a*n", "k*16", {"a": "k", "n": "16"}),
        ("ko*n + k", "o*16 + i", {"ko": "o", "n": "16", "k": "i"}),
        ("ko*16 + k", "i + o*16", {"ko": "o", "k": "i"}),
        ("a + 1", "k*2 + 1", {"a": "k*2"}),
        ("a + b", "k + 7", {"a": "k", "b": "7"}),
        ("a - b", "i - j*2", {"a": "i", "b": "j*2"}),
        ("-a", "-i", {"a": "i"}),
        ("a // n", "i // 4", {"a": "i", "n": "4"}),
        ("a % 4 + b", "i % 4 + j*8", {"a": "i", "b": "j*8"}),
        ("a // 4*16 + b", "i // 4*16 + j", {"a": "i", "b": "j"}),
        ("a*b", "i*j", {"a": "i", "b": "j"}),
        ("(a + b)*2", "i*2 + j*2", None),
        ("a*16", "k*8", None),
        ("a + 1", "k", None),
        ("a + b", "i + j + k", None),
        ("a + 1", "3.5", None),
    ],
)  # fmt: skip
def test_index_expressions_match_by_structure(pattern, value, bound):
    found = matches(f"y[{pattern}] = 1.0", f"y[{value}] = 1.0")
    if bound is None:
        assert not found
    else:
        assert {name: shown(found[0][name]) for name in bound} == bound


def test_bound_variables_make_an_expression_a_value():
    program = "for k in 0..4 serial:\n    a = load A[{}]"
    pattern = "for k in 0..n serial:\n    a = load A[n*16 + k]"
    assert matches(pattern, program.format("k + 64"))
    assert matches(pattern, program.format("64 + k"))
    assert not matches(pattern, program.format("k + 32"))


@pytest.mark.parametrize("pattern", ["d = f(x, y)", "d = subtract(x, y)", "d = f(xs..)", "d = e"])
def test_scalar_functions(pattern):
    assert len(matches(pattern, "a = subtract(b, c)")) == 1
    assert not matches("d = add(x, y)", "a = subtract(b, c)")
    assert not matches("d = f(x)", "a = subtract(b, c)")


def test_comparisons_of_guards():
    assert matches("if i < n:\n    b..", "if k < 4:\n    Sync()")[0]["n"] == 4
    assert not matches("if i <= n:\n    b..", "if k < 4:\n    Sync()")


def test_a_lone_name_in_a_list_field_is_the_list():
    program = "Combine(acc, add, over=({}))"
    assert matches("Combine(a, f, over=xs)", program.format("q, t"))[0]["xs"] == (Var("q"), Var("t"))
    assert matches("Combine(a, f, over=[t])", program.format("u"))[0]["t"] == Var("u")
    assert not matches("Combine(a, f, over=[t])", program.format("q, t"))
    assert plain("Combine(acc, add, over=(t))") == plain("Combine(acc, add, over=[t])")  # of a program, an element
    assert matches("s: Stage(xor=[])", "As = Stage(A, origin=(0), box=(t:4@0))")


def test_the_stride_of_an_axis_is_part_of_it():
    program = "As = Stage(A, origin=(0), box=(t:4@0 by 2))"
    assert not matches("s: Stage(box=(t:n@d))", program)
    assert matches("s: Stage(box=(t:n@d by q))", program)[0]["q"] == 2


def test_an_accumulation_with_any_function():
    found = matches("acc <- fn(acc, v)", "top <- maximum(top, x)")
    assert (found[0]["acc"].name, found[0]["fn"].name, found[0]["v"].name) == ("top", "maximum", "x")


def test_a_snippet_of_a_dump_is_a_pattern():
    snippet = """
    for k in 0..8 reduce:
        a = load A[k*16 + i]
        p = multiply(a, a)
        acc <- add(acc, p)
    """
    assert len(matches(snippet, snippet.replace("A[", "Zs[").replace("acc", "total"))) == 1


def test_more_runs_than_python_can_nest_is_an_error():
    pattern = "\n".join(f"x{n}..\nSync()" for n in range(25))
    with pytest.raises(DplcError, match="too many runs"):
        matches(pattern, "Sync()")


def test_pass_is_an_empty_body():
    assert matches("for k in 0..4 serial:\n    pass", "for k in 0..4 serial:\n    pass")
    assert not matches("for k in 0..4 serial:\n    pass", "for k in 0..4 serial:\n    Sync()")


def test_a_rewrite_of_the_empty_run_is_no_site():
    assert fire("rule p on tile\nmatch\n    xs: Wait()*\nrewrite\n    Sync()\n", "Sync()") == plain("Sync()")


def test_sums_are_the_same_in_any_order_and_only_then():
    i, j = Var("i"), Var("j")
    assert same(Sum(((i, 2), (j, 1)), 3), Sum(((j, 1), (i, 2)), 3))
    for other in (
        Sum(((i, 2), (j, 1)), 4),
        Sum(((i, 2),), 3),
        Sum(((i, 2), (j, 2)), 3),
        Sum(((i, 2), (Var("k"), 1)), 3),
    ):
        assert not same(Sum(((i, 2), (j, 1)), 3), other)
