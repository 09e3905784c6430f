"""What a softmax weighs may need the scores it weighs with: those are not values that one pass reads later, or elsewhere.

Scores of rows by columns, of one query a batch, of rows with a vector; each is run whole, checked, and compared with float64."""

from __future__ import annotations

import pytest
from drawing import draws
from hypothesis import given, settings, strategies as st
from test_transposed import is_right

SCORES = {
    "rows and columns": "Q = torch.randn({i}, {d}{t}); K = torch.randn({j}, {d}{t}); V = torch.randn({j}, {e}{t})[None]; S = Q @ K.T; ",
    "batches": "Q = torch.randn({b}, {i}, {d}{t}); K = torch.randn({b}, {j}, {d}{t}); V = torch.randn({b}, 1, {j}, {e}{t}); S = Q @ K.mT; ",
    "a query": "Q = torch.randn({b}, {e}{t}); K = torch.randn({b}, {j}, {e}{t}); V = torch.randn({b}, {j}, {e}{t}); S = (K @ Q[..., None])[..., 0]; ",
    "rows and a vector": "V = torch.randn({b}, {j}, {e}{t}); w = torch.randn({e}{t}); S = V @ w; ",
}  # fmt: skip
WEIGHED = {
    "less their score": "(F.softmax(S, -1)[..., None] * (V - S[..., None])).sum(-2)",
    "by their score": "(F.softmax(S, -1)[..., None] * V * S[..., None]).sum(-2)",
    "by what their score is made into": "(F.softmax(S * 0.5, -1)[..., None] * (V + torch.tanh(S)[..., None])).sum(-2)",
    "by the score without its bias": "(F.softmax(S + torch.arange({j}), -1)[..., None] * (V - S[..., None])).sum(-2)",
    "by a number of the column": "(F.softmax(S, -1)[..., None] * (V - torch.arange({j})[..., None])).sum(-2)",
    "the scores alone": "(F.softmax(S, -1) * S).sum(-1)",
    "the scores and the values": "((F.softmax(S, -1) * S).sum(-1), (F.softmax(S, -1)[..., None] * V).sum(-2))",
    "and the sum of the exponentials": "((F.softmax(S, -1)[..., None] * (V - S[..., None])).sum(-2), torch.logsumexp(S, -1))",
}


def text_of(scores: str, weighed: str, dtype: str = "", **sizes: int) -> str:
    return (SCORES[scores] + WEIGHED[weighed]).format(t=dtype, **sizes)


@pytest.mark.parametrize("weighed", WEIGHED)
@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.sampled(3)
def test_what_is_weighed_may_need_its_score(scores: str, weighed: str) -> None:
    is_right(text_of(scores, weighed, b=2, i=13, j=11, d=4, e=64))


@settings(max_examples=draws(2), deadline=None)
@given(st.sampled_from(sorted(SCORES)), st.sampled_from(sorted(WEIGHED)), st.sampled_from(["", ",dtype=torch.bfloat16"]),
       st.integers(1, 3), st.integers(1, 37), st.integers(1, 70), st.sampled_from([1, 3, 16, 64]), st.sampled_from([7, 32, 64, 96]))  # fmt: skip
def test_it_is_right_at_any_size(scores: str, weighed: str, dtype: str, b: int, i: int, j: int, d: int, e: int) -> None:
    is_right(text_of(scores, weighed, dtype, b=b, i=i, j=j, d=d, e=e))
