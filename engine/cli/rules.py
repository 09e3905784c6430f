"""`dplc rules`: list, show, check, format and write rules."""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path
from textwrap import indent
from typing import Any

from ...codegen.target import target as target_named
from ...ir import schemas
from ...ir.diagnostic import DplcError, Source, Span, UsageError, did_you_mean, raise_all
from ...ir.text.print_statements import print_value
from ...ir.text.read_statements import NEW_STATEMENT
from ..bench.cases import programs_of
from ..kernels.examples import Failure, run_examples
from ..kernels.fusion_pass import kind_of
from ..language import core as s
from ..language.check import check, errors, for_every_device, lint_rule, load_facts, require, rules_in_force
from ..language.core import walk, words_in
from ..language.definitions import line_of
from ..language.format import format_file, format_rule, formatted
from ..language.pipeline import PassStep, describe, pipelines, taken_out
from ..language.rule import LEVELS, Rule, RuleSet, built_in_files, load
from ..language.rule_files import rule_source
from ..language.sorts import READABLE
from ..language.spelling import INDENT
from ..rewrite.statements.compiled import CompiledRule
from ..rewrite.statements.driver import Engine
from ..rewrite.terms.matcher import TermRuleWriter
from ..rewrite.terms.rewriter import mentions_mat
from ..ruleset import all_rule_files
from ..verify.run import CheckOptions, check_rules
from ..workbench import reference
from .options import Flags, check_known
from .output import bars, print_json, print_note, print_remark, print_text, write, write_file, write_lines


def list_rules(flags: Flags) -> None:
    """List the passes of every pipeline in order, or the labels of all rules. Rules of files are checked first."""
    rules = load(flags.rules)
    if flags.proofs:
        from ..prove.labels import label  # loads SymPy

        rules, given = loaded(flags.rules)
        own = [rule for rule in rules.rules.values() if rule.span.source.name in given]
        verdicts = {one.rule: one for one in check_rules(rules, own, CheckOptions(more=0))}
        labels = [label(rule, verdicts.get(rule.name)) for rule in rules.rules.values()]
        write_lines(*(f"{one.rule}: {one.label}" for one in labels))
        return
    if not flags.as_json:
        print_text(describe(rules), "rw")
        return
    passes = {name: [*map(_record, listed)] for name, listed in pipelines(rules).items()}
    passes["without"] = [
        {"name": one.name, "pipeline": name, "location": line_of(one.span), "because": one.reason}
        for name, out in taken_out(rules).items()
        for one in out
    ]
    print_json(passes)


def _record(step: PassStep) -> dict[str, object]:
    return {
        "pass": step.name,
        "numbered": step.numbered or None,
        "as": step.label,
        "rules": [rule.name for rule in step.rules],
        "overrides": {rule.name: rule.location for rule in step.rules if rule.override},
        "location": step.location,
        "group": step.group,
        "because": step.reason,
    }


def show_rule(flags: Flags) -> None:
    """Print a rule, a whole pass, the members of a family, a number or a fact."""
    rules = load(flags.rules)
    name, devices, every = rules.plain(flags.name), for_every_device(rules), rules.rules.values()
    found: Collection[Rule] = dict.fromkeys(each.rules[name] for each in devices if name in each.rules)
    found = found or rules.passes.get(name) or [rule for rule in every if name in (rule.family, rule.file)]
    for rule in found:
        text = generated_matcher(rule) if flags.python else format_rule(rules.written.get(rule.name, rule))
        print_text(f"# {rule.location}\n{text}\n", "python" if flags.python else "rw")
    if found:
        return
    if name not in {**rules.numbers, **rules.facts}:
        known = (*rules.numbers, *rules.facts, *rules.rules, *rules.passes, *(rule.file for rule in every))
        raise UsageError(f"there is no rule, pass, number or fact `{name}`", hint=did_you_mean(name, known))
    if flags.python:
        raise UsageError(f"`{name}` is not a rule, so no function is generated for it", hint="leave --python out")
    facts = [fact for file in rules.files for fact in file.facts]
    declared: Any = (*facts, *(number.declared for number in rules.numbers.values()))
    readers = [rule.name for rule in every if name in rule.words]
    readers += [one.name for one in declared if name in words_in(one.value)]
    read = f"# read by {', '.join(readers) or 'facts and searches only'}\n"
    numbers = [each.numbers[name] for each in devices if name in each.numbers]
    for number in {number.location: number for number in numbers}.values():
        old = number.overrides
        over = f"# overrides {print_value(old.value)}, {old.location}\n" if old else ""
        print_text(f"# {number.location}\n{format_file([number.declared])}{over}{read}", "rw")
    for fact in facts:
        if fact.name == name and name not in rules.numbers:
            print_text(f"# {line_of(fact.span)}\n{format_file([fact])}# asked by {', '.join(readers)}\n", "rw")


