"""Which rules a recorded schedule depends on, and whether they still say what they said.

Which edits of rule files can change what an entry of the store means?

- A rule that fires in the schedule, in its pattern, guards or template; also a `local` rule that its template calls:
  yes.
- A canonical rule: it may run after any firing, so every schedule depends on all of them.
- A rule that makes the first Tile of a kernel, or changes its loops before: they fire by default and are not listed.
- A rule on Kernel IR, or the order of those passes: they run after every schedule.
- A rule that was offered and did not fire, or the order of the passes of Tile IR: no. The schedule says itself what
  fires, in which order, and nothing else does; it may no longer be the best one, so a search looks again
  (`TuningKey.rules`).
- Rules on the levels above: they change the kernel itself, and with it the key. A remembered candidate of fusion
  (`candidates.py`) names the algebra that proves it, and depends on the rules for stores as a whole.
- Documentation, examples, the texts of reasons, the place in the file: no.
- A user's rule that the search was never offered, a rule or pass that a user's file takes out: the entry is not about
  this rule set. Otherwise a new rule would never fire where a store is.

- A number of the policy: if a rule that the schedule depends on reads it in its text, or through a fact of a rule file
  (digests have numbers written out). Numbers that Python reads (facts, fusion, searches) say what pays: no.
- A fact in Python, the code generator, the model: no. A replay asks every `where` again and lowers the kernel anew, so
  what it makes is legal and right; it may no longer be the best one. Entries of today's tools are taken first, and a
  compile says where it takes another.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..language import core as s
from ..language.rule import Rule, RuleSet, built_in_files
from ..language.typed_slots import walk
from ..rewrite.terms.rewriter import mentions_mat
from .protocol import Schedule

LEVELS = frozenset(("module", "loop", "tile", "kernel"))
CANONICAL, TILING, LOWERING = "(canonical rules)", "(loop rules)", "(kernel rules)"
FUSING = "(fusion rules)"
# {digest before: digest now} of rules that say the same in other words. On loops, they are hashed in the order of their
# names; the others say `split`, `join` or `fold`, and every kernel of the manifest stayed as it was.
MOVED = {
    "b1d640121052c2ef": "700717cc277020fc",  # split_matmul_k
    "7bbd1e0208d943b1": "29d2802d5c18a276",  # split_fold
    "a174ab19f5106b7e": "f78554d8d1ed29a6",  # (loop rules)
    "9557d714fb3f8c5b": "83199adaef1b9c35",  # collapse_free
    "73f6ec71bb71daf1": "e4cc768f2a00eab8",  # merge_axes
    "2983cc1701259772": "b58e89b5595108c1",  # merge_axes_backwards
    "5d6b56b2ff67816b": "3ed3482f25093365",  # blockify_flat
    "f57a2476652f37c4": "4d3fd5fd46bb7fb5",  # chunk_reduce
    "6e0a9a8cc6a4c98d": "f4ee58b82eac52af",  # fit_block
    "e61fc88ab2f83cb2": "e5a8a6a255f692fa",  # slice_matmul_k
    "34f74503cb5b1d45": "8194e7c678aee1de",  # warp_tile
    "c167867f414b2599": "2fbeb6862a110c74",  # vector_reduce
    "97a77bf4e3aa4be4": "14c27e255d6a5e0b",  # one_exchange
    "deeaee7bfb6ed745": "5e88c04230be0070",  # rows_per_block
    "00d86531caef161e": "177b49b50a16ee0e",  # online_tile
    "eadfd1e86a503300": "20bbafae8e754698",  # online_row
    "90a90cbb8037d266": "2bfe5c9155facb1e",  # online_pool
    "155d94ac7bacb351": "2bfe5c9155facb1e",  # online_pool
    "cef79764f103d43f": "20bbafae8e754698",  # online_row
    "504458d77ddc41a8": "177b49b50a16ee0e",  # online_tile
    "2627acc6564c27fc": "177b49b50a16ee0e",  # online_tile
    "f0b19d98e6c2b486": "85342eb56fa132c4",  # pipeline_k_outer
}
_UNREAD = frozenset(("span", "reason", "docs"))


class RuleDigests:
    """The rules in force, each as a digest of what it means; computed when asked for."""

    def __init__(self, rules: RuleSet):
        self.rules = rules
        self._known: dict[str, str | None] = {}
        ours = set(map(id, built_in_files()))
        added = [file for file in rules.files if id(file) not in ours]
        self.own = frozenset(rule.name for file in added for rule in rules.in_force(file.rules) if rule.level in LEVELS)
        values = (rule for file in added for rule in rules.in_force(file.rules) if rule.level == "tensor")
        self.own_values = frozenset(rule.name for rule in values)
        names = {written.name for file in added for written in file.without}
        self.taken_out = names.union(*({rule.name for rule in rules.passes.get(name, ())} for name in names))

    def offered(self, program: bool) -> frozenset[str]:
        """Rules of users that a search was offered: those on values only where it chose among ways of fusing."""
        return self.own | self.own_values if program else self.own

    def used(self, schedule: Schedule) -> dict[str, str]:
        """{rule: digest} of all that a schedule depends on. Rules that are not there (any more) are left out."""
        names = (CANONICAL, TILING, LOWERING, *sorted({decision.rule for decision in schedule}))
        return {name: digest for name in names if (digest := self.digest(name)) is not None}

    def hold(self, used: Mapping[str, str]) -> bool:
        """Whether the rules that an entry depends on still say the same."""
        return (
            all(self.digest(name) == MOVED.get(digest, digest) for name, digest in used.items())
            and not self.taken_out & used.keys()
        )

    def digest(self, name: str) -> str | None:
        """The digest of a rule, of CANONICAL, TILING or LOWERING; None for a rule that is not there."""
        if name not in self._known:
            self._known[name] = self._digest(name)
        return self._known[name]

    def _digest(self, name: str) -> str | None:
        if name == CANONICAL:
            return _hash(map(self._text, self.rules.canonical))
        if name == LOWERING:
            order = [p for file in self.rules.files for p in file.pipelines if p.name == "kernel"]
            on_kernels = self.rules.at("kernel")
            gone = sorted(self.taken_out & {rule.name for rule in on_kernels})
            return _hash([*map(self._text, on_kernels), spelled(order), *gone])
        if name == TILING:
            return _hash(map(self._text, self._tiling()))
        if name == FUSING:
            on_stores = [rule for rule in self.rules.at("tensor") if mentions_mat(rule)]
            return _hash([*map(self._text, on_stores), *sorted(self.taken_out & {rule.name for rule in on_stores})])
        rule = self.rules.rules.get(name)
        return None if rule is None else _hash([self._text(rule)])

    def _tiling(self) -> Iterator[Rule]:
        """The rules of every pass that has one on loop nests without a Tile."""
        for _, members in sorted(self.rules.passes.items()):
            if any(rule.level in ("module", "loop") and not _mentions("Tile", rule.match) for rule in members):
                yield from members

    def _text(self, rule: Rule, above: frozenset[str] = frozenset()) -> str:
        """What a rule says, and what the local rules say that it calls."""
        parts = (sorted(rule.attributes), rule.level, rule.parameters, rule.match, rule.clauses, rule.rewrite)
        called = sorted({node.fn for node in walk(rule.rewrite) if isinstance(node, s.Apply)} - above - {rule.name})
        local = [found for fn in called if (found := self.rules.rules.get(fn)) and "local" in found.attributes]
        inner = above | {rule.name}
        return "\n".join([spelled(parts), *(self._text(found, inner) for found in local)])


@functools.lru_cache(maxsize=8)
def digests_of(rules: RuleSet) -> RuleDigests:
    """The digests of a rule set; the last few are kept."""
    return RuleDigests(rules)


def spelled(value: Any) -> str:
    """Syntax as text, without places, documentation and reasons."""
    if isinstance(value, s.Syntax):
        fields = (f.name for f in dataclasses.fields(value) if f.name not in _UNREAD)
        return f"{type(value).__name__}({', '.join(spelled(getattr(value, name)) for name in fields)})"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(spelled, value))}]"
    return repr(value)


def _mentions(name: str, statements: tuple[s.Syntax, ...]) -> bool:
    return any(isinstance(node, s.Apply) and node.fn == name for node in walk(statements))


def _hash(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
