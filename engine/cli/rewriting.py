"""`dplc rewrite`: apply rules to an expression after its capture, or to a dump at its level.

For an expression, `--only RULE` shows the effect of the rule at its position in the pipeline. The preceding passes run
as in a compile, only this rule is traced, and dplc prints the program after it. For a file, no other rule fires.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...codegen.materialise import materialise
from ...ir.diagnostic import DplcError, UsageError, did_you_mean
from ...ir.kernel import Launch
from ...ir.program import Kernel
from ...ir.text.programs import print_program, read_program
from ...ir.tile import Tile
from ...ir.torch import TorchGraph
from ..capture.capture import check_types
from ..compiler import Compiler
from ..kernels.index_maps import push_renamings
from ..kernels.tracing import trace_lowering
from ..language.pipeline import PassStep
from ..language.rule import Rule, pass_name
from ..rewrite.statements.driver import Shaped, names_of
from ..rewrite.statements.driver import only as only_steps
from ..rewrite.terms.rewriter import TermRules, mentions_mat
from ..rewrite.torch_rules.lower import TorchRule, lower_graph
from ..rewrite.trace import PREFIXES, Event, Firing, Trace, lines_of
from ..ruleset import Toolchain
from .options import Flags
from .output import print_json, print_note, print_text, progress
from .programs import captured_text, compiler_for, read_text

PIPELINES = ("torch", "tensor", "fusion", "loop", "tile", "kernel")
Program = tuple[str, tuple[Any, ...]]  # its level, its graphs or kernels


def rewrite_program(flags: Flags) -> None:
    """Run `dplc rewrite`. Raises UsageError for an unknown name."""
    compiler = compiler_for(flags)
    tools = compiler.tools
    only, about = (list(map(tools.rules.plain, names or ())) for names in (flags.only_rules, flags.about))
    shown = about or only
    for name in about:
        if not rules_named(tools, name):
            pipeline_of(tools, name, "--about")
    trace = Trace(asked=frozenset(shown)) if flags.trace else None
    rewrite = rewrite_file if flags.subject.is_dump else rewrite_expression
    level, units = rewrite(flags, replace(compiler, trace=trace), only)
    if trace is None:
        print_text(print_program(units, level), "ir")
        return
    events = [event for event in trace.events if not shown or concerns(event, shown)]
    print_text("\n".join(lines_of(events, 2)), "diff")
    if not events:
        told = [_unmatched(tools, name, trace) for name in shown]
        print_note("note: " + ("\n".join(told) or "no rule fired, and none was refused"))


def why_rule(flags: Flags) -> None:
    """Run `dplc rules why`: print where a rule fires with the values it compared, else why it does not fire."""
    compiler = compiler_for(flags)
    tools = compiler.tools
    name = tools.rules.plain(flags.name)
    trace = Trace(asked=frozenset((name,)))
    if not flags.subject.is_dump or not rules_named(tools, name):
        pipeline_of(tools, name, "rules why")
    (rewrite_file if flags.subject.is_dump else rewrite_expression)(flags, replace(compiler, trace=trace), [name])
    events = [event for event in trace.events if concerns(event, [name])]
    if flags.as_json:
        held = [{"held": list(event.held())} if isinstance(event, Firing) else {} for event in events]
        print_json([event.record() | more for event, more in zip(events, held, strict=True)])
    elif not events:
        print_note(f"note: {_unmatched(tools, name, trace)}")
    else:
        print_text("\n".join(line for event in events for line in lines_of((event,), 2, diffs=False)), "diff")


def _unmatched(tools: Toolchain, name: str, trace: Trace) -> str:
    """Explain why a trace has no event of a rule. For a rule on torch, list its root op and the ops of the program."""
    rule = tools.rules.rules.get(name)
    if rule is not None and rule.level == "torch":
        ops = [f"  {op}" for event in trace.firings if event.prefix == PREFIXES["torch"] for op in event.before]
        starts = f"`{name}` matches nowhere: it starts from `{TorchRule(rule).key}`"
        return "\n".join((f"{starts}, and here stand", *ops)) if ops else starts
    named = (rule,) if rule is not None else rules_named(tools, name)
    if named and all("unstable" in one.attributes for one in named):
        return f"`{name}` is @unstable: no compile asks it but one with --explore"
    if rule is not None and "canonical" in rule.attributes:
        return f"`{name}` is asked after every firing of a rule on {rule.level}, and fired after none"
    return f"`{name}` neither fired nor was refused: another rule of its pass fired"


def concerns(event: Event, names: Iterable[str]) -> bool:
    """Return whether an event is about a rule, pass, file or alias of one of these names."""
    cleaned = event.cleaned if isinstance(event, Firing) else ()
    return any(name in (event.rule, event.label, pass_name(event.label), *cleaned) for name in names)


# ---- an expression


def rewrite_expression(flags: Flags, compiler: Compiler, only: list[str]) -> Program:
    """Return the program after the last requested pass, or after the last pass of Tile IR without a request."""
    tools = compiler.tools
    last = max((pipeline_of(tools, name) for name in only), key=PIPELINES.index, default="tile")
    captured, _ = captured_text(flags, values=False)
    with progress("rewriting"):
        graph, plan = compiler.cut(captured)
        if last in ("torch", "tensor"):
            return "tensor", (graph,)
        units: tuple[Kernel, ...] = plan.kernels
        shaped = Shaped()
        for pipeline in PIPELINES[PIPELINES.index("loop") : PIPELINES.index(last) + 1]:
            if pipeline == "kernel":
                units = tuple(materialise(kernel, compiler.target) for kernel in units)
            steps = until(tools.pipelines[pipeline], only) if only and pipeline == last else None
            units = compiler.passes(pipeline, units, shaped, steps=steps)
    return level_of(units), units


def pipeline_of(tools: Toolchain, name: str, asked: str = "--only") -> str:
    """Return the pipeline of a rule, pass, file or alias. Raises UsageError for an unknown name."""
    for pipeline in PIPELINES:
        if any(name in names_of(step) for step in tools.pipelines[pipeline]):
            return pipeline
    rule = tools.rules.rules.get(name)
    if rule is not None and rule in tools.rules.canonical:
        return "kernel" if rule.level == "kernel" else "tile"  # after every firing there
    if rule is not None or name in tools.rules.passes:
        for removed in (removed for file in tools.rules.files for removed in file.without if removed.name == name):
            source = removed.span.source.name
            if source == "--exact":
                what, hint = f"{asked} {name}: --exact leaves it out, for it is @approx", "leave out --exact"
            else:
                place = f"{source}:{removed.span.line}"
                what, hint = f"{asked} {name}: `without {name}` takes it out ({place})", "take that line out"
            raise UsageError(what, hint=hint)
        what = f"{asked} {name}: it stands in no pipeline, so a compile never runs it"
        raise UsageError(what, hint="give a dump of its level: `dplc rewrite FILE.ir --only` fires any rule")
    known = {known for steps in tools.pipelines.values() for step in steps for known in names_of(step)}
    raise UsageError(f"{asked} {name}: there is no such rule or pass", hint=did_you_mean(name, known))


def until(steps: Sequence[PassStep], names: Iterable[str]) -> tuple[PassStep, ...]:
    """Return the steps up to the last one that a name matches."""
    wanted = set(names)
    places = [place for place, step in enumerate(steps) if wanted & names_of(step)]
    return tuple(steps[: places[-1] + 1] if places else steps)  # a canonical rule has no position of its own


# ---- a file

# Which rules may fire in a file of a level.
SCHEDULE = ("module", "loop", "tile")
RULE_LEVELS = {
    "torch": ("torch", "tensor"),
    "tensor": ("tensor",),
    "loop": SCHEDULE,
    "tile": SCHEDULE,
    "kernel": ("kernel",),
}


def rewrite_file(flags: Flags, compiler: Compiler, only: list[str]) -> Program:
    """Run the passes for the level of a file: lower a torch graph, simplify values, or schedule kernels."""
    file, tools = flags.subject.path, compiler.tools
    level, units = read_dump(file)
    for name in only:
        check_level(tools, name, level, file)
    if level in ("torch", "tensor"):
        return "tensor", tuple(rewrite_values(unit, compiler, only) for unit in units)
    for pipeline in ("kernel",) if level == "kernel" else ("loop", "tile"):
        units = compiler.passes(pipeline, units, steps=named_steps(tools, pipeline, only) if only else None)
    return level_of(units), units


def read_dump(file: Path) -> Program:
    """Return the level and the units of a file. Raises DplcError with a caret for a file that is not a dump of dplc."""
    content = read_text(file)
    if "__global__" in content:
        raise DplcError(
            f"{file} is CUDA text, which no rule rewrites",
            hint="dump a stage before it: --ir torch, tensor, loop, tile or kernel",
        )
    _, units = read_program(content, str(file))
    if not units:
        raise DplcError(f"{file} holds no kernel and no graph")
    if len({isinstance(unit, Kernel) for unit in units}) > 1:
        raise DplcError(f"{file} holds kernels and graphs: a program is one or the other")
    for unit in units:
        if isinstance(unit, TorchGraph):
            check_types(unit, str(file))
    return level_of(units), units


def level_of(units: tuple[Any, ...]) -> str:
    """Return the level of a program, read from its nodes."""
    if not all(isinstance(unit, Kernel) for unit in units):
        return "torch" if any(isinstance(unit, TorchGraph) for unit in units) else "tensor"
    statements = {type(statement) for kernel in units for statement in kernel.body}
    return "kernel" if Launch in statements else "tile" if Tile in statements else "loop"


def rewrite_values(graph: Any, compiler: Compiler, only: list[str]) -> Any:
    """Lower a torch graph to values and simplify them, or simplify values."""
    tools, trace = compiler.tools, compiler.trace
    if isinstance(graph, TorchGraph):
        lowered = lower_graph(graph, tools.torch, trace=trace is not None)
        trace_lowering(trace, lowered)
        graph = push_renamings(lowered.graph)
    algebra = tools.algebra
    if only:
        wanted = {rule.name for name in only for rule in rules_named(tools, name)}
        algebra = TermRules((rule for rule in algebra.rules if rule.name in wanted), parameters=algebra.parameters)
    return compiler.simplified(graph, {}, algebra)


def rules_named(tools: Toolchain, name: str) -> tuple[Rule, ...]:
    """Return the rules that a name denotes: a rule, the rules of its pass or file, or the rules of a pass label."""
    found = [rule for rule in tools.rules.rules.values() if name in (rule.name, rule.file, pass_name(rule.file))]
    found += [rule for steps in tools.pipelines.values() for step in steps if step.label == name for rule in step.rules]
    return tuple(dict.fromkeys(found))


def check_level(tools: Toolchain, name: str, level: str, file: Path) -> None:
    """Raise UsageError for an unknown name, or one without rules for a file of this level."""
    rules = rules_named(tools, name)
    if not rules:
        pipeline_of(tools, name)
    if not any(rule.level in RULE_LEVELS[level] and not mentions_mat(rule) for rule in rules):
        kind = "decides what is stored" if any(map(mentions_mat, rules)) else f"is on {rules[0].level}"
        raise UsageError(
            f"--only {name}: it {kind}, and {file} holds a program of the level {level}",
            hint="give the expression with -c",
        )


def named_steps(tools: Toolchain, pipeline: str, only: list[str]) -> tuple[PassStep, ...]:
    """Return the named steps of a pipeline, followed by named rules that no pipeline contains."""
    listed = tools.pipelines[pipeline]
    mine = [name for name in only if any(name in names_of(step) for step in listed)]
    homeless = [
        name for name in only if not any(name in names_of(step) for steps in tools.pipelines.values() for step in steps)
    ]
    extra = [tools.engine.step(pass_name(name)) for name in homeless] if pipeline != "loop" else []
    return (*(only_steps(listed, mine) if mine else ()), *extra)
