"""What fusion makes of nineteen programs, and of six of them at one row: the table of examples/suites/fusion.md.

    python examples/benches/fusion.py [--target h100] [--markdown examples/suites/fusion.md] [--only NAME] [--torch]
    python examples/benches/fusion.py --speed  # what exploring takes: CPU seconds, memory

unfused: every operation a kernel; rules: what the rules decide in their order; explored: the best candidate, and that
with the fewest kernels. Kernels are lowered and counted; times are predicted by the model, and no program is run.
--torch counts what torch.compile makes of each, too.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import torch_kernels
from torch import nn

from dplc.codegen.target import target
from dplc.engine.capture.capture import capture
from dplc.engine.compiler import Compiler, Values
from dplc.engine.explore.explore import Exploration, ExplorationOptions, exploration, is_leaf, lowering
from dplc.engine.explore.solution import Effort
from dplc.engine.kernels.fusion_pass import FusionDecisions
from dplc.engine.kernels.kernels import Candidate
from dplc.engine.ruleset import toolchain
from dplc.ir.facts.dataflow import Dataflow
from dplc.ir.tensor import Reduce, Remap, operands, postorder

HEAD = """# Fusion of nineteen programs

Made by `{command}` on {date}. Predicted for {device} in float32. Nothing is measured.

