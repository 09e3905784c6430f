"""`dplc rewrite`: apply rules to an expression after its capture, or to a dump at its level.

For an expression, `--only RULE` shows the effect of the rule at its position in the pipeline. The preceding passes run
as in a compile, only this rule is traced, and dplc prints the program after it. For a file, no other rule fires.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from ..language.pipeline import PIPELINES
from ..language.rule import Rule, pass_name
from ..rewrite.statements.driver import names_of
from ..rewrite.statements.driver import only as only_steps
from ..rewrite.terms.rewriter import TermRules, mentions_mat
from ..rewrite.torch_rules.lower import TorchRule, lower_graph
from ..rewrite.trace import PREFIXES, Event, Firing, Trace, lines_of
from ..ruleset import Toolchain
from .options import Flags
from .output import bars, print_json, print_remark, print_text
from .programs import captured_text, compiler_for, read_text

Program = tuple[str, tuple[Any, ...]]  # its level, its graphs or kernels


def rewrite_program(flags: Flags) -> None:
    """Run `dplc rewrite`. Raises UsageError for an unknown name."""
    compiler = compiler_for(flags)
    tools = compiler.tools
    only, about = ([*map(tools.rules.plain, names)] for names in (flags.only_rules, flags.about))
    for name in about:
        if not rules_named(tools, name):
            pipeline_of(tools, name, "--about")
    if flags.trace:
        _explain(flags, compiler, only, about or only)
        return
    level, units = (rewrite_file if flags.subject.is_dump else rewrite_expression)(flags, compiler, only)
    print_text(print_program(units, level), "ir")


def why_rule(flags: Flags) -> None:
    """Run `dplc rules why`: print where a rule fires with the values it compared, else why it does not fire."""
    compiler = compiler_for(flags)
    name = compiler.tools.rules.plain(flags.name)
    if not (flags.subject.is_dump and rules_named(compiler.tools, name)):
        pipeline_of(compiler.tools, name, "rules why")
    _explain(flags, compiler, [name], [name])


def _explain(flags: Flags, compiler: Compiler, only: Sequence[str], shown: Sequence[str]) -> None:
    """Rewrite, and print the events about the shown rules, passes, files and aliases (all without any), or why none."""
    trace = Trace(asked=frozenset(shown))
    rewrite = rewrite_file if flags.subject.is_dump else rewrite_expression
    rewrite(flags, replace(compiler, trace=trace), only)
    events = [event for event in trace.events if not shown or not trace.asked.isdisjoint(_names_in(event))]
    if flags.as_json:
        print_json([event.record() | ({"held": event.held()} if isinstance(event, Firing) else {}) for event in events])
    elif events:
        print_text("\n".join(lines_of(events, flags.trace)), "diff")
    else:
        reasons = "\n".join(_unmatched(compiler.tools, name, trace) for name in shown)
        print_remark(reasons or "no rule fired, and none was refused")


def _names_in(event: Event) -> tuple[str, ...]:
    return event.rule, event.label, pass_name(event.label), *(event.cleaned if isinstance(event, Firing) else ())


def _unmatched(tools: Toolchain, name: str, trace: Trace) -> str:
    """Explain why a trace has no event of a rule. For a rule on torch, list its root op and the ops of the program."""
    rule = tools.rules.rules.get(name)
    if rule is not None and rule.level == "torch":
        ops = [f"  {op}" for event in trace.firings if event.prefix == PREFIXES["torch"] for op in event.before]
        starts = f"`{name}` matches nowhere: it starts from `{TorchRule(rule).key}`"
        return "\n".join((f"{starts}, and here stand", *ops)) if ops else starts
    named = (rule,) if rule is not None else rules_named(tools, name)
    if named and all("off" in one.attributes for one in named):
        return f"`{name}` is @off: no compile asks it but one with --explore"
    if rule is not None and "canonical" in rule.attributes:
        return f"`{name}` is asked after every firing of a rule on {rule.level}, and fired after none"
    files = {one.location.partition(":")[0] for one in named}
    fired = {event.rule: event.location for event in trace.firings if event.location.partition(":")[0] in files}
    said = " and ".join(f"`{other}` ({location})" for other, location in fired.items()) or "no rule"
    return f"`{name}` neither fired nor was refused: {said} of its file fired"


# ---- names of rules, passes, files and aliases


def rules_named(tools: Toolchain, name: str) -> tuple[Rule, ...]:
    """Return the rules that a name denotes: a rule, the rules of its pass or file, or the rules of a pass label."""
    found = [rule for rule in tools.rules.rules.values() if name in (rule.name, rule.file, pass_name(rule.file))]
    found += [rule for steps in tools.pipelines.values() for step in steps if step.label == name for rule in step.rules]
    return tuple(dict.fromkeys(found))


def homes(tools: Toolchain) -> dict[str, str]:
    """Return {name of a step: the first pipeline that has it}."""
    steps = [(step, pipeline) for pipeline in reversed(PIPELINES) for step in tools.pipelines[pipeline]]
    return {name: pipeline for step, pipeline in steps for name in names_of(step)}


def pipeline_of(tools: Toolchain, name: str, asked: str = "--only") -> str:
    """Return the pipeline of a rule, pass, file or alias. Raises UsageError for an unknown name."""
    found = homes(tools)
    if name in found:
        return found[name]
    rule = tools.rules.rules.get(name)
    if rule is not None and rule in tools.rules.canonical:
        return "kernel" if rule.level == "kernel" else "tile"  # after every firing there
    what = f"{asked} {name}: "
    if rule is None and name not in tools.rules.passes:
        raise UsageError(f"{what}there is no such rule or pass", hint=did_you_mean(name, found))
    removed = next((line.span for file in tools.rules.files for line in file.without if line.name == name), None)
    if removed is None:
        hint = "give a dump of its level: `dplc rewrite FILE.ir --only` fires any rule"
        raise UsageError(f"{what}it stands in no pipeline, so a compile never runs it", hint=hint)
    if removed.source.name == "--exact":
        raise UsageError(f"{what}--exact leaves it out, for it is @approx", hint="leave out --exact")
    place = f"{removed.source.name}:{removed.line}"
    raise UsageError(f"{what}`without {name}` takes it out ({place})", hint="take that line out")


# ---- an expression


def rewrite_expression(flags: Flags, compiler: Compiler, only: Sequence[str]) -> Program:
    """Return the program after the last requested pass, or after the last pass of Tile IR without a request."""
    tools, order = compiler.tools, [*PIPELINES]
    last = max((pipeline_of(tools, name) for name in only), key=order.index, default="tile")
    captured = captured_text(flags, values=False)
    with bars("rewriting"):
        graph, plan = compiler.cut(captured)
        if last in GRAPHS:
            return "tensor", (graph,)
        units: tuple[Kernel, ...] = plan.kernels
        for pipeline in order[order.index("loop") : order.index(last) + 1]:
            if pipeline == "kernel":
                units = tuple(materialise(kernel, compiler.target) for kernel in units)
            steps = tools.pipelines[pipeline]
            ends = [end for end, step in enumerate(steps, 1) if not names_of(step).isdisjoint(only)]
            end = ends[-1] if ends and pipeline == last else None  # a canonical rule has no position of its own
            units = compiler.passes(pipeline, units, steps=steps[:end])
    return level_of(units), units


# ---- a file

GRAPHS = ("torch", "tensor")  # levels of graphs, the others are of kernels
# The pipelines that run over a file of a level: of a torch graph and of values only their rules.
SCHEDULE = ("loop", "tile")
RUN = {"torch": GRAPHS, "tensor": ("tensor",), "loop": SCHEDULE, "tile": SCHEDULE, "kernel": ("kernel",)}


def rewrite_file(flags: Flags, compiler: Compiler, only: Sequence[str]) -> Program:
    """Run the passes for the level of a file: lower a torch graph, simplify values, or schedule kernels."""
    file, tools = flags.subject.path, compiler.tools
    level, units = read_dump(file)
    for name in only:
        check_level(tools, name, level, file)
    if level in GRAPHS:
        return "tensor", tuple(rewrite_values(unit, compiler, only) for unit in units)
    for pipeline in RUN[level]:
        steps = tools.pipelines[pipeline]
        units = compiler.passes(pipeline, units, steps=only_steps(steps, only) if only else steps)
    beside = [tools.engine.step(pass_name(name)) for name in only if name not in homes(tools)]  # of no pipeline
    units = compiler.passes(RUN[level][-1], units, steps=beside)
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
    kinds = {type(unit) for unit in units}
    if kinds == {Kernel}:
        return level_of(units), units
    if Kernel in kinds:
        raise DplcError(f"{file} holds kernels and graphs: a program is one or the other")
    for unit in units:
        if isinstance(unit, TorchGraph):
            check_types(unit, str(file))
    return "torch" if TorchGraph in kinds else "tensor", units


def level_of(kernels: tuple[Any, ...]) -> str:
    """Return the level of kernels, read from their statements."""
    statements = {type(statement) for kernel in kernels for statement in kernel.body}
    return "kernel" if Launch in statements else "tile" if Tile in statements else "loop"


def rewrite_values(graph: Any, compiler: Compiler, only: Sequence[str]) -> Any:
    """Lower a torch graph to values and simplify them, or simplify values."""
    tools, trace, algebra = compiler.tools, compiler.trace, compiler.tools.algebra
    if isinstance(graph, TorchGraph):
        lowered = lower_graph(graph, tools.torch, trace=trace is not None)
        trace_lowering(trace, lowered)
        graph = push_renamings(lowered.graph)
    if only:
        wanted = {rule.name for name in only for rule in rules_named(tools, name)}
        algebra = TermRules((rule for rule in algebra.rules if rule.name in wanted), parameters=algebra.parameters)
    return compiler.simplified(graph, {}, algebra)


def check_level(tools: Toolchain, name: str, level: str, file: Path) -> None:
    """Raise UsageError for an unknown name, or one without rules for a file of this level."""
    rules = rules_named(tools, name)
    if not rules:
        pipeline_of(tools, name)
    levels = {one for pipeline in RUN[level] for one in PIPELINES[pipeline]}
    if not any(rule.level in levels and not mentions_mat(rule) for rule in rules):
        kind = "decides what is stored" if any(map(mentions_mat, rules)) else f"is on {rules[0].level}"
        raise UsageError(
            f"--only {name}: it {kind}, and {file} holds a program of the level {level}",
            hint="give the expression with -c",
        )
