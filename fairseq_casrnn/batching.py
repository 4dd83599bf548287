"""Batches that lose no sentence."""

import functools

import numpy


def keep_last_batch() -> None:
    """Make fairseq keep the last batch of a data set when its size is no multiple of 8.

    fairseq 0.12.3 drops it (facebookresearch/fairseq#5036): unless told
    ``--required-batch-size-multiple 1``, ``fairseq-generate`` leaves sentences untranslated,
    ``fairseq-interactive`` answers a single sentence with nothing, and training never sees the
    longest sentences.
    """
    from fairseq.data import data_utils

    original = data_utils.batch_by_size
    if getattr(original, "_keeps_last_batch", False):
        return

    @functools.wraps(original)
    def batch_by_size(indices, *args, **kwargs):
        if not isinstance(indices, numpy.ndarray):
            indices = numpy.fromiter(indices, dtype=numpy.int64)
        if len(indices) == 0:
            return []
        batches = original(indices, *args, **kwargs)
        if kwargs.get("fixed_shapes") is not None or len(args) > 5:  # not consecutive then
            return batches
        kept = sum(len(batch) for batch in batches)
        return [*batches, indices[kept:]] if kept < len(indices) else batches

    batch_by_size._keeps_last_batch = True
    data_utils.batch_by_size = batch_by_size
