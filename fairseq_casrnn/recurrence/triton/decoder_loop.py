"""Buffers, arguments and launches of the decoder's loops on engine ``triton``.

Shapes as in :class:`..decoder.DecoderInputs`: T steps, B rows, H units, L layers. The named tuples
are also the kernels' arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from ...cells.base import Cell
from ..decoder import DecoderInputs, DecoderLayer
from ..inputs import accumulation_dtype
from .decoder_plan import Tiling, launch, tiles, tiling
from .host import contiguous, kernels
from .plan import chip, shape_of

LayerTuple = TypeVar("LayerTuple", "LayerWeights", "LayerGrads")


class LayerWeights(NamedTuple):
    """Parameters of the bottom layer, or of the upper layers, with another dimension of L-1.

    Attributes:
        w_ih: ``(blocks*H, H)``, W; for the bottom layer without the columns for embeddings, and
            None if no output is fed back.
        w_hh: ``(products*H, H)``, U.
        rows: ``(params, H)``, elementwise parameters, or None.
        attention: ``(S, H)``, of a mixture, otherwise as w_ih; or None.
        bias: ``(blocks*H,)``; None for the bottom layer, whose bias is in ``gx``.
    """

    w_ih: Tensor | None
    w_hh: Tensor | None
    rows: Tensor | None
    attention: Tensor | None
    bias: Tensor | None


class Weights(NamedTuple):
    """The parameters of all layers as the kernels read them."""

    bottom: LayerWeights
    upper: LayerWeights


def stacked(tensors: list[Tensor | None]) -> Tensor | None:
    """Stack tensors to ``(N, …)``, skipping None; None if nothing is left."""
    present = [t for t in tensors if t is not None]
    if not present:
        return None
    if len(present) == 1:
        return present[0].contiguous().unsqueeze(0)
    return torch.stack(present)


def kernel_rows(layer: DecoderLayer) -> Tensor | None:
    """The elementwise parameters ``(params, H)`` in the accumulation dtype, or None."""
    wide = accumulation_dtype(layer.weight_hh.dtype)
    like = torch.empty(0, dtype=wide, device=layer.weight_hh.device)
    return layer.cell.kernel_rows([p.to(wide) for p in layer.params], like, layer.weight_hh.size(1))


def gather_weights(layers: list[DecoderLayer], embed_dim: int) -> Weights:
    """The parameters of all layers, without the columns for embeddings."""
    bottom, upper = layers[0], layers[1:]
    fed = bottom.weight_ih.size(1) > embed_dim
    attention = bottom.attention if fed else None
    return Weights(
        LayerWeights(
            w_ih=bottom.weight_ih.contiguous()[:, embed_dim:] if fed else None,
            w_hh=bottom.weight_hh.contiguous(),
            rows=kernel_rows(bottom),
            attention=None if attention is None else attention.contiguous()[:, embed_dim:],
            bias=None,
        ),
        LayerWeights(
            w_ih=stacked([layer.weight_ih for layer in upper]),
            w_hh=stacked([layer.weight_hh for layer in upper]),
            rows=stacked([kernel_rows(layer) for layer in upper]),
            attention=stacked([layer.attention for layer in upper]),
            bias=stacked([layer.bias for layer in upper]),
        ),
    )


class LayerSaved(NamedTuple):
    """What the backward reads of the bottom layer, or of the upper ones, stacked; or None.

    Attributes:
        gates: ``(T, B, blocks*H)``, activated.
        candidate: ``(T, B, H)``, the block of U h that is not added to the gates, if any.
        mixture: ``(T, B, S)``, the weights of a mixture's cells, if any.
    """

    gates: Tensor | None
    candidate: Tensor | None
    mixture: Tensor | None


NOT_KEPT = LayerSaved(None, None, None)


class Saved(NamedTuple):
    """What the forward computes.

    Attributes:
        bottom, upper: for the backward; see :class:`LayerSaved`.
        hs: ``(L, T+1, B, H)`` in the weights' dtype, the initial state first.
        states: ``(L, T+1, B, H)``, c, or h for cells without c.
        ups: ``(L-1, T, B, H)``, what is passed up after dropout, or None without dropout.
        outs, fed: ``(T, B, H)``, attention outputs before and after dropout.
        alphas: ``(T, B, span)``.
    """

    bottom: LayerSaved
    upper: LayerSaved
    hs: Tensor
    states: Tensor
    ups: Tensor | None
    outs: Tensor | None
    fed: Tensor
    alphas: Tensor

    def flat(self) -> tuple[Tensor | None, ...]:
        """The tensors, for autograd to save."""
        return *self.bottom, *self.upper, *self[2:]

    @classmethod
    def of_flat(cls, tensors: Sequence[Any]) -> Saved:
        """The inverse of :meth:`flat`."""
        count = len(LayerSaved._fields)
        bottom, upper = LayerSaved(*tensors[:count]), LayerSaved(*tensors[count : 2 * count])
        return cls(bottom, upper, *tensors[2 * count :])


def common(d: DecoderInputs, weights: Weights, tile_plan: Tiling, table: str) -> dict[str, Any]:
    """The arguments that both kernels have in common; ``table`` has the cells' functions."""
    bottom, top = d.layers[0].cell, d.layers[-1].cell
    size, w_ih = d.h0.size(-1), weights.bottom.w_ih
    layer_tiles, attention_tiles = tiles(size, tile_plan, d.h0.dtype)
    functions = getattr(kernels("single_steps"), table)
    upper_weights = filled(weights.upper, d.keys, "w_ih", "w_hh", "rows", "bias")
    return {
        "weights": Weights(filled(weights.bottom, d.keys, "rows"), upper_weights),
        "keys": d.keys,
        "values": d.values,
        "drop_layers": d.drop_layers,
        "drop_out": d.drop_out,
        "w_out": d.weight_out,
        "temperature": d.temperature,
        "batch": d.h0.size(1),
        "span": d.keys.size(1),
        "layers": len(d.layers),
        "size": size,
        "stride": size if w_ih is None else w_ih.stride(0),
        "out_stride": d.weight_out.stride(0),
        "bottom_shape": shape_of(bottom, weights.bottom.rows),
        "upper_shape": shape_of(top, weights.upper.rows),
        "bottom_cell": functions[bottom.kernel],
        "upper_cell": functions[top.kernel],
        "tiles": layer_tiles,
        "attention_tiles": attention_tiles,
        "WAYS": max(16, 1 << max(bottom.num_cells - 1, 0).bit_length()),
        "LOWER": top.lower_cell,
    }


