"""What happens to the rules of a folder when one guard after the other is left out, as `dplc check --guards` sees it.

python examples/benches/guards.py
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from dplc.engine.ruleset import toolchain
from dplc.engine.verify.mutants import survey
from dplc.engine.verify.run import CheckOptions

FOLDERS = ("algebra", "tensor", "kernel")
HOW = ("wrong", "refused", "example", "survives")


def main() -> None:
    """Print the table."""
    rules = toolchain().rules
    print("| folder | guards | wrong | refused | by an example alone | survive |\n|---|--:|--:|--:|--:|--:|")
    for folder in FOLDERS:
        of_folder = [r for r in rules.rules.values() if Path(r.span.source.name).parts[-2] == folder]
        surveys = (survey(rules, rule, CheckOptions()) for rule in of_folder)
        found = Counter(one.how for made in surveys for one in made.results)
        print(f"| `{folder}/` | {found.total()} | {' | '.join(str(found[how]) for how in HOW)} |", flush=True)


if __name__ == "__main__":
    main()
