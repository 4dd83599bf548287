"""Copy the numbers that an update logs from the GPU to the host together.

fairseq computes with these scalars on the GPU: about forty kernels per update, and one copy for
each value that it reads. The same arithmetic on the host gives the same numbers.
"""

from collections import defaultdict

import torch


def is_on_gpu(value) -> bool:
    """Whether ``value`` is a tensor on a GPU."""
    return torch.is_tensor(value) and value.is_cuda


def to_host(values: list) -> list:
    """``values`` with all tensors on the CPU; equal device, dtype and shape share one copy."""
    alike, result = defaultdict(list), list(values)
    for place, value in enumerate(values):
        if is_on_gpu(value):
            alike[value.device, value.dtype, value.shape].append(place)
    for places in alike.values():
        found = [values[place] for place in places]
        copies = torch.stack(found).cpu() if len(found) > 1 else [found[0].cpu()]
        for place, copy in zip(places, copies, strict=True):
            result[place] = copy
    return result


def clip_grad_norm(original, self, clip_norm):
    """Around ``Trainer.clip_grad_norm``: fairseq reads the norm before each step anyway."""
    return to_host([original(self, clip_norm)])[0]


def reduce_and_log_stats(original, self, logging_outputs, sample_size, grad_norm=None):
    """Around ``Trainer._reduce_and_log_stats``: pass it numbers on the host."""
    names = [list(log) for log in logging_outputs or ()]
    numbers = [value for log in logging_outputs or () for value in log.values()]
    *numbers, sample_size, grad_norm = to_host([*numbers, sample_size, grad_norm])
    numbers = iter(numbers)
    logs = [{name: next(numbers) for name in own} for own in names]
    return original(self, logs if logging_outputs else logging_outputs, sample_size, grad_norm)