def filled(layer: LayerTuple, placeholder: Tensor, *names: str) -> LayerTuple:
    """``layer`` with ``placeholder`` for those fields of these names that are None.

    The kernels do not read them; None would require another compiled kernel.
    """
    return layer._replace(**{n: placeholder for n in names if getattr(layer, n) is None})


def forward(
    d: DecoderInputs, weights: Weights, gx: Tensor, routed: Tensor | None, keep: bool
) -> Saved:
    """The forward loop; with ``keep``, what the backward needs is kept."""
    layers, (steps, batch) = d.layers, gx.shape[:2]
    depth, size, dtype = len(layers), d.h0.size(-1), d.h0.dtype
    wide, bottom, top = accumulation_dtype(dtype), layers[0].cell, layers[-1].cell
    new = functools.partial(gx.new_empty, dtype=wide)
    hs = gx.new_empty(depth, steps + 1, batch, size)
    states = new(depth, steps + 1, batch, size) if bottom.has_cell or wide != dtype else hs
    hs[:, 0] = d.h0
    if states is not hs:
        states[:, 0] = d.h0 if d.c0 is None else d.c0
    fed = gx.new_empty(steps, batch, size)
    bottom_saved = upper_saved = NOT_KEPT
    if keep:
        gates = gx if dtype == wide else None
        bottom_saved = kept(bottom, new, steps, batch, size, gates=gates)
        upper_saved = kept(top, new, depth - 1, steps, batch, size)
    saved = Saved(
        bottom=bottom_saved,
        upper=upper_saved,
        hs=hs,
        states=states,
        ups=None if d.drop_layers is None else hs.new_empty(depth - 1, steps, batch, size),
        outs=fed if d.drop_out is None else torch.empty_like(fed),
        fed=fed,
        alphas=new(steps, batch, d.keys.size(1)),
    )
    tile_plan, arguments = prepare(d, weights, batch, (steps + 1) * batch, batch)
    arguments |= {"gx": gx, "routed": routed, "feed": None, "source": None, "saved": saved}
    start(tile_plan, arguments, steps)
    return saved


def kept(
    cell: Cell, new: Callable[..., Tensor], *shape: int, gates: Tensor | None = None
) -> LayerSaved:
    """Buffers for layers of ``cell``; ``shape`` is ``(…, H)``. Given ``gates`` are overwritten."""
    *rows, size = shape
    return LayerSaved(
        gates=new(*rows, cell.ih_blocks * size) if gates is None else gates,
        candidate=new(*shape) if cell.num_separate_gates else None,
        mixture=new(*rows, cell.num_cells) if cell.num_cells else None,
    )


def fitting(size: int, batch: int, device: torch.device) -> Tiling:
    """The tiling for sizes that :func:`.decoder.why_not` has checked."""
    tile_plan = tiling(size, batch, chip(device)[0])
    assert tile_plan is not None
    return tile_plan


def prepare(
    d: DecoderInputs, weights: Weights, batch: int, plane: int, hop: int
) -> tuple[Tiling, dict[str, Any]]:
    """The tiling, and those arguments of the forward kernel that are the same at every step.

    In the state buffers, layers are ``plane`` rows apart and steps ``hop`` rows.
    """
    tile_plan = fitting(d.h0.size(-1), batch, d.h0.device)
    arguments = common(d, weights, tile_plan, "FORWARD") | {
        "padding": d.mask,
        "batch": batch,
        "plane": plane,
        "hop": hop,
    }
    return tile_plan, arguments


