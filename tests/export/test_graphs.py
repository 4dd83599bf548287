"""Exported programs compute what the model does, for batches of any size."""

import pytest
import torch
from helpers import CASES, FAMILIES, SINGLE, assert_close, flat, rand
from language_models import common as language_models
from models import common, sentences, taggers
from tiers import mostly_full

from fairseq_casrnn.cells import FAMILIES as FAMILIES_BY_NAME
from fairseq_casrnn.cells import Cell, Family
from fairseq_casrnn.data.tag_constraints import constraints
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.export import write
from fairseq_casrnn.export.graphs import graphs, random_sentences
from fairseq_casrnn.layers import CASLSTM, build

CAS = next(case for case in FAMILIES if case.name == "cas_lstm")
DYNAMIC = torch.export.Dim.DYNAMIC


def translation(case=CAS, variant="sizes", **options):
    return common.random_model(case, variant, **options).eval(), common.make_task()


def classifier(name="cas_lstm", pairs=False, **options):
    task = sentences.make_task(pairs=pairs)
    return sentences.encoder(name, task, **options).eval(), task


def tagger(name="cas_lstm", spelled=True, **options):
    task = taggers.make_task(spelled)
    model = taggers.tagger(name, task, **({} if spelled else {"char_filters": 0}), **options)
    return model.eval(), task


def language_model(name="cas_lstm", **options):
    task = language_models.make_task()
    return language_models.random_model(name, task=task, **options), task


MODELS = {
    "translation": translation,
    "translation, bidirectional": lambda: translation(variant="bidirectional"),
    "translation, no input feeding": lambda: translation(variant="no-input-feed"),
    "translation, deeper decoder": lambda: translation(variant="deeper-decoder"),
    "translation, tied": lambda: translation(variant="shared-target"),
    "classifier": classifier,
    "classifier of pairs": lambda: classifier(pairs=True, encoder_bidirectional=True),
    "classifier, attention": lambda: classifier(pooling="attention"),
    "tagger": tagger,
    "tagger, softmax": lambda: tagger(tagger_output="softmax"),
    "tagger, words alone": lambda: tagger(spelled=False),
    "language model": language_model,
    "language model, tied": lambda: language_model(
        share_decoder_input_output_embed=True, decoder_out_embed_dim=5
    ),
}
for _name in ("stacked_gru", "dg_lstm", "second_order_lstm", "highway_lstm", "normalized_lstm"):
    _case = next(case for case in FAMILIES if case.name == _name)
    MODELS[f"translation, {_name}"] = lambda case=_case: translation(case)
    MODELS[f"language model, {_name}"] = lambda name=_name: language_model(name)
for _name in ("sentence_state_lstm", "shortcut_lstm", "cnn"):
    MODELS[f"classifier, {_name}"] = lambda name=_name: classifier(name)
for _name in ("sentence_state_lstm", "shortcut_lstm", "second_order_lstm"):
    MODELS[f"tagger, {_name}"] = lambda name=_name: tagger(name)


@pytest.mark.parametrize("make", mostly_full(MODELS, "translation"))
def test_programs_compute_what_the_model_does(make):
    for graph in graphs(*MODELS[make]()).values():
        program = write.exported(graph).module()
        with torch.no_grad():
            expected = graph.module(*graph.probe.values())
            found = program(*graph.probe.values())
        pairs = [(found, expected)] if torch.is_tensor(found) else zip(found, expected, strict=True)
        for ours, theirs in pairs:
            assert ours.shape == theirs.shape
            assert_close([ours], [theirs], SINGLE)


@pytest.mark.full
@pytest.mark.parametrize("make", MODELS)
def test_onnx_files_compute_what_the_model_does(make, tmp_path):
    pytest.importorskip("onnxruntime")
    for name, graph in graphs(*MODELS[make]()).items():
        write.write_onnx(graph, tmp_path / f"{name}.onnx")  # compares the file with the model
        graph.module.register_forward_hook(lambda module, inputs, outputs: changed_outputs(outputs))
        assert write.largest_difference(graph, tmp_path / f"{name}.onnx") > write.TOLERANCE


def changed_outputs(outputs):
    """Return outputs that differ from those in the file."""
    if torch.is_tensor(outputs):
        return outputs + 1
    return tuple(part.logical_not() if part.dtype == torch.bool else part + 1 for part in outputs)


@pytest.mark.parametrize("case", mostly_full(CASES, CAS), ids=str)
@pytest.mark.parametrize("bidirectional", mostly_full([False, True], False))
def test_layers_export_without_operators_of_this_package(case, bidirectional):
    layer = case.random(bidirectional=bidirectional, engine="reference").eval()
    x, lengths = rand(5, 3, layer.input_size), torch.tensor([5, 2, 4])
    shapes = {"x": {0: DYNAMIC, 1: DYNAMIC}, "lengths": {0: DYNAMIC}}
    program = torch.export.export(layer, (x,), {"lengths": lengths}, dynamic_shapes=shapes)
    assert "fairseq_casrnn" not in str(program.graph)
    scans = str(program.graph).count("higher_order.scan")
    assert scans == layer.num_layers * layer.num_directions
    for steps, rows in ((7, [7, 1]), (2, [1, 2, 2, 1]), (1, [1])):
        y, lengths = rand(steps, len(rows), layer.input_size, seed=steps), torch.tensor(rows)
        assert_close(flat(program.module()(y, lengths=lengths)), flat(layer(y, lengths=lengths)))


class LeakyUnit(Cell):
    """A cell without an output gate, whose state is its output."""

    ih_blocks = hh_blocks = 1
    bias_one_gates = ()

    def step(self, gx, gh, h, c, **unused):
        c = 0.5 * c + 0.5 * torch.tanh(gx + gh)
        return c, c


def test_a_step_may_return_one_tensor_as_output_and_state(monkeypatch):
    """torch.export does not allow aliases in a scan."""
    monkeypatch.setitem(FAMILIES_BY_NAME, "leaky_unit", Family(lambda k, options: LeakyUnit()))
    layer = build("leaky_unit", 3, 4, 2, engine="reference").double().eval()
    x = rand(5, 2, 3)
    program = torch.export.export(layer, (x,))
    assert_close(flat(program.module()(x)), flat(layer(x)))


@pytest.mark.parametrize("rules", [None, constraints(("O", "B-X", "I-X", "E-X"))])
def test_tags_are_those_of_the_crf(rules):
    """Transitions outweigh emissions, and sentences have any length down to no words."""
    model, task = tagger(spelled=False)
    task.constraints = rules
    lengths = torch.tensor([7, 2, 1, 4, 7, 3, 5])
    tokens = random_sentences(task.source_dictionary, lengths.tolist())
    changed = False
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in model.crf.parameters():
                weight.normal_(0, 2, generator=generator)
            (graph,) = graphs(model, task).values()
            tags, emissions = graph.module(tokens)
        found = [row[: n - 1].tolist() for row, n in zip(tags, lengths, strict=True)]
        assert found == model.best(emissions, lengths - 1, rules)
        changed |= found != model.best(emissions, lengths - 1)
    assert changed == (rules is not None)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: translation(variant="adaptive"), "adaptive softmax cannot be exported; train one"),
        (lambda: classifier("transformer"), "a transformer cannot be exported"),
        (lambda: (CASLSTM(3, 4), None), "CASLSTM cannot be exported; give a translation model"),
    ],
)
def test_models_that_cannot_be_exported(make, message):
    with pytest.raises(UserError, match=message):
        graphs(*make())


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs onnx and onnxruntime; install it: pip install 'f"):
        write.require("onnx", "onnxruntime")
