"""The decoder loop of :mod:`.attention` on a GPU: engine ``triton``.

Both directions are one cooperative launch each (:mod:`.triton_decoder`); what can be done for all
steps at once, products with embeddings before and weights' gradients after, is done here. In half
precision the products' factors are rounded; gates, states, attention weights and sums are float32.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .attention import Decode, Layer
from .cpp import kernel_params, param_grads
from .eager import check_backward, keeps_graph, without_autocast
from .inputs import kept, wants_gradient
from .triton_failures import stop
from .triton_loop import why_not
from .triton_plan import chip, factors_of, interpreting, launch_together, meets
from .triton_steps import kernels, on_its_device, trained

Maybe = Tensor | None
WARPS = {"forward": 4, "backward": 8}
"""Of a program; the backward's share out the sum of a product."""
STAGES = 3
"""Steps of a product for which memory is asked before the first has come."""
ROWS = 32, 64
"""Heights of tiles: the second where the first does not have all rows on the GPU at once."""


def why_unsupported(d: Decode) -> str | None:
    """Why the kernels cannot run ``d``, or None."""
    for layer in d.layers:
        weights = (layer.weight_ih, layer.weight_hh, layer.bias, layer.attention, *layer.params)
        shared = (d.embedded, d.h0, d.keys, d.values, d.weight_out, d.drop_layers, d.drop_out)
        reason = why_not(layer.cell, (*weights, *shared), (d.c0,))
        if reason is not None:
            return reason
    if len({(type(layer.cell), len(layer.params)) for layer in d.layers[1:]}) > 1:
        return "the upper layers are of several kinds"
    if not meets(d.h0.device):
        return "the GPU's programs cannot wait for each other"
    if d.h0.dtype == torch.float64 and not interpreting():
        return "there is no product in float64"
    if tiling(d.h0.size(-1), d.h0.size(1), chip(d.h0.device)[0]) is None:
        return f"a hidden size of {d.h0.size(-1)} has no room on the GPU"
    return None


class Tiling(NamedTuple):
    """The grid of programs (tiles of rows, tiles of units) and a program's tile."""

    grid: tuple[int, int]
    rows: int
    units: int


