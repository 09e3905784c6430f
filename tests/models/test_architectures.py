"""Models as users make them, called through torch.compile and `dplc.compile`: whole, and with eager's results and caches."""

from __future__ import annotations

import copy
from typing import Any

import architectures
import pytest
import torch
from architectures import ARCHITECTURES, CAUSAL, WORDS, tensors
from dynamo_checks import ALL_COMPILED

import dplc
from dplc.codegen.judge import judge
from dplc.engine.torch_backend import changes

pytestmark = [pytest.mark.usefixtures("fresh_dynamo"), ALL_COMPILED]

FEW = {
    "dplc.compile": ("llama", "gpt2", "phi3", "mistral"),
    "torch.compile": ("llama", "mixtral", "gpt2", "modernbert", "vit", "resnet"),
}
# Those whose caches and logits nobody has compared through `dplc.compile`.
OTHERS = {
    "gemma3_text", "deepseek_v3", "deepseek_v2", "persimmon", "nemotron", "exaone4", "arcee", "helium", "olmo3",
    "ernie4_5", "seed_oss", "glm4", "codegen", "biogpt", "xglm", "mamba2", "phimoe",
}  # fmt: skip
MANY = {
    "dplc.compile": (set(CAUSAL) - OTHERS, pytest.mark.slow),
    "torch.compile": (ARCHITECTURES, pytest.mark.models),
}


@pytest.mark.parametrize(("way", "name"), [(way, name) for way, names in FEW.items() for name in names])
@pytest.mark.sampled(2)
def test_results_and_caches_are_those_of_eager(way: str, name: str) -> None:
    """Within 1e-5 of the largest value of each result."""
    model, (args, kwargs) = architectures.model(name), architectures.arguments(name)
    if way == "dplc.compile":
        compiled, near = dplc.compile(model, args, device="emulator", trace=False), {"rtol": 1e-4, "atol": 1e-5}
    else:
        compiled, near = torch.compile(model, backend="dplc"), {"rtol": 0.0}
    with torch.no_grad():
        got, want = (called(*args, **kwargs) for called in (compiled, model))
    assert type(got) is type(want)
    for one, other in zip(tensors(got), tensors(want), strict=True):
        limit = 1e-5 * float(other.double().abs().max())
        torch.testing.assert_close(one, other, **{"atol": limit, **near})


@pytest.mark.parametrize(
    ("way", "name"),
    [
        pytest.param(way, name, marks=mark)
        for way, (names, mark) in MANY.items()
        for name in ARCHITECTURES
        if name in names and name not in FEW[way]
    ],
)
def test_results_and_caches_of_many(way: str, name: str) -> None:
    test_results_and_caches_are_those_of_eager(way, name)


@pytest.mark.filterwarnings("error::dplc.engine.torch_backend.LengthWarning")
def test_one_compile_serves_every_prompt(compiles: list[Any]) -> None:
    model = architectures.model("llama")
    wide, served = copy.deepcopy(model).double(), torch.compile(model, backend="dplc", dynamic=True)
    with torch.no_grad():
        for length in (5, 9, 17, 33, 2, 64, 100, 31, 128, 7):
            tokens = torch.randint(0, WORDS, (1, length))
            got, want, own = (each(tokens, use_cache=False).logits for each in (served, wide, model))
            assert judge([got], [want], [own]).ok, length
    (one,) = compiles
    assert len(one["made"].compilation.sizes) == 1


@pytest.mark.parametrize(
    ("function", "changed"), [(lambda x: x & x | x, False), (lambda x: torch._foreach_add_([x], [x]), True)]
)
def test_an_and_of_masks_changes_nothing_in_place(function: Any, changed: bool) -> None:
    """`operator.and_` ends like `_foreach_add_`, and is not a change."""
    assert changes(torch.fx.symbolic_trace(function)) == changed


class Logits(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, name: str, changes: dict[str, Any]) -> None:
        super().__init__()
        self.model = architectures.whole(name, **changes)

    def forward(self, ids: Any, mask: Any = None) -> Any:
        return self.model(input_ids=ids, attention_mask=mask, use_cache=False).logits


PADDED = {"attn_implementation": "eager", "initializer_range": 0.3, "num_hidden_layers": 1}
THREE_HEADS = {"hidden_size": 72, "num_attention_heads": 3, "num_key_value_heads": 3, "num_hidden_layers": 1}
SLOW = [  # a window that is shorter than a padded text, and norms after attention
    *(("mistral", {"num_hidden_layers": 1}, (1,) * batch, length) for batch, length in ((1, 16), (2, 13), (3, 13))),
    *(("olmo2", THREE_HEADS, (), length) for length in (13, 17)),
]


@pytest.mark.parametrize(
    ("dtype", "name", "changes", "padding", "length"),
    [
        *((torch.float32, name, PADDED, (3, 1), 7) for name in ("llama", "mistral", "gemma2", "gpt2", "opt")),
        *((torch.bfloat16, name, PADDED, (3, 1), 7) for name in ("gemma2", "gpt2", "opt", "llama", "mistral")),
        *(pytest.param(torch.float32, *case, marks=pytest.mark.slow) for case in SLOW),
    ],
)
@pytest.mark.sampled(2)
def test_texts_padded_at_the_left_have_the_logits_of_eager(
    dtype: torch.dtype, name: str, changes: dict[str, Any], padding: tuple[int, ...], length: int
) -> None:
    """All logits, also those of padding: a token that sees nothing has the mean of all values."""
    model, ids = Logits(name, changes).to(dtype), torch.randint(3, WORDS, (max(len(padding), 1), length))
    mask = (torch.arange(length) >= torch.tensor(padding)[:, None]).long()
    inputs, gate = (ids, mask) if padding else (ids,), 0.02 if dtype is torch.bfloat16 else 1e-5
    with torch.no_grad():
        got, want = (called(*inputs) for called in (dplc.compile(model, inputs, device="emulator"), model))
    torch.testing.assert_close(got, want, rtol=10 * gate, atol=gate * max(1.0, float(want.abs().max())))
