"""The four engines: what each supports, and the modules that run it.

======================  =======================================================================
``reference``           the cell's own step under autograd, any dtype: the specification
``eager``               one ``autograd.Function`` with hand-written backward, for all cells
``cpp``                 the same loop in C++, where it was compiled at installation
``triton``              the same loop in kernels on a GPU, where Triton works
======================  =======================================================================

Modules that plain layers do not need (decoders, losses, other layers) are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from . import cpp, eager, layer, reference
from .base import Engine
from .choice import ENGINES, by_name, default, log_fallback
from .inputs import (
    LayerInputs,
    LayerOutputs,
    LoopTensors,
    LossSpec,
    accumulation_dtype,
    autocast,
    wants_gradient,
)
from .memory import readable
from .triton import failures, support
from .triton import layer as triton_layer
from .triton.barriers import RefusedError
from .triton.plan import interpreting

if TYPE_CHECKING:
    from .decoder import DecoderInputs, DecoderSteps
    from .decoder_loop import Loops
    from .next_words import NextWords
    from .sentence_state import SLSTMOptions, SLSTMParameters, WordOps

UNREADABLE = "tensors are traced, fake, batched or of a subclass"
NO_SEQUENCE = "a batch without sequences"


class Reference(Engine):
    """The cell's step under autograd."""

    name = "reference"

    def run(self, inputs: LayerInputs) -> LayerOutputs:
        return reference.run(inputs)

    def decode(self, d: DecoderInputs) -> tuple[Tensor, Tensor]:
        from .decoder import run_reference

        return run_reference(d)


class Eager(Engine):
    """PyTorch operations with a hand-written backward."""

    name = "eager"

    def supports(self, inputs: LayerInputs) -> str | None:
        """Supports cells with a hand-written backward, on plain tensors."""
        if not inputs.cell.is_fused():
            return f"{type(inputs.cell).__name__} has a step only"
        if inputs.h0.size(0) == 0:
            return NO_SEQUENCE
        return None if readable(*inputs.tensors()) else UNREADABLE

    def run(self, inputs: LayerInputs) -> LayerOutputs:
        return eager.run(inputs)

    def supports_decode(self, d: DecoderInputs) -> str | None:
        """As :meth:`supports`, for all layers."""
        for part in d.layers:
            if not part.cell.is_fused():
                return f"{type(part.cell).__name__} has a step only"
        if d.h0.size(1) == 0:
            return NO_SEQUENCE
        return None if readable(*d.tensors()) else UNREADABLE

    def decode(self, d: DecoderInputs) -> tuple[Tensor, Tensor]:
        """In half precision, the loop runs in float32, on an engine that supports that."""
        from . import decoder_loop, decoding

        dtype = d.layers[0].weight_hh.dtype
        wide = accumulation_dtype(dtype)
        if wide == dtype:
            return decoder_loop.run(d, self.loops())
        out, alpha = decoding.run(self.name, d.to(wide))
        return out.to(dtype), alpha.to(dtype)

    def loops(self) -> Loops:
        """The decoder's forward and backward loop."""
        from .decoder_eager import EAGER

        return EAGER


class Cpp(Eager):
    """C++ on the CPU, in float32 and float64."""

    name = "cpp"
    takes_input_product = True

    def __init__(self) -> None:
        _, self.missing = cpp.extension()

    def available(self, device: str) -> str | None:
        return self.missing

    def fallback(self, device: str) -> str:
        return "eager"

    def supports(self, inputs: LayerInputs) -> str | None:
        """Also supports inputs that torch.compile and torch.export trace, without gradients."""
        tensors = inputs.tensors()
        if not (readable(*tensors) or is_traced(*tensors)):
            return UNREADABLE
        return cpp.why_not(inputs.cell, inputs.weight_hh.dtype, *tensors)

    def run(self, inputs: LayerInputs) -> LayerOutputs:
        return cpp.run(inputs)

    def supports_routing(self, inputs: LayerInputs, cells: Tensor) -> str | None:
        tensors = *inputs.tensors(), cells
        if not (readable(*tensors) or is_traced(*tensors)):
            return UNREADABLE
        return cpp.why_not_routed(inputs)

    def run_routed(self, inputs: LayerInputs, cells: Tensor) -> LayerOutputs:
        return cpp.run_routed(inputs, cells)

    def supports_decode(self, d: DecoderInputs) -> str | None:
        """Always yes for half precision, for which :meth:`decode` chooses an engine in float32."""
        from . import decoder_cpp

        reason, dtype = super().supports_decode(d), d.layers[0].weight_hh.dtype
        if reason is not None or accumulation_dtype(dtype) != dtype:
            return reason
        return decoder_cpp.why_not(d)

    def loops(self) -> Loops:
        from .decoder_cpp import COMPILED

        return COMPILED

    def decode_steps(
        self, d: DecoderInputs, source: Tensor | None, input_feed: bool
    ) -> DecoderSteps | None:
        from . import decoder_cpp

        if d.temperature is not None or decoder_cpp.why_not(d) is not None:
            return None
        return decoder_cpp.CppDecoderSteps(d, source, input_feed)

    def supports_sentence_state(
        self, x: Tensor, lengths: Tensor | None, params: SLSTMParameters
    ) -> str | None:
        if not readable(x, lengths, *params):
            return UNREADABLE
        if x.device.type != "cpu" or autocast("cpu"):
            return "it runs on the CPU, without autocast"
        if x.dtype not in cpp.DTYPES:
            return f"it does not run in {x.dtype}"
        return None if x.size(1) else NO_SEQUENCE

    def word_ops(self, x: Tensor, lengths: Tensor | None) -> WordOps:
        """Operations that skip padding."""
        from .sentence_state import PackedWordOps

        return PackedWordOps(x, lengths)

    def supports_products(self, first: Tensor, *others: Tensor | None) -> str | None:
        if first.device.type != "cpu" or autocast("cpu"):
            return "it runs on the CPU, without autocast"
        return None if readable(first, *others) else UNREADABLE

    def supports_loss(self, weight: Tensor) -> str | None:
        if weight.dtype not in cpp.DTYPES:
            return f"it does not run in {weight.dtype}"
        return self.supports_products(weight)

    def cross_entropy(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, loss_spec: LossSpec
    ) -> tuple[Tensor, Tensor]:
        from .cross_entropy import run_compiled

        return run_compiled(x, weight, bias, loss_spec)

    def next_words(
        self, weight: Tensor, bias: Tensor | None, rows: int, steps: int
    ) -> NextWords | None:
        from .next_words import PackedNextWords

        if weight.dtype != torch.float32 or self.supports_products(weight, bias) is not None:
            return None
        return PackedNextWords(weight, bias, rows, steps)


