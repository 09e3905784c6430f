"""The CUDA text of every scalar function on every dtype it takes, against its numpy meaning; literals; precedence."""

from __future__ import annotations

import numpy as np
import pytest
from lowering_oracle import lower, read

from dplc.codegen.build import assemble, device_text
from dplc.codegen.compiler import find_nvrtc, find_program
from dplc.codegen.judge import GATES
from dplc.codegen.scalar import ATOM, UNARY, integer, literal
from dplc.ir.dtypes import DTYPES, INTEGERS
from dplc.ir.functions import ARITHMETIC, BITS, CAST, FLOAT, FUNCTIONS, SELECT, result_dtype

RNG = np.random.default_rng(3)
UNBOUNDED = RNG.standard_normal((7, 64)).astype(np.float32) * 3
POSITIVE = np.abs(UNBOUNDED) + 0.1
WITHIN_ONE = np.clip(UNBOUNDED / 9, -0.99, 0.99)
DOMAIN = {
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt", "pow", "log1p"), POSITIVE),
    **dict.fromkeys(("asin", "acos"), WITHIN_ONE), "tan": WITHIN_ONE,
}  # fmt: skip
NO_INTEGER = {"fmod", "pow"}  # tested apart: what divides is not zero, what exponentiates is not negative
FLOATS = ("f32", "f64")
SUPPORTED = (*FLOATS, *INTEGERS, "b8")


def kernel_of(fn: str, dtypes: list[str], result: str) -> str:
    arity = len(dtypes)
    ins = ", ".join(f"x{i}: {dtype}[64]" for i, dtype in enumerate(dtypes))
    loads = "".join(f"        v{i} = load x{i}[t]\n" for i in range(arity))
    args = ", ".join(f"v{i}" for i in range(arity))
    return f"""
kernel apply({ins}) -> y: {result}[64]:
    Tile(t:64=THREAD):
{loads}        r = {fn}({args})
        y[t] = r
"""


FLOATING = [f.name for f in FUNCTIONS.values() if f.kind not in (CAST, BITS)]
INTEGER = [f.name for f in FUNCTIONS.values() if f.kind not in (CAST, FLOAT) and f.name not in NO_INTEGER]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("fn", FLOATING)
@pytest.mark.sampled(9)
def test_floating(check, fn, dtype):
    function = FUNCTIONS[fn]
    dtypes = ["b8", dtype, dtype] if function.kind == SELECT else [dtype] * function.arity
    kind = DTYPES[dtype].numpy
    arrays = {f"x{i}": np.roll(DOMAIN.get(fn, UNBOUNDED), i)[i].astype(kind) for i in range(function.arity)}
    if function.kind == SELECT:
        arrays["x0"] = arrays["x0"] > 0
    gate = GATES[dtype]
    check(kernel_of(fn, dtypes, result_dtype(fn, *dtypes)), gate=gate, **arrays)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("fn", INTEGER)
@pytest.mark.sampled(10)
def test_integer(check, dtype, fn):
    function = FUNCTIONS[fn]
    dtypes = ["b8", dtype, dtype] if function.kind == SELECT else [dtype] * function.arity
    kind = DTYPES[dtype].numpy
    arrays = {f"x{i}": RNG.integers(-99, 100, 64).astype(kind) for i in range(function.arity)}
    if function.kind == SELECT:
        arrays["x0"] = arrays["x0"] > 0
    if fn in ("floor_divide", "remainder"):
        arrays["x1"] = np.where(arrays["x1"] == 0, 4, arrays["x1"]).astype(kind)
    check(kernel_of(fn, dtypes, result_dtype(fn, *dtypes)), **arrays)


def test_integer_division(check):
    text = """
kernel divide(a: i64[64], b: i64[64]) -> y: i64[64], z: i64[64], w: f32[64]:
    Tile(t:64=THREAD):
        p = load a[t]
        q = load b[t]
        y[t] = fmod(p, q)
        z[t] = pow(q, 3)
        w[t] = divide(p, q)
"""
    b = RNG.integers(1, 9, 64) * RNG.choice([-1, 1], 64)
    check(text, a=RNG.integers(-99, 99, 64), b=b)


@pytest.mark.parametrize(
    "fn", ["add", "multiply", "maximum", "minimum", "logical_and", "logical_or", "logical_xor", "equal", "not_equal"]
)
def test_bool(check, fn):
    check(kernel_of(fn, ["b8", "b8"], "b8"), x0=RNG.random(64) < 0.5, x1=RNG.random(64) < 0.5)


