"""Parts of the task stateful_language_modeling: data, pieces, state."""

from collections import Counter

import pytest
import torch
from fairseq.tasks import TASK_REGISTRY

import fairseq_casrnn
from fairseq_casrnn.data.streams import StreamDataset
from fairseq_casrnn.errors import UserError

from .common import write_text
from .conftest import preprocess

fairseq_casrnn.register()

from fairseq_casrnn.tasks.stateful_language_modeling import (  # noqa: E402
    StatefulLanguageModelingConfig as Config,
)


def make_task(data, **options):
    given = {"seed": 3, "bptt": 6, "batch_size_valid": None, "dataset_impl": None, **options}
    return TASK_REGISTRY["stateful_language_modeling"].setup_task(Config(data=str(data), **given))


@pytest.fixture(scope="module")
def other(data, tmp_path_factory):
    """Another text with the same dictionary."""
    folder = tmp_path_factory.mktemp("other")
    for seed, split in enumerate(("train", "valid", "test"), 7):
        write_text(folder / split, 40, seed)
    return preprocess(folder, "--srcdict", data / "dict.txt")


@pytest.mark.parametrize("sentences", [False, True])
def test_options_without_effect_are_named(data, caplog, sentences):
    options = {"bptt": 6, "tokens_per_sample": 9, "sample_break_mode": "eos"}
    make_task(data, sentence_reset=sentences, **options).load_dataset("train")
    wanted = ["--tokens-per-sample", "--sample-break-mode", *(["--bptt"] if sentences else [])]
    warnings = [text for text in caplog.messages if "has no effect" in text]
    assert [text.split(" ")[0] for text in warnings] == wanted
    assert all(("with --sentence-reset" in text) == sentences for text in warnings)
    caplog.clear()
    make_task(data, sentence_reset=sentences, **options).load_dataset("valid")
    make_task(data, sentence_reset=sentences, bptt=70).load_dataset("train")
    assert "has no effect" not in caplog.text


def test_epochs_alternate_between_data_folders(data, other):
    task, texts = make_task(f"{data}:{other}"), []
    for epoch in (1, 2, 3):
        task.load_dataset("train", epoch=epoch)
        texts.append(task.datasets["train"].tokens)
    alone = make_task(other)
    alone.load_dataset("train")
    assert torch.equal(texts[1], alone.datasets["train"].tokens)
    assert torch.equal(texts[0], texts[2])
    assert not torch.equal(texts[0], texts[1])


def test_validation_must_be_long_enough_for_the_streams_of_all_workers(data):
    """The error comes before the first epoch."""
    task = make_task(data, batch_size_valid=8, bptt=2)
    for split in ("train", "valid"):
        task.load_dataset(split)
    streams = {"max_sentences": 1, "training": True}
    task.stream_iterator(task.datasets["train"], num_shards=2, **streams)
    with pytest.raises(UserError, match=r"the split 'valid' has .* too few for 64 streams"):
        task.stream_iterator(task.datasets["train"], num_shards=8, **streams)


def test_jitter_depends_on_seed_and_epoch(data):
    task = make_task(data, bptt_jitter=2.0)

    def lengths(seed, epoch, training=True):
        dataset = StreamDataset(torch.arange(4, 304), 1)
        iterator = task.stream_iterator(
            dataset, max_sentences=2, seed=seed, epoch=epoch, training=training
        )
        return [batch[0].stop - batch[0].start for batch in iterator.frozen_batches]

    assert lengths(1, 1) == lengths(1, 1)
    assert lengths(1, 2) != lengths(1, 1) != lengths(2, 1)
    assert set(lengths(1, 1, training=False)[:-1]) == {6}


def test_streams_that_are_reset(data):
    """The streams vary with update, piece, worker and seed; h and c are reset together."""
    state = tuple(torch.ones(2, 64, 3) for _ in "hc")

    def kept(seed=3, start=6, update=5, worker=0):
        task = make_task(data, state_reset_prob=0.5, seed=seed)
        task.worker = (worker, 2)
        h, c = task.reset_random_streams(state, start, update)
        assert torch.equal(h, c)
        assert torch.equal(h.any(-1), h.all(-1))
        assert torch.equal(h[0], h[1])
        return tuple(h[0, :, 0].tolist())

    first = kept()
    assert 16 < sum(first) < 48
    others = [kept(seed=4), kept(start=12), kept(update=6), kept(worker=1)]
    assert max(Counter([first, *others]).values()) == 1
    assert kept() == first
    assert make_task(data).reset_random_streams(state, 6, 5) is state


def test_a_repeated_batch_starts_from_the_same_state(data):
    """A batch is repeated after an overflow; training and evaluation have separate states."""
    task, begun = make_task(data), []

    def step(sample, number):
        carried = sample["net_input"]["carried"]
        before = carried.get(None)
        begun.append(None if before is None else int(before[0, 0, 0]))
        carried.update(None, torch.full((1, 2, 3), number))

    for what, start, number in (
        ("training", 0, 1),
        ("training", 6, 2),
        ("evaluation", 0, 7),
        ("training", 6, 3),
        ("evaluation", 6, 8),
        ("training", 12, 4),
        ("training", 0, 5),
    ):
        sample = {"start": start, "stop": start + 6, "net_input": {}, "target": torch.zeros(2, 6)}
        task.run_with_state(what, sample, step, number)
    assert begun == [None, 1, None, 1, 7, 3, None]


def test_sentences_of_equal_length_are_shuffled(data):
    task = make_task(data, sentence_reset=True)
    task.load_dataset("train")
    dataset = task.datasets["train"]
    orders = [dataset.ordered_indices().tolist() for _ in range(2)]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(50))
    assert orders[0] != orders[1]
    first = dataset[orders[0][0]]
    assert first["source"][0] == task.dictionary.eos() == first["target"][-1]
    assert torch.equal(first["source"][1:], first["target"][:-1])
