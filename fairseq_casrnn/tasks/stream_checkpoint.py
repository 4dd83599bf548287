"""The state of all streams in a checkpoint, gathered from the workers of a distributed training.

A state is a list of tensors ``(L, B, H)``, with the streams in dimension 1. Worker ``w`` of ``W``
reads streams ``w·B/W`` to ``(w+1)·B/W - 1``.
"""

from bisect import bisect_right

import torch
from fairseq.distributed import utils as distributed

from ..errors import UserError


def gather_streams(parts: list[torch.Tensor], workers: int) -> list[torch.Tensor]:
    """The state of all workers' streams, on the CPU. A collective call: each worker must make it.

    Args:
        parts: the state of this worker's streams.
        workers: number of workers.
    """
    if workers > 1:
        group = distributed.get_data_parallel_group()
        parts = [torch.cat(distributed.all_gather(part.contiguous(), group), 1) for part in parts]
    return [part.cpu() for part in parts]


def streams_of_worker(parts: list[torch.Tensor], worker: int, workers: int) -> list[torch.Tensor]:
    """The state of one worker's streams, from the state of all."""
    rows = parts[0].size(1) // workers
    return [part[:, rows * worker : rows * (worker + 1)].contiguous() for part in parts]


def check_position(content: dict, streams: int, stops: list[int]) -> None:
    """Check that a training can resume in the middle of an epoch.

    Args:
        content: what the checkpoint holds of the task.
        streams: number of streams of all workers.
        stops: time steps read after each batch of the epoch.

    Raises:
        UserError: the checkpoint was made with other streams or batches.
    """
    state, step = content["state"], content["step"]
    if state[0].size(1) != streams:
        raise UserError(
            f"the checkpoint is from the middle of an epoch with {state[0].size(1)} streams, but "
            f"--batch-size times workers is {streams}; give the values it was made with, or "
            "--reset-dataloader to start the epoch again"
        )
    # fairseq skips this number of batches, wherever in the text they end in this run.
    pieces = content.get("pieces", bisect_right(stops, step))
    if stops[pieces - 1 : pieces] != [step]:
        raise UserError(
            f"the checkpoint is from the middle of an epoch, after {pieces} batches with {step} "
            "steps in total, but the batches of this run have other lengths; give the data, "
            "--bptt, --bptt-jitter and --seed it was made with, or --reset-dataloader to start "
            "the epoch again"
        )
