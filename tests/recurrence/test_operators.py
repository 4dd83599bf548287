"""The compiled engine's operators: schemas, fake kernels, torch.compile and torch.export."""

import pytest
import torch
from helpers import LENGTHS, B, H, I, T, assert_close, every_compiled_family, flat, rand

from fairseq_casrnn import recurrence
from fairseq_casrnn.layers import CASLSTM, GRU, LSTM, SecondOrderLSTM
from fairseq_casrnn.recurrence import cpp

pytestmark = pytest.mark.skipif("cpp" not in recurrence.installed(), reason="cpp is not compiled")
OPS = cpp.OPS
N = sum(LENGTHS)
ROWS = [3, 2, 2, 1, 1]  # sequences that are still running at each step


def layer(kernel, blocks=4, side=None, params=None, c=True, rows=None, keep=False):
    """Return arguments for layer_forward."""
    count = N if rows else T * B
    weights = rand(blocks * H, I), rand(blocks * H), rand(blocks * H, H)
    side = side and rand(count, side)
    params = params and rand(params, H)
    states = rand(B, H), rand(B, H, seed=1) if c else None
    return kernel, rand(count, I), *weights, *states, side, params, rows, keep


FUNCTIONAL = {
    "layer_forward": [
        layer("stacked_lstm"),
        layer("stacked_lstm", rows=ROWS),
        layer("cas_lstm", 5, side=H, params=2),
        layer("stacked_gru", 3, params=1, c=False),
    ],
    "routed_layer": [
        (
            *(rand(T, B, I), rand(8 * H, I), rand(8 * H), rand(8 * H, H), rand(B, H), rand(B, H)),
            torch.ones(T, B, dtype=torch.long),
        )
    ],
    "mm": [(rand(3, 4), rand(4, 5), None), (rand(3, 4), rand(5, 4).t(), rand(5))],
    "window_concat": [(rand(N, H), 1, ROWS)],
}
GATES = rand(T * B, 4 * H), rand(4 * H, H), rand(B, H), rand(B, H), None, None, None
WORDS = rand(N, 7 * H), rand(B, 7 * H), rand(N, H), rand(B, 1, H)
MUTABLE = {
    "layer_forward_": [("stacked_lstm", *GATES, False)],
    "layer_backward": [
        (
            *("stacked_lstm", None, None, GATES[0].sigmoid(), None, rand(B + T * B, H)),
            *(rand(B + T * B, H), GATES[1], None, None, rand(T * B, H), None, None, None),
            *(None, True, True),
        )
    ],
    "add_mm_": [(rand(3, 5), rand(3, 4), rand(4, 5))],
    "mix_words_": [(WORDS[0], WORDS[0] + 1, *WORDS[1:], ROWS)],
    "gather_words_": [(rand(N, H), rand(B, H), rand(N, H), ROWS)],
}
# Operators without fakes: only Python autograd functions call them, or shapes depend on data.
WITHOUT_FAKES = {
    "cross_entropy": [
        (rand(6, 4), rand(9, 4), rand(9), torch.arange(6), 0.1, 1, [True] * 3),
    ],
    "window_concat_backward": [(rand(N, 3 * H), rand(B, H), 1, ROWS)],
    "mix_words_backward": [(WORDS[0], *WORDS[2:], *[rand(N, H)] * 3, ROWS)],
    "gather_words_backward": [(rand(N, H), rand(N, H), rand(B, 1, H), rand(B, 1, H), ROWS)],
}


def cases(table):
    return [
        pytest.param(name, arguments, id=f"{name}-{k}")
        for name, several in table.items()
        for k, arguments in enumerate(several)
    ]


@pytest.mark.parametrize(("name", "arguments"), cases(FUNCTIONAL))
def test_functional_operators(name, arguments):
    """The fake kernel returns the real shapes, strides and dtypes, and no input is written to."""
    torch.library.opcheck(getattr(OPS, name).default, arguments)


