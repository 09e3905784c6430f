"""PyTorch's own decompositions of ops that no rule handles, in one table.

A rule would repeat the same formula. The decompositions use ops that have rules, and the values that depend on no input
(the positions and weights of a resize) fold. No rule handles an op of this table (a test checks this).
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache, partial, reduce
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from torch import SymInt, Tensor
from torch._C import DispatchKey
from torch._decomp import decomposition_table
from torch._decomp.decompositions import upsample_compute_output_size
from torch._export import utils as export_utils
from torch._ops import OpOverload
from torch._prims_common import is_non_overlapping_and_dense_or_false, suggest_memory_format
from torch._subclasses.fake_impls import op_implementations_dict
from torch.export import ExportedProgram, exported_program
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ...ir.diagnostic import DplcError
from .control_flow import recurrent
from .fx_rewrites import Function, write_elements

Ints = Sequence[int]
Kernels = Mapping[DispatchKey, Function]
aten = torch.ops.aten

# ---- Trace these ops whole: PyTorch looks at values while it decomposes them.


COMPOSITE = DispatchKey.CompositeImplicitAutograd


def by_types() -> AbstractContextManager[None]:
    """Return a context in which these ops are traced whole."""
    kernels: dict[str, Function] = {
        "cov": _cov, "corrcoef": _corrcoef, "max_pool1d": _max_pool1d, "ctc_loss": _ctc_loss,
        "dropout": lambda x, rate, train: x.clone() if train and rate else x,  # PyTorch's own always copies
    }  # fmt: skip
    whole = {op: {COMPOSITE: kernel} for name, kernel in kernels.items() for op in _overloads(name)}
    whole |= {op: dict.fromkeys((COMPOSITE, DispatchKey.Autograd), kernel) for op, kernel in _layers().items()}
    return replaced({**whole, aten.huber_loss.default: {DispatchKey.Meta: _huber_loss}})


@contextmanager
def replaced(ops: Mapping[OpOverload, Kernels]) -> Iterator[None]:
    """Return a context in which ops have these kernels, by dispatch key. One thread may enter it at a time."""
    with ExitStack() as stack:
        for op, kernels in ops.items():
            stack.callback(op._dispatch_cache.clear)
            stack.enter_context(mock.patch.dict(op.py_kernels, kernels))
            op._dispatch_cache.clear()
        yield


def _cov(x: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Tensor:
    """Return a number or a square matrix for x [variables, observations]. Raises RuntimeError as torch does."""
    result = _square("cov", x, x.dtype if aweights is None else torch.promote_types(x.dtype, aweights.dtype))
    observations = x.shape[-1] if x.dim() else 1
    for name, weights, kind in (("fweights", fweights, "integral"), ("aweights", aweights, "floating point")):
        if weights is None:
            continue
        wrong, size = f"cov(): expected {name} to have", weights.numel()
        if weights.dim() > 1:
            raise RuntimeError(f"{wrong} one or fewer dimensions but got {weights.dim()}")
        if weights.is_floating_point() != (kind != "integral"):
            raise RuntimeError(f"{wrong} {kind} dtype but got {name} with {weights.dtype} dtype")
        if size != observations:
            same = "the same numel as there are observations in the input"
            raise RuntimeError(f"{wrong} {same} but got {size} != {observations}")
    return result


def _ctc_loss(
    x: Tensor,
    labels: Tensor,
    ends: Tensor,
    counts: Tensor,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Tensor:
    """Return a number for each sequence of x [steps, sequences, classes] or [steps, classes], or one for all."""
    return x.new_empty((x.shape[1],) if reduction == 0 and x.dim() == 3 else ())


def _huber_loss(x: Tensor, target: Tensor, reduction: int = 1, delta: float = 1.0) -> Tensor:
    """Return an empty tensor of the dtype of x for x and target [..]: that of eager. PyTorch's formula promotes it."""
    return x.new_empty(torch.broadcast_shapes(x.shape, target.shape) if reduction == 0 else ())


def _max_pool1d(
    x: Tensor,
    kernel_size: Ints,
    stride: Ints = (),
    padding: Ints = (0,),
    dilation: Ints = (1,),
    ceil_mode: bool = False,
) -> Tensor:
    """Return an empty tensor for the maximum of windows of x [.., channels, length].

    Torch's own kernel supports one length alone.
    """
    rows = x.unsqueeze(-2)
    own = [[1, *setting] for setting in (kernel_size, stride or kernel_size)]
    shape = aten.max_pool2d(rows, *own, [0, *padding], [1, *dilation], ceil_mode).squeeze(-2).shape
    return x.new_empty(shape)


def _corrcoef(x: Tensor) -> Tensor:
    return _square("corrcoef", x, x.dtype)


