"""`%load_ext dplc`: a notebook cell that is a rule, and its effect on a program as the output.

    %%dplc_rule torch.exp(torch.randn(64)) * torch.exp(torch.randn(64))
    rule product_of_exponentials on tensor
    ...

The first line takes the text of `-c`. Without a text, the cell uses that of the preceding cell. dplc compiles the
program without the rule and with it.
"""

from __future__ import annotations

import sys
from typing import Any

from ...codegen.target import Target
from ...codegen.target import target as default_target
from ...ir.diagnostic import Diagnostics, DplcError, Source, UsageError
from ...ir.text import html
from ...ir.text.html import Html
from ..capture.text import capture_text
from ..compiler import Compilation, Compiler
from ..language.check import check, errors
from ..language.rule import RuleFile, RuleSet, load, read_rules
from ..rewrite.trace import Firing, Skip, Trace
from ..ruleset import toolchain
from .live_program import cuda_diff

CELL = "the cell"
SHOWN = 12  # number of firings and refusals shown in full


def load_ipython_extension(shell: Any) -> None:
    """Register the cell magic. IPython calls it on `%load_ext dplc`."""
    last: list[str] = []

    def dplc_rule(line: str, cell: str) -> Html | None:
        """Compile a program with the rules of the cell, and show what they change."""
        if line.strip():
            last[:] = [line.strip()]
        try:
            if not last:
                raise UsageError("a program is needed", hint="%%dplc_rule torch.relu(torch.randn(8))")
            return effect(cell, last[0])
        except DplcError as error:
            print(error.render(), file=sys.stderr)
            return None

    shell.register_magic_function(dplc_rule, "cell", "dplc_rule")


def effect(cell: str, text: str, target: Target | None = None) -> Html:
    """Show the effect of rules on a `-c` program. Raises DplcError for wrong rules or programs."""
    file = read_rules(Source(CELL, cell))
    rules = RuleSet((*load().files, file))
    broken = errors(check(rules, {CELL}))
    if broken:
        raise broken[0] if len(broken) == 1 else Diagnostics(broken)
    machine, captured = target or default_target(), capture_text(text)
    before, after = (Compiler(tools, machine, Trace()).compile(captured) for tools in (toolchain(), toolchain(rules)))
    return _shown(file, before, after)


def _shown(file: RuleFile, before: Compilation, after: Compilation) -> Html:
    names = {rule.name for rule in file.rules}
    events = [event for event in after.events if event.rule in names]
    fired = [event for event in events if isinstance(event, Firing)]
    refused = [event for event in events if isinstance(event, Skip)]
    times = f"fired {len(fired)} time{'' if len(fired) == 1 else 's'}" if fired else "did not fire"
    pieces = [html.heading(f"{', '.join(sorted(names)) or 'no rule'}: {times}")]
    pieces += [html.folded(event.line(), html.difference("\n".join(event.diff())), True) for event in fired[:SHOWN]]
    if not fired:
        pieces += [html.line(event.line()) for event in refused[:SHOWN]]
        if not refused:
            pieces.append(html.line("No pass contains the rule: check its level, and `dplc rules list --rules FILE`."))
    was, now = (made.predicted_seconds * 1e6 for made in (before, after))
    change = f"{len(before.launched)} → {len(after.launched)} launches, {was:.2f} → {now:.2f} µs predicted"
    pieces.append(html.line(f"{change} for {after.target.name}"))
    diff = cuda_diff(before.cuda, after.cuda)
    changed = html.folded("what it changes in the CUDA", html.difference(diff))
    pieces.append(changed if diff else html.line("The CUDA is the same."))
    return html.together(*pieces)
