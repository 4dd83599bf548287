"""``--fp16`` and ``--bf16``: all weights, or all gradients, change their precision in one launch.

fairseq copies parameter by parameter, to float32 and back in every update.
"""

import torch
from torch import Tensor


def is_usual(optimizer) -> bool:
    """Whether all parameters are trained, and on one device; the rest is left to fairseq."""
    halves = optimizer.fp16_params
    return all(p.requires_grad for p in halves) and len({p.device for p in halves}) == 1


def full_weights(optimizer) -> list[Tensor]:
    """The float32 weights of each parameter, which may be parts of one tensor."""
    if not optimizer.has_flat_params:
        return optimizer.fp32_params
    return parts(optimizer, "weights", whole(optimizer).data)


def full_grads(optimizer) -> list[Tensor | None]:
    """The gradients of :func:`full_weights`."""
    if not optimizer.has_flat_params:
        return [p.grad for p in optimizer.fp32_params]
    grad = whole(optimizer).grad
    assert grad is not None  # of flat parameters
    return [*parts(optimizer, "grads", grad.data)]


def whole(optimizer) -> Tensor:
    """The one tensor of all float32 weights."""
    full = optimizer.fp32_params
    return full if torch.is_tensor(full) else next(iter(full.values()))


def parts(optimizer, name: str, tensor: Tensor) -> list[Tensor]:
    """``tensor`` in the shapes of the parameters; kept, for there are many and they stay."""
    kept = vars(optimizer).setdefault("_parts", {})
    address, views = kept.get(name, (None, None))
    if address != tensor.data_ptr():
        halves = optimizer.fp16_params
        pieces = tensor.split([p.numel() for p in halves])
        views = [piece.view(p.shape) for piece, p in zip(pieces, halves, strict=True)]
        kept[name] = tensor.data_ptr(), views
    return views


@torch.no_grad()
def sync_fp16_grads_to_fp32(original, self):
    """The gradients, all together."""
    if not self._needs_sync:
        return
    grads = [p.grad for p in self.fp16_params]
    full = full_grads(self) if is_usual(self) else [None]
    if any(grad is None for grad in (*grads, *full)):
        original(self)
        return
    torch._foreach_copy_(full, grads)
    self._needs_sync = False


@torch.no_grad()
def sync_fp32_params_to_fp16(original, self):
    """The weights, all together."""
    if is_usual(self):
        torch._foreach_copy_(list(self.fp16_params), full_weights(self))
    else:
        original(self)


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
