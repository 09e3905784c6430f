"""The single figures of pages, by name: counted in the tree, predicted by the model, or read in the records of benches.

    python examples/benches/figures.py [NAME]...

None is measured here: what was measured stands in the record or the table that its own bench has written.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rule_lines import FOLDER, SIXTEEN, declared_in, of_transform

from dplc.codegen.target import target
from dplc.engine.capture.text import capture_text
from dplc.engine.compiler import Compilation, CompileOptions, compile_captured
from dplc.engine.cost.instruction_counts import buffer_bytes, instruction_counts
from dplc.engine.cost.predict import predict
from dplc.engine.language.rule import RuleSet
from dplc.engine.ruleset import toolchain

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "examples" / "suites" / "results"


@functools.cache
def text(name: str) -> str:
    """A figure as a page says it. Raises KeyError with what there is."""
    if name not in KNOWN:
        raise KeyError(f"there is no figure `{name}`: there are {', '.join(sorted(KNOWN))}")
    return KNOWN[name]()


# ---- counted


def rules() -> RuleSet:
    return toolchain().rules


def torch_ops() -> int:
    """Ops of torch that a rule begins with."""
    return len({getattr(rule.match[-1].value, "fn", None) for rule in rules().at("torch")})  # type: ignore[attr-defined]


def lines_of(folder: str, pattern: str = "*.py") -> int:
    return sum(len(path.read_text().splitlines()) for path in (ROOT / folder).rglob(pattern))


def thousands(count: int) -> str:
    return f"{count / 1000:.1f}k"


@functools.cache
def tile_rules() -> tuple[tuple[str, int], ...]:
    """Of each rule of rules/tile, and of what they share: its name and its lines without examples."""
    files = sorted(path for path in FOLDER.rglob("*.rw") if not path.name.endswith(".examples.rw"))
    return tuple((one.name, one.lines) for path in files for one in declared_in(path))


def twice() -> int:
    """Names of classes that are defined more than once."""
    names: Counter[str] = Counter()
    for folder in ("ir", "codegen", "engine"):
        for path in (ROOT / folder).rglob("*.py"):
            names.update(node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef))
    return sum(count > 1 for count in names.values())


def readers() -> int:
    """Files of engine that read rules as syntax."""
    reads = re.compile(r"^from \.+ir\.text import .*\bsyntax\b|^from \.+ir\.text\.syntax import", re.MULTILINE)
    return sum(bool(reads.search(path.read_text())) for path in (ROOT / "engine").rglob("*.py"))


# ---- predicted


@functools.cache
def compiled(program: str) -> Compilation:
    """A `-c` text in the default order for an H200."""
    return compile_captured(capture_text(program), CompileOptions(toolchain(), target("h200")))


def microseconds(program: str) -> float:
    """What the model says of all its launches."""
    made = compiled(program)
    each = [predict(instruction_counts(kernel), made.target).seconds * 1e6 for kernel in made.kernels]
    return sum(each[index] for index in made.launched)


def megabytes(program: str) -> float:
    """What its kernels read and write, each buffer once."""
    made = compiled(program)
    return sum(buffer_bytes(made.kernels[index]) for index in made.launched) / 1e6


def attention(queries: str, keys: str = "", causal: bool = False) -> str:
    """The text of an attention, by the shapes of its queries and keys."""
    shapes = ", ".join(f"torch.randn({shape})" for shape in (queries, keys or queries, keys or queries))
    return f"F.scaled_dot_product_attention({shapes}{', is_causal=True' * causal})"


CAUSAL = attention("1, 32, 1024, 64", causal=True)
ONE_QUERY = attention("1, 32, 1, 128", "1, 32, 4096, 128")
STEPS = """\
a,b,c=torch.rand(1,1536,32,16),torch.randn(1,1536,32,16),torch.randn(1,32,16); h=torch.zeros(1,1536,16); o=[]
for t in range(32): h=a[:,:,t]*h+b[:,:,t]; o.append((h@c[:,t,:].unsqueeze(-1))[:,:,0])
torch.stack(o,-1)"""
CUMSUM, CUMSUM_OF_ROWS = "torch.cumsum(torch.randn(1000000), 0)", "torch.cumsum(torch.randn(64, 4096), 1)"
GROUPED_QUERY = (
    "F.scaled_dot_product_attention(torch.randn(1,32,1,128),torch.randn(1,8,4096,128),torch.randn(1,8,4096,128),"
    "enable_gqa=True)"
)
CROSS_ENTROPY_HALVES = "F.cross_entropy(torch.randn(4096,32000,dtype=torch.bfloat16),torch.randint(0,32000,(4096,)))"
CROSS_ENTROPY = "F.cross_entropy(torch.randn(4096, 32000), torch.randint(0, 32000, (4096,)))"
SUMS_OF_PRODUCT = "torch.relu(torch.randn(512, 4096) @ torch.randn(4096, 512)).sum(-1)"
LINEAR = "nn.Linear(4096, 4096)(torch.randn(2, 2048, 4096))"


# ---- read in what benches have written


@functools.cache
def record(name: str) -> Any:
    """A record of results/, `predicted/tuned`."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def cell(page: str, row: str, column: int) -> str:
    """A cell of a table of a page, by how its row begins."""
    for line in (ROOT / page).read_text().splitlines():
        cells = [part.strip() for part in line.strip("|").split("|")]
        if line.startswith("|") and cells[0] == row:
            return cells[column]
    raise KeyError(f"{page} has no row `{row}`")


def searches() -> list[float]:
    """Programs a CPU second of each search, by the model alone."""
    page = (RESULTS / "predicted" / "search_rate.md").read_text().split("```")[1]
    return [float(found) for found in re.findall(r"([\d.]+) programs a CPU second", page)]