def generated_matcher(rule: Rule) -> str:
    """Return the Python function that matches the pattern of a rule, below the values of its constants.

    On tensor the function runs the guards and the template too. Raises UsageError for a rule on torch, and for one that
    merges two kernels.
    """
    why = "closures compare patterns on torch" if rule.level == "torch" else ""
    if rule.level == "tensor" and mentions_mat(rule) and kind_of(rule) == "siblings":
        why = "it only has guards, on two stored values"
    if why:
        what = f"no function is generated for `{rule.name}`: {why}"
        raise UsageError(what, hint="name another rule, or leave --python out")
    if rule.level == "tensor":
        function: Any = TermRuleWriter(rule, {}, bind=mentions_mat(rule)).write().run
    else:
        function = CompiledRule(rule, ()).pattern.match
    text = inspect.getsource(function)
    lines = []
    for name in dict.fromkeys(re.findall(r"\bc\d+\b", text)):
        value = function.__globals__[name]
        lines.append(f"# {name} = {getattr(value, '__name__', None) or repr(value)[:WIDTH]}")
    return "\n".join([*lines, text])


def test_rules(flags: Flags) -> None:
    """Run static checks and examples of the given files, or of all built-in rules.

    A file may be an edited built-in one.
    """
    paths = flags.files
    if flags.accept:
        accept_examples(paths)
    rules, sources = loaded(paths)
    pipelines(rules)  # a line that names no pass is an error of the file
    kept = {file.source.name for file in rules.files}
    for file in built_in_files():
        if file.source.name not in kept:
            print_remark(f"tested in the place of {file.source.name}")
    found = check(rules, sources or None)
    wrong = errors(found)
    for error in sorted(found, key=lambda error: error in wrong):  # errors last: they are right above the prompt
        print_note(error.render())
    broken = {error.rule for error in wrong}  # what they do with an example says nothing
    count, examples, failures = run_all(rules, sources, broken)
    for failure in failures:
        print_note(failure.render())
    failed = f"{len(failures)} failed, {len(wrong)} errors, {len(found) - len(wrong)} warnings"
    write(f"{count} rules, {examples} examples, {failed}\n")
    if wrong or failures:
        raise DplcError("the rules do not pass")


def loaded(paths: Iterable[Path], edit: Callable[[Source], Source] = lambda source: source) -> tuple[RuleSet, set[str]]:
    """Load the built-in rules with some files and folders laid over them. Return the rules and the names of the files.

    A file may be an edited copy of a built-in one, which it then replaces. edit: a change of the given files.
    """
    return load(paths, copies=True, edit=edit), set(map(str, all_rule_files(paths)))


def run_all(rules: RuleSet, sources: set[str], broken: Collection[str] = ()) -> tuple[int, int, list[Failure]]:
    """Return (rules, examples that ran, failures) of the files with these names, or of all files without names.

    The rules for one device run on that device. broken: rules whose examples do not run.
    """
    count, ran, failures = 0, 0, list[Failure]()
    for each, chosen in rules_in_force(rules, sources):
        sound = [rule for rule in chosen if (rule.family or rule.name) not in broken]
        examples, unmet = run_examples(Engine(each, check=True), sound)
        count, ran, failures = count + len(chosen), ran + examples, failures + unmet
    return count, ran, failures


# ---- facts and nodes


WIDTH = 44  # the column of sentences, where a signature is shorter


def show_facts(flags: Flags) -> None:
    """List all facts and functions, or print those of a name in full. `target` lists its fields."""
    _show(
        [reference.machine()] if flags.name == "target" else reference.facts(load(flags.rules)),
        flags,
        "fact or function",
    )


def show_nodes(flags: Flags) -> None:
    """List all statements and values, or print one in full.

    Ops of Torch IR are listed only with `--level torch`. One op is printed by its name.
    """
    names = [flags.name] if flags.name else sorted(schemas.names()) if flags.level == "torch" else ()
    _show([*reference.nodes(), *filter(None, map(reference.op, names))], flags, "node")


