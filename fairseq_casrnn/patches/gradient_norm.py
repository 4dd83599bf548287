"""The norm of all gradients on a GPU in few launches, with torch's operations in place of apex's.

Without apex, fairseq launches two kernels for every parameter. On the CPU it computes what it did.
"""

import torch
from fairseq import utils


def install() -> None:
    """Have :func:`fairseq.utils.clip_grad_norm_` call :func:`l2_norm` where there is no apex."""
    if not utils.multi_tensor_l2norm_available:
        utils.multi_tensor_l2norm = l2_norm
        utils.multi_tensor_l2norm_available = True


def l2_norm(chunk_size, overflow, tensors, per_tensor) -> tuple[torch.Tensor, None]:
    """As apex's ``amp_C.multi_tensor_l2norm``: the norm ``()`` of ``tensors[0]`` in float32."""
    norms = torch._foreach_norm(tensors[0], 2, dtype=torch.float32)
    return torch.linalg.vector_norm(torch.stack(norms)), None