- *unfused*: one kernel for each operator.
- *rules*: the default.
- *explored*: the fastest candidate of `dplc fuse --explore`.
- *fewest kernels*: the candidate with the fewest launches.
{torch}
| program | unfused | | | rules | | | explored | | | fewest kernels | | | made by | search |{column}
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|{line}
| | kernels | MB | us | kernels | MB | us | kernels | MB | us | kernels | MB | us | | s |{unit}
"""
TORCH = """- *torch.compile* `{version}`, {backend} backend: functions that inductor generates and calls of libraries.
"""


class Program(nn.Module):
    """Modules and what is done with them."""

    def __init__(self, compute: Callable[..., Any], **modules: nn.Module):
        super().__init__()
        self.compute = compute
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, *inputs: Any) -> Any:
        return self.compute(self, *inputs)


MOST = 16  # candidates that are looked at for the one with the fewest kernels
DEAR = 500e-6  # seconds that a launch is said to take, to find it
LONG = Effort(kernels=4000, lowerings=24)
Case = tuple[str, Program, tuple[Any, ...]]


def linear(k: int, n: int) -> nn.Linear:
    return nn.Linear(k, n, bias=False)


def gated(p: Any, x: Any) -> Any:
    h = p.norm(x)
    return p.down(F.silu(p.gate(h)) * p.up(h))


def mlp(d: int, f: int) -> dict[str, nn.Module]:
    return {"norm": nn.RMSNorm(d), "gate": linear(d, f), "up": linear(d, f), "down": linear(f, d)}


def chain(p: Any, x: Any, *ys: Any) -> Any:
    outs = []
    for norm, y in zip((p.a, p.b, p.c), ys, strict=True):
        x = x + y
        outs.append(norm(x))
    return (*outs, x)


def pool(p: Any, x: Any, w: Any) -> Any:
    return (F.softmax(x @ w, -1)[..., None] * x).sum(1)


def linears(m: int, d: int) -> Iterator[Case]:
    """Norms and the matmuls after them, at m rows."""
    x = torch.randn(m, d)
    one = {"w": linear(d, d)}
    qkv = {"q": linear(d, d), "k": linear(d, d // 4), "v": linear(d, d // 4)}
    yield "Linear(RMSNorm)", Program(lambda p, x: p.w(p.n(x)), n=nn.RMSNorm(d), **one), (x,)
    yield "Linear(LayerNorm)", Program(lambda p, x: p.w(p.n(x)), n=nn.LayerNorm(d), **one), (x,)
    yield "q, k, v of one x", Program(lambda p, x: (p.q(x), p.k(x), p.v(x)), **qkv), (x,)
    normed = Program(lambda p, x: [f(p.n(x)) for f in (p.q, p.k, p.v)], n=nn.RMSNorm(d), **qkv)
    normed.compute = lambda p, x: (lambda h: (p.q(h), p.k(h), p.v(h)))(p.n(x))
    yield "RMSNorm, then q, k, v", normed, (x,)
    yield "SwiGLU MLP", Program(lambda p, x: x + gated(p, x), **mlp(d, 11008 * d // 4096)), (x,)


def cases() -> Iterator[Case]:
    """The nineteen programs, then six at one row."""
    d = 4096
    x = torch.randn(d, d)
    yield from linears(4096, d)
    block = Program(lambda p, o, r: (lambda h: h + gated(p, h))(p.o(o) + r), o=linear(d, d), **mlp(d, 11008))
    yield "o-proj, residual, norm, MLP", block, (x, x)
    yield "LayerNorm 4096 x 4096", Program(lambda p, x: p.n(x), n=nn.LayerNorm(d)), (x,)
    wide = Program(lambda p, x: p.n(x), n=nn.LayerNorm(1 << 20))
    yield "LayerNorm 16 x 1M", wide, (torch.randn(16, 1 << 20),)
    yield "mean and variance", Program(lambda p, x: (x.mean(1), x.var(1, unbiased=False))), (x,)
    yield "softmax 4096 x 2048", Program(lambda p, x: F.softmax(x, -1)), (torch.randn(4096, 2048),)
    yield "softmax 8 x 1M", Program(lambda p, x: F.softmax(x, -1)), (torch.randn(8, 1 << 20),)
    scores = Program(lambda p, x: F.softmax(p.w(x), -1), w=linear(d, 8192))
    yield "matmul, then softmax", scores, (x,)
    q = torch.randn(1, 32, 4096, 128)
    yield "attention, 32 heads of 4096 x 128", Program(F_attention), (q, q.clone(), q.clone())
    lora = {"a": linear(d, 16), "b": linear(16, d)}
    yield "xAB, rank 16, frozen", Program(lambda p, x: p.b(p.a(x)), **lora), (x,)
    yield "xW + xAB, frozen", Program(lambda p, x: p.w(x) + p.b(p.a(x)), w=linear(d, d), **lora), (x,)
    given = (x, torch.randn(d, 16), torch.randn(16, d))
    yield "xW + xAB, A and B given", Program(lambda p, x, a, b: p.w(x) + x @ a @ b, w=linear(d, d)), given
    tall = (torch.randn(8192, 512), torch.randn(512, 8192), torch.randn(8192, 512))
    yield "xAB, rank 8192", Program(lambda p, x, a, b: (x @ a) @ b), tall
    norms = Program(chain, a=nn.RMSNorm(d), b=nn.RMSNorm(d), c=nn.RMSNorm(d))
    yield "residual chain, 3 norms", norms, (x, x.clone(), x.clone(), x.clone())
    yield "gated pooling", Program(pool), (torch.randn(64, 4096, 1024), torch.randn(1024))
    for name, program, inputs in linears(1, d):
        yield f"{name}, one row", program, inputs
    yield "attention, 32 heads of 4096 x 128, one row", Program(F_attention), (q[:, :, :1], q.clone(), q.clone())


def F_attention(p: Any, q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v)


def figures(candidate: Candidate) -> str:
    if candidate.problem:
        return "- | - | -"
    return three(candidate.kernels, candidate.bytes, candidate.predicted_us)


def three(kernels: int, size: float, microseconds: float) -> str:
    return f"{kernels} | {size / 1e6:,.0f} | {microseconds:,.1f}"


def fewest(values: Values, than: int) -> str:
    """The figures of a candidate of fewer kernels than so many, if there is one: found as if launches were dear."""
    costly = replace(values.compiler.target, launch_seconds=DEAR)
    dear = exploration(
        replace(values, compiler=Compiler(values.compiler.tools, costly)), ExplorationOptions(top=MOST, effort=LONG)
    ).candidates()
    usual = exploration(values, ExplorationOptions(top=MOST)).candidates()
    lowered = lowering(values.compiler)
    found = []
    for candidate in (c for c in (*usual, *dear) if not c.problem):
        told = [lowered.kernel(kernel) for kernel in candidate.plan().kernels]
        found.append((sum(t.kernels for t in told), sum(t.seconds for t in told) * 1e6, sum(t.bytes for t in told)))
    kernels, microseconds, size = min(found)
    return three(kernels, size, microseconds) if kernels < than else "| |"


def unfused(made: Exploration) -> Candidate:
    """Every operation a kernel of its own, but for products that are only summed."""
    flow = Dataflow(out.value for out in made.graph.outs)
    stored = {term for term in flow.order if not is_leaf(term) and term.__class__ is not Remap}
    for term in tuple(stored):
        readers = flow.readers[term]
        wider = any(flow.mask[term] & ~flow.mask[x] for x in operands(term))
        if readers and wider and all(reader.__class__ is Reduce for reader in readers):
            stored.discard(term)
    stored |= {out.value for out in made.graph.outs}
    return made._priced("unfused", made.graph, FusionDecisions(flow, stored, []), (), made.origins)


def row(case: Case, device: str, torch_too: bool) -> str:
    """One line of the table."""
    name, program, inputs = case
    tools, machine = toolchain(), target(device)
    captured = capture(program, inputs)
    values = Compiler(tools, machine).values(captured)
    start = time.process_time()
    made = exploration(values)
    best = made.candidates()[0]
    taken = time.process_time() - start
    few = fewest(values, best.kernels)
    rules = made.by_rules()
    by = ", ".join(f"`{rule}`" for rule in best.rules) or ("the rules" if best.label == "rules" else "other cuts")
    columns = [name, figures(unfused(made)), figures(rules), figures(best), few, by, f"{taken:.1f}"]
    if torch_too:
        columns.append("{} + {}".format(*torch_kernels.kernels(program, inputs)))
    return f"| {' | '.join(columns)} |"


def head(device: str, markdown: Path, torch_too: bool) -> str:
    """What stands above the table."""
    command = f"python examples/benches/fusion.py --target {device} --markdown {markdown}{' --torch' * torch_too}"
    told = TORCH.format(version=torch.__version__, backend=torch_kernels.backend())
    return HEAD.format(
        command=command, date=time.strftime("%Y-%m-%d"), device=target(device).name, torch=told if torch_too else "",
        column=" torch.compile |" * torch_too, line="---|" * torch_too, unit=" |" * torch_too,
    )  # fmt: skip


class Block(nn.Module):
    """A residual block; no two of `blocks` are alike where they are to differ."""

    def __init__(
        self, d: int, f: int, norm: Any = nn.RMSNorm, act: Any = F.silu, gated: bool = True, bias: bool = False
    ):
        super().__init__()
        self.norm, self.act, self.gated = norm(d), act, gated
        self.up, self.down = nn.Linear(d, f, bias=bias), nn.Linear(f, d, bias=bias)
        self.gate = nn.Linear(d, f, bias=bias) if gated else None

    def forward(self, x: Any) -> Any:
        h = self.norm(x)
        return x + self.down(self.act(self.up(h)) if self.gate is None else self.act(self.gate(h)) * self.up(h))


ACTS = (F.silu, F.gelu, F.relu, torch.tanh, torch.sigmoid, F.softplus, F.elu, F.hardswish, F.mish)
KINDS = [*itertools.product((nn.RMSNorm, nn.LayerNorm), ACTS, (True, False), (True, False))]
SPEEDS: dict[str, Callable[[], list[nn.Module]]] = {
    "one region": lambda: [Block(4096, 11008, nn.LayerNorm, F.silu, bias=True)],
    "repeated blocks": lambda: [Block(4096, 11008) for _ in range(53)],
    "blocks of different widths": lambda: [Block(4096, 11008 + 64 * n) for n in range(63)],
    "blocks of different kinds and widths": lambda: [
        Block(4096, 8192 + 64 * n, *kind) for n, kind in enumerate(KINDS[:52])
    ],
}


def speed(name: str, device: str) -> str:
    """One line of what exploring takes: in a process of its own, after capture, with all that it imports."""
    tools, machine = toolchain(), target(device)
    with torch.device("meta"):
        captured = capture(nn.Sequential(*SPEEDS[name]()), (torch.randn(4096, 4096),))
    values = Compiler(tools, machine).values(captured)
    start = time.process_time()
    made = exploration(values)
    made.candidates()
    taken = time.process_time() - start
    ops = sum(not is_leaf(term) for term in postorder(out.value for out in made.graph.outs))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return f"| {name} | {ops:,} | {len(made.problems)} | {len(made.solved)} | {taken:.2f} | {peak:.0f} |"


def speeds(device: str) -> None:
    """Every line by a process of its own, since peaks of memory add up."""
    print("| program | operations | regions | solved | CPU s | peak RSS MB |\n|---|---|---|---|---|---|", flush=True)
    for name in SPEEDS:
        subprocess.run([sys.executable, __file__, "--target", device, "--speed", name], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="h100")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--only")
    parser.add_argument("--torch", action="store_true", help="count the kernels of torch.compile, too")
    parser.add_argument("--speed", nargs="?", const="", choices=("", *SPEEDS), help="how long exploring takes")
    given = parser.parse_args()
    if given.speed is not None:
        print(speed(given.speed, given.target)) if given.speed else speeds(given.target)
        return
    lines = []
    with torch.device("meta"):
        chosen = [case for case in cases() if given.only is None or given.only in case[0]]
    for case in chosen:
        lines.append(row(case, given.target, given.torch))
        print(lines[-1], flush=True)
    if given.markdown:
        given.markdown.write_text(head(given.target, given.markdown, given.torch) + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