def _show(entries: list[reference.Word], flags: Flags, what: str) -> None:
    name, level = flags.name, flags.level
    if level is not None:
        check_known("level", level, LEVELS)
    listed = [entry for entry in entries if name in ("", entry.name) and level in (None, *entry.levels)]
    if not listed and name:
        options = {*(entry.name for entry in entries), *(schemas.names() if what == "node" else ())}
        hint = did_you_mean(name, options) or (NEW_STATEMENT if what == "node" else "`dplc rules facts` lists them")
        raise UsageError(f"there is no {what} `{name}`", hint=hint)
    if flags.as_json:
        print_json(listed)
    elif name:
        print_text("\n\n".join(map(_whole, listed)), "rw")
    else:
        groups = defaultdict[str, str](str)
        for entry in listed:
            where = "every level" if entry.levels == tuple(LEVELS) else ", ".join(entry.levels)
            line = f"{entry.signature:{WIDTH}} {entry.sentence}".rstrip()
            groups[f"# {entry.kind}s on {where}\n"] += f"{line}\n"
        print_text("\n".join(title + lines for title, lines in groups.items()), "rw")


def _whole(entry: reference.Word) -> str:
    lines = entry.says.splitlines() + [""] * bool(entry.fields)
    width = max((len(field.name) for field in entry.fields), default=0)
    for field in entry.fields:
        plain = field.sort.strip("[]")
        one = READABLE.get(plain, plain)
        sort = one if plain == field.sort else f"a list ({one} each)"
        lines.append(f"{field.name:{width}}  {replace(field, sort=sort).text}")
    head = f"# {entry.kind} on {', '.join(entry.levels)}; {entry.place}", entry.signature, ""
    return "\n".join((*head, *(f"    {line}".rstrip() for line in lines)))


# ---- lint


def lint_rules(flags: Flags) -> None:
    """Print every finding with its location. Raises DplcError if there is one, or if the files fail their checks."""
    load_facts()
    rules, names = loaded(flags.files)
    warned = require(rules, names) if names else ()
    once = {(one.check, one.span): one for one in warned if one.check != "examples_enough"}  # families share theirs
    for each in for_every_device(rules):
        for rule in each.rules.values():
            for finding in lint_rule(rule, each) if not names or rule.span.source.name in names else ():
                once.setdefault((finding.check, finding.span), finding)
    found, (_, chosen) = once.values(), next(rules_in_force(rules, names))
    for finding in found:
        print_note(finding.render())
    write(f"{len(chosen)} rules, {len(found)} findings\n")
    if found:
        raise DplcError("the rules can be made shorter or clearer")


# ---- fmt


ANY_FILE = re.compile(b"")  # the file is given to be written


def format_files(flags: Flags) -> None:
    """Format files, or list unformatted ones (`--check`). `-` is standard input.

    Raises UsageError for a missing file.
    """
    paths, check = flags.files, flags.check
    if paths == [Path("-")]:
        if check:
            raise UsageError("`-` prints standard input in its layout", hint="--check takes files")
        write(formatted(Source("standard input", sys.stdin.read())))
        return
    for path in paths:
        if not path.exists():
            raise UsageError(f"no such file or folder: {path}")
    wrong, broken, files = 0, [], [*all_rule_files(paths)]
    for path in files:
        try:
            source = rule_source(path)
            text = formatted(source)
        except DplcError as error:
            broken.append(error)
            continue
        if text == source.text:
            continue
        wrong += 1
        if check:
            print_note(f"{path}: not laid out")
        else:
            write_file(path, text, ANY_FILE)
    counted = f"{wrong} of {len(files)} files"
    if not check:
        write(f"{counted} changed\n")
    raise_all(broken)
    if check and wrong:
        raise DplcError(f"{counted} are not laid out", hint=f"dplc rules fmt {' '.join(map(str, paths))}")


# ---- test --accept


_AWAITING = re.compile(  # an example whose program is followed by no `gives`, or by one without a program
    r'^(?P<example>example "[^"]*" *(?:\([^)]*\))? *\n(?:(?: *\n)* +\S.*\n)+)'
    r"(?: *\n)*?(?:gives *\n)?(?P<space>(?: *\n)*)(?!gives)(?=\S|\Z)",
    re.MULTILINE,
)


