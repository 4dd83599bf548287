"""The norm of all gradients on a GPU in a few kernel launches, by torch's foreach operators.

Without apex, fairseq launches two kernels per parameter. Nothing changes on the CPU.
"""

import torch
from fairseq import utils


def install() -> None:
    """Let :func:`fairseq.utils.clip_grad_norm_` call :func:`l2_norm` if apex is not installed."""
    if not getattr(utils, "multi_tensor_l2norm_available", True):  # not every fairseq has it
        utils.multi_tensor_l2norm = l2_norm
        utils.multi_tensor_l2norm_available = True


def l2_norm(chunk_size, overflow, tensors, per_tensor) -> tuple[torch.Tensor, None]:
    """The float32 norm ``()`` of ``tensors[0]``; replaces apex's ``amp_C.multi_tensor_l2norm``."""
    norms = torch._foreach_norm(tensors[0], 2, dtype=torch.float32)
    return torch.linalg.vector_norm(torch.stack(norms)), None
