"""`parse(print(p)) is p` for every program: Loop and Tile IR, drawn by Hypothesis."""

from drawing import draws
from hypothesis import HealthCheck, given, settings, strategies as st

from dplc.ir import expr as e, loop, tile
from dplc.ir.program import Kernel, Param
from dplc.ir.text.programs import print_program, read_program

names = st.sampled_from(["a", "b", "k", "k_o", "x_smem", "acc1", "By", "reducer", "loads", "x2"])
small = st.integers(0, 40)
sized = st.integers(1, 512)
floats = st.floats(allow_nan=False, width=32)
numbers = floats | st.integers(-100, 100)
index = st.deferred(lambda: st.one_of(small, names.map(e.Var), arithmetic))
arithmetic = st.builds(
    lambda op, a, b: e.binary(op, a, b if op not in ("//", "%") or b.__class__ is not int or b > 0 else 3),
    st.sampled_from(["+", "-", "*", "//", "%", "+"]), index, index,
)  # fmt: skip
comparison = st.builds(e.binary, st.sampled_from(sorted(e.COMPARISONS)), index, index)
condition = st.deferred(
    lambda: comparison | st.builds(e.both, comparison, condition) | st.builds(e.either, condition, comparison)
)
condition = (condition | condition.map(e.invert)).filter(lambda c: not isinstance(c, bool))
atoms = names.map(e.Var) | numbers
calls = st.one_of(
    st.builds(lambda f, a: e.Call(f, (a,)), st.sampled_from(["exp", "rsqrt", "relu", "f16"]), atoms),
    st.builds(lambda f, a, b: e.Call(f, (a, b)), st.sampled_from(["add", "divide", "maximum"]), atoms, atoms),
)
indices = st.lists(index, min_size=1, max_size=3).map(tuple)
fns = st.sampled_from(["add", "maximum", "multiply"])

pairs = st.lists(names, min_size=2, max_size=2, unique=True).map(tuple)
guarded = st.builds(loop.Load, names, names, indices, condition, numbers)
plain = st.one_of(
    st.builds(loop.Load, names, names, indices),
    guarded,
    st.builds(loop.Let, names, calls | atoms | index),
    st.builds(loop.Accumulate, names, fns, names.map(e.Var) | numbers),
    st.builds(loop.Merge, pairs, st.just("online"), st.tuples(atoms, atoms)),
    st.builds(loop.Scale, names, names.map(e.Var) | numbers),
    st.builds(loop.Carry, names),
    st.builds(loop.Store, names, indices, atoms),
)
label = st.builds(e.Axis, names, sized, st.none(), st.integers(0, 3), st.sampled_from([1, 1, 4, 32]))
boxes = st.lists(label, min_size=1, max_size=3, unique_by=lambda axis: axis.name).map(tuple)


def plain_axes(axes):
    return tuple(e.Axis(axis.name, axis.extent) for axis in axes)


stages = st.builds(
    tile.Stage, names, names, indices, boxes, st.integers(1, 4), index, st.sampled_from(["SYNC", "ASYNC", "TMA"]),
    st.sampled_from([0, 1, 4]), st.sampled_from([0, 32, 128]), st.lists(st.integers(0, 31), max_size=3).map(tuple),
    st.sampled_from([0, 4]), st.just(True) | condition,
)  # fmt: skip
tiled = st.one_of(
    plain, stages, st.builds(tile.SharedTile, names, boxes.map(plain_axes)), st.builds(tile.Sync), st.builds(tile.Wait, st.integers(0, 5)),
    st.builds(tile.Combine, names, fns, st.lists(names.map(e.Var), min_size=1, max_size=3, unique=True).map(tuple)),
)  # fmt: skip


def blocks(leaves):
    def around(inner):
        body = st.lists(inner, max_size=3).map(tuple)
        roles = st.sampled_from(["serial", "reduce", "free", "VEC"])
        step = st.sampled_from([1, 1, 2, 32]) | names.map(e.Var)
        loops = st.builds(loop.For, names, index, index, body, roles, step, st.sampled_from([1, 1, 4]))
        return loops | st.builds(loop.If, condition, body)

    return st.lists(st.recursive(leaves, around, max_leaves=12), max_size=4).map(tuple)


shapes = st.lists(sized | names.map(e.Var), min_size=1, max_size=3).map(tuple)
params = st.builds(Param, names, st.sampled_from(["f32", "bf16", "i64", "b8"]), shapes)
many_params = st.lists(params, max_size=3, unique_by=lambda p: p.name).map(tuple)
some_params = st.lists(params, min_size=1, max_size=2).map(tuple)
axes = st.lists(st.builds(e.Axis, names, sized, st.sampled_from(["BLOCK", "THREAD", "REG", "VEC"])), max_size=4).map(
    tuple
)
tiles = st.builds(tile.Tile, axes, blocks(tiled), st.sampled_from([1, 2]), st.sampled_from([0, 1]))
loop_kernels = st.builds(Kernel, names, many_params, some_params, blocks(plain))
tile_kernels = st.builds(Kernel, names, many_params, some_params, tiles.map(lambda t: (t,)))
programs = st.lists(loop_kernels | tile_kernels, min_size=1, max_size=2).map(tuple)


@settings(max_examples=draws(50), deadline=None, suppress_health_check=list(HealthCheck))
@given(programs)
def test_what_is_printed_is_read_back_as_the_same_nodes(program):
    text = print_program(program, "tile")
    level, again = read_program(text)
    assert level == "tile"
    assert again == program, text
    assert all(a is b for a, b in zip(again, program, strict=True))
    assert print_program(again, "tile") == text