def accept_examples(paths: list[Path]) -> None:
    """Write the results of the rules of some files into their examples, and draw refusals.

    Raises UsageError without a file.

    An example that several rules of a family share is written only if all of them give the same program. Nothing is
    written before every text is known. Raises DplcError for an example without a program in its `gives` that has no
    result, or several.
    """
    if not paths:
        raise UsageError("--accept rewrites examples: say which files", hint="dplc rules test --accept FILE")
    from ..verify.mutants import drawn_refusals

    load_facts()
    rules, sources = loaded(paths, awaiting)
    found: dict[Span, tuple[s.Example, set[str]]] = {}
    for failure in run_all(rules, sources)[2]:
        example = failure.example
        if failure.got:
            found.setdefault(example.span, (example, set()))[1].add(failure.got)
        elif awaits(example):
            raise DplcError(failure.error().what, place_of(example), notes=failure.details)
    for span, (example, texts) in [*found.items()]:
        if len(texts) > 1:
            what = f'example "{example.title}" is of several rules, which give different programs'
            if awaits(example):
                raise DplcError(what, place_of(example))
            print_remark(what)
            del found[span]
    changed: dict[str, list[str]] = {}
    for example, (text,) in sorted(found.values(), key=lambda one: -one[0].span.line):  # so that line numbers stay
        source = example.span.source
        lines = changed.setdefault(source.name, source.text.splitlines())
        spans = [node.span for node in walk(example.gives)]
        last = max(span.end_line - (span.end_column == 0) for span in spans)
        lines[spans[0].line - 1 : last] = indent(text, INDENT).splitlines()
    laid_out = [(Path(name), formatted(Source(name, "\n".join(lines) + "\n"))) for name, lines in changed.items()]
    for path, text in laid_out:
        write_file(path, text, ANY_FILE)
    drawn = [*drawn_refusals(*loaded(paths))]
    for path, text in drawn:
        write_file(path, text, ANY_FILE)
    print_remark(f"{len(found)} examples rewritten, refusals drawn into {len(drawn)} files: read what they say now")


def awaiting(source: Source) -> Source:
    """Return a source with `pass` where an example has no program in its `gives`."""
    text = _AWAITING.sub(rf"\g<example>gives\n{INDENT}pass\n\g<space>", source.text.rstrip() + "\n")
    return Source(source.name, text)


def awaits(example: s.Example) -> bool:
    """Return whether an example has no program in its `gives`."""
    return any(isinstance(node, s.PassStatement) for node in example.gives)


def place_of(example: s.Example) -> Span:
    """Return the place of an example in its file, as it is without `awaiting`: the examples are in the same order."""
    edited = example.span.source
    source = rule_source(Path(edited.name))
    here, there = (
        [n for n, line in enumerate(text.splitlines(), 1) if line.startswith("example ")]
        for text in (edited.text, source.text)
    )
    line = there[here.index(example.span.line)]
    return Span(source, line, 0, line, len(source.line(line)))


# ---- new


PIECE_LEVELS = ("tensor", "loop", "tile", "kernel")
NOTHING = re.compile(rb"(?!)")  # an existing file belongs to the user


def new_rule(flags: Flags) -> None:
    """Print a rule, or write it to a file. Raises UsageError for a name, lines or a level that cannot be used."""
    name, out = flags.name, flags.out
    if not re.fullmatch(r"[a-z_]\w*", name):
        raise UsageError(f"`{name}` is not a name of a rule", hint="lower case letters, digits and _")
    skeleton = {"lines": _from_file, "op": _from_op, "text": _from_expression}[flags.subject.kind]
    text = formatted(Source(f"{name}.rw", skeleton(name, flags)))
    if not out:
        print_text(text, "rw")
        return
    write_file(out, text, NOTHING)
    print_remark(f"change what stands behind `rewrite` in {out}, then: dplc rules test --accept {out}")


def _from_file(name: str, flags: Flags) -> str:
    from .programs import units_of

    found = re.fullmatch(r"(.+?)(?::(\d+)(?:-(\d+))?)?", flags.subject.name)
    assert found is not None
    path = Path(found[1])
    level, _ = units_of(path)
    text = path.read_text()
    first = int(found[2] or 1)
    last = int(found[3] or found[2] or len(text.splitlines()))
    if not 0 < first <= last:
        raise UsageError(f"--from {flags.subject.name}: lines count from 1, the first one first")
    return reference.rule_from_lines(name, Source(str(path), text), level, first, last)