def is_traced(*tensors: Tensor | None) -> bool:
    """Whether torch.compile or torch.export can trace the registered operators on these tensors.

    False if a gradient is wanted: only the autograd.Function around the operators has one.
    """
    return torch.compiler.is_compiling() and not wants_gradient(*tensors)


class Triton(Engine):
    """Kernels on an NVIDIA GPU."""

    name = "triton"
    takes_input_product = True
    has_sentence_state = True

    def __init__(self) -> None:
        self.missing = support.missing()

    def available(self, device: str) -> str | None:
        if self.missing is not None:
            return self.missing
        if device == "cuda":
            return failures.why_not()
        return None if support.runs_on(device) else "its kernels run on NVIDIA GPUs"

    def fallback(self, device: str) -> str:
        return "eager" if device == "cuda" else default(device)

    def supports(self, inputs: LayerInputs) -> str | None:
        if not readable(*inputs.tensors()):
            return UNREADABLE
        if inputs.h0.size(0) == 0:
            return NO_SEQUENCE
        tensors = LoopTensors.of(inputs)
        weights = inputs.weight_hh, tensors.weight_ih, tensors.bias, *inputs.params
        states = tensors.gx, tensors.x, inputs.h0, inputs.c0, inputs.lower_c, inputs.mixture
        return support.why_not(inputs.cell, weights, states)

    def run(self, inputs: LayerInputs) -> LayerOutputs:
        """Run on the fallback if Triton cannot compile or launch."""

        def otherwise() -> LayerOutputs:
            device = inputs.weight_hh.device.type
            by_name(self.name, device)  # logs why the engine is not used from now on
            return layer.run_on(self.fallback(device), inputs)

        return failures.attempt(lambda: triton_layer.run(inputs), otherwise)

    def supports_decode(self, d: DecoderInputs) -> str | None:
        from .triton import decoder

        if d.h0.size(1) == 0:
            return NO_SEQUENCE
        if not readable(*d.tensors()):
            return UNREADABLE
        return decoder.why_not(d)

    def decode(self, d: DecoderInputs) -> tuple[Tensor, Tensor]:
        """Run on the fallback if the kernel does not fit on the GPU."""
        from . import decoding
        from .triton import decoder

        device = d.h0.device.type

        def otherwise() -> tuple[Tensor, Tensor]:
            return decoding.run(self.fallback(device), d)

        try:
            return failures.attempt(lambda: decoder.run(d), otherwise)
        except RefusedError as error:
            log_fallback(self, ENGINES[self.fallback(device)], failures.first_line(error))
            return otherwise()

    def decode_steps(
        self, d: DecoderInputs, source: Tensor | None, input_feed: bool
    ) -> DecoderSteps | None:
        from .triton import decoder, decoder_steps

        if decoder.why_not(d) is not None:
            return None
        return decoder_steps.TritonDecoderSteps(d, source, input_feed)

    def supports_sentence_state(
        self, x: Tensor, lengths: Tensor | None, params: SLSTMParameters
    ) -> str | None:
        if not readable(x, lengths, *params):
            return UNREADABLE
        if x.size(1) == 0:
            return NO_SEQUENCE
        # Autocast brings x to the parameters' dtype.
        return support.why_not_on(params if autocast(x.device.type) else (x, *params))

    def sentence_state(
        self, options: SLSTMOptions, x: Tensor, lengths: Tensor | None, params: SLSTMParameters
    ) -> tuple[Tensor, Tensor]:
        from .triton.sentence_state import run

        return run(options, x, lengths, params)

    def supports_loss(self, weight: Tensor) -> str | None:
        if weight.device.type != "cuda" and not interpreting():
            return "it runs on CUDA tensors"
        if weight.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            return f"it does not run in {weight.dtype}"
        return None if readable(weight) else UNREADABLE

    def cross_entropy(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, loss_spec: LossSpec
    ) -> tuple[Tensor, Tensor]:
        from .triton.cross_entropy import cross_entropy  # needs Triton

        return cross_entropy(x, weight, bias, loss_spec)

    def next_words(
        self, weight: Tensor, bias: Tensor | None, rows: int, steps: int
    ) -> NextWords | None:
        from .triton.beam import TableNextWords  # needs Triton

        return TableNextWords(weight, bias) if self.supports_loss(weight) is None else None


for engine in (Reference(), Eager(), Cpp(), Triton()):
    ENGINES[engine.name] = engine
