"""The computations that :mod:`agreement` checks: layers, decoder, beam search, loss and others.

Each function ``(case, H, B, T, device, dtype)`` draws random inputs and parameters, rounded to
``dtype``, and returns a function that takes the name of an engine and returns its outputs and all
gradients by name, or None if the engine has no such kernel. ``reference`` computes in float64.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_casrnn import layers
from fairseq_casrnn.recurrence import cross_entropy as loss_engine
from fairseq_casrnn.recurrence import decoding
from fairseq_casrnn.recurrence.decoder import DecoderInputs, DecoderLayer, run_reference

CASES = {
    "stacked_lstm": ("stacked_lstm", {}),
    "cas_lstm": ("cas_lstm", {}),
    "cas_lstm, λ trainable": ("cas_lstm", {"lam": "trainable"}),
    "cas_lstm, no λ": ("cas_lstm", {"lam": None}),
    "highway_lstm": ("highway_lstm", {}),
    "dg_lstm": ("dg_lstm", {}),
    "normalized_lstm": ("normalized_lstm", {}),
    "stacked_gru": ("stacked_gru", {}),
    "second_order_lstm": ("second_order_lstm", {"num_cells": 2}),
}
"""The family and the options of each case."""
DEPTH = 2
STEPS = 4  # of the sentence-state LSTM
WORDS, PAD, SMOOTHING = 1003, 1, 0.1

Problem = Callable[[str], dict[str, Tensor] | None]


def stack_of(case: str, input_size: int, size: int, device: str, dtype: torch.dtype):
    """A stack with random biases, peepholes and λ, since errors would not show if they were 0."""
    name, settings = CASES[case]
    options = SimpleNamespace(**settings)
    stack = layers.build(name, input_size, size, DEPTH, options=options).to(device)
    with torch.no_grad():
        for key, parameter in stack.named_parameters():
            if not key.startswith(("weight", "attention")):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return stack.to(dtype)


def lengths_of(batch: int, steps: int, device: str) -> Tensor:
    """Unequal, unsorted lengths ``(B,)``, of which at least one is ``steps``."""
    lengths = 1 + 7 * torch.arange(batch) % steps
    lengths[batch // 2] = steps
    return lengths.to(device)


def gradients(outputs: dict[str, Tensor], leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    """``outputs`` and the gradients of ``leaves``, given random gradients of the outputs."""
    generator = torch.Generator().manual_seed(2)
    grads = [torch.randn(t.shape, generator=generator).to(t) for t in outputs.values()]
    found = torch.autograd.grad(list(outputs.values()), list(leaves.values()), grads)
    return outputs | {f"gradient of {k}": g for k, g in zip(leaves, found, strict=True)}


def copy_for(engine: str, module: nn.Module) -> nn.Module:
    """A copy of ``module`` that runs on ``engine``, in float64 for the reference."""
    module = copy.deepcopy(module)
    module.engine = engine
    return module.double() if engine == "reference" else module


def leaf(tensor: Tensor, engine: str) -> Tensor:
    """A copy that requires a gradient, in float64 for the reference."""
    tensor = tensor.double() if engine == "reference" else tensor.clone()
    return tensor.requires_grad_()


def layer(case: str, size: int, batch: int, steps: int, device: str, dtype) -> Problem:
    """Two layers over sequences of unequal length."""
    stack = stack_of(case, size, size, device, dtype)
    x = torch.randn(steps, batch, size).to(device, dtype)
    lengths = lengths_of(batch, steps, device)

    def compute(engine):
        module, inputs = copy_for(engine, stack), leaf(x, engine)
        output, state = module(inputs, lengths=lengths)
        state = state if isinstance(state, tuple) else (state,)
        outputs = dict(zip(("output", "h_n", "c_n"), (output, *state), strict=False))
        return gradients(outputs, {"x": inputs, **dict(module.named_parameters())})

    return compute


def decoder(case: str, size: int, batch: int, steps: int, device: str, dtype) -> Problem:
    """Two layers with attention to a source, input feeding and dropout."""
    stack, tensors, fixed = decoding_inputs(case, size, batch, steps, device, dtype)

    def dropout_mask(*shape):
        return ((torch.rand(shape) > 0.3) / 0.7).to(device, dtype)

    drops = dropout_mask(DEPTH - 1, steps, batch, size), dropout_mask(steps, batch, size)

    def compute(engine):
        module = copy_for(engine, stack)
        leaves = {name: leaf(tensor, engine) for name, tensor in tensors.items()}
        drop_layers, drop_out = (drop.to(leaves["embedded"].dtype) for drop in drops)
        inputs = {"c0": None, **leaves, **fixed, "drop_layers": drop_layers, "drop_out": drop_out}
        out, alpha = decoding.run(engine, DecoderInputs(parts_of(module), **inputs))
        named = {**leaves, **dict(module.named_parameters())}
        return gradients({"output": out, "attention": alpha}, named)

    return compute


def beam(case: str, size: int, batch: int, steps: int, device: str, dtype) -> Problem:
    """The last of several decoder steps, before each of which the rows are reordered at random."""
    stack, tensors, fixed = decoding_inputs(case, size, batch, steps, device, dtype)
    orders = [torch.randint(batch, (batch,)) for _ in range(steps - 1)]
    lines = [torch.arange(batch)]  # at each step, the rows that the last step's rows continue
    for order in reversed(orders):
        lines.insert(0, order[lines[0]])
    lines = torch.stack(lines).to(device)

    @torch.no_grad()
    def compute(engine):
        parts = parts_of(copy_for(engine, stack))
        inputs = {name: leaf(tensor, engine) for name, tensor in tensors.items()}
        inputs = {"c0": None, **inputs, **fixed}
        if engine == "reference":
            rows = {"embedded": inputs["embedded"].gather(1, along(lines, inputs["embedded"]))}
            rows |= {name: inputs[name][lines[0]] for name in ("keys", "values", "mask")}
            rows |= {name: inputs[name][:, lines[0]] for name in ("h0", "c0") if name in tensors}
            out, alpha = (
                result[-1] for result in run_reference(DecoderInputs(parts, **inputs | rows))
            )
        else:
            search = decoding.steps(engine, DecoderInputs(parts, **inputs), None, input_feed=True)
            if search is None:
                return None
            for embedded, order in zip(inputs["embedded"], [*orders, None], strict=True):
                out, alpha = search.step(embedded)
                if order is not None:
                    search.reorder(order.to(device))
        return {"output": out.clone(), "attention": alpha}

    return compute


def along(rows: Tensor, tensor: Tensor) -> Tensor:
    """``rows`` (T, B) as an index for ``gather`` along the second dimension of (T, B, E)."""
    return rows.unsqueeze(-1).expand_as(tensor)


def decoding_inputs(case: str, size: int, batch: int, steps: int, device: str, dtype):
    """A stack, and by name the inputs with and without gradients, of a decoder without dropout."""
    stack = stack_of(case, 2 * size, size, device, dtype)
    source = steps + 2

    def rand(*shape):
        return torch.randn(shape).to(device, dtype)

    state = (DEPTH, batch, size)
    tensors = {"embedded": rand(steps, batch, size), "h0": rand(*state)}
    tensors |= {"keys": rand(batch, source, size) / size**0.5, "values": rand(batch, source, size)}
    tensors |= {"weight_out": rand(size, size) / size**0.5}
    if stack.has_cell:
        tensors["c0"] = rand(*state)
    positions = torch.arange(source, device=device)
    mask = positions >= lengths_of(batch, source, device).unsqueeze(1)
    temperature = torch.tensor(0.7, device=device) if stack.cells[0].num_cells else None
    return stack, tensors, {"mask": mask, "temperature": temperature}


def parts_of(module: nn.Module) -> list[DecoderLayer]:
    """A stack's layers as :class:`DecoderInputs` takes them."""
    parts = []
    for k, cell in enumerate(module.cells):
        *weights, params = module.layer_parameters(k)
        parts.append(DecoderLayer(cell, *weights, params, getattr(module, f"attention_l{k}", None)))
    return parts


