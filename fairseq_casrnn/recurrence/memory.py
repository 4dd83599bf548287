"""Check that tensors are plain memory, which compiled code may read by address.

Under ``torch.jit.trace``, ``torch.func``, ``FakeTensorMode``, ``make_fx`` or ``torch.export`` a
tensor stands for a computation instead: there is no data at its address, and a trace would miss
what compiled code does. Such tensors are left to PyTorch operations.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch._C import DispatchKey, DispatchKeySet
from torch.autograd import forward_ad


def _bits(*keys: DispatchKey) -> int:
    bits = 0
    for key in keys:
        bits |= DispatchKeySet(key).raw_repr()
    return bits


# The keys that a thread's dispatch includes by default, with no mode or transformation active.
_ORDINARY = _bits(DispatchKey.BackendSelect, DispatchKey.ADInplaceOrView)
# The keys of dense tensors; Negative means a pending negation (``Tensor.is_neg``).
_DENSE = _bits(
    *(DispatchKey.CPU, DispatchKey.AutogradCPU, DispatchKey.AutocastCPU),
    *(DispatchKey.CUDA, DispatchKey.AutogradCUDA, DispatchKey.AutocastCUDA),
    *(DispatchKey.ADInplaceOrView, DispatchKey.Negative),
)
_KINDS = (Tensor, nn.Parameter)
_included, _keys = torch._C._dispatch_tls_local_include_set, torch._C._dispatch_keys


def on_host(tensor: Tensor) -> bool:
    """Whether the values of ``tensor`` can be read without waiting for a GPU."""
    return tensor.device.type == "cpu" and readable(tensor)


def readable(*tensors: Tensor | None) -> bool:
    """Whether compiled kernels may read ``tensors`` (None among them is ignored).

    False for tensors that are fake, on the meta device, sparse, functional, batched, of a
    subclass, or being traced, within any transformation of ``torch.func`` or
    ``torch.autograd.forward_ad``, and while torch.compile or torch.export trace.
    """
    if torch.compiler.is_compiling():
        return False
    if _included().raw_repr() & ~_ORDINARY or forward_ad._current_level >= 0:
        return False
    for t in tensors:
        if t is not None and (type(t) not in _KINDS or _keys(t).raw_repr() & ~_DENSE):
            return False
    return True
