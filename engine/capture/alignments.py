"""The loss of connectionist temporal classification (Graves et al., 2006): minus the logarithm of the sum over all ways
to align a row of labels with the steps of a sequence, blanks between them and each label as often as one likes.

A step needs what the one before gave, so it is written out, a step after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

MEAN, SUM = 1, 2  # torch's numbers of reductions


def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = MEAN,
    zero_infinity: bool = False,
) -> Any:
    """log_probs: [t, n, c], or [t, c] of one sequence. targets: labels [n, s], or those of all sequences in one row.
    lengths: of n sequences and of their labels, lists or tensors. NotImplemented for no steps and for no sequences.
    """
    if log_probs.dim() == 2:
        one = ctc_loss(
            log_probs[:, None], targets.reshape(1, -1), _row(input_lengths, targets), _row(target_lengths, targets),
            blank, SUM, zero_infinity,
        )  # fmt: skip
        return one / _row(target_lengths, targets).clamp(min=1)[0] if reduction == MEAN else one
    steps, n, _ = log_probs.shape
    if not steps or not n:
        return NotImplemented
    ends, counts = _row(input_lengths, targets), _row(target_lengths, targets)
    paths = _paths(_labels(targets, counts, target_lengths, n), blank)
    place = torch.arange(paths.shape[1], device=paths.device)
    nothing = torch.full((), -torch.inf, dtype=log_probs.dtype, device=paths.device)
    cost = torch.where(_ways(paths, blank), 0, nothing)
    begin = (place < 2) & (place < 2 * counts[:, None] + 1)
    reached = torch.where(begin, log_probs[0].gather(1, paths), nothing)
    for step in range(1, steps):
        new = torch.logsumexp(reached[:, None] + cost, 2) + log_probs[step].gather(1, paths)
        reached = torch.where(step < ends[:, None], new, reached)
    last = reached.gather(1, 2 * counts[:, None])[:, 0]
    before = reached.gather(1, (2 * counts[:, None] - 1).clamp(min=0))[:, 0]
    loss = -torch.logsumexp(torch.stack((last, torch.where(counts > 0, before, nothing))), 0)
    loss = torch.where(ends > 0, loss, torch.where(counts > 0, -nothing, 0))
    if zero_infinity:
        loss = torch.where(loss == torch.inf, 0, loss)
    if reduction == MEAN:
        return (loss / counts.clamp(min=1)).mean()
    return loss.sum() if reduction == SUM else loss


def _row(lengths: Any, like: Any) -> Any:
    """Lengths as a tensor of one dimension."""
    if isinstance(lengths, torch.Tensor):
        return lengths.reshape(-1).long()
    return torch.stack([torch.full((), n, dtype=torch.long, device=like.device) for n in lengths])


def _labels(targets: Any, counts: Any, target_lengths: Any, n: int) -> Any:
    """The labels of each sequence, [n, s]; what stands behind its last one is any label."""
    if targets.dim() == 2:
        return targets.long()
    known = isinstance(target_lengths, Sequence)
    longest = max(target_lengths, default=0) if known else targets.shape[0]
    place = (counts.cumsum(0) - counts)[:, None] + torch.arange(longest, device=targets.device)
    if not targets.shape[0]:
        return targets.new_zeros((n, 0)).long()
    return targets.long()[place.clamp(max=targets.shape[0] - 1)]


def _paths(labels: Any, blank: int) -> Any:
    """A blank before, between and behind the labels: [n, 2*s + 1]."""
    blanks = torch.full_like(labels, blank)
    pairs = torch.stack((blanks, labels), 2).reshape(labels.shape[0], -1)
    return functional.pad(pairs, (0, 1), value=blank)


def _ways(paths: Any, blank: int) -> Any:
    """Whether a step may go to each place of a path from each other one: [n, to, from]."""
    place = torch.arange(paths.shape[1], device=paths.device)
    back = place[:, None] - place
    skips = (paths != blank) & (paths != functional.pad(paths, (2, 0), value=blank)[:, :-2])
    return (back == 0) | (back == 1) | ((back == 2) & skips[:, :, None])