def start(tile_plan: Tiling, arguments: dict[str, Any], steps: int) -> None:
    """Launch the forward kernel for this number of steps."""
    states = arguments["saved"].states
    context = states.new_empty(arguments["batch"], arguments["size"])  # shared by the programs
    module = kernels("decoder")
    launch(
        module.decode_forward,
        module.FORWARD,
        tile_plan,
        **arguments,
        context=context,
        steps=steps,
    )


class LayerGrads(NamedTuple):
    """Gradients of the bottom layer, or of the upper ones, stacked.

    Attributes:
        gates: ``(T, B, blocks*H)``, of the pre-activations, in the weights' dtype.
        products: ``(T, B, products*H)``, of U h, in the weights' dtype; may be gates.
        rows: ``(tiles, 1 or L-1, rows, H)``, of the elementwise parameters, with a partial sum per
            tile of rows; or None.
        mixture: ``(T, tiles, B, S)``, of a mixture's weights, with a partial sum per tile of units;
            or None.
    """

    gates: Tensor
    products: Tensor
    rows: Tensor | None
    mixture: Tensor | None


class Grads(NamedTuple):
    """Gradients that the backward kernel computes.

    They have the accumulation dtype, unless said otherwise.

    Attributes:
        bottom, upper: of the layers.
        states: ``(L, B, H)``.
        pre: ``(T, B, H)``, of the output before its tanh, in the weights' dtype.
        scores: ``(T, B, span)``.
    """

    bottom: LayerGrads
    upper: LayerGrads
    states: Tensor
    pre: Tensor
    scores: Tensor


def backward(
    d: DecoderInputs,
    weights: Weights,
    saved: Saved,
    *,
    grad_out: Tensor | None,
    grad_alphas: Tensor | None,
    retain: bool,
) -> Grads:
    """The backward loop; with ``retain``, the saved gates are not overwritten."""
    hs, states, layers = saved.hs, saved.states, d.layers
    depth, steps, batch, size = len(layers), hs.size(1) - 1, *hs.shape[2:]
    tile_plan = fitting(size, batch, hs.device)
    arguments = common(d, weights, tile_plan, "BACKWARD")
    new, zeros = states.new_empty, states.new_zeros
    overwrite = hs.dtype == states.dtype and not retain

    def buffers(layer: LayerSaved, cell: Cell, count: int, learned: int) -> LayerGrads:
        """Buffers for ``count`` layers with ``learned`` rows of elementwise parameters."""
        assert layer.gates is not None
        gates = layer.gates if overwrite else torch.empty_like(layer.gates, dtype=hs.dtype)
        products = gates
        if cell.num_separate_gates:
            products = hs.new_empty(*gates.shape[:-1], cell.hh_blocks * size)
        rows = zeros(tile_plan.grid[0], count, learned, size) if learned else None
        return LayerGrads(
            gates, products, rows, parts_like(layer.mixture, tile_plan.grid[1], d.temperature)
        )

    bottom_learned, upper_learned = (
        arguments[name].GRADS for name in ("bottom_shape", "upper_shape")
    )
    grads = Grads(
        bottom=buffers(saved.bottom, layers[0].cell, 1, bottom_learned),
        upper=buffers(saved.upper, layers[-1].cell, depth - 1, upper_learned),
        states=zeros(depth, batch, size),
        pre=hs.new_empty(steps, batch, size),
        scores=new(steps, batch, d.keys.size(1)),
    )
    arguments |= {
        "saved": saved,
        "grads": grads._replace(
            bottom=filled(grads.bottom, hs, "rows"), upper=filled(grads.upper, hs, "rows")
        ),
        "grad_out": contiguous(grad_out),
        "grad_alphas": contiguous(grad_alphas),
        "d_query": new(batch, size),
        "d_up": new(batch, size),
        "steps": steps,
        "PARTS": tile_plan.grid[1],
    }
    module = kernels("decoder")
    launch(module.decode_backward, module.BACKWARD, tile_plan, backwards=True, **arguments)
    return grads


def parts_like(mixture: Tensor | None, parts: int, temperature: Tensor | None) -> Tensor | None:
    """A buffer for partial gradients of ``mixture`` (…, B, S), one per tile of units."""
    if mixture is None or temperature is None:
        return None
    return mixture.new_empty(*mixture.shape[:-2], parts, *mixture.shape[-2:])


def dense(d: DecoderInputs) -> DecoderInputs:
    """``d`` with contiguous tensors, or for ``weight_out`` contiguous rows, as the kernels need."""
    names = ("keys", "values", "mask", "drop_layers", "drop_out")
    changed = {name: contiguous(getattr(d, name)) for name in names}
    if d.weight_out.stride(-1) != 1:
        changed["weight_out"] = d.weight_out.contiguous()
    return replace(d, **changed)
