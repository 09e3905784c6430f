"""Checkpoints of quantised weights, written here by their public definitions, against their weights in float64."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from architectures import ARCHITECTURES, LENGTH, tokens
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from dplc.codegen.judge import judge
from dplc.codegen.target import target
from dplc.engine.compiler import compiler_with
from dplc.engine.models import sources
from dplc.engine.models.artefact import emulator
from dplc.engine.models.compiling import CompiledModel, DynamicModelRunner, ModelShape, compile_model
from dplc.engine.models.quantised import NF4, nearest
from dplc.engine.models.sources import ModelSource, build
from dplc.ir.diagnostic import DplcError

WIDTHS = {"intermediate_size": 48}
Files = dict[str, torch.Tensor]
Written = tuple[dict[str, Any], Files, torch.Tensor]  # the tensors of a layer, and its weight in float64


def words(codes: list[list[int]], bits: int) -> torch.Tensor:
    """Return each row of numbers in 32-bit words, the first in the lowest bits."""
    each = 32 // bits
    rows = [
        [sum(n << bits * place for place, n in enumerate(row[at : at + each])) for at in range(0, len(row), each)]
        for row in codes
    ]
    return torch.tensor([[n - (1 << 32) if n >> 31 else n for n in row] for row in rows], dtype=torch.int32)


def draw(low: int, high: int, *shape: int) -> torch.Tensor:
    return torch.randint(low, high, shape)


def spread(x: torch.Tensor, inputs: int) -> torch.Tensor:
    """Return what groups have for each input."""
    return x.double().repeat_interleave(inputs // x.shape[1], 1)


def gptq(outputs: int, inputs: int, *, bits: int = 4, group: int = 16, act: bool = False, version: int = 1) -> Files:
    codes, zeros = draw(0, 1 << bits, outputs, inputs), draw(1, 1 << bits, outputs, inputs // group)
    scales = (torch.rand(outputs, inputs // group) * 0.05).half()
    of = torch.arange(inputs) // group
    of = of[torch.randperm(inputs)] if act else of
    stored = (zeros - 1 if version == 1 else zeros).T.tolist()
    files = {
        "qweight": words(codes.tolist(), bits).T.contiguous(), "qzeros": words(stored, bits),
        "scales": scales.T.contiguous(), "g_idx": of.int(),
    }  # fmt: skip
    return files | {"": (codes - zeros[:, of]).double() * scales[:, of].double()}


def awq(outputs: int, inputs: int) -> Files:
    group, order = 16, (0, 2, 4, 6, 1, 3, 5, 7)
    codes, zeros = draw(0, 16, outputs, inputs), draw(0, 16, outputs, inputs // group)
    scales = (torch.rand(outputs, inputs // group) * 0.05).half()

    def mixed(x: torch.Tensor) -> torch.Tensor:
        return words([[row[at + n] for at in range(0, len(row), 8) for n in order] for row in x.T.tolist()], 4)

    files = {"qweight": mixed(codes), "qzeros": mixed(zeros), "scales": scales.T.contiguous()}
    return files | {"": (codes - spread(zeros, inputs)) * spread(scales, inputs)}


def compressed(
    outputs: int, inputs: int, *, bits: int = 4, group: int = 0, zeros: bool = False, packed: bool = True
) -> Files:
    groups, half = inputs // group if group else 1, 1 << bits - 1
    codes, zero = draw(-half, half, outputs, inputs), draw(-half, half, outputs, groups) * zeros
    scales = torch.rand(outputs, groups).bfloat16() * 0.05
    files = {"weight_scale": scales}
    if packed:
        files |= {
            "weight_packed": words((codes + half).tolist(), bits),
            "weight_shape": torch.tensor([outputs, inputs]),
        }
        files |= {"weight_zero_point": words((zero + half).T.tolist(), bits).T.contiguous()} if zeros else {}
    else:
        files |= {"weight": codes.to(torch.int8)} | ({"weight_zero_point": zero.to(torch.int8)} if zeros else {})
    return files | {"": (codes - spread(zero, inputs)) * spread(scales, inputs)}


def floats(outputs: int, inputs: int, *, scales: int) -> Files:
    codes, scale = (
        torch.randn(outputs, inputs).to(torch.float8_e4m3fn),
        torch.rand(*(outputs, 1)[:scales] or (1,)) * 0.1,
    )
    return {"weight": codes, "weight_scale": scale, "": codes.double() * scale.double().reshape(-1, 1)}


def blocks(outputs: int, inputs: int) -> Files:
    codes, scale = (
        torch.randn(outputs, inputs).to(torch.float8_e4m3fn),
        torch.rand(-(-outputs // 12), inputs // 8) * 0.1,
    )
    whole = spread(scale.repeat_interleave(12, 0)[:outputs], inputs)
    return {"weight": codes, "weight_scale_inv": scale, "": codes.double() * whole}


def scheme(bits: int, format: str, sort: str = "int", **weights: Any) -> dict[str, Any]:
    kinds = {"num_bits": bits, "type": sort, "symmetric": True, **weights}
    return {
        "quant_method": "compressed-tensors", "format": format, "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": kinds, "input_activations": None}},
    }  # fmt: skip


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": False, "sym": True}
PACKED, GROUPS = "pack-quantized", {"strategy": "group", "group_size": 16}
FORMATS: dict[str, tuple[dict[str, Any], Callable[[int, int], Files]]] = {
    "gptq": (GPTQ, gptq),
    "gptq of 8 bits": ({**GPTQ, "bits": 8}, lambda o, i: gptq(o, i, bits=8)),
    "gptq by activation": ({**GPTQ, "desc_act": True}, lambda o, i: gptq(o, i, act=True)),
    "gptq v2": ({**GPTQ, "checkpoint_format": "gptq_v2"}, lambda o, i: gptq(o, i, version=2)),
    "gptq of whole rows": ({**GPTQ, "group_size": -1}, lambda o, i: gptq(o, i, group=i)),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": 16, "zero_point": True, "version": "gemm"}, awq),
    "packed in groups": (scheme(4, PACKED, **GROUPS), lambda o, i: compressed(o, i, group=16)),
    "packed with zeros": (
        scheme(4, PACKED, **GROUPS, symmetric=False), lambda o, i: compressed(o, i, group=16, zeros=True)
    ),
    "packed 8 bits": (scheme(8, PACKED, strategy="channel"), lambda o, i: compressed(o, i, bits=8)),
    "int8": (scheme(8, "int-quantized", strategy="channel"), lambda o, i: compressed(o, i, bits=8, packed=False)),
    "int8 with zeros": (
        scheme(8, "int-quantized", strategy="channel", symmetric=False),
        lambda o, i: compressed(o, i, bits=8, packed=False, zeros=True),
    ),
    "fp8 of channels": (scheme(8, "float-quantized", "float", strategy="channel"), lambda o, i: floats(o, i, scales=2)),
    "fp8 of tensors": (scheme(8, "float-quantized", "float", strategy="tensor"), lambda o, i: floats(o, i, scales=0)),
    "fp8 of blocks": ({"quant_method": "fp8", "weight_block_size": [12, 8]}, blocks),
}  # fmt: skip


def checkpoint(folder: Path, config: dict[str, Any], make: Callable[[int, int], Files], name: str = "llama") -> Any:
    """Write a checkpoint, and return the model with its weights in float64."""
    torch.manual_seed(0)
    plain = AutoConfig.for_model(ARCHITECTURES[name]["type"], **{**ARCHITECTURES[name]["config"], **WIDTHS})
    model = AutoModelForCausalLM.from_config(plain).eval()
    files = {key: value.clone() for key, value in model.state_dict().items()}
    model.double()
    for path, layer in model.named_modules():
        if isinstance(layer, torch.nn.Linear) and path != "lm_head":
            made = make(*layer.weight.shape)
            layer.weight.data = made.pop("").double()
            del files[f"{path}.weight"]
            files |= {f"{path}.{key}": value for key, value in made.items()}
    save_file(files, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({**plain.to_dict(), "quantization_config": config}))
    return model


def compiled(folder: Path, dtype: str = "f32") -> CompiledModel:
    return compile_model(sources.find(str(folder)), ModelShape(LENGTH, dtype=dtype), compiler_with(target("sm_80")))


def off(made: CompiledModel, weights: Any, model: Any) -> float:
    """Return the largest error of the logits over the largest one, against a model in float64."""
    ids = tokens()
    (logits,) = DynamicModelRunner(made, emulator(), weights).run({"input_ids": ids})
    with torch.no_grad():
        return judge([logits], [model(ids, use_cache=False).logits]).relative


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.sampled(4)
def test_a_checkpoint_computes_with_its_weights(name: str, tmp_path: Path) -> None:
    config, make = FORMATS[name]
    model = checkpoint(tmp_path, config, make, "qwen2" if "gptq" in name else "llama")
    made = compiled(tmp_path)
    sources.check(tmp_path, made.weights)
    read = {buffer.name: buffer.dtype for buffer in made.program.constants if buffer.name in made.weights}
    codes = {dtype for name, dtype in read.items() if "codes" in made.weights[name].names[0]}
    assert codes and codes <= {"u8", "i8", "e4m3"}
    assert off(made, sources.load(tmp_path, made.weights), model) < 2e-5


KINDS = ("int8", "int8:16:zeros", "int4:16", "int4:8:zeros", "int4", "nf4:16", "fp8", "fp8:16")


def rounded(weight: torch.Tensor, kind: str) -> torch.Tensor:
    """Return a weight in float64 rounded to the nearest code, element by element."""
    sort, *rest = kind.split(":")
    group = int(rest[0]) if rest else weight.shape[1]
    found = []
    for row in weight.double().reshape(-1, group).tolist():
        low, high = min(*row, 0.0), max(*row, 0.0)
        if "zeros" in rest:
            step = (high - low) / ((1 << int(sort[3:])) - 1)
            zero = round(-low / step)
            found.append([(max(0, min((1 << int(sort[3:])) - 1, round(x / step + zero))) - zero) * step for x in row])
            continue
        most = max(high, -low)
        if sort == "nf4":
            found.append([min(NF4, key=lambda value: abs(value - x / most)) * most for x in row])
        elif sort == "fp8":
            scaled = torch.tensor([x / most * 448 for x in row]).to(torch.float8_e4m3fn)
            found.append([float(x) * most / 448 for x in scaled])
        else:
            step = most / (127 if sort == "int8" else 7)
            found.append([round(x / step) * step for x in row])
    return torch.tensor(found, dtype=torch.float64).reshape(weight.shape)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sampled(3)
def test_a_plain_checkpoint_is_rounded_to_the_nearest_code(kind: str, tmp_path: Path) -> None:
    def plain(outputs: int, inputs: int) -> Files:
        weight = torch.randn(outputs, inputs) * 0.2
        weight[0] = 0  # a row without a scale
        return {"weight": weight, "": weight.double()}

    model = checkpoint(tmp_path, {}, plain)
    found = sources.find(str(tmp_path))
    source = ModelSource(found.name, {**found.config, "quantization_config": nearest(kind)})
    made = compile_model(source, ModelShape(LENGTH), compiler_with(target("sm_80")))
    for path, layer in model.named_modules():
        if isinstance(layer, torch.nn.Linear) and path != "lm_head":
            own = layer.weight.data[1:]
            layer.weight.data[1:] = rounded(own, kind)
    assert off(made, sources.load(tmp_path, made.weights), model) < 2e-5
    plain_bytes = compile_model(
        ModelSource("x", {**found.config, "quantization_config": None}),
        ModelShape(LENGTH),
        compiler_with(target("sm_80")),
    ).figures.weight_bytes
    assert made.figures.weight_bytes < plain_bytes


def test_what_is_not_read_is_told_in_one_line(tmp_path: Path) -> None:
    for said, config in {
        "of the method `torchao` are not read": {"quant_method": "torchao"},
        "of the method `None`": {},
        "`bits` 3 are not read: 4, 8 are possible": {**GPTQ, "bits": 3},
        "`version` gemv": {"quant_method": "awq", "bits": 4, "group_size": 16, "version": "gemv"},
        "`format` marlin-24": scheme(4, "marlin-24"),
        "4-bit floats": scheme(4, "float-quantized", "float", strategy="channel"),
        "32 inputs, not a multiple of a group of 24": {**GPTQ, "group_size": 24},
        "`group_size` 'x": {**GPTQ, "group_size": "x"},
        "`weight_block_size` of two numbers": {"quant_method": "fp8"},
        "no linear layer": scheme(4, PACKED, **GROUPS) | {"ignore": ["Linear"]},
    }.items():
        config = {
            **ARCHITECTURES["llama"]["config"],
            **WIDTHS,
            "model_type": "llama",
            "quantization_config": config or {"x": 1},
        }
        with pytest.raises(DplcError) as caught:
            build(ModelSource("x", config))
        assert said.replace("'", "") in str(caught.value).replace("'", "") and "\n" not in caught.value.what


def test_missing_and_wrong_tensors_are_told_before_any_is_read(tmp_path: Path) -> None:
    checkpoint(tmp_path, GPTQ, gptq)
    made, layer = compiled(tmp_path), "model.layers.0.mlp.up_proj"
    whole = load_file(tmp_path / "model.safetensors")
    for name, value, said in (
        (f"{layer}.scales", None, f"the gptq weights have no tensor `{layer}.scales`"),
        (f"{layer}.qweight", torch.zeros(3, 48, dtype=torch.int32), f"of `{layer}` make codes of"),
        (f"{layer}.scales", torch.zeros(3, 48), f"of `{layer}` make scales of [48, 3]; the model needs [48, 2]"),
        (f"{layer}.scales", torch.zeros(2), f"of `{layer}` make scales of"),
    ):
        files = {key: tensor for key, tensor in whole.items() if key != name} | (
            {name: value} if value is not None else {}
        )
        save_file(files, tmp_path / "model.safetensors")
        with pytest.raises(DplcError) as caught:
            sources.check(tmp_path, made.weights)
        assert said in str(caught.value)
