"""What PyTorch itself says of ops that no rule takes: the one table of them.

A rule would say the same formula again. What is made of them are ops of rules, and what depends on no input (the places
and weights of a resize) folds. No rule takes an op that stands here (a test).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._decomp.decompositions import upsample_compute_output_size
from torch._prims_common import is_non_overlapping_and_dense_or_false, suggest_memory_format
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ...ir.diagnostic import DplcError
from .alignments import ctc_loss
from .distances import distances, distances_backward
from .encoder_layers import attention, encoder_layer
from .pools import adaptive_avg_pool_backward, avg_pool_backward, max_pool_backward
from .untraced import replaced

# Formulas in Python (`torch._decomp`).
FORMULAS = {
    "resizing and sampling: gathers at places, most of which only the sizes decide": """
        upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d
        upsample_nearest1d upsample_nearest2d upsample_nearest3d
        _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
        affine_grid_generator grid_sampler_2d im2col
    """,
    "copies of what are views elsewhere": """
        diagonal_copy expand_copy narrow_copy permute_copy split_with_sizes_copy squeeze_copy t_copy transpose_copy
        unbind_copy unfold_copy unsqueeze_copy view_copy
    """,
    "padding, after what it is called by": """
        reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d
    """,
    "pools, back": "max_unpool2d max_unpool3d",
    "recurrent layers: a step after the other": "lstm gru rnn_tanh rnn_relu",
    "weights of a norm and a direction": "_weight_norm_interface",
    "joining and shuffling": "pad_sequence block_diag channel_shuffle pixel_unshuffle _chunk_cat",
    "norms that give statistics": "_native_batch_norm_legit_functional native_group_norm",
    "functions of elements": "mvlgamma special_entr special_ndtr special_xlog1py logaddexp2 ldexp",
    "losses": "multi_margin_loss soft_margin_loss",
    "distances": "linalg_cross pdist renorm dist _euclidean_dist",
    "in order": "isin",
    "derivatives": """
        _fused_rms_norm_backward _log_softmax_backward_data _prelu_kernel_backward _softmax_backward_data
        binary_cross_entropy_backward diagonal_backward elu_backward embedding_dense_backward gelu_backward glu_backward
        hardsigmoid_backward hardswish_backward hardtanh_backward huber_loss_backward leaky_relu_backward
        log_sigmoid_backward logit_backward max_pool2d_with_indices_backward mish_backward mse_loss_backward
        native_batch_norm_backward native_dropout_backward native_group_norm_backward native_layer_norm_backward
        nll_loss2d_backward nll_loss_backward reflection_pad1d_backward reflection_pad2d_backward
        reflection_pad3d_backward select_backward sigmoid_backward silu_backward slice_backward smooth_l1_loss_backward
        soft_margin_loss_backward softplus_backward tanh_backward threshold_backward unfold_backward
    """,
    "what a forward pass keeps for its derivative": """
        native_layer_norm native_batch_norm _native_batch_norm_legit
        _fused_rms_norm nll_loss_forward nll_loss2d_forward
        _softmax _log_softmax log_sigmoid_forward _prelu_kernel
        _unsafe_masked_index_put_accumulate _unsafe_masked_index
    """,
}
# What ATen itself computes by other ops, in C++.
COMPOSITES = {
    "losses made of a few elementwise ops": """
        hinge_embedding_loss margin_ranking_loss cosine_embedding_loss triplet_margin_loss poisson_nll_loss
    """,
    "spectra: one transform over some dimensions, cut or filled, and its scale": """
        fft_fft fft_ifft fft_rfft fft_irfft fft_hfft fft_ihfft
        fft_fft2 fft_ifft2 fft_rfft2 fft_irfft2 fft_hfft2 fft_ihfft2
        fft_fftn fft_ifftn fft_rfftn fft_irfftn fft_hfftn fft_ihfftn fft_fftshift fft_ifftshift stft istft
    """,
    "powers in f64": "float_power",
    "splitting and joining": "hsplit vsplit dsplit cartesian_prod diagflat sum_to_size",
    "linear algebra without factorisations": """
        cross chain_matmul frobenius_norm matrix_power vander
        linalg_matrix_norm linalg_multi_dot linalg_matrix_power linalg_vander linalg_diagonal
    """,
    "by another name": "special_multigammaln special_round native_channel_shuffle",
    "derivatives of choices": "index_select_backward trace_backward gather_backward value_selecting_reduction_backward",
    "sums of neighbours": "trapezoid trapz cumulative_trapezoid gradient",
    "sampling": "grid_sampler",
    "in order": "msort quantile nanquantile",
    "cells of recurrent layers": "gru_cell lstm_cell rnn_relu_cell rnn_tanh_cell",
    "weights of a norm and a direction": "_weight_norm norm_except_dim",
    "of complex numbers, whose parts floats have as well": "isreal",
}
# Ops for whose derivative PyTorch has no formula: it derives their own.
DERIVED = "grid_sampler_2d replication_pad1d replication_pad2d replication_pad3d"

# Derivatives of pools, by formulas of our own.
POOLS: dict[Callable[..., Any], str] = {
    max_pool_backward: "adaptive_max_pool2d_backward adaptive_max_pool3d_backward max_pool3d_with_indices_backward",
    adaptive_avg_pool_backward: "_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward",
}

# Resizes whose places PyTorch's formula takes by the scale alone.
RESIZES = (
    *(f"{kind}{rank}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for rank in (1, 2, 3)),
    "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d",
)  # fmt: skip
# Derivatives that a rule takes where all windows have one divisor: else the derivative is divided first.
BY_WINDOWS = ("avg_pool2d_backward", "avg_pool3d_backward")

# Ops that are others by another name, or without a check.
RENAMED = {"alias_copy": "alias", "_unsafe_index": "index", "_unsafe_index_put": "index_put"}

# Ops that rules take of tensors whose memory is their elements in order: others are brought into order first.
IN_ORDER = ("as_strided", "as_strided_copy")

# Ops that rules take by the sizes of the result: an overload by scales says those.
BY_SIZES = ("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")

# Ops of optimisers on lists of tensors: the op of the same name on each of them, or the op that `BY_OTHERS` names.
ON_LISTS = """
    abs acos add addcdiv addcmul asin atan ceil clamp_max clamp_min clone copy cos cosh div erf erfc exp expm1 floor
    frac lerp lgamma log log10 log1p log2 max maximum minimum mm mul neg norm pow reciprocal round rsqrt sigmoid sign
    sin sinh sqrt sub tan tanh trunc zero