@pytest.mark.parametrize("source", SUPPORTED)
@pytest.mark.parametrize("target", SUPPORTED)
@pytest.mark.sampled(6)
def test_casts(check, source, target):
    values = 300 * UNBOUNDED[0] if source in FLOATS else RNG.integers(-999, 999, 64)
    values = RNG.random(64) < 0.5 if source == "b8" else values.astype(DTYPES[source].numpy)
    check(kernel_of(target, [source], target), x0=values)


def test_mixed_operands(check):
    """Literals bend to the dtype beside them; integers meet floats as floats; bools count."""
    check(
        """
kernel mixed(x: f32[64], n: i32[64], l: i64[64], m: b8[64]) -> y: f32[64], z: i64[64], b: b8[64]:
    Tile(t:64=THREAD):
        a = load x[t]
        c = load n[t]
        d = load l[t]
        e = load m[t]
        f = add(a, 2)
        g = multiply(f, c)
        h = where(e, g, 0)
        i = subtract(h, 1e-05)
        y[t] = i
        j = add(c, d)
        k = multiply(j, 3)
        o = add(k, e)
        z[t] = o
        p = less(c, 2.5)
        q = logical_and(p, d)
        b[t] = q
""",
        x=UNBOUNDED[0], n=RNG.integers(-9, 9, 64).astype(np.int32), l=RNG.integers(-9, 9, 64), m=RNG.random(64) < 0.5,
    )  # fmt: skip


def test_no_spare_parentheses():
    """Those that stay keep the order of float operations."""
    (kernel,) = read("""
kernel order(x: f32[64]) -> y: f32[64]:
    Tile(t:64=THREAD):
        a = load x[t]
        y[t] = where(less(a, 0.0), negative(add(a, multiply(a, 2.0))), subtract(a, subtract(multiply(add(a, 1.0), a), divide(a, 3.0))))
""")
    assert "stg32(y_at, a < 0.0f ? -(a + a * 2.0f) : a - ((a + 1.0f) * a - a / 3.0f));" in lower(kernel).text


def test_literals():
    texts = {
        1.0: "1.0f",
        -2.5: "-2.5f",
        float("inf"): "DPLC_INF",
        float("-inf"): "-DPLC_INF",
        1e-6: "1e-06f",
        1e39: "DPLC_INF",
    }
    assert {value: literal(value, "f32")[0] for value in texts} == texts
    assert literal(float("nan"), "f32")[0] == "DPLC_NAN"
    assert literal(True, "b8")[0] == "true" and literal(3, "i64")[0] == "3LL" and literal(3, "i32")[0] == "3"
    assert integer(2**31)[0] == "2147483648LL" and integer(-(2**31))[0] == "(-2147483647 - 1)"
    assert integer(-(2**63), True)[0] == "(-9223372036854775807LL - 1)"


def test_every_function_has_text():
    """Each function of the table stands for floats, and each arithmetic one but the float ones for integers."""
    from dplc.codegen.scalar import ANY, FLOATING, INTEGER

    wanted = {f.name for f in FUNCTIONS.values() if f.kind not in (CAST, BITS, "logical")}
    assert wanted <= FLOATING.keys() | ANY.keys()
    assert {f.name for f in FUNCTIONS.values() if f.kind in (ARITHMETIC, BITS)} - {
        "divide"
    } <= INTEGER.keys() | ANY.keys()


@pytest.mark.skipif(find_nvrtc() is None and find_program("nvcc") is None, reason="neither NVRTC nor nvcc here")
def test_the_device_compiler_takes_every_text():
    """Every function on every dtype, in one translation unit."""
    texts = []
    for fn, dtype in [(fn, d) for fn in FLOATING for d in FLOATS] + [(fn, d) for fn in INTEGER for d in INTEGERS]:
        function = FUNCTIONS[fn]
        dtypes = ["b8", dtype, dtype] if function.kind == SELECT else [dtype] * function.arity
        texts.append((f"{fn}_{dtype}", kernel_of(fn, dtypes, result_dtype(fn, *dtypes))))
    texts += [(f"{s}_to_{t}", kernel_of(t, [s], t)) for s in SUPPORTED for t in SUPPORTED]
    kernels = [lower(read(text.replace("kernel apply", f"kernel k_{name}"))[0]) for name, text in texts]
    assert len(assemble(device_text(kernels), "sm_80").kernels) == len(texts)


def test_only_a_sign_asks_for_parentheses() -> None:
    assert [integer(value)[1] for value in (0, 1, 2**40, -(2**31), -(2**63))] == [ATOM] * 5
    assert integer(-1) == ("-1", UNARY) and integer(-(2**40)) == (f"-{2**40}LL", UNARY)