def sentence_state(case: str, size: int, batch: int, steps: int, device: str, dtype) -> Problem:
    """A sentence-state LSTM over sentences of unequal length."""
    encoder = layers.SentenceStateLSTM(size, size, num_steps=STEPS).to(device, dtype)
    x = torch.randn(steps, batch, size).to(device, dtype)
    lengths = lengths_of(batch, steps, device)

    def compute(engine):
        module, inputs = copy_for(engine, encoder), leaf(x, engine)
        output, node = module(inputs, lengths=lengths)
        leaves = {"x": inputs, **dict(module.named_parameters())}
        return gradients({"output": output, "g": node}, leaves)

    return compute


def loss(case: str, size: int, batch: int, steps: int, device: str, dtype) -> Problem:
    """Cross entropy over a vocabulary with label smoothing; a third of the targets is padding."""
    tensors = {"x": torch.randn(steps, batch, size), "weight": torch.randn(WORDS, size) / 9}
    tensors |= {"bias": torch.randn(WORDS)}
    tensors = {name: tensor.to(device, dtype) for name, tensor in tensors.items()}
    target = torch.randint(4, WORDS, (steps, batch), device=device)
    target[::3] = PAD

    def exact(x, weight, bias):
        lprobs = F.log_softmax(F.linear(x, weight, bias), -1)[target != PAD]
        plain = -lprobs.gather(-1, target[target != PAD].unsqueeze(-1)).sum()
        share = SMOOTHING / (WORDS - 1)
        return (1 - SMOOTHING - share) * plain - share * lprobs.sum(), plain

    def compute(engine):
        leaves = {name: leaf(tensor, engine) for name, tensor in tensors.items()}
        if engine == "reference":
            total, plain = exact(**leaves)
        elif loss_engine.can_fuse(leaves["weight"], engine):
            spec = loss_engine.LossSpec(target, SMOOTHING, PAD)
            total, plain = loss_engine.cross_entropy(*leaves.values(), spec)
        else:
            return None
        found = gradients({"loss": total}, leaves)
        return found | {"loss without smoothing": plain}

    return compute


def choice(case: str, size: int, batch: int, steps: int, device: str, dtype) -> Problem:
    """The choice of the candidates that a beam search continues."""
    eos, words, shape = 2, 5, (batch, 2 * steps)
    scores = -torch.rand(shape).sort(1).values.to(device)
    scores[:, 1::5] = -torch.inf
    indices = torch.randint(steps * words, shape).to(device)
    ignored = torch.rand(batch, steps, device=device) < 0.3
    collected = torch.randint(steps, (batch,), device=device)
    names = ("ended", "ended rows", "parents", "tokens", "scores", "ignored", "collected")

    def compute(engine):
        from fairseq_casrnn.patches import beam_loop

        choose = beam_loop.select_candidates
        if engine == "triton":
            from fairseq_casrnn.recurrence.triton.beam import choose
        elif engine != "reference":
            return None
        results = choose(scores, indices, ignored, collected, eos, words)
        # Make all values finite and norms nonzero, so that relative errors are defined.
        results = [10 + tensor.double().nan_to_num(neginf=-9.0) for tensor in results]
        return dict(zip(names, results, strict=True))

    return compute