@pytest.mark.parametrize(("name", "arguments"), cases(MUTABLE | WITHOUT_FAKES))
def test_schemas(name, arguments):
    """Exactly the arguments that are written to are marked as mutable."""
    torch.library.opcheck(getattr(OPS, name).default, arguments, test_utils="test_schema")


def test_every_operator_is_checked():
    ours = {n.partition("::")[2] for n in torch._C._dispatch_get_all_op_names() if "casrnn::" in n}
    assert ours == set(FUNCTIONAL) | set(MUTABLE) | set(WITHOUT_FAKES)


def test_arguments_of_other_types_are_refused():
    good = layer("stacked_lstm")
    for place, wrong in ((0, 3), (1, "x"), (9, 2.5), (10, "yes")):
        arguments = [*good[:place], wrong, *good[place + 1 :]]
        with pytest.raises((RuntimeError, TypeError), match=r"layer_forward\(\)"):
            OPS.layer_forward(*arguments)
    with pytest.raises(RuntimeError, match=r"layer_forward\(\) is missing value for argument 'x'"):
        OPS.layer_forward(kernel="lstm")
    module, _ = cpp.extension()
    with pytest.raises(TypeError, match=r"DecoderLayer\(\*, kernel: str, weight_ih_t: .*Tensor"):
        module.DecoderLayer("lstm", *[rand(2)] * 12)


@every_compiled_family
def test_compiled_inference_is_one_graph(case):
    """The graph contains operators instead of the steps of the cells."""
    layer = case.random(engine="cpp").eval()
    x, lengths = rand(T, B, I), torch.tensor(LENGTHS)
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    with torch.no_grad():
        expected = flat(layer(x, None, lengths))
        found = flat(torch.compile(layer, backend=backend, fullgraph=True)(x, None, lengths))
    assert_close(found, expected)
    called = [n.target for graph in graphs for n in graph.graph.nodes if "casrnn" in str(n.target)]
    assert len(graphs) == 1
    assert called == [OPS.layer_forward] * 2


def test_compiled_training_equals_the_reference():
    """Gradients are compared, too; the graph contains no operators."""
    layer = LSTM(I, H, engine="cpp", dtype=torch.float64)
    x = rand(T, B, I).requires_grad_()
    grads = []
    torch._dynamo.reset()
    for run in (layer, torch.compile(layer, backend="aot_eager", fullgraph=True)):
        grads.append(torch.autograd.grad(run(x)[0].square().sum(), [x, *layer.parameters()]))
    assert_close(*grads)


@pytest.mark.parametrize("make", [LSTM, GRU, CASLSTM])
def test_export(make):
    """The program takes any batch and length, whether or not the layer has run before."""
    layer = make(I, H, 2, engine="cpp", dtype=torch.float64).eval()
    batch, steps = torch.export.Dim("batch", min=2), torch.export.Dim("steps", min=2)
    for x in (rand(T, B, I), rand(T, B, I, seed=1)):
        with torch.no_grad():
            program = torch.export.export(
                layer, (x,), dynamic_shapes={"x": {0: steps, 1: batch}}, strict=False
            )
            other = rand(T + 4, B + 3, I, seed=2)
            assert_close(flat(program.module()(other)), flat(layer(other)))
        targets = [node.target for node in program.graph.nodes]
        assert targets.count(OPS.layer_forward.default) == 2


def test_export_of_hard_routing(monkeypatch):
    monkeypatch.setattr(cpp, "ROUTED_WEIGHTS", 0)
    layer = SecondOrderLSTM(I, H, num_cells=3, engine="cpp", dtype=torch.float64).eval()
    x = rand(T, B, I)
    with torch.no_grad():
        program = torch.export.export(layer, (x,), strict=False)
        assert_close(flat(program.module()(2 * x)), flat(layer(2 * x)))
    assert OPS.routed_layer.default in [node.target for node in program.graph.nodes]
