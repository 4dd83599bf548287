"""The fused criterions compared with fairseq's own, on models of this package."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.distributed import ModuleProxyWrapper
from helpers import SINGLE, Case, assert_close
from language_models.common import random_model as random_language_model
from models.common import PAD, TARGET, random_model, source, target

from fairseq_casrnn import recurrence
from fairseq_casrnn.criterions.fused_cross_entropy import (
    FusedCrossEntropy,
    FusedLabelSmoothedCrossEntropy,
)
from fairseq_casrnn.models import head

pytestmark = pytest.mark.skipif("cpp" not in recurrence.installed(), reason="cpp is not compiled")
TASK = SimpleNamespace(target_dictionary=SimpleNamespace(pad=lambda: PAD))
PAIRS = {
    "plain": (FusedCrossEntropy, CrossEntropyCriterion, ()),
    "smoothed": (FusedLabelSmoothedCrossEntropy, LabelSmoothedCrossEntropyCriterion, (0.1,)),
}
every_pair = pytest.mark.parametrize("pair", PAIRS)


@pytest.fixture
def fused(monkeypatch):
    """Records each call of the fused loss."""
    calls, cross_entropy = [], head.cross_entropy

    def spy(*args):
        calls.append(args)
        return cross_entropy(*args)

    monkeypatch.setattr(head, "cross_entropy", spy)
    return calls


def translation(**options):
    model = random_model(Case("cas_lstm"), **options)
    src, prev = source(), target()
    inputs = {"src_tokens": src, "src_lengths": src.ne(PAD).sum(1), "prev_output_tokens": prev}
    words = prev.roll(-1, 1)
    words[:, -1] = PAD
    return model, {"net_input": inputs, "target": words, "ntokens": int(words.ne(PAD).sum())}


def language_model(**options):
    model = random_language_model("cas_lstm", **options)
    words = target()
    inputs = {"src_tokens": words, "src_lengths": words.ne(PAD).sum(1)}
    following = words.roll(-1, 1)
    following[:, -1] = PAD
    return model, {"net_input": inputs, "target": following, "ntokens": 9}


MODELS = {
    "translation": (translation, {}),
    "translation, shared": (translation, {"variant": "shared-target"}),
    "language model": (language_model, {}),
    "language model, shared": (language_model, {"share_decoder_input_output_embed": True}),
}


# Models whose output layer is not features · weight + bias.
UNFUSED = {"translation, adaptive": (translation, {"variant": "adaptive"})}


def results(criterion, model, sample, reduce=True):
    """Return loss, sample size, logged numbers and gradients; fairseq's softmax is in float32."""
    loss, size, logged = criterion(model, sample, reduce)
    grads = torch.autograd.grad(loss.sum(), list(model.parameters()), allow_unused=True)
    numbers = [torch.as_tensor(value) for value in logged.values()]
    found = [loss, torch.tensor(size), *numbers, *(g for g in grads if g is not None)]
    return [tensor.double() for tensor in found]


def both(pair, **options):
    ours, theirs, given = PAIRS[pair]
    return ours(TASK, False, *given, **options), theirs(TASK, False, *given, **options)


@every_pair
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("training", [True, False])
def test_equals_fairseq(fused, pair, name, training):
    build, options = MODELS[name]
    model, sample = build(**options)
    model.train(training)
    ours, theirs = both(pair)
    found = results(ours, model, sample)
    assert len(fused) == 1
    assert_close(found, results(theirs, model, sample), SINGLE)
    assert len(fused) == 1
    assert "loss_spec" not in sample["net_input"]


@every_pair
def test_losses_by_token_are_not_fused(fused, pair):
    ours, theirs = both(pair)
    model, sample = translation()
    found = results(ours, model, sample, reduce=False)
    assert_close(found, results(theirs, model, sample, reduce=False), SINGLE)
    assert found[0].numel() > 1
    assert not fused


@every_pair
@pytest.mark.parametrize("name", UNFUSED)
@torch.no_grad()
def test_other_output_layers_are_not_fused(fused, pair, name):
    """Beam search does not use a fused output layer either."""
    build, options = UNFUSED[name]
    model, sample = build(**options)
    model.float().eval()
    ours, theirs = both(pair)
    assert torch.equal(ours(model, sample)[0], theirs(model, sample)[0])
    assert not fused
    assert model.decoder.next_words(3, 5) is None


