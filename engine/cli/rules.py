"""`dplc rules`: list, show, check, format and write rules."""

from __future__ import annotations

import contextlib
import difflib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...codegen.target import load_device
from ...codegen.target import target as target_named
from ...ir import schemas
from ...ir.diagnostic import Diagnostics, DplcError, Source, Span, UsageError, did_you_mean
from ..kernels.examples import Failure, run_examples
from ..language import core as s
from ..language.check import check, errors, for_every_device, lint_rule, load_facts, warnings
from ..language.core import words_in
from ..language.definitions import PolicyNumber, format_value
from ..language.format import format_fact, format_number, format_rule, formatted
from ..language.pipeline import PassStep, describe, pipelines, taken_out
from ..language.rule import LEVELS, RuleSet, built_in_files, load
from ..language.rule_files import read_text
from ..language.rule_scope import Finding
from ..language.spelling import INDENT
from ..language.typed_slots import walk
from ..rewrite.statements.driver import Engine
from .options import Flags, Subject
from .output import bars, print_json, print_note, print_text, write, write_file, writing

if TYPE_CHECKING:
    from ..workbench.reference import Word

# Whose examples each level's runner tests is known once these are imported.


def rule_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the rule files of some files and folders, those of examples among them."""
    for path in paths:
        yield from sorted(path.rglob("*.rw")) if path.is_dir() else (path,)


def list_rules(subject: Subject, flags: Flags) -> None:
    """List the passes of every pipeline in order."""
    rules = load(flags.rules or ())
    if not flags.as_json:
        print_text(describe(rules), "rw")
        return
    record: dict[str, Any] = {name: [_record(step) for step in listed] for name, listed in pipelines(rules).items()}
    record["without"] = [
        {
            "name": written.name,
            "pipeline": name,
            "location": f"{written.span.source.name}:{written.span.line}",
            "because": written.reason,
        }
        for name, out in taken_out(rules).items()
        for written in out
    ]
    print_json(record)


def _record(step: PassStep) -> dict[str, Any]:
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


def show_rule(subject: Subject, flags: Flags) -> None:
    """Print a rule, a whole pass, or the members of a family."""
    rules = load(flags.rules or ())
    name = rules.plain(flags.name)
    if name in rules.rules:
        found = list(dict.fromkeys(each.rules[name] for each in for_every_device(rules)))
    else:
        found = list(rules.passes.get(name, ())) or [r for r in rules.rules.values() if name in (r.family, r.file)]
    if not found and name in rules.numbers:
        for number in {each.numbers[name].location: each.numbers[name] for each in for_every_device(rules)}.values():
            show_number(number, rules)
    elif not found and name in rules.facts:
        show_fact(name, rules)
    elif not found:
        options = (
            *rules.numbers,
            *rules.facts,
            *rules.rules,
            *rules.passes,
            *(rule.file for rule in rules.rules.values()),
        )
        raise UsageError(f"there is no rule, pass, number or fact `{name}`", hint=did_you_mean(name, options))
    for rule in found:
        print_text(f"# {rule.location}\n{format_rule(rules.written.get(rule.name, rule))}\n", "rw")


def show_number(number: PolicyNumber, rules: RuleSet) -> None:
    """Print a number of the policy, the values that it overrides, and the rules that read it."""
    lines = [f"# {number.location}", format_number(number.declared).rstrip()]
    if number.overrides is not None:
        lines.append(f"# overrides {format_value(number.overrides.value)}, {number.overrides.location}")
    read = readers(number.name, rules)
    read += [other.name for other in rules.numbers.values() if number.name in words_in(other.declared.value)]
    lines.append(f"# read by {', '.join(read)}" if read else "# read by facts and searches only")
    print_text("\n".join(lines) + "\n", "rw")


def show_fact(name: str, rules: RuleSet) -> None:
    """Print a fact that is an expression, and the rules that use it."""
    for declared in [fact for file in rules.files for fact in file.facts if fact.name == name]:
        place = f"# {declared.span.source.name}:{declared.span.line}"
        print_text(f"{place}\n{format_fact(declared)}# asked by {', '.join(readers(name, rules))}\n", "rw")


def readers(name: str, rules: RuleSet) -> list[str]:
    """Return the rules and facts that name a number or a fact."""
    found = [rule.name for rule in rules.rules.values() if name in rule.words]
    return found + [f.name for file in rules.files for f in file.facts if name in words_in(f.value)]


def accept_examples(paths: list[Path]) -> None:
    """Write the results of the rules of some files into their examples. Raises UsageError without a file."""

    if not paths:
        raise UsageError("--accept rewrites examples: say which files", hint="dplc rules test --accept FILE")

    load_facts()
    named = list(rule_files(paths))
    files = [file for file in named if file.is_file()]
    with kept_if_refused(files):
        filled = {file: fill(file) for file in files}
        rules = load(paths, copies=True)
        sources = set(map(str, named))
        failures = [failure for _, _, failed in _examples(rules, sources, set()) for failure in failed]
        require_answers(failures, filled)
        print_note(f"note: {accept(failures)} examples rewritten: read what they say now")


def test_rules(subject: Subject, flags: Flags) -> None:
    """Run static checks and examples of the given files, or of all built-in rules.

    A file may be an edited built-in one.
    """
    paths = [*(flags.files or []), *(flags.rules or [])]
    if flags.accept:
        accept_examples(paths)
    rules = load(paths, copies=True)
    pipelines(rules)  # a line that names no pass is an error of the file
    for file in {file.source.name for file in built_in_files()} - {file.source.name for file in rules.files}:
        print_note(f"note: tested in the place of {file}")
    sources = set(map(str, rule_files(paths)))
    found = check(rules, sources or None)
    doubtful, wrong = warnings(found), errors(found)
    for told in (*doubtful, *wrong):  # errors last: they stand right above the prompt
        print_note(told.render())
    broken = {told.rule for told in wrong if isinstance(told, Finding)}  # what they do with an example says nothing
    ran = list(_examples(rules, sources, broken))
    failures = [failure for _, _, unmet in ran for failure in unmet]
    for failure in failures:
        print_note(failure.render())
    failed = f"{len(failures)} failed, {len(wrong)} errors, {len(doubtful)} warnings"
    write(f"{sum(n for n, _, _ in ran)} rules, {sum(n for _, n, _ in ran)} examples, {failed}\n")
    if wrong or failures:
        raise DplcError("the rules do not pass")


def _examples(rules: RuleSet, sources: set[str], broken: set[str]) -> Iterator[tuple[int, int, list[Failure]]]:
    """Yield (rules, examples that ran, failures) of the files with these names, or of all files without names.

    The first triple is for the rules for every device, the others for the rules of one device, on that device. broken:
    rules whose examples do not run.
    """
    for each in for_every_device(rules):
        named = (rule for rule in each.rules.values() if not sources or rule.span.source.name in sources)
        chosen = [rule for rule in named if each.device is None or rule.device is not None]
        sound = [rule for rule in chosen if (rule.family or rule.name) not in broken]
        devices = [load_device(rule.device.text) for rule in chosen if rule.device is not None]
        yield len(chosen), *run_examples(Engine(each, check=True), sound, devices[0] if devices else None)


# ---- facts and nodes


WIDTH = 44  # the column of sentences, where a signature is shorter


def show_facts(subject: Subject, flags: Flags) -> None:
    """List all facts and functions, or print those of a name in full. `target` lists its fields."""
    from ..workbench import reference

    _show(
        [reference.machine()] if flags.name == "target" else reference.facts(load(flags.rules or ())),
        flags,
        "fact or function",
    )


def show_nodes(subject: Subject, flags: Flags) -> None:
    """List all statements and values, or print one in full.

    Ops of Torch IR are listed only with `--level torch`. One op is printed by its name.
    """
    from ..workbench import reference

    names = [flags.name] if flags.name else sorted(schemas.names()) if flags.level == "torch" else []
    ops = [reference.op(name) for name in names if flags.level in (None, "torch")]
    _show([*reference.nodes(), *filter(None, ops)], flags, "node")


def _show(entries: list[Word], flags: Flags, what: str) -> None:
    name, level = flags.name, flags.level
    if level is not None and level not in LEVELS:
        notes = (f"levels are {', '.join(LEVELS)}",)
        raise UsageError(f"unknown level `{level}`", notes=notes, hint=did_you_mean(level, LEVELS))
    listed = [entry for entry in entries if name in ("", entry.name) and (level is None or level in entry.levels)]
    if not listed and name:
        options = {*(entry.name for entry in entries), *(schemas.names() if what == "node" else ())}
        raise UsageError(f"there is no {what} `{name}`", hint=did_you_mean(name, options))
    if flags.as_json:
        print_json([entry.record() for entry in listed])
    else:
        print_text("\n\n".join(map(_whole, listed)) if name else "\n".join(_lines(listed)), "rw")


def _lines(entries: Iterable[Word]) -> Iterable[str]:
    """Yield a line for each entry, grouped by level."""
    groups: dict[str, list[Word]] = {}
    for entry in entries:
        where = "every level" if set(entry.levels) == set(LEVELS) else ", ".join(entry.levels)
        groups.setdefault(f"{entry.kind}s on {where}", []).append(entry)
    for title, members in groups.items():
        yield f"# {title}"
        for entry in members:
            yield f"{entry.signature:{WIDTH}} {entry.sentence}".rstrip()
        yield ""


def _whole(entry: Word) -> str:
    lines = [f"# {entry.kind} on {', '.join(entry.levels)}; {entry.place}", entry.signature, ""]
    lines += [f"    {line}".rstrip() for line in entry.says.splitlines()]
    if entry.fields:
        width = max(len(name) for name, _, _ in entry.fields)
        lines += ["", *(f"    {name:{width}}  {_sort(sort)}{_given(default)}" for name, sort, default in entry.fields)]
    return "\n".join(lines)


def _sort(sort: str) -> str:
    from ..workbench import reference

    words = reference.sorts()
    return f"a list ({words.get(sort[1:-1], sort[1:-1])} each)" if sort.startswith("[") else words.get(sort, sort)


def _given(default: str) -> str:
    return f", else {default}" if default else ""


# ---- lint


def lint_rules(subject: Subject, flags: Flags) -> None:
    """Print every finding with its location. Raises DplcError if there is one, or if the files fail their checks."""
    load_facts()
    paths = flags.files or []
    rules, names = load(paths, copies=True), {str(path) for path in rule_files(paths)}
    chosen = [rule for rule in rules.rules.values() if not names or rule.span.source.name in names]
    if names and (wrong := errors(check(rules, names))):
        raise DplcError(wrong[0].what, wrong[0].span, wrong[0].notes, wrong[0].hint)
    found = list(_findings(rules, names))
    if flags.subjects:
        from ..rewrite.statements.driver import Engine
        from ..verify.mutants import unviolated

        found += unviolated(Engine(rules), chosen, target_named())
    if flags.as_json:
        print_json([_finding_record(finding) for finding in found])
    else:
        for finding in found:
            print_note(finding.render())
        write(f"{len(chosen)} rules, {len(found)} findings\n")
    if found:
        raise DplcError("the rules can be made shorter or clearer")


def _findings(rules: RuleSet, names: set[str]) -> list[Finding]:
    """Return the findings of the texts in their order. Members of a family share theirs."""
    found: dict[object, Finding] = {}
    for each in for_every_device(rules):
        for file in each.files:
            if names and file.source.name not in names:
                continue
            for declared in file.rules:
                rule = each.rules.get(declared.name)
                if rule is not None and rule.span == declared.span:
                    for finding in lint_rule(rule, each):
                        found.setdefault((finding.check, finding.span), finding)
    return list(found.values())


def _finding_record(finding: Finding) -> dict[str, object]:
    place = finding.span.location if finding.span is not None else ""
    return {
        "place": place,
        "check": finding.check,
        "what": finding.what,
        "notes": list(finding.notes),
        "help": finding.hint,
    }


# ---- fmt


ANYTHING = re.compile(b"")  # the file is given to be written


def format_files(subject: Subject, flags: Flags) -> None:
    """Format files, list unformatted ones (`--check`), or show the changes (`--diff`). `-` is standard input.

    Raises UsageError for a missing file.
    """
    paths, check, diff = flags.files or [], flags.check, flags.diff
    if [str(path) for path in paths] == ["-"]:
        if check or diff:
            raise UsageError("`-` prints standard input in its layout", hint="--check and --diff take files")
        write(formatted(Source("standard input", sys.stdin.read())))
        return
    wrong, broken, files = [], [], list(rule_files(paths))
    if missing := [path for path in paths if not path.exists()]:
        raise UsageError(f"no such file or folder: {missing[0]}")
    for path in files:
        try:
            before = read_text(path)
            after = formatted(Source(str(path), before))
        except DplcError as error:
            broken.append(error)
            continue
        if before != after:
            wrong.append(path)
            if diff:
                print_text(_diff(path, before, after), "diff")
            elif not check:
                write_file(path, after, ANYTHING)
    if check:
        for path in wrong:
            print_note(f"{path}: not laid out")
    elif not diff:
        write(f"{len(wrong)} of {len(files)} files changed\n")
    if broken:
        raise broken[0] if len(broken) == 1 else Diagnostics(broken)
    if check and wrong:
        raise DplcError(
            f"{len(wrong)} of {len(files)} files are not laid out", hint=f"dplc rules fmt {' '.join(map(str, paths))}"
        )


def _diff(path: Path, before: str, after: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), str(path), f"{path}, laid out"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ no newline\n" for line in lines)


# ---- test --accept


ANY_FILE = re.compile(b"")  # the file is given to be written
AWAITED = f"{INDENT}pass"  # a graph may be of another level than what a rule makes of it
_EXAMPLE = re.compile(r'example "[^"]*" *(?:\([^)]*\))? *$')


def accept(failures: Iterable[Failure]) -> int:
    """Write the results of rules into the `gives` of failed examples. Returns how many were written.

    An example that several rules of a family share is written only if all of them give the same program.
    """
    found: dict[tuple[Path, int], tuple[s.Example, set[str]]] = {}
    for failure in failures:
        example = failure.example
        if failure.got and isinstance(example.gives, tuple):
            place = Path(example.span.source.name), example.span.line
            found.setdefault(place, (example, set()))[1].add(failure.got)
    written = 0
    for path in sorted({path for path, _ in found}):
        lines = path.read_text(encoding="utf-8").splitlines()
        for (where, _), (example, texts) in sorted(found.items(), key=lambda item: -item[0][1]):
            if where == path and len(texts) == 1:
                lines = _replaced(lines, example, texts.pop())
                written += 1
            elif where == path:
                print_note(f'note: example "{example.title}" is of several rules, which give different programs')
        write_file(path, formatted(Source(str(path), "\n".join(lines) + "\n")), ANY_FILE)
    return written


@contextlib.contextmanager
def kept_if_refused(files: Iterable[Path]) -> Iterator[None]:
    """Restore files, byte for byte, if the body of the `with` ends with an error."""
    before = {file: file.read_bytes() for file in files}
    try:
        yield
    except BaseException:
        for file, text in before.items():
            if file.read_bytes() != text:
                with writing(file, ANY_FILE) as whole:
                    whole.write(text)
        raise


def fill(path: Path) -> dict[int, Span]:
    """Give each example without a program in its `gives` one that `accept` compares with.

    The program is that of the example itself, or `pass` if it is a graph. Returns {number of the example from 1: its
    original location}. Raises DplcError if the file has other errors.
    """
    text = path.read_text(encoding="utf-8-sig")
    source, lines = Source(str(path), text), text.splitlines()
    whole, which = _filled(lines)
    if whole != lines:
        write_file(path, formatted(Source(str(path), "\n".join(whole) + "\n")), ANY_FILE)
    return {number: Span(source, line, 0, line, len(lines[line - 1])) for number, line in which.items()}


def require_answers(failures: Iterable[Failure], filled: Mapping[Path, Mapping[int, Span]]) -> None:
    """Raise DplcError for a filled example that has no result.

    Its rule does not fire, or the rules of its family give different programs.
    """
    told: dict[tuple[Path, int], str] = {}
    for failure in failures:
        path, line = Path(failure.example.span.source.name), failure.example.span.line
        number = sum(map(bool, map(_EXAMPLE.match, path.read_text(encoding="utf-8").splitlines()[:line])))
        if number in filled.get(path, ()):
            error, span = failure.error(), filled[path][number]
            if not failure.got:
                raise DplcError(error.what, span, error.notes)
            if told.setdefault((path, number), failure.got) != failure.got:
                what = f'example "{failure.example.title}" is of several rules, which give different programs'
                raise DplcError(what, span)


def _filled(lines: list[str]) -> tuple[list[str], dict[int, int]]:
    """Return the lines with a program in every `gives`, and {number from 1 of each example that had none: its line}."""
    out: list[str] = []
    which: dict[int, int] = {}
    place = count = 0
    while place < len(lines):
        out.append(lines[place])
        place += 1
        if not _EXAMPLE.match(out[-1]):
            continue
        line, count = place, count + 1
        program, place = _indented(lines, place)
        out += program
        gives = lines[place] if place < len(lines) else ""
        if gives.startswith("gives ") or not any(line.strip() for line in program):
            continue  # a refusal, or no program to take
        place += gives.rstrip() == "gives"
        given, place = _indented(lines, place)
        if not any(line.strip() for line in given):
            which[count] = line
            given = [AWAITED] if any(line.startswith(f"{INDENT}graph ") for line in program) else program
        out += ["gives", *given]
    return out, which


def _indented(lines: list[str], place: int) -> tuple[list[str], int]:
    """Return the indented lines from an index on without trailing empty lines, and the index of the next line."""
    end = place
    while end < len(lines) and (lines[end].startswith(" ") or not lines[end].strip()):
        end += 1
    while end > place and not lines[end - 1].strip():
        end -= 1
    return lines[place:end], end


def _replaced(lines: list[str], example: s.Example, text: str) -> list[str]:
    """Return the lines of a file with another block as the `gives` of an example."""
    nodes = list(walk(example.gives))
    first = min(node.span.line for node in nodes)
    while lines[first - 2].strip() != "gives":  # documentation of a unit stands above it
        first -= 1
    last = max(node.span.end_line if node.span.end_column else node.span.end_line - 1 for node in nodes)
    block = [f"{INDENT}{line}" for line in text.rstrip().splitlines()]
    return [*lines[: first - 1], *block, *lines[last:]]


# ---- new


PIECE_LEVELS = ("tensor", "loop", "tile", "kernel")
NOTHING = re.compile(rb"(?!)")  # a file that is there is somebody's


def new_rule(subject: Subject, flags: Flags) -> None:
    """Print a rule, or write it to a file. Raises UsageError for no program or for several."""
    name, out = flags.name, flags.out
    if not re.fullmatch(r"[a-z_]\w*", name):
        raise UsageError(f"`{name}` is no name of a rule", hint="lower case letters, digits and _")
    if flags.lines is not None:
        text = _from_file(name, flags.lines)
    elif flags.op is not None:
        text = _from_op(name, flags.op, flags)
    else:
        text = _from_expression(name, flags.level or "tensor", flags)
    text = formatted(Source(f"{name}.rw", text))
    if out is None:
        print_text(text, "rw")
        return
    write_file(out, text, NOTHING)
    print_note(f"note: change what stands behind `rewrite` in {out}, then: dplc rules test --accept {out}")


def _from_file(name: str, lines: str) -> str:
    from ..workbench.new_rule import rule_from_lines
    from .rewriting import read_dump

    found = re.fullmatch(r"(.+?)(?::(\d+)(?:-(\d+))?)?", lines)
    assert found is not None
    path = Path(found[1])
    level, _ = read_dump(path)
    text = path.read_text()
    first = int(found[2] or 1)
    last = int(found[3] or found[2] or len(text.splitlines()))
    if not 0 < first <= last:
        raise UsageError(f"--from {lines}: lines count from 1, the first one first")
    if found[2] is None and level not in ("tensor", "torch"):
        first = next((n for n, line in enumerate(text.splitlines(), 1) if line.startswith("kernel ")), 1)
    return rule_from_lines(name, Source(str(path), text), level, first, last)


def _from_expression(name: str, level: str, flags: Flags) -> str:
    from ..workbench.new_rule import rule_from_lines
    from .programs import compile_text

    if level not in PIECE_LEVELS:
        raise UsageError(
            f"--level {level}: a piece of a program is on {', '.join(PIECE_LEVELS)}", hint="for torch say --op OP"
        )
    text = compile_text(flags, values=False).ir(level)
    first = next(n for n, line in enumerate(text.splitlines(), 1) if line.startswith(("graph ", "kernel ")))
    inner = first if level == "tensor" else first + 1
    return rule_from_lines(name, Source(f"--ir {level}", text), level, inner, len(text.splitlines()))


def _from_op(name: str, op: str, flags: Flags) -> str:
    from ..workbench.new_rule import rule_of_op
    from .programs import captured_text

    known = {schemas.aten_name(one): one for one in schemas.names()} | {one: one for one in schemas.names()}
    if op not in known:
        raise DplcError(f"torch has no op `{op}`", hint=did_you_mean(op, known))
    graph = captured_text(flags, values=False)[0].graph if flags.text else None
    return rule_of_op(name, known[op], graph)


# ---- doc


def write_pages(subject: Subject, flags: Flags) -> None:
    """Write the pages to a folder. Replace earlier pages and leave all other files."""
    from ..api import target_for
    from ..ruleset import toolchain
    from ..view.records import fired_in
    from ..view.rule_pages import MARK, pages

    folder, suite, tools, fired = flags.out or Path(), flags.suite, toolchain(flags.rules), None
    if suite is not None:
        with bars() as tell:
            fired = fired_in(suite, tools, target_for("emulator"), tell, priced=True)
    made = pages(tools.rules, fired, suite.name if suite is not None else "")
    try:
        (folder / "groups").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DplcError(f"cannot write {folder}: {error.strerror}") from None
    for name, text in made.items():
        write_file(folder / name, text, re.compile(rf"\A{MARK}".encode()))
    print_note(f"note: {len(made)} files in {folder}: begin with {folder / 'index.md'}")


# ---- the language server


def serve_editor(subject: Subject, flags: Flags) -> None:
    """Answer an editor until it ends. Raises UsageError without pygls."""
    try:
        from ..workbench.language_server import server
    except ImportError as error:
        if (error.name or "").split(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise UsageError("the language server needs pygls", hint="pip install 'dplc[lsp]'") from None
    server().start_io()