def _from_expression(name: str, flags: Flags) -> str:
    from .programs import compile_text

    level = flags.level or "tensor"
    if level not in PIECE_LEVELS:
        what = f"--level {level}: a piece of a program is on {', '.join(PIECE_LEVELS)}"
        raise UsageError(what, hint="for torch say --op OP")
    text = compile_text(flags, values=False).ir(level)
    first = 1 if level == "tensor" else 3  # below the level and the head of the kernel
    return reference.rule_from_lines(name, Source(f"--ir {level}", text), level, first, len(text.splitlines()))


def _from_op(name: str, flags: Flags) -> str:
    from .programs import captured_text

    op = flags.subject.name
    known = {name: one for one in schemas.names() for name in (schemas.aten_name(one), one)}
    if op not in known:
        raise DplcError(f"torch has no op `{op}`", hint=did_you_mean(op, known))
    graph = captured_text(flags, values=False).graph if flags.text else None
    return reference.rule_of_op(name, known[op], graph)


# ---- discover


LEAVES = ("x:ik", "z:ik", "c:i")


def discover_rules(flags: Flags) -> None:
    """Print rules that a search finds, or write them to a file. An interrupt ends the search and keeps what was found.

    Raises UsageError for an unknown rule, function or leaf.
    """
    from ..prove.discover import Discovery, FoundRule, TermSearch, worth
    from .programs import captured_text, compiler_for

    compiler, programs, found = compiler_for(flags), dict[str, Any](), list[FoundRule]()
    if flags.text:
        captured = captured_text(flags, values=False)
        programs["the program"] = lambda compiler: compiler.compile(captured)
    elif flags.subject.kind == "suite":
        programs = programs_of(flags.subject.path, flags.only)
    leaves = {name: letters for name, _, letters in (text.partition(":") for text in flags.leaf or LEAVES)}
    for name, letters in leaves.items():
        if not re.fullmatch(r"[a-z]\w*:[ac-z]+|-?\d+\.\d+:", f"{name}:{letters}"):
            raise UsageError(f"--leaf {name}: not an unknown", hint="write `x:ik` for x over i and k, or a number")
    rules, without = compiler.tools.rules, set(map(compiler.tools.rules.plain, flags.without))
    force = [one for one in compiler.tools.equations if without.isdisjoint((one.name, "each"))]
    search = Discovery(TermSearch(leaves, flags.ops.split(",")), rules, force, CheckOptions(flags.examples, more=0))
    with bars("enumerating terms") as show, contextlib.suppress(KeyboardInterrupt):
        for _ in range(flags.terms):
            for rule in search.step():
                show(f"{rule.name}: {rule.label}")
                found.append(rule)
        for rule in found if programs else ():
            show(f"predicting {rule.name}")
            worth(rule, compiler, programs)
    found.sort(key=lambda rule: -rule.saved)
    if flags.verbose:
        print_note("\n".join(f"{text}# refuted: {why}" for text, why in search.refuted))
    text = "\n".join(rule.text for rule in found)
    if flags.out:
        write_file(flags.out, text, NOTHING)
    else:
        print_text(text, "rw")
    for rule in found:
        print_note(f"{rule.name}: {rule.label}, saves {rule.saved:.1%} of {rule.saves}")
    print_remark(f"{len(found)} rules found, {search.covered} candidates covered, {len(search.refuted)} refuted")


# ---- doc


def write_pages(flags: Flags) -> None:
    """Write the pages to a folder. Replace earlier pages and leave all other files."""
    from ..compiler import compiler_with
    from ..view.records import fired_in

    folder, suite, fired = flags.out or Path(), flags.suite, None
    compiler = compiler_with(target_named(), flags.rules)
    if suite:
        with bars() as tell:
            fired = fired_in(suite, compiler, tell, priced=True)
    made = reference.pages(compiler.tools.rules, fired, suite.name if suite else "")
    for name, text in made.items():
        write_file(folder / name, text, re.compile(rf"\A{reference.MARK}".encode()))
    print_remark(f"{len(made)} files in {folder}: begin with {folder / 'index.md'}")


# ---- the language server


def serve_editor(flags: Flags) -> None:
    """Answer an editor until it ends. Raises UsageError without pygls."""
    try:
        from ..workbench.language_server import server
    except ImportError as error:
        if (error.name or "").split(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise UsageError("the language server needs pygls", hint="pip install 'dplc[lsp]'") from None
    server().start_io()