"""
BY_OTHERS = {"maximum": "clamp_min", "minimum": "clamp_max", "norm": "linalg_vector_norm"}  # these take numbers as well


def table() -> dict[Any, Callable[..., Any]]:
    """{overload: what PyTorch computes it by}. Ops of other libraries are there once these are imported."""
    foreign: dict[Any, Callable[..., Any]] = {
        getattr(torch.ops.transformers, "grouped_mm_fallback", None): _grouped_mm,
        getattr(torch.ops.prims, "fma", None): _multiplied_and_added,  # of torch._inductor
    }
    return {**_own(), **{op.default: formula for op, formula in foreign.items() if op is not None}}


@functools.cache
def _own() -> dict[Any, Callable[..., Any]]:
    """The table of ATen's ops."""
    found: dict[Any, Callable[..., Any]] = {}
    for overload in _overloads({**FORMULAS, "by sizes": " ".join(BY_SIZES)}):
        formula = decomposition_table.get(overload) or _composite(overload)
        name = overload._schema.name.partition("::")[2]
        if name in RESIZES:
            formula = functools.partial(_resized, getattr(torch.ops.aten, name).default, overload)
        if formula is not None:
            floats = "linear" in overload.name() or "cubic" in overload.name()
            found[overload] = _of_floats(formula) if floats else formula
    for overload in _overloads(COMPOSITES):
        if (kernel := _composite(overload)) is not None:
            found[overload] = kernel
    for name in ON_LISTS.split():
        for overload in _overloads({"": f"_foreach_{name}"}):
            if overload._overloadname != "Tensor" or name in ("add", "mul", "div"):  # else numbers that a tensor holds
                found[overload] = functools.partial(_on_each, getattr(torch.ops.aten, BY_OTHERS.get(name, name)))
    for name, other in RENAMED.items():
        found |= {overload: getattr(torch.ops.aten, other) for overload in _overloads({"": name})}
    found |= dict.fromkeys(_overloads({"": " ".join(IN_ORDER)}), _in_order)
    found[torch.ops.aten.as_strided_scatter.default] = _strided_scatter
    found[torch.ops.aten._grouped_mm.default] = _grouped_mm
    found |= {getattr(torch.ops.aten.ctc_loss, name): ctc_loss for name in ("IntList", "Tensor")}
    found |= {
        torch.ops.aten._cdist_forward.default: distances,
        torch.ops.aten._cdist_backward.default: distances_backward,
    }
    for formula, names in {**POOLS, avg_pool_backward: " ".join(BY_WINDOWS)}.items():
        for overload in _overloads({"": names}):
            found[overload] = functools.partial(formula, 2 if "pool2d" in overload.name() else 3)
    found[torch.ops.aten._trilinear.default] = _trilinear
    found[torch.ops.aten._transformer_encoder_layer_fwd.default] = encoder_layer
    found[torch.ops.aten._native_multi_head_attention.default] = attention
    found[torch.ops.aten._native_batch_norm_legit_no_training.default] = _norm_with_statistics
    return found


