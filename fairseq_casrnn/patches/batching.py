"""Batches that lose no sentence, and that an interruption does not change."""

import types

import numpy


def keep_last_batch(original, indices, *args, **kwargs):
    """Keep the last batch of a data set when its size is no multiple of 8.

    fairseq 0.12.3 drops it (facebookresearch/fairseq#5036): unless told
    ``--required-batch-size-multiple 1``, ``fairseq-generate`` leaves sentences untranslated,
    ``fairseq-interactive`` answers a single sentence with nothing, and training never sees the
    longest sentences.
    """
    if not isinstance(indices, numpy.ndarray):
        indices = numpy.fromiter(indices, dtype=numpy.int64)
    if len(indices) == 0:
        return []
    batches = original(indices, *args, **kwargs)
    if kwargs.get("fixed_shapes") is not None or len(args) > 5:  # not consecutive then
        return batches
    kept = sum(len(batch) for batch in batches)
    return [*batches, indices[kept:]] if kept < len(indices) else batches


def keep_batches_on_resume(original, self, dataset, *args, **kwargs):
    """Resume a training with the batches it was interrupted with.

    fairseq forms the batches once, from a seed to which 0.12.3 adds the epoch in which it starts: a
    training that is resumed after its first epoch would go on with other batches, and end elsewhere
    than without the interruption.
    """
    epoch = kwargs.get("epoch", 1)
    renewed = kwargs.get("disable_iterator_cache") or kwargs.get("update_epoch_batch_itr")
    if epoch == 1 or renewed or not self.can_reuse_epoch_itr(dataset):
        return original(self, dataset, *args, **kwargs)
    if dataset in self.dataset_to_epoch_iter:  # formed already, in an earlier epoch
        return original(self, dataset, *args, **kwargs)
    iterator = original(self, dataset, *args, **{**kwargs, "epoch": 1})
    iterator.epoch = epoch
    return iterator


def read_first_part_once(original, self, datasets, sample_ratios=1) -> None:
    """Read the first part of a split in several (train, train1, …) once, not -1 times.

    That is fairseq's default for ``--upsample-primary``.
    """
    if isinstance(sample_ratios, list):
        sample_ratios = [1 if ratio == -1 else ratio for ratio in sample_ratios]
    original(self, datasets, sample_ratios)


def restore_numpy_long() -> None:
    """Give numpy back a name that fairseq needs and numpy 2.4 no longer has.

    Without it ``--sample-break-mode eos`` and sampling from a language model fail. What else numpy
    2 dropped only fairseq's audio data sets and examples use, and a layer of its
    non-autoregressive models.
    """
    if not hasattr(numpy, "compat"):
        numpy.compat = types.SimpleNamespace(long=int)  # type: ignore[attr-defined]


def get_buckets(original, sizes, num_buckets):
    """As fairseq's for ``--num-batch-buckets``, which calls ``percentile`` as numpy 1 had it."""
    percents = numpy.linspace(0, 100, num_buckets + 1)
    return numpy.unique(numpy.percentile(sizes, percents, method="lower")[1:])