def tiling(size: int, batch: int, processors: int) -> Tiling | None:
    """How rows and units are shared out, or None where there is no room.

    The units of a tile depend on the size alone, and of the rows there are two choices, so that
    batches of all sizes need few kernels.
    """
    for units in (16, 32, 64):
        across = -(-size // units)
        if across * 4 <= processors or (units == 64 and across <= processors):
            break
    else:
        return None
    room = processors // across
    rows = ROWS[0] if batch <= ROWS[0] * room else ROWS[1]
    return Tiling((min(-(-batch // rows), room), across), rows, units)


def tiles(size: int, how: Tiling, dtype: torch.dtype, backwards: bool) -> dict:
    """The kernels' arguments that say how they work, by name."""
    together = max(1, min(4, 1 << math.ceil(math.log2(how.rows / how.grid[1]))))
    halved = 1 if dtype in (torch.float16, torch.bfloat16) else 2
    if backwards:
        deep = {"DEPTH": 256 // halved, "SPLIT": WARPS["backward"]}
    else:
        deep = {"DEPTH": max(16, min(64 // halved, 1 << (size - 1).bit_length()))}
    return {
        "ROWS": how.rows,
        "UNITS": how.units,
        "RB": together,
        "SPAN": 32 // together,
        "CHUNK": max(16, min(128, 1 << (size - 1).bit_length())),
        **deep,
        **factors_of(dtype),
    }


class Weights(NamedTuple):
    """The layers' parameters as the kernels read them: the bottom one's, and the others stacked."""

    w_ih0: Maybe
    w_hh0: Tensor
    rows0: Maybe
    attention0: Maybe
    w_ih: Maybe
    w_hh: Maybe
    bias: Maybe
    rows: Maybe
    attention: Maybe


def stacked(tensors: list[Maybe]) -> Maybe:
    """``(N, …)``, or None where there is none."""
    if not tensors or tensors[0] is None:
        return None
    if len(tensors) == 1:
        return tensors[0].contiguous().unsqueeze(0)
    return torch.stack(tensors)


def kernel_name(layer: Layer) -> str:
    """The name of a layer's cell in the tables of kernels."""
    return named(layer)[0]


def named(layer: Layer) -> tuple[str, Maybe]:
    """The kernel's name and rows of elementwise parameters, in the dtype of sums."""
    wide = kept(layer.weight_hh.dtype)
    like = torch.empty(0, dtype=wide, device=layer.weight_hh.device)
    params = [p.to(wide) for p in layer.params]
    return kernel_params(layer.cell, layer.weight_hh.size(1), params, like)


def gather_weights(layers: list[Layer], embed_dim: int) -> tuple[Weights, list[str]]:
    """The parameters, and the kernels' names by layer. ``embed_dim`` columns are left out."""
    names, rows = zip(*(named(layer) for layer in layers), strict=True)
    bottom, upper = layers[0], layers[1:]
    fed = bottom.weight_ih.size(1) > embed_dim
    weights = Weights(
        w_ih0=bottom.weight_ih.contiguous()[:, embed_dim:] if fed else None,
        w_hh0=bottom.weight_hh.contiguous(),
        rows0=rows[0],
        attention0=None
        if bottom.attention is None or not fed
        else bottom.attention.contiguous()[:, embed_dim:],
        w_ih=stacked([layer.weight_ih for layer in upper]),
        w_hh=stacked([layer.weight_hh for layer in upper]),
        bias=stacked([layer.bias for layer in upper]),
        rows=stacked(list(rows[1:])),
        attention=stacked([layer.attention for layer in upper]),
    )
    return weights, list(names)


def shape_of(cell, rows: Maybe, number: str = "") -> dict:
    """The kernels' arguments that describe a layer's cell."""
    return {
        f"BLOCKS{number}": cell.ih_blocks,
        f"PRODUCTS{number}": cell.hh_blocks,
        f"ADDED{number}": cell.hh_blocks - cell.inner_blocks,
        f"PARAMS{number}": 0 if rows is None else rows.size(-2),
    }


@functools.lru_cache(maxsize=8)
def counters(device: torch.device, count: int) -> Tensor:
    """For the programs that wait for each other; zero before each launch."""
    return torch.zeros(count * kernels("decoder").APART.value, dtype=torch.int32, device=device)


def launch(kernel, phases: tuple[str, ...], how: Tiling, **arguments):
    """Run a kernel over all steps: whole, or phase by phase in the interpreter.

    Raises:
        RefusedError: the programs do not fit on the GPU at the same time.
    """
    backwards, layers, steps = "bottom" in phases[-1], arguments["layers"], arguments["steps"]
    device = arguments["hs"].device
    if interpreting():
        arguments["count"] = None
        for t in reversed(range(steps)) if backwards else range(steps):
            for phase, several, layer in order(phases, layers, backwards):
                between = (layer, layer + 1) if several else (1, 1)
                kernel[how.grid](
                    **arguments, begin=t, end=t + 1, first=between[0], last=between[1], PHASE=phase
                )
        return
    arguments["count"] = counters(device, how.grid[0]).zero_()
    warps = WARPS["backward" if backwards else "forward"]
    options = {"PHASE": -1, "num_warps": warps, "num_stages": STAGES}
    steps = {"begin": 0, "end": steps, "first": 1, "last": layers}
    launch_together(kernel, how.grid, **arguments, **steps, **options)


def order(phases: tuple[str, ...], layers: int, backwards: bool):
    """The phases of a step, as ``(number, whether of an upper layer, layer)``."""
    upper = [i for i, phase in enumerate(phases) if phase in ("upper", "between")]
    for i in range(len(phases)):
        if i not in upper:
            yield i, False, 0
        elif i == upper[0]:
            for layer in range(layers - 1, 0, -1) if backwards else range(1, layers):
                for phase in upper:
                    yield phase, True, layer


class Saved(NamedTuple):
    """What the forward fills; gates, inner, mixture of the upper layers are stacked.

    Attributes:
        hs: ``(L, T+1, B, H)`` in the weights' dtype, the initial state first.
        states: ``(L, T+1, B, H)``, c or, of cells without c, h.
        gates0, gates: ``(T, B, blocks*H)``, ``(L-1, T, B, blocks*H)``, activated, or None.
        inner0, inner: ``(T, B, H)``, ``(L-1, T, B, H)``, or None.
        mixture0, mixture: ``(T, B, S)``, ``(L-1, T, B, S)``, or None.
        ups: ``(L-1, T, B, H)``, what goes up after dropout, or None without.
        outs, fed: ``(T, B, H)``, attention outputs before and after dropout.
        alphas: ``(T, B, span)``.
    """

    hs: Tensor
    states: Tensor
    gates0: Maybe
    gates: Maybe
    inner0: Maybe
    inner: Maybe
    mixture0: Maybe
    mixture: Maybe
    ups: Maybe
    outs: Tensor
    fed: Tensor
    alphas: Tensor


def common(layers, weights: Weights, d: Decode, how: Tiling, backwards: bool) -> dict:
    """Arguments that both kernels have."""
    bottom, top = layers[0].cell, layers[-1].cell
    size = d.h0.size(-1)
    return {
        **weights._asdict(),
        "keys": d.keys,
        "values": d.values,
        "drop_layers": d.drop_layers,
        "drop_out": d.drop_out,
        "w_out": d.weight_out,
        "temperature": d.temperature,
        "batch": d.h0.size(1),
        "span": d.keys.size(1),
        "layers": len(layers),
        "size": size,
        "stride": size if weights.w_ih0 is None else weights.w_ih0.stride(0),
        "out_stride": d.weight_out.stride(0),
        "LOWER": top.lower_cell,
        "CELLS": bottom.routes,
        "WAYS": max(16, 1 << max(bottom.routes - 1, 0).bit_length()),
        **shape_of(bottom, weights.rows0, "0"),
        **shape_of(top, weights.rows),
        **tiles(size, how, d.h0.dtype, backwards),
    }


def pointers(arguments: dict, *names: str) -> dict:
    """``arguments`` with a tensor that is not read in place of what is missing among ``names``.

    Where None would choose another kernel and the pointer is never used, any will do.
    """
    other = arguments["hs"]
    return arguments | {n: other for n in names if arguments.get(n) is None}


def forward(d: Decode, weights, names, gx, routed, keep: bool) -> Saved:
    """The forward loop; gates are kept for the backward where ``keep``."""
    layers, (steps, batch) = d.layers, gx.shape[:2]
    depth, size, dtype = len(layers), d.h0.size(-1), d.h0.dtype
    wide, above = kept(dtype), layers[-1].cell
    bottom = layers[0].cell
    new = functools.partial(gx.new_empty, dtype=wide)
    hs = gx.new_empty(depth, steps + 1, batch, size)
    states = new(depth, steps + 1, batch, size) if bottom.has_cell or wide != dtype else hs
    hs[:, 0] = d.h0
    if states is not hs:
        states[:, 0] = d.h0 if d.c0 is None else d.c0
    fed = gx.new_empty(steps, batch, size)
    gates0 = gates = inner0 = inner = mixture0 = mixture = None
    if keep:
        gates0 = gx if dtype == wide else new(gx.shape)
        gates = new(depth - 1, steps, batch, above.ih_blocks * size)
        if bottom.inner_blocks:
            inner0, inner = new(steps, batch, size), new(depth - 1, steps, batch, size)
        if bottom.routes:
            mixture0 = new(steps, batch, bottom.routes)
            mixture = new(depth - 1, *mixture0.shape)
    saved = Saved(
        hs=hs,
        states=states,
        gates0=gates0,
        gates=gates,
        inner0=inner0,
        inner=inner,
        mixture0=mixture0,
        mixture=mixture,
        ups=None if d.drop_layers is None else hs.new_empty(depth - 1, steps, batch, size),
        outs=fed if d.drop_out is None else torch.empty_like(fed),
        fed=fed,
        alphas=new(steps, batch, d.keys.size(1)),
    )
    decode(d, weights, names, saved, gx, routed, (steps + 1) * batch, batch)
    return saved


def decode(d: Decode, weights, names, saved: Saved, gx, routed, plane, hop, feed=None, source=None):
    """Launch the forward kernel: layers ``plane`` rows apart, steps ``hop``."""
    steps, batch = gx.shape[:2]
    size, layers = d.h0.size(-1), d.layers
    how = tiling(size, batch, chip(gx.device)[0])
    tables = kernels("kernels").FORWARD
    arguments = common(layers, weights, d, how, False) | saved._asdict()
    arguments |= {
        "gx": gx,
        "routed": routed,
        "feed": feed,
        "padding": d.mask,
        "source": source,
        "context": saved.states.new_empty(batch, size),
        "steps": steps,
        "batch": batch,
        "plane": plane,
        "hop": hop,
        "FEED": weights.w_ih0 is not None,
        "cell0": tables[names[0]],
        "cell": tables[names[-1]],
    }
    arguments = pointers(arguments, "w_ih", "w_hh", "bias", "rows", "rows0")
    module = kernels("decoder")
    launch(module.decode_forward, module.FORWARD, how, **arguments)


class Grads(NamedTuple):
    """What the backward kernel fills; shapes as of :class:`Saved`, wide where sums are kept.

    Attributes:
        gates0, gates, products0, products: of the gates' sums and of U h, in the weights' dtype.
        rows0, rows: ``(tiles, 1 or L-1, rows, H)`` of the elementwise parameters, by tile of rows.
        mixture0, mixture: of the mixtures' weights, by tile of units (first), or None.
        states: ``(L, B, H)``.
        pre: ``(T, B, H)``, of the output before its tanh.
        scores: ``(T, B, span)``.
    """

    gates0: Tensor
    gates: Tensor
    products0: Tensor
    products: Tensor
    rows0: Maybe
    rows: Maybe
    mixture0: Maybe
    mixture: Maybe
    states: Tensor
    pre: Tensor
    scores: Tensor


def backward(d: Decode, weights, names, saved: Saved, grad_out, grad_alphas, retain: bool) -> Grads:
    """The backward loop."""
    hs, states, layers = saved.hs, saved.states, d.layers
    depth, steps, batch, size = len(layers), hs.size(1) - 1, *hs.shape[2:]
    how = tiling(size, batch, chip(hs.device)[0])
    bottom, above = layers[0].cell, layers[-1].cell
    new, zeros = states.new_empty, states.new_zeros
    overwrite = hs.dtype == states.dtype and not retain
    d_gates0, d_gates = (
        g if overwrite else torch.empty_like(g, dtype=hs.dtype) for g in (saved.gates0, saved.gates)
    )
    d_products0, d_products = d_gates0, d_gates
    if bottom.inner_blocks:
        d_products0 = hs.new_empty(steps, batch, bottom.hh_blocks * size)
        d_products = hs.new_empty(depth - 1, steps, batch, above.hh_blocks * size)
    learned0, learned = (
        trained(name, rows if rows is None else rows.reshape(-1, *rows.shape[-2:])[0])
        for name, rows in ((names[0], weights.rows0), (names[-1], weights.rows))
    )
    grads = Grads(
        gates0=d_gates0,
        gates=d_gates,
        products0=d_products0,
        products=d_products,
        rows0=zeros(how.grid[0], 1, learned0, size) if learned0 else None,
        rows=zeros(how.grid[0], depth - 1, learned, size) if learned else None,
        mixture0=parts_like(saved.mixture0, how.grid[1], d.temperature),
        mixture=parts_like(saved.mixture, how.grid[1], d.temperature),
        states=zeros(depth, batch, size),
        pre=hs.new_empty(steps, batch, size),
        scores=new(steps, batch, d.keys.size(1)),
    )
    tables = kernels("kernels").BACKWARD
    arguments = common(layers, weights, d, how, True)
    for name in ("gates0", "gates", "inner0", "inner", "mixture0", "mixture", "hs", "states"):
        arguments[name] = getattr(saved, name)
    arguments |= {f"d_{name}": tensor for name, tensor in grads._asdict().items()}
    arguments |= {
        "outs": saved.outs,
        "alphas": saved.alphas,
        "source": None,
        "grad_out": contiguous(grad_out),
        "grad_alphas": contiguous(grad_alphas),
        "d_query": new(batch, size),
        "d_up": new(batch, size),
        "steps": steps,
        "GRADS0": learned0,
        "GRADS": learned,
        "PARTS": how.grid[1],
        "cell0": tables[names[0]],
        "cell": tables[names[-1]],
    }
    del arguments["bias"]
    arguments = pointers(arguments, "w_ih", "w_hh", "rows", "rows0", "d_rows", "d_rows0")
    module = kernels("decoder")
    launch(module.decode_backward, module.BACKWARD, how, **arguments)
    return grads


def parts_like(mixture: Maybe, parts: int, temperature: Maybe) -> Maybe:
    """Where each tile of units writes its part of the gradient of ``mixture`` (…, B, S)."""
    if mixture is None or temperature is None:
        return None
    return mixture.new_empty(*mixture.shape[:-2], parts, *mixture.shape[-2:])


def contiguous(tensor: Maybe) -> Maybe:
    """``tensor``, or None, with its elements in order."""
    return None if tensor is None else tensor.contiguous()


def unflatten(cells, tensors) -> list[Layer]:
    """The layers from their parameters in one list, as :func:`run` makes it."""
    layers, at = [], 0
    for cell in cells:
        w_ih, w_hh, bias, attention, *params = tensors[at : at + 4 + len(cell.params)]
        layers.append(Layer(cell, w_ih, w_hh, bias, tuple(params), attention))
        at += 4 + len(cell.params)
    return layers


def run(d: Decode) -> tuple[Tensor, Tensor]:
    """As :func:`.attention.run_reference`."""
    tensors = []
    for layer in d.layers:
        tensors += [layer.weight_ih, layer.weight_hh, layer.bias, layer.attention, *layer.params]
    constants = d.mask, d.drop_layers, d.drop_out, d.temperature
    given = d.embedded, d.h0, d.c0, d.keys, d.values, d.weight_out
    cells = [layer.cell for layer in d.layers]
    if wants_gradient(*given, *tensors):
        return _Decode.apply(cells, constants, *given, *tensors)
    saved, _, _ = start(dense(d), keep=False)
    return saved.fed, saved.alphas.to(d.h0.dtype)


@on_its_device
def run_forward(first: Tensor, d: Decode, keep: bool):
    """The forward loop with what it reads: ``(saved, weights, names)``."""
    embed_dim = d.embedded.size(-1)
    weights, names = gather_weights(d.layers, embed_dim)
    bottom, routed = d.layers[0], None
    gx = F.linear(d.embedded, bottom.weight_ih[:, :embed_dim], bottom.bias)
    if bottom.attention is not None:
        routed = F.linear(d.embedded, bottom.attention[:, :embed_dim])
    return forward(d, weights, names, gx, routed, keep), weights, names


def start(d: Decode, keep: bool):
    """:func:`run_forward` on the device of ``d``."""
    return run_forward(d.h0, d, keep)


class _Decode(torch.autograd.Function):
    @staticmethod
    def forward(ctx, cells, constants, embedded, h0, c0, keys, values, weight_out, *tensors):
        d = dense(
            Decode(unflatten(cells, tensors), embedded, h0, c0, keys, values, constants[0],
                   weight_out, *constants[1:])
        )  # fmt: skip
        saved, _, _ = start(d, keep=True)
        ctx.cells = cells
        ctx.save_for_backward(
            *saved, embedded, h0, c0, d.keys, d.values, weight_out,
            *(d.drop_layers, d.drop_out, d.temperature), *tensors,
        )  # fmt: skip
        ctx.set_materialize_grads(False)
        return saved.fed, saved.alphas.to(h0.dtype)

    @staticmethod
    @without_autocast
    def backward(ctx, grad_out, grad_alphas):
        check_backward("triton", grad_out, grad_alphas)
        count = len(Saved._fields)
        saved = Saved(*ctx.saved_tensors[:count])
        embedded, h0, c0, keys, values, weight_out, *rest = ctx.saved_tensors[count:]
        layers = unflatten(ctx.cells, rest[3:])
        d = Decode(layers, embedded, h0, c0, keys, values, None, weight_out, *rest[:3])
        return None, None, *run_backward(h0, d, saved, grad_out, grad_alphas)


@on_its_device
def run_backward(first: Tensor, d: Decode, saved: Saved, grad_out, grad_alphas) -> list[Maybe]:
    """Gradients of embedded, h0, c0, keys, values, weight_out and the layers' parameters."""
    layers, dtype = d.layers, d.h0.dtype
    weights, names = gather_weights(layers, d.embedded.size(-1))
    if grad_alphas is not None:
        grad_alphas = grad_alphas.to(saved.alphas.dtype)
    try:
        g = backward(d, weights, names, saved, grad_out, grad_alphas, keeps_graph())
    except Exception as error:
        stop(error)
    d_embedded, d_h0, tensors = None, [], []
    for k, layer in enumerate(layers):
        d_gates, d_products, h = g.gates0, g.products0, saved.hs[k, :-1].flatten(0, 1)
        d_mixture, mixture, d_rows = g.mixture0, saved.mixture0, g.rows0
        if k > 0:
            d_gates, d_products = g.gates[k - 1], g.products[k - 1]
            if layer.attention is not None:
                mixture = saved.mixture[k - 1]
                d_mixture = None if g.mixture is None else g.mixture[k - 1]
            d_rows = None if g.rows is None else g.rows[:, k - 1 : k]
        width = layer.weight_hh.size(0)
        d_h0.append(torch.mm(d_products[0, :, :width], layer.weight_hh))
        d_products = d_products.flatten(0, 1)[:, :width]
        d_gates = d_gates.flatten(0, 1)
        d_scores = None
        if layer.attention is not None:
            d_scores = unmixed(d_mixture, mixture, d.temperature).to(dtype).flatten(0, 1)
        x = saved.hs[k - 1, 1:] if saved.ups is None else saved.ups[k - 1]
        x = (d.embedded, saved.fed) if k == 0 else (x,)
        if k == 0:
            size = d.embedded.size(-1)
            d_embedded = torch.mm(d_gates, layer.weight_ih[:, :size])
            if d_scores is not None:
                d_embedded.addmm_(d_scores, layer.attention[:, :size])
            d_embedded = d_embedded.view_as(d.embedded)
        d_params = ()
        if layer.params:
            _, rows = named(layer)
            d_params = param_grads(layer.cell, d_rows.sum((0, 1)), rows, layer.params)
        tensors += [
            input_grad(d_gates, x, layer.weight_ih),
            torch.mm(d_products.t(), h),
            d_gates.sum(0, dtype=kept(dtype)).to(dtype),
            None if d_scores is None else input_grad(d_scores, x, layer.attention),
            *(p_grad.to(dtype) for p_grad in d_params),
        ]
    top, pre = saved.hs[-1, 1:], g.pre
    d_h0, d_states = torch.stack(d_h0), g.states.to(dtype)
    if d.c0 is None:
        d_h0 += d_states
    d_keys = torch.bmm(g.scores.to(dtype).permute(1, 2, 0), top.transpose(0, 1))
    d_values = torch.bmm(saved.alphas.to(dtype).permute(1, 2, 0), pre.transpose(0, 1))
    d_weight_out = torch.mm(pre.flatten(0, 1).t(), top.flatten(0, 1))
    d_c0 = None if d.c0 is None else d_states.to(d.c0.dtype)
    return [d_embedded, d_h0, d_c0, d_keys, d_values, d_weight_out, *tensors]


def input_grad(d: Tensor, inputs: tuple[Tensor, ...], weight: Tensor) -> Tensor:
    """The gradient of ``weight`` (M, I), given that ``(T*B, M)`` of its products with inputs.

    The second of two inputs ``(T, B, ·)``, side by side, is read a step later than it is made.
    """
    if len(inputs) == 1:
        return torch.mm(d.t(), inputs[0].flatten(0, 1))
    out, first = torch.empty_like(weight, memory_format=torch.contiguous_format), inputs[0].size(-1)
    batch = inputs[0].size(1)
    torch.mm(d.t(), inputs[0].flatten(0, 1), out=out[:, :first])
    torch.mm(d[batch:].t(), inputs[1][:-1].flatten(0, 1), out=out[:, first:])
    return out


def unmixed(parts: Maybe, mixture: Tensor, temperature: Maybe) -> Tensor:
    """Gradients ``(T, B, S)`` of the scores; see :func:`.attention_eager.unmix`."""
    if temperature is None:
        return torch.zeros_like(mixture)
    d_mixture = parts.sum(-3)
    inner = (d_mixture * mixture).sum(-1, keepdim=True)
    return mixture * (d_mixture - inner) / temperature.to(mixture.dtype)


class Steps:
    """As :class:`.attention_cpp.Steps`: one launch a step for all layers and the attention."""

    def __init__(self, d: Decode, source: Maybe, input_feed: bool = True):
        embed_dim, bottom = d.embedded.size(-1), d.layers[0]
        self.weight, self.bias = bottom.weight_ih[:, :embed_dim].t(), bottom.bias
        self.routing = None if bottom.attention is None else bottom.attention[:, :embed_dim]
        self.weights, self.names = gather_weights(d.layers, embed_dim)
        if not input_feed:
            self.weights = self.weights._replace(w_ih0=None, attention0=None)
        self.d, self.source = dense(d), source
        # Before and after a step: h of all layers, what the bottom one is fed; and the states.
        depth, batch, size = d.h0.shape
        self.hs = d.h0.new_zeros(2, depth + 1, batch, size)
        self.hs[0, :depth] = d.h0
        self.states = self.hs
        if d.c0 is not None or kept(d.h0.dtype) != d.h0.dtype:
            self.states = torch.zeros_like(self.hs, dtype=kept(d.h0.dtype))
            self.states[0, :depth] = d.h0 if d.c0 is None else d.c0
        self.stepped = False

    def step(self, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """Attention output ``(B, H)`` and weights ``(B, S)`` after embeddings ``(B, E)``."""
        if self.stepped:
            self.reorder(torch.arange(self.hs.size(2), device=self.hs.device))
        self.stepped = True
        depth, batch = self.hs.size(1) - 1, self.hs.size(2)
        gx = torch.addmm(self.bias, embedded, self.weight).unsqueeze(0)
        routed = None
        if self.routing is not None:
            routed = F.linear(embedded, self.routing).unsqueeze(0)
        alphas = self.states.new_empty(1, batch, self.d.keys.size(1))
        out = self.hs[1, depth]
        nothing = dict.fromkeys(Saved._fields)
        saved = Saved(
            **nothing | {"hs": self.hs, "states": self.states, "fed": out, "alphas": alphas}
        )
        feed = self.hs[0, depth]
        decode(
            self.d, self.weights, self.names, saved, gx, routed,
            batch, (depth + 1) * batch, feed, self.source,
        )  # fmt: skip
        return out, alphas[0].to(out.dtype)

    def reorder(self, order: Tensor) -> None:
        """The next step's rows continue the rows ``order`` (B',) of the last one."""
        made = int(self.stepped)
        same = self.states is self.hs
        self.hs = continued(self.hs, made, order)
        self.states = self.hs if same else continued(self.states, made, order)
        self.source = order.clone() if self.source is None else self.source.index_select(0, order)
        self.stepped = False


def continued(states: Tensor, made: int, order: Tensor) -> Tensor:
    """A buffer for a step that goes on from the rows ``order`` of ``states[made]``."""
    buffer = states.new_empty(2, states.size(1), order.numel(), states.size(3))
    torch.index_select(states[made], 1, order, out=buffer[0])
    return buffer


def dense(d: Decode) -> Decode:
    """``d`` with its tensors as the kernels read them: elements, or those of a row, in order."""
    names = ("keys", "values", "mask", "drop_layers", "drop_out")
    changed = {name: contiguous(getattr(d, name)) for name in names}
    if d.weight_out.stride(-1) != 1:
        changed["weight_out"] = d.weight_out.contiguous()
    return replace(d, **changed)