def _of_floats(formula: Callable[..., Any]) -> Callable[..., Any]:
    """A resize of floats. PyTorch resizes integers in fixed point, of which its formula knows nothing."""

    def resized(x: Any, *given: Any, **options: Any) -> Any:
        return formula(x, *given, **options) if x.is_floating_point() else NotImplemented

    return resized


def _resized(plain: Any, overload: Any, *values: Any, **options: Any) -> Any:
    """A resize to a number of elements or by scales. plain: the overload with both.

    Raises DplcError where a length may be one of those that PyTorch takes by the sizes, or another one.
    """
    names = [argument.name for argument in overload._schema.arguments]
    given = dict(zip(names, values, strict=False)) | options
    x, scales = given[names[0]], given.get("scale_factors")
    if overload is plain:
        scales = [given.get(name) for name in names if name.startswith("scale")]
    sizes = upsample_compute_output_size(x.shape, given["output_size"], None if given["output_size"] else scales)
    times = _times(plain, x, sizes)
    lengths = zip(x.shape[2:], sizes, scales or [None] * len(sizes), strict=True)
    known = [_scale(length, size, scale, times) for length, size, scale in lengths]
    if "nearest" in plain.name():
        wide = x.dtype if x.dtype is torch.float64 and not times else torch.float32
        return _nearest(0.5 if "exact" in plain.name() else 0.0, x, sizes, known, wide)
    return decomposition_table[plain](x, sizes, given["align_corners"], *known)


def _times(plain: Any, x: Any, sizes: Sequence[Any]) -> tuple[int, ...]:
    """Results so many times as long as the input are taken by the sizes, whatever the scale is: of the nearest elements
    by PyTorch's kernel of small images and of those with channels last alone.
    """
    if plain is not torch.ops.aten.upsample_nearest2d.default:
        return () if "nearest" in plain.name() else (1,)
    last = x.is_contiguous(memory_format=torch.channels_last) and x.shape[1] > 3
    return () if statically_known_true(sum(sizes) > 128) and not last else (1, 2)


def _scale(length: Any, size: Any, scale: float | None, times: Sequence[int]) -> float | None:
    """The scale of a dimension; None where its size says all."""
    if not scale:
        return scale
    for factor in times:
        if statically_known_true(size == factor * length):
            return None
        least = math.ceil(1 / (scale - factor)) if factor < scale < factor + 1 else 0  # longer from here on
        if not statically_known_true(length >= least) and not isinstance(length, int):
            what = (
                f"a resize by {scale:g} takes places of fewer than {least} elements by the sizes, of more by the scale"
            )
            raise DplcError(what, hint=f"declare the length from {least} on, or pass size=")
    return scale


def _nearest(offset: float, x: Any, sizes: Sequence[Any], scales: Sequence[float | None], wide: Any) -> Any:
    """The elements of x [n, c, lengths..] nearest to places of a grid [n, c, sizes..]. offset: of a place in its cell;
    wide: the dtype of a place before it is rounded to f32, and that down.
    """
    places, rank = [], len(sizes)
    for d, (length, size, scale) in enumerate(zip(x.shape[2:], sizes, scales, strict=True)):
        step = 1 / scale if scale else length / size
        place = (torch.arange(size, dtype=wide, device=x.device) + offset) * step
        places.append(place.float().to(torch.int64).reshape(-1, *[1] * (rank - 1 - d)))
    result = torch.ops.aten._unsafe_index(x, [None, None, *places])
    return result if rank == 1 else result.contiguous(memory_format=suggest_memory_format(x))


def _norm_with_statistics(x: Any, w: Any, b: Any, mean: Any, variance: Any, momentum: float, eps: float) -> Any:
    """A batch norm in evaluation mode. PyTorch's formula goes through an op that may write statistics."""
    formula = decomposition_table[torch.ops.aten._native_batch_norm_legit_functional.default]
    return formula(x, w, b, mean, variance, False, momentum, eps)[:3]


def _grouped_mm(x: Any, w: Any, ends: Any, bias: Any = None, out_dtype: Any = None) -> Any:
    """Rows [s, k] in groups, each times the matrix of its group [e, k, n]. ends: [e], where each group ends.

    Rows behind the last group give zeros.
    """
    if x.dim() != 2 or w.dim() != 3 or ends is None or bias is not None:
        return NotImplemented
    rows = torch.arange(x.shape[0], dtype=ends.dtype, device=x.device)
    group = (rows[:, None] >= ends[None, :]).sum(1)
    inside = group < w.shape[0]
    product = torch.bmm(x[:, None], w[group.clamp(max=w.shape[0] - 1)])[:, 0]
    return torch.where(inside[:, None], product, 0).to(out_dtype or x.dtype)


