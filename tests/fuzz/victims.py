"""What is fuzzed: every kind of file that a user may be given by somebody else."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import mutators as m
import torch
from dumps import Dumps

from dplc.codegen.cuda import print_cuda
from dplc.codegen.target import DEVICES, target
from dplc.engine.bench.cases import read_suite
from dplc.engine.capture.capture import capture
from dplc.engine.capture.dynamic_shapes import Dim
from dplc.engine.cli import programs
from dplc.engine.cli.options import Flags, Subject
from dplc.engine.compiler import Compiler, Stopwatch, compiler_with
from dplc.engine.kernels.examples import run_examples
from dplc.engine.language.check import check, load_facts
from dplc.engine.language.format import format_file
from dplc.engine.language.pipeline import pipelines
from dplc.engine.language.rule import BUILT_IN, FURTHER, RuleSet, read_rules
from dplc.engine.models import artefact, sources
from dplc.engine.models.artefact import read_kernels
from dplc.engine.models.benching import of_artefact
from dplc.engine.models.compiling import ModelShape, compile_model
from dplc.engine.models.plan_file import read_file, seal
from dplc.engine.models.sources import ModelSource
from dplc.engine.rewrite.trace import Trace
from dplc.engine.ruleset import toolchain
from dplc.engine.schedule.scheduling import StoredSchedules
from dplc.engine.schedule.space import Space
from dplc.engine.store.store import SqliteStore, Tuned, key_of
from dplc.ir.diagnostic import DplcError, Source as Text
from dplc.ir.text.parse import parse
from dplc.ir.text.programs import read_program
from dplc.ir.verify.kernel import problems
from dplc.ir.verify.sorts import sort_problems

TINY: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "vocab_size": 10, "max_position_embeddings": 8,
}  # fmt: skip
SMALL = 7000  # characters of a rule file that is worth reading again and again
CLAUSES = re.compile(r"^ *(split|join|guards|number|fact) |\bwithin\(|\bfold \w+ over", re.MULTILINE)


def _softmax(x: Any, w: Any) -> Any:
    return torch.softmax(x @ w, -1)


def _pieces(x: Any, w: Any) -> Any:
    return torch.cat([x[1:], torch.relu(x)], 0).sum(1), w.argmax(0)


class Rules:
    """Rule files, as `dplc rules test` reads them: static checks, format, pipelines, and their own examples."""

    name = "rules"

    def __init__(self, folder: Path, evil: tuple[str, ...]) -> None:
        load_facts()
        self.evil = evil
        paths = sorted(path for path in BUILT_IN.rglob("*.rw") if not path.name.endswith(FURTHER))
        self.pairs = [
            pair for path in paths if len("".join(pair := _with_examples(path))) < 2 * SMALL and len(pair[0]) < SMALL
        ]
        self.texts = tuple(text for pair in self.pairs for text in pair if text)
        self.written_out = [pair for pair in self.pairs if CLAUSES.search(pair[0])]
        self.policy = read_rules(Text("rules/policy.rw", (BUILT_IN / "policy.rw").read_text()))

    def attack(self, dice: random.Random) -> None:
        """A file or the examples beside it, with the numbers and facts that it reads; every second has a clause that is written out."""
        text, examples = dice.choice(self.written_out if dice.random() < 0.5 else self.pairs)
        if examples and dice.random() < 0.25:
            examples = m.changed_text(dice, examples, self.texts, self.evil)
        else:
            text = m.changed_text(dice, text, self.texts, self.evil)
        further = [Text("rules/tile/mutant.examples.rw", examples)] if examples else []
        rules = RuleSet([self.policy, read_rules(Text("rules/tile/mutant.rw", text), further=further)])
        found = check(rules)
        for finding in found:
            assert finding.span is not None and finding.render()
        format_file(parse(Text("m", text)))
        pipelines(rules)
        if not any(getattr(finding, "severity", "error") == "error" for finding in found):
            for failure in run_examples(_engine(rules))[1]:
                failure.render()


def _with_examples(path: Path) -> tuple[str, str]:
    beside = path.with_name(path.stem + FURTHER)
    return path.read_text(), beside.read_text() if beside.exists() else ""


class Compiles:
    """Rule files laid over the library, and programs compiled with them: `dplc compile --rules FILE`."""

    name = "compiles"

    def __init__(self, folder: Path, evil: tuple[str, ...]) -> None:
        folder.mkdir()
        self.evil, self.path = evil, folder / "mine.rw"
        texts = [path.read_text() for level in ("tile", "tensor", "torch") for path in (BUILT_IN / level).rglob("*.rw")]
        overriding = (
            re.sub(r"^rule ", "override rule ", text, flags=re.MULTILINE) for text in texts if len(text) < SMALL
        )
        self.texts = tuple(sorted(overriding))
        self.captures = [
            capture(function, [torch.randn(6, 12), torch.randn(12, 5)]) for function in (_softmax, _pieces)
        ]

    def attack(self, dice: random.Random) -> None:
        self.path.write_text(self.drawn(dice))
        tools = toolchain([str(self.path)])
        for captured in self.captures:
            Compiler(tools, target("h200")).compile(captured)

    def drawn(self, dice: random.Random) -> str:
        return m.changed_text(dice, dice.choice(self.texts), self.texts, self.evil)


class Policies(Compiles):
    """Numbers and facts that are overridden, or new ones beside ours, and programs compiled with them."""

    name = "policies"

    def __init__(self, folder: Path, evil: tuple[str, ...]) -> None:
        super().__init__(folder, evil)
        lines = (BUILT_IN / "policy.rw").read_text().splitlines()
        self.lines = [line for line in lines if line.startswith(("number", "fact"))]
        self.texts = tuple(self.lines)

    def drawn(self, dice: random.Random) -> str:
        lines = dice.sample(self.lines, dice.choice((1, 1, 2, 5)))
        text = "\n".join("override " * (dice.random() < 0.8) + line for line in lines) + "\n"
        return m.changed_text(dice, text, self.texts, self.evil)


def _engine(rules: RuleSet) -> Any:
    from dplc.engine.rewrite.statements.driver import Engine

    return Engine(rules, check=True)


class Programs:
    """Dumps of every level, as `dplc rewrite FILE.ir` reads and rewrites them."""

    name = "programs"

    def __init__(self, folder: Path, evil: tuple[str, ...]) -> None:
        folder.mkdir()
        self.evil, self.path = evil, folder / "mutant.ir"
        self.tools, self.machine = toolchain(), target("sm_80")
        made = []
        for function in (_softmax, _pieces):
            captured = capture(function, [torch.randn(6, 12), torch.randn(12, 5)])
            compilation = Compiler(self.tools, self.machine).compile(captured)
            made += [compilation.ir(stage) for stage in ("torch", "tensor", "loop", "tile", "kernel")]
        self.texts = tuple(made)

    def attack(self, dice: random.Random) -> None:
        text = m.changed_text(dice, dice.choice(self.texts), self.texts, self.evil)
        self.path.write_text(text)
        compiler = Compiler(self.tools, self.machine, Trace() if dice.random() < 0.1 else None)
        level, units = programs.rewrite_file(Flags(Subject("dump", (str(self.path),))), compiler, [])
        programs.print_program(units, level)


PRECIOUS = "a file that no artefact may touch"


class Artefacts:
    """Folders of `dplc compile MODEL -o`, damaged as they are and by one who makes digests and CUDA fit."""

    name = "artefacts"
    shape, rows = ModelShape(length=3), ()
    likely: tuple[str, ...] = ("plan.json",) * 8 + ("ir/kernel.ir",) * 4

    def __init__(self, folder: Path, evil: tuple[str, ...]) -> None:
        self.evil, self.whole, self.made = evil, folder / "whole", folder / "made"
        self.elsewhere = folder / "elsewhere"
        folder.mkdir(parents=True, exist_ok=True)
        self.elsewhere.write_text(PRECIOUS)
        options = compiler_with(target("sm_80"))
        compiled = compile_model(ModelSource("tiny", TINY), self.shape, options, self.rows)
        artefact.save(compiled, self.whole, cubins=False)
        (self.whole / "cubin").mkdir()
        for kernel in compiled.program.distinct_kernels()[:2]:
            (self.whole / "cubin" / f"{kernel.name}.cubin").write_bytes(b"\x7fELF" + os.urandom(64))
        seal(self.whole, "0")
        self.names = sorted(str(path.relative_to(self.whole)) for path in self.whole.rglob("*") if path.is_file())
        self.texts = tuple((self.whole / name).read_text() for name in self.names if name.endswith((".ir", ".cu")))
        shutil.copytree(self.whole, self.made)
        # what is not changed is read and printed once: these are functions of their arguments
        whole = functools.lru_cache(64)(lambda text, name: read_program(text, name, None))
        artefact.read_program = lambda text, name, sizes: (  # type: ignore[assignment]
            whole(text, name) if sizes is None else read_program(text, name, sizes)
        )
        artefact.print_cuda = functools.lru_cache(256)(print_cuda)
        artefact.problems = functools.lru_cache(256)(problems)
        artefact.sort_problems = functools.lru_cache(256)(sort_problems)

    def attack(self, dice: random.Random) -> None:
        name = dice.choice((*self.names, *self.likely, *["dplc-artefact.json"] * 3))
        try:
            self._damage(dice, self.made / name)
            if dice.random() < 0.75:
                if dice.random() < 0.3:
                    self._fit(self.made / "/".join(name.split("/")[: 2 * name.startswith("rows/")]))
                if name != "dplc-artefact.json":
                    seal(self.made, "0")
            found = artefact.load(self.made)
            self.use(found)
        finally:
            self._restore(name)
            assert self.elsewhere.read_text() == PRECIOUS, "something wrote through a link"

    def use(self, found: artefact.Artefact) -> None:
        """What commands do with an artefact that was read."""
        for stage in ("torch", "kernel", "cuda"):
            found.ir(stage)
        assert found.sizes or of_artefact(found).units
        found.torch_graph(found.plan.hints)
        sources.make(found.weights)

    def _damage(self, dice: random.Random, path: Path) -> None:
        if dice.random() < 0.05:
            m.odd_file(dice, path, self.elsewhere)
        elif path.suffix == ".json":
            path.write_bytes(m.json_bytes(dice, m.changed_json(dice, json.loads(path.read_bytes()), self.evil)))
        elif path.suffix in (".ir", ".cu") and dice.random() < 0.9:
            path.write_text(m.changed_text(dice, path.read_text(), self.texts, self.evil))
        else:
            path.write_bytes(m.flipped(dice, path.read_bytes()))

    def _fit(self, at: Path) -> None:
        """CUDA and plan as the changed Kernel IR would have them, where it can be printed. at: the folder of the plan."""
        try:
            plan = json.loads(read_file(at / "plan.json"))
            for kernel in read_kernels(at / "ir" / "kernel.ir").values():
                printed = artefact.print_cuda(kernel)
                m.replaced(at / "cuda" / f"{printed.name}.cu", printed.text.encode())
                plan["kernels"][printed.name] = printed.comment
            m.replaced(at / "plan.json", json.dumps(plan).encode())
        except Exception:
            return  # it will be refused as it is

    def _restore(self, name: str) -> None:
        changed = {n for n in self.names if "cuda/" in n or n.endswith("plan.json")}
        for one in {name, "dplc-artefact.json"} | changed:
            path = self.made / one
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif os.path.lexists(path):
                path.unlink()
            shutil.copyfile(self.whole / one, path)


class SizedArtefacts(Artefacts):
    """The same of a model with sizes: a table of rows, extents that are texts, a plan for each row."""

    name = "sized artefacts"
    shape = ModelShape(length=Dim("s", 1, 8, hint=4))
    rows = (Dim("s", 1, 1), Dim("s", 4, 8, multiple=4))
    likely = ("plan.json",) * 20 + ("rows/0/plan.json", "rows/1/plan.json") * 6 + ("rows/1/ir/kernel.ir",) * 4

    def use(self, found: artefact.Artefact) -> None:
        super().use(found)
        for length in (1, 4, 7):
            if found.sizes and all(size.low <= length <= size.high for size in found.sizes.values()):
                found.at(dict.fromkeys(found.sizes, length))


class Stores:
    """Tuning stores, as a compile asks them; a damaged one is worth the default order, never an error."""

    name = "stores"

    def __init__(self, folder: Path, evil: tuple[str, ...]) -> None:
        folder.mkdir()
        self.evil, self.whole, self.path = evil, folder / "whole.sqlite", folder / "made.sqlite"
        self.tools, self.machine = toolchain(), target("h200")
        captured = capture(_softmax, [torch.randn(6, 12), torch.randn(12, 5)])
        self.captured, self.plan = captured, Compiler(self.tools, self.machine).compile(captured).plan
        with SqliteStore(self.whole, self.tools.rules) as store:
            for kernel in self.plan.kernels:
                candidate = Space(self.tools, (kernel,), self.machine).default()
                key = key_of(kernel, self.machine, self.tools.rules)
                store.put(key, Tuned(candidate.schedule, 1e-5, "predicted", 2e-5, "hill", 0, 9, "emulator, whole"))
        with sqlite3.connect(self.whole) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            db.execute("PRAGMA journal_mode = DELETE")
            self.columns = [row[1] for row in db.execute("PRAGMA table_info(entries)")]

    def attack(self, dice: random.Random) -> None:
        for path in self.path.parent.glob("made.sqlite*"):
            path.unlink()
        shutil.copyfile(self.whole, self.path)
        if dice.random() < 0.15:
            self.path.write_bytes(m.flipped(dice, self.path.read_bytes()))
        elif dice.random() < 0.1:
            self.path.write_bytes(self.path.read_bytes()[: dice.randrange(self.path.stat().st_size)])
        else:
            self._row(dice)
        store = SqliteStore(self.path, self.tools.rules, lambda line: None, patience=0.1)
        try:
            schedules = StoredSchedules(store)
            compiler = Compiler(self.tools, self.machine, schedules=schedules)
            compiler.compile_plan(self.captured, None, self.plan, Stopwatch())
        finally:
            store.close()

    def _row(self, dice: random.Random) -> None:
        with sqlite3.connect(self.path) as db:
            number = dice.choice([row[0] for row in db.execute("SELECT id FROM entries")])
            name = dice.choice((*self.columns[1:], *["entry"] * 12))
            (value,) = db.execute(f"SELECT {name} FROM entries WHERE id = ?", (number,)).fetchone()
            if isinstance(value, str) and value[:1] in "[{":
                decoded = json.loads(value)
                if name == "entry" and dice.random() < 0.8:  # the schedule: fewer decisions, or altered ones
                    tuned = decoded["tuned"]
                    fewer = tuned["schedule"][: dice.randrange(len(tuned["schedule"]) + 1)]
                    altered = m.changed_json(dice, tuned["schedule"], self.evil)
                    decoded = {**decoded, "tuned": {**tuned, "schedule": dice.choice((fewer, altered, altered))}}
                else:
                    decoded = m.changed_json(dice, decoded, self.evil)
                changed = m.json_bytes(dice, decoded)
                value = changed.decode(errors="replace") if dice.random() < 0.9 else changed
            else:
                value = dice.choice((None, 0, -1, 1.5, 2**62, "x", "", b"\xff", float("inf"), *self.evil))
            with contextlib.suppress(sqlite3.Error):  # the table's own conditions
                db.execute(f"UPDATE entries SET {name} = ? WHERE id = ?", (value, number))


class Files:
    """The small ones: configurations of models, suites, device files, indices of weights."""

    name = "files"

    def __init__(self, folder: Path, evil: tuple[str, ...]) -> None:
        folder.mkdir()
        self.evil, self.folder = evil, folder
        suite = json.loads((Path(__file__).parents[2] / "examples/suites/kernels_84.json").read_text())
        suite["cases"] = suite["cases"][:5]
        self.suite, self.index = suite, {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
        self.devices = tuple(path.read_text() for path in sorted(DEVICES.glob("*.toml")))
        from safetensors.torch import save_file

        for name in ("one", "two"):
            save_file({name[0]: torch.zeros(2, 3), "b": torch.zeros(4)}, folder / f"{name}.safetensors")
        self.tensors = (folder / "one.safetensors").read_bytes()

    def attack(self, dice: random.Random) -> None:
        dice.choice((self._config, self._suite, self._device, self._index, self._tensors))(dice)

    def _config(self, dice: random.Random) -> None:
        path = self.folder / "config.json"
        path.write_bytes(m.json_bytes(dice, m.changed_json(dice, TINY, self.evil)))
        sources.is_model(str(path))
        sources.find(str(path))

    def _suite(self, dice: random.Random) -> None:
        path = self.folder / "suite.json"
        path.write_bytes(m.json_bytes(dice, m.changed_json(dice, self.suite, self.evil)))
        read_suite(path)

    def _device(self, dice: random.Random) -> None:
        path = self.folder / "device.toml"
        path.write_text(m.changed_text(dice, dice.choice(self.devices), self.devices, self.evil), errors="replace")
        target(str(path))

    def _index(self, dice: random.Random) -> None:
        path = self.folder / "model.safetensors.index.json"
        path.write_bytes(m.json_bytes(dice, m.changed_json(dice, self.index, self.evil)))
        self._weights(self.folder)

    def _tensors(self, dice: random.Random) -> None:
        path = self.folder / "damaged" / "m.safetensors"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(m.flipped(dice, self.tensors))
        self._weights(path.parent)

    def _weights(self, folder: Path) -> None:
        sources.load(
            folder,
            {"x": sources.WeightRequest(("o", "a"), "f32", (2, 3)), "y": sources.WeightRequest(("b",), "f16", (4,))},
        )


KINDS = (Rules, Compiles, Policies, Programs, Dumps, Artefacts, SizedArtefacts, Stores, Files)
VICTIMS: dict[str, Any] = {kind.name: kind for kind in KINDS}
__all__ = ["VICTIMS", "DplcError"]