@pytest.mark.parametrize("options", [{"report_accuracy": True}, {"ignore_prefix_size": 1}])
def test_options_that_need_logits(fused, options):
    ours, theirs = both("smoothed", **options)
    model, sample = translation()
    assert_close(results(ours, model, sample), results(theirs, model, sample), SINGLE)
    assert not fused


def scale_output_layer(model):
    class Scaled(type(model.decoder)):
        def output_layer(self, features):
            return 3 * super().output_layer(features)

    model.decoder.__class__ = Scaled


def scale_forward(model):
    class Scaled(type(model)):
        def forward(self, src_tokens, src_lengths, prev_output_tokens):
            logits, extra = super().forward(src_tokens, src_lengths, prev_output_tokens)
            return 3 * logits, extra

    model.__class__ = Scaled


def override_encoder(model):
    class Flipped(type(model.encoder)):
        def forward(self, src_tokens, src_lengths):
            return super().forward(src_tokens.flip(0), src_lengths.flip(0))

    model.encoder.__class__ = Flipped


def override_targets(model):
    class OtherTargets(type(model)):
        def get_targets(self, sample, net_output):
            return sample["target"].where(sample["target"].eq(PAD), 5)

    model.__class__ = OtherTargets


@every_pair
@pytest.mark.parametrize(
    "change", [scale_output_layer, scale_forward, override_encoder, override_targets]
)
def test_subclasses_of_models(fused, pair, change):
    """Subclasses may change the logits in any way."""
    ours, theirs = both(pair)
    model, sample = translation()
    before = ours(model, sample)[0]
    change(model)
    fused.clear()
    assert torch.equal(ours(model, sample)[0], theirs(model, sample)[0])
    assert not fused
    assert ours(model, sample)[0] != before


@pytest.mark.parametrize("method", ["compute_loss", "get_lprobs_and_target"])
def test_subclasses_of_criterions(fused, method):
    """Subclasses get the logits that fairseq's methods get."""
    model, sample = translation()
    seen = []

    class Subclass(FusedLabelSmoothedCrossEntropy):
        pass

    def look(self, model, net_output, *args, **options):
        seen.append(net_output[0].shape)
        return getattr(FusedLabelSmoothedCrossEntropy, method)(
            self, model, net_output, *args, **options
        )

    setattr(Subclass, method, look)
    ours, theirs = Subclass(TASK, False, 0.1), both("smoothed")[1]
    assert_close(results(ours, model, sample), results(theirs, model, sample), SINGLE)
    assert seen == [(*sample["target"].shape, TARGET)]
    assert not fused


@every_pair
def test_within_a_wrapper(fused, pair):
    """A data-parallel wrapper must see the whole forward pass."""
    ours, theirs = both(pair)
    model, sample = translation()
    fused_calls = []

    class Parallel(torch.nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, **inputs):
            before = len(fused)
            output = self.module(**inputs)
            fused_calls.append(len(fused) - before)
            return output

    wrapped = ModuleProxyWrapper(Parallel(model))
    assert_close(results(ours, wrapped, sample), results(theirs, model, sample), SINGLE)
    assert fused_calls == [1]


def test_models_of_other_packages(fused):
    """Their decoders do not know the argument ``loss_spec``."""
    logits = torch.randn(3, 5, 9, requires_grad=True)
    words = torch.randint(2, 9, (3, 5))

    class Other(torch.nn.Module):
        decoder = SimpleNamespace(adaptive_softmax=None)

        def forward(self):
            return logits, None

        def get_targets(self, sample, output):
            return sample["target"]

        def get_normalized_probs(self, output, log_probs):
            return torch.log_softmax(output[0], -1)

    for pair in PAIRS:
        ours, theirs = both(pair)
        sample = {"net_input": {}, "target": words, "ntokens": 15}
        assert torch.equal(ours(Other(), sample)[0], theirs(Other(), sample)[0])
    assert not fused
