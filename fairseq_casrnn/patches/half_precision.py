"""``--fp16`` and ``--bf16``: convert all weights, or all gradients, in one kernel launch.

fairseq copies parameters one by one, to float32 and back in every update. It also looks for a TPU
if ``--bf16`` is given.
"""

import sys

import torch
from torch import Tensor


def use_tpu_only_if_asked(result, parser, input_args=None, *args, **kwargs):
    """After ``parse_args_and_arch``: undo ``--tpu``, which ``--bf16`` implies in fairseq."""
    parsed = result[0] if isinstance(result, tuple) else result
    given = sys.argv if input_args is None else input_args
    if getattr(parsed, "bf16", False) and "--tpu" not in given:
        parsed.tpu = False
    return result


def has_uniform_parameters(optimizer) -> bool:
    """Whether all parameters are trained and on one device; fairseq handles other cases."""
    halves = optimizer.fp16_params
    return all(p.requires_grad for p in halves) and len({p.device for p in halves}) == 1


def master_weights(optimizer) -> list[Tensor]:
    """The float32 weights of each parameter, possibly views of one flat tensor."""
    if not optimizer.has_flat_params:
        return optimizer.fp32_params
    return views_like_parameters(optimizer, "weights", flat_master_weights(optimizer).data)


def master_grads(optimizer) -> list[Tensor | None]:
    """The gradients of :func:`master_weights`."""
    if not optimizer.has_flat_params:
        return [p.grad for p in optimizer.fp32_params]
    grad = flat_master_weights(optimizer).grad
    assert grad is not None  # flat parameters always have gradients
    return [*views_like_parameters(optimizer, "grads", grad.data)]


def flat_master_weights(optimizer) -> Tensor:
    """The flat tensor of all float32 weights."""
    full = optimizer.fp32_params
    return full if torch.is_tensor(full) else next(iter(full.values()))


def views_like_parameters(optimizer, name: str, tensor: Tensor) -> list[Tensor]:
    """Views of the flat ``tensor`` in the shapes of the parameters, cached under ``name``."""
    cache = vars(optimizer).setdefault("_flat_views", {})
    address, views = cache.get(name, (None, None))
    if address != tensor.data_ptr():
        halves = optimizer.fp16_params
        pieces = tensor.split([p.numel() for p in halves])
        views = [piece.view(p.shape) for piece, p in zip(pieces, halves, strict=True)]
        cache[name] = tensor.data_ptr(), views
    return views


@torch.no_grad()
def sync_fp16_grads_to_fp32(original, self):
    """Copy all gradients to float32."""
    if not self._needs_sync:
        return
    grads = [p.grad for p in self.fp16_params]
    master = master_grads(self) if has_uniform_parameters(self) else [None]
    if any(grad is None for grad in (*grads, *master)):
        original(self)
        return
    torch._foreach_copy_(master, grads)
    self._needs_sync = False


@torch.no_grad()
def sync_fp32_params_to_fp16(original, self):
    """Copy all weights to half precision."""
    if has_uniform_parameters(self):
        torch._foreach_copy_(list(self.fp16_params), master_weights(self))
    else:
        original(self)


def zero_grad(original, self):
    """Clear the gradients; those of float32 weights together, which fairseq clears one by one."""
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