def _multiplied_and_added(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


def _in_order(x: Any, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Any:
    """The memory of a tensor with other strides: its elements in order, which is what the rule reads.

    Elsewhere the elements are put in the order of their memory first. Raises DplcError where memory holds more.
    """
    with disable_proxy_modes_tracing():  # the size of memory is not a value of the program
        count = x.untyped_storage().nbytes() // x.dtype.itemsize
        whole = not x.storage_offset() and count == x.numel() and is_non_overlapping_and_dense_or_false(x)
    if not whole:
        raise DplcError("as_strided of a tensor that is a part of another one's memory", hint="take the part by slices")
    if x.is_contiguous():
        return NotImplemented
    order = sorted(range(x.dim()), key=lambda d: (-x.stride(d), -x.shape[d]))
    return torch.as_strided(x.permute(order).contiguous(), size, stride, offset)


def _strided_scatter(x: Any, values: Any, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Any:
    """Elements put at strided places of a tensor's memory."""
    if not x.is_contiguous() or x.storage_offset():
        return NotImplemented
    places = torch.full(tuple(size), offset or 0, dtype=torch.int64, device=x.device)
    for d, (n, step) in enumerate(zip(size, stride, strict=True)):
        along = torch.arange(n, device=x.device) * step
        places = places + along.reshape(n, *[1] * (len(size) - d - 1))
    return torch.put(x, places, values)


def _trilinear(
    a: Any,
    b: Any,
    c: Any,
    new_a: Sequence[int],
    new_b: Sequence[int],
    new_c: Sequence[int],
    summed: Sequence[int],
    unroll_dim: int = 1,
) -> Any:
    """The sum over some dimensions of a product of three tensors, each with new dimensions of length one."""
    for d in range(a.dim() + len(new_a)):
        a, b, c = (x.unsqueeze(d) if d in new else x for x, new in ((a, new_a), (b, new_b), (c, new_c)))
    product = a * b * c
    return product.sum(tuple(summed)) if summed else product


def _on_each(op: Any, *arguments: Any, **options: Any) -> list[Any]:
    """The op on the first of all lists, on the second, .. What follows the tensors of addcdiv is its `value`."""
    count = next(len(given) for given in arguments if isinstance(given, (list, tuple)))
    results = []
    for index in range(count):
        given = [x[index] if isinstance(x, (list, tuple)) else x for x in arguments]
        more = {"value": given.pop()} if op._qualified_op_name.startswith("aten::addc") and len(given) > 3 else {}
        results.append(op(*given, **options, **more))
    return results


def derived() -> AbstractContextManager[None]:
    """Return a context in which PyTorch derives the formulas of `DERIVED` in place of these ops."""
    formulas = {overload: decomposition_table[overload] for overload in _overloads({"": DERIVED})}
    formulas[torch.ops.aten.grid_sampler_2d.default] = _sampled
    return replaced(formulas, torch._C.DispatchKey.Autograd)


def _sampled(x: Any, grid: Any, mode: int, padding: int, align_corners: bool) -> Any:
    """PyTorch's formula with the derivative of its kernel: 0 by places of nearest elements, and by those at an edge."""
    bilinear, nearest = (mode == number for number in range(2))
    if bilinear and padding and align_corners:
        grid = torch.where(torch.remainder(grid + 1, 2) == 0, grid.detach(), grid)
    sampled = decomposition_table[torch.ops.aten.grid_sampler_2d.default](x, grid, mode, padding, align_corners)
    return sampled + grid.flatten()[:0].sum() if nearest else sampled


def decomposed(targets: Iterable[Any]) -> bool:
    """Whether one of these ops is in the table."""
    return any(isinstance(target, torch._ops.OpOverload) and target in table() for target in targets)


def _overloads(by_subject: dict[str, str]) -> Iterator[Any]:
    """Those of these ops that do not write into a given tensor."""
    for name in " ".join(by_subject.values()).split():
        packet = getattr(torch.ops.aten, name)
        for overload in (getattr(packet, word) for word in packet.overloads()):
            if not overload._schema.is_mutable:
                yield overload


def _composite(overload: Any) -> Callable[..., Any] | None:
    """The kernel of an op that is made of others. (`overload.decompose` asks for a table first: ours.)"""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    try:
        has = torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), key)
    except RuntimeError:  # it is registered for scripts alone
        return None
    return functools.partial(overload._op_dk, key) if has else None