def in_search_rate(pattern: str) -> str:
    found = re.findall(pattern, (RESULTS / "predicted" / "search_rate.md").read_text())
    return str(found[-1])


def warm(row: str) -> str:
    return cell("examples/README.md", row, 1)


def emulated(row: str) -> str:
    """A rate of the emulator, the best one."""
    return cell("examples/README.md", row, 1)


def model(row: str, column: int) -> str:
    return cell("examples/models/README.md", row, column)


def seconds_of(steps: str) -> float:
    """The sum of a cell's seconds of CPU; those in parentheses are part of others."""
    return sum(float(step) for step in re.sub(r"\(.*?\)|;.*", "", steps).split(","))


LAYER = "examples/models/README.md"
EXPLORING = "examples/suites/exploring.md"
KNOWN: dict[str, Callable[[], str]] = {
    "torch_ops": lambda: str(torch_ops()),
    "torch_rules": lambda: str(len(rules().at("torch"))),
    "rules": lambda: str(len(rules().rules)),
    "classes_named_twice": lambda: str(twice()),
    "readers_of_syntax": lambda: str(readers()),
    "engine_lines": lambda: f"{lines_of('engine') / 1000:.0f},000",
    "tile_lines": lambda: thousands(lines_of("rules/tile", "*.rw")),
    "tile_lines_alone": lambda: thousands(lines_of("rules/tile", "*.rw") - lines_of("rules/tile", "*.examples.rw")),
    "tile_rules_over_40": lambda: str(sum(lines > 40 for _, lines in tile_rules())),
    "longest_tile_rule": lambda: "`{}` {}".format(*max(tile_rules(), key=lambda rule: rule[1])),
    "sixteen_over_25": lambda: str(sum(rule.lines > 25 for entry in SIXTEEN for rule in of_transform(entry)[0])),
    "causal_attention_us": lambda: f"{microseconds(CAUSAL):.0f}",
    "causal_attention_mb": lambda: f"{megabytes(CAUSAL):.1f}",
    "one_query_us": lambda: f"{microseconds(ONE_QUERY):.1f}",
    "grouped_query_us": lambda: f"{microseconds(GROUPED_QUERY):.1f}",
    "cross_entropy_halves_us": lambda: f"{microseconds(CROSS_ENTROPY_HALVES):.0f}",
    "steps_us": lambda: f"{microseconds(STEPS):.1f}",
    "cumsum_us": lambda: f"{microseconds(CUMSUM):.1f}",
    "cumsum_of_rows_us": lambda: f"{microseconds(CUMSUM_OF_ROWS):.1f}",
    "cross_entropy_us": lambda: f"{microseconds(CROSS_ENTROPY):.0f}",
    "sums_of_product_us": lambda: f"{microseconds(SUMS_OF_PRODUCT):.0f}",
    "linear_ms": lambda: f"{microseconds(LINEAR) / 1e3:.2f}",
    "suite_seconds": lambda: f"{record('predicted/kernels_84')['totals']['compile_cpu_seconds']:.2f}",
    "suite_spilled": lambda: str(record("predicted/kernels_84")["totals"]["spill_bytes"]),
    "suite_wrong": lambda: str(record("predicted/kernels_84")["totals"]["wrong"]),
    "suite_geomean_us": lambda: f"{record('predicted/kernels_84')['totals']['predicted_geomean_us']:.1f}",
    "tuned_geomean": lambda: f"{record('predicted/tuned')['geomean']:.2f}",
    "tuned_least": lambda: f"{record('predicted/tuned')['least']:.2f}",
    "schedules": lambda: f"{record('schedules/kernels_84')['points']:,}",
    "schedules_wrong": lambda: str(record("schedules/kernels_84")["findings"]),
    "schedule_seconds": lambda: f"{record('schedules/kernels_84')['processor_seconds']['all']['median']:.2f}",
    "explore_one": lambda: cell(EXPLORING, "one region", 4),
    "explore_repeated": lambda: cell(EXPLORING, "repeated blocks", 4),
    "explore_different": lambda: cell(EXPLORING, "blocks of different widths", 4),
    "search_slowest": lambda: f"{min(searches()):.0f}",
    "search_fastest": lambda: f"{max(searches()):.0f}",
    "search_assembled": lambda: in_search_rate(r"hill .* ([\d.]+) a second by the clock"),
    "search_memory": lambda: in_search_rate(r"10000 tries: (\d+) MB"),
    "warm_rmsnorm": lambda: warm("RMSNorm"),
    "warm_matmul": lambda: warm("relu(matmul(x + bias, w))"),
    "warm_linear": lambda: warm("Linear"),
    "warm_attention": lambda: warm("attention"),
    "emulated_threads": lambda: emulated("RMSNorm, fast"),
    "emulated_flops": lambda: emulated("matmul, fast"),
    "qwen_seconds": lambda: f"{seconds_of(model('Qwen2.5-7B', 3)):.1f}",
    "qwen_rss": lambda: model("Qwen2.5-7B", 6),
    "qwen_launches": lambda: model("Qwen2.5-7B", 1).split()[0],
    "qwen_kernels": lambda: model("Qwen2.5-7B", 2).split(",")[0],
    "block_launches": lambda: model("TinyLlama block", 1).split()[0],
    "tinyllama_layer_512": lambda: cell(LAYER, "TinyLlama, us", 4),
    "qwen_layer_512": lambda: cell(LAYER, "Qwen2.5-7B, us", 4),
}


def main() -> None:
    """Print figures."""
    for name in sys.argv[1:] or KNOWN:
        print(f"{name} {text(name)}")


if __name__ == "__main__":
    main()
