"""Batches that lose no sentence, and that an interruption does not change."""

import numpy

from fairseq_casrnn.wrapping import wrap


def keep_last_batch() -> None:
    """Make fairseq keep the last batch of a data set when its size is no multiple of 8.

    fairseq 0.12.3 drops it (facebookresearch/fairseq#5036): unless told
    ``--required-batch-size-multiple 1``, ``fairseq-generate`` leaves sentences untranslated,
    ``fairseq-interactive`` answers a single sentence with nothing, and training never sees the
    longest sentences.
    """
    from fairseq.data import data_utils

    wrap(data_utils, "batch_by_size", _batch_by_size)


def _batch_by_size(original, indices, *args, **kwargs):
    if not isinstance(indices, numpy.ndarray):
        indices = numpy.fromiter(indices, dtype=numpy.int64)
    if len(indices) == 0:
        return []
    batches = original(indices, *args, **kwargs)
    if kwargs.get("fixed_shapes") is not None or len(args) > 5:  # not consecutive then
        return batches
    kept = sum(len(batch) for batch in batches)
    return [*batches, indices[kept:]] if kept < len(indices) else batches


def keep_batches_on_resume() -> None:
    """Make fairseq resume a training with the batches it was interrupted with.

    It forms the batches once, from a seed to which fairseq 0.12.3 adds the epoch in which it
    starts: a training that is resumed after its first epoch would go on with other batches, and
    end elsewhere than without the interruption.
    """
    from fairseq.tasks import FairseqTask

    wrap(FairseqTask, "get_batch_iterator", _get_batch_iterator)


def _get_batch_iterator(original, self, dataset, *args, **kwargs):
    epoch = kwargs.get("epoch", 1)
    renewed = kwargs.get("disable_iterator_cache") or kwargs.get("update_epoch_batch_itr")
    if epoch == 1 or renewed or not self.can_reuse_epoch_itr(dataset):
        return original(self, dataset, *args, **kwargs)
    if dataset in self.dataset_to_epoch_iter:  # formed already, in an earlier epoch
        return original(self, dataset, *args, **kwargs)
    iterator = original(self, dataset, *args, **{**kwargs, "epoch": 1})
    iterator.epoch = epoch
    return iterator
