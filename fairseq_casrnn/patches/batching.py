"""Batches that contain every sentence and stay the same after resuming."""

import types

import numpy


def keep_last_batch(original, indices, *args, **kwargs):
    """Keep the last batch of a data set when its size is not a multiple of 8.

    fairseq 0.12.3 drops it (facebookresearch/fairseq#5036). Without
    ``--required-batch-size-multiple 1``, ``fairseq-generate`` leaves sentences untranslated,
    ``fairseq-interactive`` prints nothing for a single sentence, and training never sees the
    longest sentences.
    """
    if not isinstance(indices, numpy.ndarray):
        indices = numpy.fromiter(indices, dtype=numpy.int64)
    if len(indices) == 0:
        return []
    batches = original(indices, *args, **kwargs)
    if kwargs.get("fixed_shapes") is not None or len(args) > 5:  # batches are not consecutive
        return batches
    kept = sum(len(batch) for batch in batches)
    return [*batches, indices[kept:]] if kept < len(indices) else batches


def keep_batches_on_resume(original, self, dataset, *args, **kwargs):
    """Resume a training with the batches it had before.

    fairseq forms the batches once, at the start of a run. 0.12.3 adds the current epoch to the
    seed, so a run resumed after the first epoch would use different batches and give a different
    result.
    """
    epoch = kwargs.get("epoch", 1)
    renewed = kwargs.get("disable_iterator_cache") or kwargs.get("update_epoch_batch_itr")
    if epoch == 1 or renewed or not self.can_reuse_epoch_itr(dataset):
        return original(self, dataset, *args, **kwargs)
    if dataset in self.dataset_to_epoch_iter:  # cached in an earlier epoch
        return original(self, dataset, *args, **kwargs)
    iterator = original(self, dataset, *args, **{**kwargs, "epoch": 1})
    iterator.epoch = epoch
    return iterator


def separate_validation(original, self, dataset, *args, **kwargs):
    """Validate on the training set (``--valid-subset train``) with an iterator of its own.

    fairseq takes the training's, so each validation counts as an epoch, and a checkpoint saved
    after one in the middle of an epoch resumes with the next epoch.
    """
    trains = "grouped_shuffling" in kwargs  # fairseq's trainer passes it for training only
    cached = self.dataset_to_epoch_iter.get(dataset)
    if not trains and getattr(cached, "trains", False):
        kwargs["disable_iterator_cache"] = True
    iterator = original(self, dataset, *args, **kwargs)
    iterator.trains = trains
    return iterator


def read_first_part_once(original, self, datasets, sample_ratios=1) -> None:
    """Read the first shard of a split (train, train1, …) once.

    fairseq repeats it ``--upsample-primary`` times, whose default is -1.
    """
    if isinstance(sample_ratios, list):
        sample_ratios = [1 if ratio == -1 else ratio for ratio in sample_ratios]
    original(self, datasets, sample_ratios)


def restore_numpy_long() -> None:
    """Define ``numpy.compat.long``, which fairseq uses and numpy 2.4 has removed.

    ``--sample-break-mode eos`` and sampling from a language model fail without it. Other names that
    numpy 2 removed are used only by fairseq's audio data sets, its examples and one layer of its
    non-autoregressive models.
    """
    if not hasattr(numpy, "compat"):
        numpy.compat = types.SimpleNamespace(long=int)  # type: ignore[attr-defined]


def get_buckets(original, sizes, num_buckets):
    """Compute the buckets of ``--num-batch-buckets``; fairseq's code needs numpy 1's percentile."""
    percents = numpy.linspace(0, 100, num_buckets + 1)
    return numpy.unique(numpy.percentile(sizes, percents, method="lower")[1:])