def _square(name: str, x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a number or a square matrix for x [variables, observations]. Raises RuntimeError as torch does."""
    if x.dim() > 2:
        raise RuntimeError(
            f"{name}(): expected input to have two or fewer dimensions but got an input with {x.dim()} dimensions"
        )
    if x.dtype is torch.bool:
        raise RuntimeError("cov(): bool dtype is not supported for input")
    variables = x.shape[0] if x.dim() == 2 else 1
    floats = dtype if dtype.is_floating_point or dtype.is_complex else torch.get_default_dtype()
    return x.new_empty(() if variables == 1 else (variables, variables), dtype=floats)


def _gaussian_nll_loss(
    x: Tensor, target: Tensor, var: float | Tensor, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """Return the loss of a normal distribution, by its formula. Raises ValueError for shapes that torch refuses."""
    if not isinstance(var, torch.Tensor):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = var * torch.ones_like(x)
    if var.shape != x.shape:
        if x.shape[:-1] == var.shape:
            var = var.unsqueeze(-1)
        elif x.dim() != var.dim() or sum(m for n, m in zip(x.shape, var.shape, strict=True) if n != m) != 1:
            raise ValueError("var is of incorrect size")
    reductions: dict[str, Function] = {"none": lambda loss: loss, "mean": torch.mean, "sum": torch.sum}
    if reduction not in reductions:
        raise ValueError(f"{reduction} is not valid")
    var = var.clamp(min=eps)
    loss = 0.5 * (torch.log(var) + (x - target) ** 2 / var)
    return reductions[reduction](loss + 0.5 * math.log(2 * math.pi) if full else loss)


def _linspace(start: float | Tensor, end: float | Tensor, steps: int | SymInt | None = None, **where: object) -> Tensor:
    """Return torch.linspace with a number of steps that is known at a call.

    It computes from both ends to the middle, as torch does.
    """
    if not isinstance(steps, SymInt) or "out" in where:
        return torch.linspace(start, end, steps, **where)
    dtype = where.pop("dtype", None) or torch.get_default_dtype()
    place = torch.arange(steps, **where)
    step = (end - start) / torch.sym_max(steps - 1, 1)
    return torch.where(place < steps // 2, start + place * step, end - (steps - 1 - place) * step).to(dtype)


def _attention(query: Tensor, key: Tensor, value: Tensor, *more: Any, **options: Any) -> Tensor:
    """Compute attention after a check that keys and values are equally many, which torch omits for open lengths."""
    if isinstance(key.shape[-2], SymInt) or isinstance(value.shape[-2], SymInt):
        torch._check(key.shape[-2] == value.shape[-2])
    return F.scaled_dot_product_attention(query, key, value, *more, **options)


# Functions of torch's in Python, and the same without the look at values.
UNASKED: dict[Function, Function] = {
    F.scaled_dot_product_attention: _attention,
    F.gaussian_nll_loss: _gaussian_nll_loss,
    torch.linspace: _linspace,
    torch.Tensor.__setitem__: write_elements,
}


# ---- CTC loss (Graves et al., 2006): minus the logarithm of the sum over all alignments.


MEAN, SUM = 1, 2  # torch's numbers of reductions


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Ints | Tensor,
    target_lengths: Ints | Tensor,
    blank: int = 0,
    reduction: int = MEAN,
    zero_infinity: bool = False,
) -> Tensor:
    """Return the CTC loss of log probabilities, or NotImplemented for no steps and for no sequences.

    log_probs: [t, n, c], or [t, c] of one sequence. targets: labels [n, s], or those of all sequences in one row.
    lengths: of n sequences and of their labels, lists or tensors.
    """
    alone = log_probs.dim() == 2
    if alone:
        log_probs, targets = log_probs[:, None], targets.reshape(1, -1)
    steps, n, _ = log_probs.shape
    if not steps or not n:
        return NotImplemented
    ends, counts = _row(input_lengths, targets), _row(target_lengths, targets)
    labels = targets.long()  # of each sequence, [n, s]; entries after the last label hold any label
    if targets.dim() != 2:
        longest = max(target_lengths, default=0) if isinstance(target_lengths, Sequence) else targets.shape[0]
        ahead = (counts.cumsum(0) - counts)[:, None] + torch.arange(longest, device=targets.device)
        labels = labels[ahead.clamp(max=targets.shape[0] - 1)]
    # a path has a blank before, between and after the labels: [n, 2*s + 1]
    pairs = torch.stack((torch.full_like(labels, blank), labels), 2).reshape(n, -1)
    paths = F.pad(pairs, (0, 1), value=blank)
    place = torch.arange(paths.shape[1], device=paths.device)
    nothing = torch.full((), -torch.inf, dtype=log_probs.dtype, device=paths.device)
    back = place[:, None] - place  # a step may go to each position of a path from some other ones: [n, to, from]
    skips = (paths != blank) & (paths != F.pad(paths, (2, 0), value=blank)[:, :-2])
    ways = (back == 0) | (back == 1) | ((back == 2) & skips[:, :, None])
    cost = torch.where(ways, 0, nothing)
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
    return loss.sum() if alone or reduction == SUM else loss


def _row(lengths: Ints | Tensor, like: Tensor) -> Tensor:
    """Return lengths as a tensor of one dimension."""
    if isinstance(lengths, torch.Tensor):
        return lengths.reshape(-1).long()
    return torch.stack([torch.full((), n, dtype=torch.long, device=like.device) for n in lengths])


# ---- Distances between rows (`cdist`), by definition.


def distances(x: Tensor, y: Tensor, p: float, mode: int | None = None) -> Tensor:
    """Return the p-norm of each difference. mode: PyTorch's choice of the method."""
    return torch.linalg.vector_norm(_gaps(x, y), p, -1)


def distances_backward(gradient: Tensor, x: Tensor, y: Tensor, p: float, found: Tensor) -> Tensor:
    """Return the derivative by x. Rows that are the same give 0; of the infinite norm every greatest element counts."""
    gap, far = _gaps(x, y), found[..., None]
    if p == 0:
        return torch.zeros_like(x)
    if p == 1:
        share = gap.sign()
    elif math.isinf(p):
        share = gap.sign() * (gap.abs() == far)
    else:
        apart = (far != 0) & (gap != 0)
        share = torch.where(apart, gap.sign() * (gap.abs() / torch.where(apart, far, 1)).pow(p - 1), 0)
    return (gradient[..., None] * share).sum(-2)


def _gaps(x: Tensor, y: Tensor) -> Tensor:
    """Return the differences of all pairs of rows: [.., n, m, k]."""
    return x[..., :, None, :] - y[..., None, :, :]


# ---- The fused transformer layers of `torch.nn` in evaluation mode, as their modules compute them.


OF_SCORES, OF_KEYS = 0, 1  # torch's numbers of masks; any other is of [batch, heads, queries, keys]


def encoder_layer(
    x: Tensor, width: int, heads: int, qkv: Tensor, qkv_bias: Tensor, out: Tensor, out_bias: Tensor, use_gelu: bool,
    norm_first: bool, eps: float, scale_1: Tensor, shift_1: Tensor, scale_2: Tensor, shift_2: Tensor, up: Tensor,
    up_bias: Tensor, down: Tensor, down_bias: Tensor, mask: Tensor | None = None, mask_type: int | None = None,
) -> Tensor:  # fmt: skip
    """Decompose nn.TransformerEncoderLayer. x: [batch, sequence, width].

    Returns NotImplemented where `attention` does.
    """

    def passed_on(y: Tensor) -> Tensor:
        return F.linear((F.gelu if use_gelu else F.relu)(F.linear(y, up, up_bias)), down, down_bias)

    def normed(y: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        return F.layer_norm(y, (width,), scale, shift, eps)

    y = normed(x, scale_1, shift_1) if norm_first else x
    found = attention(y, y, y, width, heads, qkv, qkv_bias, out, out_bias, mask, False, True, mask_type)
    if found is NotImplemented:
        return found
    x = x + found[0]
    if norm_first:
        return x + passed_on(normed(x, scale_2, shift_2))
    x = normed(x, scale_1, shift_1)
    return normed(x + passed_on(x), scale_2, shift_2)


def attention(
    query: Tensor, key: Tensor, value: Tensor, width: int, heads: int, qkv: Tensor, qkv_bias: Tensor, out: Tensor,
    out_bias: Tensor, mask: Tensor | None = None, need_weights: bool = True, average_weights: bool = True,
    mask_type: int | None = None,
) -> Any:  # fmt: skip
    """Decompose nn.MultiheadAttention.

    Returns the results [batch, sequence, width], and the weights if they are needed, else None. mask: nonzero entries
    are hidden. Returns NotImplemented for nested tensors and for a mask without a type.
    """
    if query.is_nested or query.dim() != 3 or (mask is not None and mask_type is None):
        return NotImplemented
    hidden = None if mask is None else query.new_zeros(mask.shape).masked_fill(mask.to(torch.bool), -torch.inf)
    of_keys = mask_type == OF_KEYS
    if hidden is not None and not of_keys and mask_type != OF_SCORES:
        hidden = hidden.flatten(0, 1)
    first = {id(x): x.transpose(0, 1) for x in (query, key, value)}  # one tensor is projected once
    q, k, v = (first[id(x)] for x in (query, key, value))
    made, weights = F.multi_head_attention_forward(
        q, k, v, width, heads, qkv, qkv_bias, None, None, False, 0.0, out,
        out_bias, False, hidden if of_keys else None, need_weights, None if of_keys else hidden,
        average_attn_weights=average_weights,
    )  # fmt: skip
    return made.transpose(0, 1), weights if need_weights else query.new_empty(0)


# ---- Derivatives of pooling ops, for which PyTorch has no decomposition.


def max_pool_backward(spatial: int, grad: Tensor, x: Tensor, *settings: Any) -> Tensor:
    """Derive a maximum pool over the last dimensions of x. settings: the last holds the index of each maximum in x."""
    flat, places = (given.flatten(-spatial) for given in (grad, settings[-1]))
    return x.new_zeros(x.shape).flatten(-spatial).scatter_add(-1, places, flat).view(x.shape)


def avg_pool_backward(
    spatial: int,
    grad: Tensor,
    x: Tensor,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """Derive means of windows of x. Returns NotImplemented if all windows have one divisor, which a rule handles."""
    if divisor_override is not None or not (ceil_mode or (max(padding) and not count_include_pad)):
        return NotImplemented
    counts = []
    for d in range(-spatial, 0):
        k, s, a = (setting[d % len(setting)] for setting in (kernel, stride or kernel, padding))
        beyond = a if count_include_pad else 0
        start = torch.arange(grad.shape[d], device=x.device) * s - a
        counts.append((start + k).clamp(max=x.shape[d] + beyond) - start.clamp(min=-beyond))
    op = getattr(aten, f"avg_pool{spatial}d_backward")
    return op(grad / _product(counts), x, kernel, stride, padding, ceil_mode, count_include_pad, 1)


def adaptive_avg_pool_backward(spatial: int, grad: Tensor, x: Tensor) -> Tensor:
    """Derive means of parts of x. The parts that contain an element are a slice of the result."""
    pool = getattr(aten, f"adaptive_avg_pool{spatial}d")
    sizes, parts = x.shape[-spatial:], grad.shape[-spatial:]
    return pool(grad / _parts(sizes, parts, x), sizes) * _parts(parts, sizes, x)


def _parts(lengths: Ints, counts: Ints, like: Tensor) -> Tensor:
    """Return how many elements the parts of a tensor have, as adaptive pools cut so many in each dimension."""
    found = []
    for n, m in zip(lengths, counts, strict=True):
        place = torch.arange(m, device=like.device)
        found.append((place * n + n + m - 1) // m - place * n // m)
    return _product(found)


def _product(counts: Sequence[Tensor]) -> Tensor:
    """Return the outer product of the counts along each dimension."""
    return reduce(operator.mul, torch.meshgrid(*counts, indexing="ij"))


# Formulas in Python (`torch._decomp`).
FORMULAS = (
    # sampling: gathers at places, most of which only the sizes decide
    "affine_grid_generator grid_sampler_2d im2col",
    # copies of what are views elsewhere
    """
        diagonal_copy expand_copy narrow_copy permute_copy split_with_sizes_copy squeeze_copy t_copy transpose_copy
        unbind_copy unfold_copy unsqueeze_copy view_copy
    """,
    # padding, after what it is called by
    """
        reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d
    """,
    # pools, back
    "max_unpool2d max_unpool3d",
    # weights of a norm and a direction
    "_weight_norm_interface",
    # joining and shuffling
    "pad_sequence block_diag channel_shuffle pixel_unshuffle _chunk_cat",
    # norms that give statistics
    "_native_batch_norm_legit_functional native_group_norm",
    # functions of elements
    "mvlgamma special_entr special_ndtr special_xlog1py logaddexp2 ldexp",
    # losses
    "multi_margin_loss soft_margin_loss",
    # distances
    "linalg_cross pdist renorm dist _euclidean_dist",
    # in order
    "isin",
    # derivatives
    """
        _fused_rms_norm_backward _log_softmax_backward_data _prelu_kernel_backward _softmax_backward_data
        binary_cross_entropy_backward diagonal_backward elu_backward embedding_dense_backward gelu_backward glu_backward
        hardsigmoid_backward hardswish_backward hardtanh_backward huber_loss_backward leaky_relu_backward
        log_sigmoid_backward logit_backward max_pool2d_with_indices_backward mish_backward mse_loss_backward
        native_batch_norm_backward native_dropout_backward native_group_norm_backward native_layer_norm_backward
        nll_loss2d_backward nll_loss_backward reflection_pad1d_backward reflection_pad2d_backward
        reflection_pad3d_backward select_backward sigmoid_backward silu_backward slice_backward smooth_l1_loss_backward
        soft_margin_loss_backward softplus_backward tanh_backward threshold_backward unfold_backward
    """,
    # what a forward pass keeps for its derivative
    """
        native_layer_norm native_batch_norm _native_batch_norm_legit
        _fused_rms_norm nll_loss_forward nll_loss2d_forward
        _softmax _log_softmax log_sigmoid_forward _prelu_kernel
        _unsafe_masked_index_put_accumulate _unsafe_masked_index
    """,
)
# What ATen itself computes by other ops, in C++.
COMPOSITES = (
    # losses made of a few elementwise ops
    """
        hinge_embedding_loss margin_ranking_loss cosine_embedding_loss triplet_margin_loss poisson_nll_loss
    """,
    # spectra: one transform over some dimensions, cut or filled, and its scale
    """
        fft_fft fft_ifft fft_rfft fft_irfft fft_hfft fft_ihfft
        fft_fft2 fft_ifft2 fft_rfft2 fft_irfft2 fft_hfft2 fft_ihfft2
        fft_fftn fft_ifftn fft_rfftn fft_irfftn fft_hfftn fft_ihfftn fft_fftshift fft_ifftshift stft istft
    """,
    # powers in f64
    "float_power",
    # splitting and joining
    "hsplit vsplit dsplit cartesian_prod diagflat sum_to_size",
    # linear algebra without factorisations
    """
        cross chain_matmul frobenius_norm matrix_power vander
        linalg_matrix_norm linalg_multi_dot linalg_matrix_power linalg_vander linalg_diagonal
    """,
    # by another name
    "special_multigammaln special_round native_channel_shuffle",
    # derivatives of choices
    "index_select_backward trace_backward gather_backward value_selecting_reduction_backward",
    # sums of neighbours
    "trapezoid trapz cumulative_trapezoid gradient",
    # sampling
    "grid_sampler",
    # in order
    "msort quantile nanquantile",
    # cells of recurrent layers
    "gru_cell lstm_cell rnn_relu_cell rnn_tanh_cell",
    # weights of a norm and a direction
    "_weight_norm norm_except_dim",
    # numbers rounded to the levels of integers
    "fake_quantize_per_tensor_affine fake_quantize_per_channel_affine",
    # of complex numbers, whose parts floats have as well
    "isreal",
)
# Recurrent layers, by the formulas of `torch._decomp`: loops over the steps.
RECURRENT = "lstm gru rnn_tanh rnn_relu"
# Ops for whose derivative PyTorch has no formula: it derives their own.
DERIVED = "grid_sampler_2d replication_pad1d replication_pad2d replication_pad3d"

# Resizes: gathers at places that the sizes or the scales decide.
RESIZES = """
    upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d
    upsample_nearest1d upsample_nearest2d upsample_nearest3d
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
"""
# Ops that rules take by the sizes of the result: an overload by scales says those.
BY_SIZES = "_upsample_bilinear2d_aa _upsample_bicubic2d_aa"
# Fills with a complex number are `fill` with a tensor.
FILLED = "full full_like new_full scalar_tensor"


def table() -> dict[OpOverload, Function]:
    """Return {overload: its decomposition by PyTorch}. Ops of other libraries are there once these are imported."""
    foreign: dict[OpOverload, Function] = {
        getattr(torch.ops.transformers, "grouped_mm_fallback", None): _grouped_mm,
        getattr(torch.ops.prims, "fma", None): lambda a, b, c: a * b + c,  # of torch._inductor
    }
    return {**_own(), **{op.default: formula for op, formula in foreign.items() if op is not None}}


@cache
def _own() -> dict[OpOverload, Function]:
    """Return the table of ATen's ops."""
    lists = set(re.findall(r"aten::(_foreach_\w+)", " ".join(torch._C._dispatch_get_all_op_names())))  # of optimisers
    found: dict[OpOverload, Function | None] = {
        x: decomposition_table.get(x) or _composite(x) for x in _overloads(*FORMULAS)
    }
    found |= {overload: _composite(overload) for overload in _overloads(*COMPOSITES, *lists)}
    found |= _layers()
    resizes = (*_overloads(RESIZES), *(getattr(aten, name).vec for name in BY_SIZES.split()))
    found |= {overload: partial(_resized, overload) for overload in resizes}
    found |= {overload: partial(_filled, overload) for overload in _overloads(FILLED)}
    # formulas of our own, and ops that are others by another name or without a check
    own: dict[str, Function] = {
        "alias_copy": aten.alias, "detach_copy": aten.clone,
        "_unsafe_index": aten.index, "_unsafe_index_put": aten.index_put,
        "_foreach_zero": lambda tensors: [aten.zero(x) for x in tensors],
        "as_strided as_strided_copy": _in_order,  # a rule takes memory that is the elements in order
        "as_strided_scatter": _strided_scatter, "_grouped_mm": _grouped_mm, "ctc_loss": ctc_loss,
        "_cdist_forward": distances, "_cdist_backward": distances_backward, "_trilinear": _trilinear,
        "_transformer_encoder_layer_fwd": encoder_layer, "_native_multi_head_attention": attention,
        "_native_batch_norm_legit_no_training": _norm_with_statistics,
        "_weight_norm_interface_backward": _weight_norm_backward,
        "fake_quantize_per_tensor_affine_cachemask": _fake_quantized,
        "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": _fake_quantized_by_tensors,
        "fake_quantize_per_channel_affine_cachemask": _fake_quantized_by_channels,
        "max_pool3d_with_indices_backward": partial(max_pool_backward, 3), "pow": _power,
    }  # fmt: skip
    for name in BY_SIZES.split():
        own[f"{name}_backward"] = partial(_smooth_backward, getattr(aten, name).default)
    for rank in (2, 3):
        pool = f"pool{rank}d"
        own |= {
            f"adaptive_max_{pool}_backward": partial(max_pool_backward, rank),
            f"_adaptive_avg_{pool}_backward": partial(adaptive_avg_pool_backward, rank),
            f"avg_{pool}_backward": partial(avg_pool_backward, rank),
        }
    found |= {overload: formula for names, formula in own.items() for overload in _overloads(names)}
    return {overload: formula for overload, formula in found.items() if formula is not None}


@cache
def _layers() -> dict[OpOverload, Function]:
    """Return {overload: its formula} of recurrent layers."""
    return {overload: recurrent(decomposition_table[overload]) for overload in _overloads(RECURRENT)}


def _filled(overload: OpOverload, *given: object, **options: object) -> Tensor:
    """Fill a tensor with a complex number. Returns NotImplemented for a real number, which a rule takes."""
    *like, number = given
    if not isinstance(number, complex):
        return NotImplemented
    dtypes = [x.dtype for x in like if isinstance(x, torch.Tensor)] or [torch.get_default_dtype().to_complex()]
    return torch.fill(overload(*like, 0, **{"dtype": dtypes[0], **options}), number)


def _power(x: Tensor | complex, exponent: Tensor | complex) -> Tensor:
    """Raise x to the power 0 or 1 as eager does, which looks at the number. Returns NotImplemented for other powers.

    The rules for complex numbers compute log(x), which is infinite for 0.
    """
    if not isinstance(x, Tensor) or not isinstance(exponent, (int, float, complex)) or exponent not in (0, 1):
        return NotImplemented
    dtype = torch.result_type(x, exponent)
    if not dtype.is_complex:
        return NotImplemented
    return x.to(dtype) if exponent else torch.fill(x.to(dtype), complex(1))


def _resized(overload: OpOverload, *values: object, **options: object) -> Tensor:
    """Resize to a number of elements or by scales.

    Returns NotImplemented for interpolated integers: PyTorch resizes them in fixed point, unlike its formula. Raises
    DplcError if it is open whether a length is one that PyTorch resizes by the sizes.
    """
    names = [argument.name for argument in overload._schema.arguments]
    given, op = dict(zip(names, values, strict=False)) | options, overload._opname
    x, asked, nearest = given[names[0]], given["output_size"], "nearest" in op
    if not (nearest or x.is_floating_point()):
        return NotImplemented
    scales = given.get("scale_factors") or [given.get(name) for name in names if name.startswith("scales")]
    sizes = upsample_compute_output_size(x.shape, asked, None if asked else scales)
    # Factors (length of the result over that of the input) for which a resize computes its scale from the sizes. For
    # nearest elements only PyTorch's kernels of small images and of channels-last images do so.
    times: tuple[int, ...] = (1,) if "linear" in op and "_aa" not in op else ()
    if op == "upsample_nearest2d":
        last = x.is_contiguous(memory_format=torch.channels_last) and x.shape[1] > 3
        times = () if statically_known_true(sum(sizes) > 128) and not last else (1, 2)
    lengths = [*zip(x.shape[2:], sizes, strict=True)]
    known = [_scale(*each, scale, times) for each, scale in zip(lengths, scales or [None] * len(sizes), strict=True)]
    if not nearest:
        whole = getattr(aten, op).default
        return decomposition_table.get(whole, whole)(x, sizes, given["align_corners"], *known)
    # a coordinate, of which `start` is the one of a point in its cell, is rounded to f32 and then down
    wide = x.dtype if x.dtype is torch.float64 and not times else torch.float32
    places, rank, start = [], len(sizes), 0.5 if "exact" in op else 0.0
    steps = [1 / scale if scale else length / size for (length, size), scale in zip(lengths, known, strict=True)]
    if all(_repeats(*each, step, start, wide) for each, step in zip(lengths, steps, strict=True)):
        for d, (length, size) in enumerate(lengths, 2):
            x = x.repeat_interleave(size // length, d)
        return x
    for d, (size, step) in enumerate(zip(sizes, steps, strict=True)):
        place = (torch.arange(size, dtype=wide, device=x.device) + start) * step
        places.append(place.float().to(torch.int64).reshape(-1, *[1] * (rank - 1 - d)))
    result = aten._unsafe_index(x, [None, None, *places])
    return result if rank == 1 else result.contiguous(memory_format=suggest_memory_format(x))


def _repeats(length: int | SymInt, size: int | SymInt, step: float, start: float, wide: torch.dtype) -> bool:
    """Return whether nearest elements are each element a number of times, in PyTorch's rounding too."""
    if not (isinstance(length, int) and isinstance(size, int)) or size % length:
        return False
    places = (np.arange(size, dtype=str(wide).removeprefix("torch.")) + start) * step
    return bool((places.astype(np.float32).astype(np.int64) == np.arange(size) // (size // length)).all())


def _scale(length: int | SymInt, size: int | SymInt, scale: float | None, times: Ints) -> float | None:
    """Return the scale of a dimension; None if the sizes determine it."""
    if not scale:
        return scale
    for factor in times:
        if statically_known_true(size == factor * length):
            return None
        least = math.ceil(1 / (scale - factor)) if factor < scale < factor + 1 else 0  # longer from here on
        if not statically_known_true(length >= least) and not isinstance(length, int):
            less = f"places of fewer than {least} elements by the sizes"
            what = f"a resize by {scale:g} takes {less}, of more by the scale"
            raise DplcError(what, hint=f"declare the length from {least} on, or pass size=")
    return scale


def _norm_with_statistics(
    x: Tensor, w: Tensor, b: Tensor, mean: Tensor, variance: Tensor, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute a batch norm in evaluation mode. PyTorch's formula uses an op that may write statistics."""
    formula = decomposition_table[aten._native_batch_norm_legit_functional.default]
    results: tuple[Tensor, Tensor, Tensor] = formula(x, w, b, mean, variance, False, momentum, eps)[:3]
    return results


def _grouped_mm(
    x: Tensor, w: Tensor, ends: Tensor, bias: Tensor | None = None, out_dtype: torch.dtype | None = None
) -> Tensor:
    """Multiply rows [s, k] in groups, each by the matrix of its group [e, k, n]. ends: [e], where each group ends.

    Rows after the last group give zeros.
    """
    if x.dim() != 2 or w.dim() != 3 or ends is None or bias is not None:
        return NotImplemented
    rows = torch.arange(x.shape[0], dtype=ends.dtype, device=x.device)
    group = (rows[:, None] >= ends[None, :]).sum(1)
    inside = group < w.shape[0]
    product = torch.bmm(x[:, None], w[group.clamp(max=w.shape[0] - 1)])[:, 0]
    return torch.where(inside[:, None], product, 0).to(out_dtype or x.dtype)


def _in_order(x: Tensor, size: Ints, stride: Ints, offset: int | None = None) -> Tensor:
    """Return the memory of a tensor with other strides: its elements in order, as the rule reads them.

    Elsewhere the elements are first put in the order of their memory. Raises DplcError if the memory holds more
    elements.
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


def _strided_scatter(x: Tensor, values: Tensor, size: Ints, stride: Ints, offset: int | None = None) -> Tensor:
    """Scatter values to strided positions of a tensor's memory."""
    if not x.is_contiguous() or x.storage_offset():
        return NotImplemented
    places = torch.arange(x.numel(), device=x.device).as_strided(size, stride, offset)
    return torch.put(x, places, values)


def _weight_norm_backward(g: Tensor, v: Tensor, scale: Tensor, norms: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return the gradients of a direction v and of its scale in v * scale / norm. dim: the one that no norm sums."""
    inner = (g * v).sum([d for d in range(v.dim()) if d != dim], keepdim=True)
    return scale / norms * (g - v * inner / norms**2), inner / norms


def _fake_quantized(x: Tensor, scale: Tensor, zero: Tensor, low: int, high: int) -> tuple[Tensor, Tensor]:
    """Return x rounded to the levels `scale * (n - zero)`, n from low to high, and the mask of the elements there."""
    scaled = x * (1 / scale)
    floating = isinstance(zero, torch.Tensor) and zero.is_floating_point()
    level = torch.round(scaled + zero) if floating else torch.round(scaled) + zero
    return ((level.clamp(low, high) - zero) * scale).to(x.dtype), (low <= level) & (level <= high)


def _fake_quantized_by_tensors(
    x: Tensor, scale: Tensor, zero: Tensor, enabled: Tensor, low: int, high: int
) -> tuple[Tensor, Tensor]:
    """Return x rounded to levels, where the first number of `enabled` is 1, and the mask of the elements in range."""
    rounded, mask = _fake_quantized(x, scale.reshape(()), zero.reshape(()).int(), low, high)
    on = enabled.reshape(()) != 0
    return torch.where(on, rounded, x), mask | ~on


def _fake_quantized_by_channels(
    x: Tensor, scale: Tensor, zero: Tensor, axis: int, low: int, high: int
) -> tuple[Tensor, Tensor]:
    """Return x rounded to the levels of each channel, and the mask of the elements in range."""
    channels = [-1 if d == axis else 1 for d in range(x.dim())]
    return _fake_quantized(x, scale.view(channels), zero.view(channels), low, high)


def _smooth_backward(
    op: OpOverload,
    g: Tensor,
    size: Ints,
    shape: Ints,
    corners: bool,
    down: float | None = None,
    across: float | None = None,
) -> Tensor:
    """Return the gradient of an antialiased resize: a product by the matrix of each dimension, the resize of ones."""
    wide = torch.promote_types(g.dtype, torch.float32)
    sides = zip(shape[2:], size, (down, across), strict=True)
    rows, columns = (
        op(torch.eye(n, dtype=wide, device=g.device)[None, None], [m, n], corners, scale, None)[0, 0]
        for n, m, scale in sides
    )
    return (rows.t() @ g.to(wide) @ columns).to(g.dtype)


def _trilinear(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    new_a: Ints,
    new_b: Ints,
    new_c: Ints,
    summed: Ints,
    unroll_dim: int = 1,
) -> Tensor:
    """Return the sum over some dimensions of a product of three tensors, each with new dimensions of length one."""
    for d in range(a.dim() + len(new_a)):
        a, b, c = (x.unsqueeze(d) if d in new else x for x, new in ((a, new_a), (b, new_b), (c, new_c)))
    product = a * b * c
    return product.sum(tuple(summed)) if summed else product


def derived() -> AbstractContextManager[None]:
    """Return a context in which PyTorch derives the formulas of `DERIVED` instead of these ops."""
    formulas = {overload: decomposition_table[overload] for overload in _overloads(DERIVED)}
    formulas[aten.grid_sampler_2d.default] = _sampled
    return replaced({op: {DispatchKey.Autograd: formula} for op, formula in formulas.items()})


BILINEAR, NEAREST = 0, 1  # torch's numbers of interpolations


def _sampled(x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Tensor:
    """Apply PyTorch's formula with the derivative of its kernel.

    It is 0 with respect to the coordinates of nearest elements, and to those at an edge.
    """
    if mode == BILINEAR and padding and align_corners:
        grid = torch.where(torch.remainder(grid + 1, 2) == 0, grid.detach(), grid)
    sampled = decomposition_table[aten.grid_sampler_2d.default](x, grid, mode, padding, align_corners)
    return sampled + grid.flatten()[:0].sum() if mode == NEAREST else sampled


def decompose(program: ExportedProgram, formulas: Mapping[OpOverload, Function]) -> ExportedProgram:
    """Return `program.run_decompositions(formulas)`, with less work for each program.

    PyTorch lists its composite ops again for each namespace, and prepares hundreds of them twice for each program. Here
    they are listed once, and what PyTorch prepared for an op is reused while the op has the same kernels.
    """
    listed = cache(export_utils._materialize_cpp_cia_ops)
    with (
        mock.patch.object(export_utils, "_materialize_cpp_cia_ops", listed),
        mock.patch.object(exported_program, "_override_composite_implicit_decomp", _prepared),
    ):
        return program.run_decompositions(dict(formulas))


_prepare = exported_program._override_composite_implicit_decomp
# {op: (its formula, its kernels before, its kernels within the context, its implementation for fake tensors)}
_PREPARED: dict[OpOverload, tuple[Function, Kernels, Kernels, Function]] = {}


@contextmanager
def _prepared(formulas: Mapping[OpOverload, Function]) -> Iterator[None]:
    """Do as PyTorch's context of that name: each op has the kernels within it that keep it whole or decompose it."""
    known = {op: _PREPARED[op][2:] for op in formulas if _PREPARED.get(op, ())[:2] == (formulas[op], op.py_kernels)}
    before = {op: dict(op.py_kernels) for op in formulas if op not in known}
    with (
        _prepare({op: formulas[op] for op in before}),
        replaced({op: kernels for op, (kernels, _) in known.items()}),
        mock.patch.dict(op_implementations_dict, {op: fake for op, (_, fake) in known.items()}),
    ):
        for op, kernels in before.items():
            _PREPARED[op] = formulas[op], kernels, dict(op.py_kernels), op_implementations_dict[op]
        yield


def _overloads(*names: str) -> Iterator[OpOverload]:
    """Yield the overloads of these ops that do not write into a given tensor. An older PyTorch lacks some ops."""
    for name in " ".join(names).split():
        packet = getattr(aten, name, None)
        for overload in (getattr(packet, word) for word in packet.overloads()) if packet else ():
            if not overload._schema.is_mutable:
                yield overload


def _composite(overload: OpOverload) -> Function | None:
    """Return the kernel of an op that is composed from others. `overload.decompose` would read a table first: ours."""
    has, keys = torch._C._dispatch_has_kernel_for_dispatch_key, (COMPOSITE, DispatchKey.CompositeExplicitAutograd)
    try:
        return next((partial(overload._op_dk, key) for key in keys if has(overload.name(), key)), None)
    except RuntimeError:  # it is registered for scripts alone
        return None
