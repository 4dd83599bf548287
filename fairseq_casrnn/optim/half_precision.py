"""``--fp16`` and ``--bf16``: all weights, or all gradients, change their precision in one launch.

fairseq copies parameter by parameter, to float32 and back in every update.
"""

import torch
from fairseq.optim.fp16_optimizer import _FP16OptimizerMixin
from torch import Tensor

from ..wrapping import wrap


def install() -> None:
    """Have fairseq's ``FP16Optimizer`` copy and clear the parameters' tensors together."""
    for replacement in (_sync_fp16_grads_to_fp32, _sync_fp32_params_to_fp16, zero_grad):
        wrap(_FP16OptimizerMixin, replacement.__name__, replacement)


def tensors(optimizer) -> list[tuple[Tensor, Tensor, Tensor | None]] | None:
    """Of each parameter: itself, its float32 weights and their gradient, which may lie in one.

    None for what fairseq treats in its own way: several devices, parameters that are not trained.
    """
    halves, full = optimizer.fp16_params, optimizer.fp32_params
    if not all(p.requires_grad for p in halves) or len({p.device for p in halves}) != 1:
        return None
    if not optimizer.has_flat_params:
        return [(p, wide.data, wide.grad) for p, wide in zip(halves, full, strict=True)]
    whole = full if torch.is_tensor(full) else next(iter(full.values()))
    sizes = [p.numel() for p in halves]
    parts = (part.split(sizes) for part in (whole.data, whole.grad.data))
    return [
        (p, *(part.view(p.shape) for part in own)) for p, *own in zip(halves, *parts, strict=True)
    ]


def _sync_fp16_grads_to_fp32(original, self):
    if not self._needs_sync:
        return
    found = tensors(self)
    if found is None or any(p.grad is None or grad is None for p, _, grad in found):
        original(self)
        return
    torch._foreach_copy_([grad for _, _, grad in found], [p.grad for p, _, _ in found])
    self._needs_sync = False


@torch.no_grad()
def _sync_fp32_params_to_fp16(original, self):
    found = tensors(self)
    if found is None:
        original(self)
        return
    torch._foreach_copy_([p.data for p, _, _ in found], [wide for _, wide, _ in found])


def zero_grad(original, self):
    """fairseq's, which would clear the gradients of many float32 weights one by one."""
    if self.has_flat_params:
        original(self)
        return
    held = [(p, p.grad) for p in self.fp32_params if p.grad is not None]
    for p, _ in held:
        p.grad = None
    original(self)
    for p, grad in held:
        p.grad = grad
    if held:
        torch._foreach_zero_([grad for _, grad in held])


install()
