"""The engines, as :mod:`.engine` describes them: which module does what, and what it asks for.

What a layer alone does not need is imported where it is used: decoders, losses, other layers.
"""

from __future__ import annotations

import torch

from . import cpp, eager, layer, reference, triton_failures, triton_loop
from .engine import ENGINES, Engine, autocast, by_name, default, leave
from .inputs import InputProduct, accumulation_dtype, wants_gradient
from .memory import readable
from .triton_plan import RefusedError, interpreting

UNREADABLE = "tensors are traced, fake, batched or of a subclass"
NO_SEQUENCE = "a batch without sequences"


def tensors_of(gx) -> tuple:
    """x, weight and bias of an InputProduct; otherwise the tensor itself."""
    return (gx.x, gx.weight, gx.bias) if isinstance(gx, InputProduct) else (gx,)


class Reference(Engine):
    """Autograd runs the cell's step."""

    name = "reference"

    def run(self, *args):
        return reference.run(*args)

    def decode(self, d):
        from .attention import run_reference

        return run_reference(d)


class Eager(Engine):
    """PyTorch operations with a hand-written backward."""

    name = "eager"

    def supports(self, cell, gx, weight_hh, h0, c0, lower_c, mixture, last, params):
        """A cell with a backward, and memory that it may overwrite."""
        if not cell.is_fused():
            return f"{type(cell).__name__} has a step only"
        if h0.size(0) == 0:
            return NO_SEQUENCE
        tensors = (*tensors_of(gx), weight_hh, h0, c0, lower_c, mixture, *params)
        return None if readable(*tensors) else UNREADABLE

    def run(self, *args):
        return eager.run(*args)

    def supports_decode(self, d):
        """The same of all layers."""
        from .decoding import all_readable

        for part in d.layers:
            if not part.cell.is_fused():
                return f"{type(part.cell).__name__} has a step only"
        if d.h0.size(1) == 0:
            return NO_SEQUENCE
        return None if all_readable(d) else UNREADABLE

    def decode(self, d):
        """In half precision the loop runs in single, on the engine that then supports it."""
        from . import attention_loop, decoding

        dtype = d.layers[0].weight_hh.dtype
        wide = accumulation_dtype(dtype)
        if wide == dtype:
            return attention_loop.run(d, self.loops())
        out, alpha = decoding.run(self.name, decoding.all_in_dtype(d, wide))
        return out.to(dtype), alpha.to(dtype)

    def loops(self):
        """The decoder's forward and backward loop."""
        from .attention_eager import EAGER

        return EAGER


class Cpp(Eager):
    """C++ on the CPU, in float32 and float64."""

    name = "cpp"
    takes_input_product = True

    def __init__(self):
        _, self.missing = cpp.extension()

    def available(self, device):
        return self.missing

    def fallback(self, device):
        return "eager"

    def supports(self, cell, gx, weight_hh, h0, c0, lower_c, mixture, last, params):
        """Also what torch.compile and torch.export trace, where there is no gradient."""
        tensors = (weight_hh, *tensors_of(gx), h0, c0, lower_c, mixture, *params)
        if not (readable(*tensors) or is_traced(*tensors)):
            return UNREADABLE
        return cpp.why_not(cell, *tensors)

    def run(self, *args):
        return cpp.run(*args)

    def supports_routing(self, cell, gx, weight_hh, h0, c0, routing):
        tensors = (*tensors_of(gx), weight_hh, h0, c0, routing.cells)
        if not (readable(*tensors) or is_traced(*tensors)):
            return UNREADABLE
        return cpp.why_not_routed(cell, gx, weight_hh, h0, c0)

    def run_routed(self, *args):
        return cpp.run_routed(*args)

    def supports_decode(self, d):
        """In half precision always, for it is asked again in single."""
        from . import attention_cpp

        reason, dtype = super().supports_decode(d), d.layers[0].weight_hh.dtype
        if reason is not None or accumulation_dtype(dtype) != dtype:
            return reason
        return attention_cpp.why_not(d)

    def loops(self):
        from .attention_cpp import COMPILED

        return COMPILED

    def decode_steps(self, d, source, input_feed):
        from . import attention_cpp

        if d.temperature is not None or attention_cpp.why_not(d) is not None:
            return None
        return attention_cpp.Steps(d, source, input_feed)

    def supports_sentence_state(self, x, lengths, params):
        if not readable(x, lengths, *params):
            return UNREADABLE
        if x.device.type != "cpu" or autocast("cpu"):
            return "it runs on the CPU, without autocast"
        if x.dtype not in cpp.DTYPES:
            return f"it does not run in {x.dtype}"
        return None if x.size(1) else NO_SEQUENCE

    def word_ops(self, x, lengths):
        """Without padding."""
        from .sentence_state import PackedWordOps

        return PackedWordOps(x, lengths)

    def supports_products(self, *tensors):
        first = tensors[0]
        if first.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
            return "it runs on the CPU, without autocast"
        return None if readable(*tensors) else UNREADABLE

    def supports_loss(self, weight):
        if weight.dtype not in cpp.DTYPES:
            return f"it does not run in {weight.dtype}"
        return self.supports_products(weight)

    def cross_entropy(self, *args):
        from .cross_entropy import run_compiled

        return run_compiled(*args)

    def supports_best_sums(self, lprobs, scores):
        if not readable(lprobs, scores) or wants_gradient(lprobs, scores):
            return UNREADABLE
        if not lprobs.is_contiguous() or {lprobs.device.type, scores.device.type} != {"cpu"}:
            return "the tables are not dense, or not on the CPU"
        if not lprobs.dtype == scores.dtype == torch.float32:
            return "the tables are not in float32"
        return None


