"""A training update on a GPU runs without synchronising with the CPU.

No GPU is needed: the tests record operations that would synchronise, while the code believes that
its tensors are on a GPU.
"""

import sys
from types import SimpleNamespace

import pytest
import torch
from language_models.common import random_model as language_model
from language_models.common import random_tokens
from models import common, sentences, taggers
from torch.autograd.profiler import profile

from fairseq_casrnn.criterions.fused_cross_entropy import FusedLabelSmoothedCrossEntropy
from fairseq_casrnn.criterions.sentence_classification import SentenceClassificationCriterion
from fairseq_casrnn.criterions.sequence_tagging import SequenceTaggingCriterion

SYNCING_OPS = {
    *("item", "_local_scalar_dense", "nonzero", "masked_select", "bincount", "equal", "_unique2"),
    "lift_fresh",  # a tensor of Python numbers, which is then copied to the GPU
}


class SyncFinder(profile):
    """A profiler that finds operations that synchronise."""

    def __init__(self):
        super().__init__()
        self.methods = []

    @property
    def found(self) -> set[str]:
        """The names of these operations."""
        names = {event.name.removeprefix("aten::") for event in self.function_events}
        return names & SYNCING_OPS | set(self.methods)


@pytest.fixture
def syncs(monkeypatch):
    """Finds the synchronising operations of an update on engine ``eager``."""
    found = SyncFinder()
    for name, module in list(sys.modules.items()):
        if name.startswith("fairseq_casrnn.") and getattr(module, "on_host", None):
            monkeypatch.setattr(module, "on_host", lambda tensor: False)
    for name in ("tolist", "numpy", "cpu"):
        original = getattr(torch.Tensor, name)

        def spy(self, *args, original=original, name=name):
            found.methods.append(name)
            return original(self, *args)

        monkeypatch.setattr(torch.Tensor, name, spy)
    monkeypatch.setenv("CASRNN_ENGINE", "eager")
    return found


def translation(name, **options):
    model = common.build(name, **{**common.SIZES, "dropout": 0.3, **options})
    src, prev = common.source(), common.target()
    inputs = {"src_tokens": src, "src_lengths": src.ne(common.PAD).sum(1)}
    sample = {"net_input": {**inputs, "prev_output_tokens": prev}, "target": prev.roll(-1, 1)}
    return model, FusedLabelSmoothedCrossEntropy(TASK, False, 0.1), {**sample, "ntokens": 9}


def language(name, **options):
    model = language_model(name, dropout=0.3, **options).float()
    words = random_tokens(3, 7)
    inputs = {"src_tokens": words, "src_lengths": torch.full((3,), 7)}
    sample = {"net_input": inputs, "target": words.roll(-1, 1), "ntokens": 21}
    return model, FusedLabelSmoothedCrossEntropy(TASK, False, 0.1), sample


def classification(name, **options):
    task = sentences.make_task()
    model = sentences.encoder(name, task, dropout=0.3, **options).float()
    criterion = SentenceClassificationCriterion(task, "class0:2", l2=0.1)
    target = torch.tensor([2, 0, 1])
    sample = {"net_input": {"src_tokens": sentences.batch()}, "target": target, "ntokens": 11}
    return model, criterion, sample


def tagging(name, **options):
    task = taggers.make_task()
    model = taggers.tagger(name, task, dropout=0.3, **options).float()
    rows = taggers.batch()
    target = torch.where(rows[:, 1:] == common.PAD, -1, rows[:, 1:] % 4)
    inputs = {"src_tokens": rows, "spelling": taggers.spelling(rows)}
    sample = {"net_input": inputs, "target": target, "ntokens": 8, "nsentences": 3}
    return model, SequenceTaggingCriterion(task), sample


# fairseq's sinusoidal positions read a tensor that holds a shape and is on the CPU.
EXPECTED_SYNCS = {"classification, transformer": {"item", "_local_scalar_dense"}}
TASK = SimpleNamespace(target_dictionary=SimpleNamespace(pad=lambda: common.PAD))
UPDATES = {
    "translation": lambda: translation("cas_lstm"),
    "translation, bidirectional": lambda: translation("stacked_gru", encoder_bidirectional=True),
    "translation, deep decoder": lambda: translation("cas_lstm", decoder_layers=4),
    "translation, no feeding": lambda: translation("stacked_lstm", no_input_feed=True),
    "language model": lambda: language("dg_lstm"),
    "language model, second order": lambda: language("second_order_lstm"),
    "language model, locked dropout": lambda: language(
        "stacked_lstm", locked_dropout=True, embed_dropout=0.2, weight_dropout=0.1
    ),
    **{f"classification, {n}": lambda n=n: classification(n) for n in sentences.NAMES},
    "classification, batch norm": lambda: classification("cas_lstm", mlp_batch_norm=True),
    "classification, attention": lambda: classification("stacked_lstm", pooling="attention"),
    "tagging": lambda: tagging("cas_lstm"),
    "tagging, sentence state": lambda: tagging("sentence_state_lstm"),
    "tagging, softmax": lambda: tagging("shortcut_lstm", tagger_output="softmax"),
}


@pytest.mark.parametrize("name", UPDATES)
def test_update_does_not_sync(name, syncs):
    model, criterion, sample = UPDATES[name]()
    model.train()
    criterion(model, sample)  # the first call may fill caches
    with syncs:
        loss, *_ = criterion(model, sample)
        loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    assert syncs.found == EXPECTED_SYNCS.get(name, set())


@pytest.mark.parametrize(
    "sync",
    [
        lambda x: bool(x.any()),
        lambda x: int(x.max()),
        lambda x: x[x > 1],
        lambda x: x[[0]],
        lambda x: x.tolist(),
        lambda x: torch.tensor(1.0),
        lambda x: x.bincount(),
    ],
)
def test_syncs_are_found(sync, syncs):
    tensor = torch.arange(3)
    with syncs:
        tensor + 1
        sync(tensor)
    assert syncs.found