def is_traced(*tensors) -> bool:
    """Whether torch.compile or torch.export sees the operators called on these, and can keep them.

    They have no gradient of their own, which is that of an autograd.Function around them.
    """
    return torch.compiler.is_compiling() and not wants_gradient(*tensors)


class Triton(Engine):
    """Kernels on an NVIDIA GPU."""

    name = "triton"
    takes_input_product = True

    def __init__(self):
        self.missing = triton_loop.missing()

    def available(self, device):
        if self.missing is not None:
            return self.missing
        return triton_failures.why_not() if device == "cuda" else None

    def fallback(self, device):
        return "eager" if device == "cuda" else default(device)

    def supports(self, cell, gx, weight_hh, h0, c0, lower_c, mixture, last, params):
        inputs = tensors_of(gx)
        states = (inputs[0], h0, c0, lower_c, mixture)
        if not readable(*inputs, weight_hh, *states, *params):
            return UNREADABLE
        if h0.size(0) == 0:
            return NO_SEQUENCE
        return triton_loop.why_not(cell, (weight_hh, *inputs[1:], *params), states)

    def run(self, cell, gx, weight_hh, *rest):
        """On the fallback where Triton can neither compile nor launch."""

        def otherwise():
            device = weight_hh.device.type
            by_name(self.name, device)  # says so where it will not run again
            return layer.run_on(self.fallback(device), cell, gx, weight_hh, *rest)

        return triton_failures.attempt(
            lambda: triton_loop.run(cell, gx, weight_hh, *rest), otherwise
        )

    def supports_decode(self, d):
        from . import attention_triton
        from .decoding import all_readable

        if d.h0.size(1) == 0:
            return NO_SEQUENCE
        if not all_readable(d):
            return UNREADABLE
        return attention_triton.why_not(d)

    def decode(self, d):
        """On the fallback where the GPU refuses the kernel."""
        from . import attention_triton, decoding

        device = d.h0.device.type

        def otherwise():
            return decoding.run(self.fallback(device), d)

        try:
            return triton_failures.attempt(lambda: attention_triton.run(d), otherwise)
        except RefusedError as error:
            leave(self, ENGINES[self.fallback(device)], triton_failures.first_line(error))
            return otherwise()

    def decode_steps(self, d, source, input_feed):
        from . import attention_triton, triton_decoder_steps

        if attention_triton.why_not(d) is not None:
            return None
        return triton_decoder_steps.Steps(d, source, input_feed)

    def supports_sentence_state(self, x, lengths, params):
        if not readable(x, lengths, *params):
            return UNREADABLE
        if x.size(1) == 0:
            return NO_SEQUENCE
        # Autocast brings x and the parameters to the same dtype.
        return triton_loop.why_not_on(params if autocast(x.device.type) else (x, *params))

    def sentence_state(self, *args):
        from .sentence_state_loop import run

        return run(*args)

    def supports_loss(self, weight):
        if weight.device.type != "cuda" and not interpreting():
            return "it runs on CUDA tensors"
        if weight.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            return f"it does not run in {weight.dtype}"
        return None if readable(weight) else UNREADABLE

    def cross_entropy(self, *args):
        from .triton_cross_entropy import cross_entropy  # needs Triton

        return cross_entropy(*args)


for engine in (Reference(), Eager(), Cpp(), Triton()):
    ENGINES[engine.name] = engine
