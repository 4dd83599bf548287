"""The analyses of gates, routing and subspaces of recurrent stacks."""

import math

import numpy as np
import pytest
import torch
from helpers import assert_close, rand, randomize

from fairseq_casrnn import layers
from fairseq_casrnn.analysis import gates, routing, subspaces
from fairseq_casrnn.analysis.routing import Routed
from fairseq_casrnn.cells import FAMILIES, Cell, Family
from fairseq_casrnn.cells.stacked_lstm import LSTMCell
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.files import cell_text, check_writable, table_cell
from fairseq_casrnn.inference import tracing
from fairseq_casrnn.inference.tracing import LayerTrace


def stack(name, **options):
    return randomize(layers.build(name, 5, 4, 2, **options).double()).eval()


@pytest.mark.parametrize("ways", [False, True, "interleaved"])
@pytest.mark.parametrize("name", FAMILIES)
def test_recording_does_not_change_the_output(name, ways):
    """The loop that records gates has the same outputs as the engines."""
    if ways == "interleaved" and FAMILIES[name].make_cell(1, FAMILIES[name].options()).lower_cell:
        return
    layer, x = stack(name, bidirectional=ways), rand(6, 1, 5)
    before = layer(x)
    with tracing.record_gates([layer]) as traces:
        during = layer(x)
    states = list if layer.has_cell else (lambda s: [s])
    assert_close([during[0], *states(during[1])], [before[0], *states(before[1])])
    assert_close([layer(x)[0]], [before[0]])
    assert len(traces) == 2 * (2 if ways else 1)
    assert {(one.layer, one.direction) for one in traces} == {
        (k, way) for k in range(2) for way in layer.suffixes
    }
    assert all(one.gates.shape == (6, layer.cells[one.layer].ih_blocks, 4) for one in traces)


class StepOnly(Cell):
    """A cell that only implements ``step``."""

    def step(self, gx, gh, h, c, **unused):
        return LSTMCell().step(gx, gh, h, c)


def test_a_cell_without_in_place_step_is_refused(monkeypatch):
    monkeypatch.setitem(FAMILIES, "step_only", Family(lambda k, options: StepOnly()))
    layer = stack("step_only")
    refused = pytest.raises(
        UserError, match=r"of StepOnly cannot .* give it forward_ and backward_"
    )
    with refused, tracing.record_gates([layer]):
        layer(rand(6, 1, 5))


def test_recorded_gates_satisfy_the_equations():
    """CAS: c = i⊙g + ½ f⊙c₋ + ½ v⊙c' and h = o⊙tanh(c), step by step from the recorded gates."""
    layer, x = stack("cas_lstm"), rand(6, 1, 5)
    with tracing.record_gates([layer]) as traces:
        output, (_, c_n) = layer(x)
    below = above = torch.zeros(4).double()
    for t in range(6):
        i, f, g, o = traces[0].gates[t]
        below = i * g + f * below
        i, f, g, o, v = traces[1].gates[t]
        above = i * g + 0.5 * f * above + 0.5 * v * below
        assert_close([o * above.tanh()], [output[t, 0]])
    assert_close([below, above], [c_n[0, 0], c_n[1, 0]])
    found = gates.measure([([[0]], [traces])])[1, ""]
    (_, _, _, o), v = traces[0].gates.unbind(1), traces[1].gates[:, 4]
    assert found["gate"].mean == pytest.approx(float(v.mean()))
    assert found["difference"].mean == pytest.approx(float((v - o).abs().mean()))


def test_histograms_by_hand():
    """Gates are .3 and .5, and the output gate below is .75: range .2, differences .45 and .25."""
    steps = torch.zeros(7, 4, 2)
    steps[:, gates.OUTPUT_GATE] = 0.75
    upper = torch.zeros(7, 5, 2)
    upper[:, gates.LOWER_CELL_GATE] = torch.tensor([0.3, 0.5])
    readings = [([[0]], [[LayerTrace(0, "", steps), LayerTrace(1, "", upper)]])] * 2
    found = gates.measure(readings)
    assert list(found) == [(1, "")]
    own = found[1, ""]
    assert own["gate"].counts.sum() == 2 * 7 * 2
    assert own["gate"].mean == pytest.approx(0.4)
    assert own["gate"].deviation == pytest.approx(0.1)
    assert own["range"].mean == pytest.approx(0.2)
    assert own["range"].counts.sum() == 14
    assert own["difference"].mean == pytest.approx(0.35)
    assert own["gate"].share(0, 0.4) == own["gate"].share(0.4, 1) == 0.5
    assert gates.table_lines(gates.by_layer_name(found))[1].split()[:4] == [
        "layer",
        "2",
        "0.40",
        "0.10",
    ]


def test_gates_are_compared_at_the_same_step_and_direction():
    """The difference from the output gate below is constant only for equal steps and directions."""
    rng = np.random.default_rng(1)
    outputs = {(k, way): rng.uniform(0, 0.6, (7, 2)) for k in range(3) for way in ("", "_reverse")}
    above = {(k, way): 0.15 * k + 0.1 * bool(way) for k, way in outputs if k}
    traces = []
    for (layer, way), output in outputs.items():
        steps = np.zeros((7, 5, 2))
        steps[:, gates.OUTPUT_GATE] = output
        if layer:
            steps[:, gates.LOWER_CELL_GATE] = outputs[layer - 1, way] + above[layer, way]
        traces.append(LayerTrace(layer, way, torch.from_numpy(steps)))
    found = gates.measure([([[0]], [traces])])
    assert list(found) == list(above)
    for key, own in found.items():
        assert own["difference"].mean == pytest.approx(above[key])
        assert own["difference"].deviation == pytest.approx(0, abs=1e-6)


def test_the_table_of_gates_and_its_file(tmp_path):
    own = {name: gates.Histogram() for name in gates.MEASURES}
    own["gate"].add(np.array([0.05, 0.51, 0.95, 0.97, 0.99]))
    own["range"].add(np.array([0.31]))
    own["difference"].add(np.array([0.71, 0.73]))
    (_, line) = gates.table_lines({"layer 2": own})
    assert line.split()[2:] == ["0.69", "0.37", "0.20", "0.60", "0.31", "0.72"]
    gates.write_csv(tmp_path / "gates.csv", {"layer 2": own})
    rows = [row.split(",") for row in (tmp_path / "gates.csv").read_text().splitlines()[1:]]
    assert len(rows) == 3 * gates.BINS
    assert [row[1:] for row in rows if row[-1] != "0"] == [
        ["gate", "0.04", "0.06", "1"], ["gate", "0.50", "0.52", "1"], ["gate", "0.94", "0.96", "1"],
        ["gate", "0.96", "0.98", "1"], ["gate", "0.98", "1.00", "1"],
        ["range", "0.30", "0.32", "1"],
        ["difference", "0.70", "0.72", "1"], ["difference", "0.72", "0.74", "1"],
    ]  # fmt: skip


def test_each_output_needs_its_own_file(tmp_path):
    check_writable(tmp_path / "a", tmp_path / "b", None, None)
    same = tmp_path / ".." / tmp_path.name / "a"
    with pytest.raises(UserError, match=f"{same} is named twice; give each output"):
        check_writable(tmp_path / "a", same)


def test_layers_by_name():
    found = {(1, ""): 1, (1, "_reverse"): 2}
    assert gates.by_layer_name(found) == {"layer 2, forward": 1, "layer 2, backward": 2}
    assert gates.by_layer_name({(2, ""): 1}) == {"layer 3": 1}


def test_routing_equals_that_of_evaluation():
    """The cell has the largest score, and its weight is a softmax at the model's temperature."""
    layer = stack("second_order_lstm")
    layer.temperature.fill_(0.5)
    x = rand(6, 1, 5)
    with tracing.record_gates([layer]) as traces:
        layer(x)
    scores = torch.nn.functional.linear(x[:, 0], layer.attention_l0)
    assert traces[0].cells.tolist() == scores.argmax(-1).tolist()
    assert_close([traces[0].weights], [(scores / 0.5).softmax(-1)])
    found = routing.route([([[4, 5, 6, 7, 8, 9, 2]], [traces])], [str(n) for n in range(10)], 0)
    words, cells, weights = zip(*found[0], strict=True)
    assert words == ("4", "5", "6", "7", "8", "9")
    assert list(cells) == traces[0].cells.tolist()
    assert weights == pytest.approx((scores / 0.5).softmax(-1).amax(-1).tolist())


SENTENCES = [
    [Routed("(", 0, 0.9), Routed(")", 1, 0.8), Routed("(", 0, 0.7)],
    [Routed(")", 1, 1.0), Routed("(", 1, 0.6), Routed("<b>", 0, 0.5)],
]


def test_consistency():
    """One of five brackets that occur more than once is not in its usual cell."""
    assert routing.consistency(SENTENCES) == (4, 5)
    lines = routing.table_lines(SENTENCES, 2)
    assert lines[1].split() == ["0", "50.0%", "0.700", "(", "<b>"]
    assert lines[2].split() == ["1", "50.0%", "0.800", ")", "("]
    assert lines[3].startswith("80.0% of the occurrences")
    assert routing.table_lines([[Routed("a", 1, 1.0)]], 2)[1].split() == ["0", "0.0%", "–"]


def test_words_in_a_file(tmp_path):
    routing.write_tsv(tmp_path / "words.tsv", SENTENCES)
    assert (tmp_path / "words.tsv").read_text().splitlines()[1:] == [
        "1\t1\t(\t0\t0.9000", "1\t2\t)\t1\t0.8000", "1\t3\t(\t0\t0.7000",
        "2\t1\t)\t1\t1.0000", "2\t2\t(\t1\t0.6000", "2\t3\t<b>\t0\t0.5000",
    ]  # fmt: skip


def test_page():
    text = routing.page(SENTENCES, 2, "valid: <1>")
    assert "&lt;b&gt;</span>" in text
    assert "valid: &lt;1&gt;" in text
    assert text.count("<p>") == 1 + 2
    assert text.count("<span") == 2 + 6
    style = f"background:{routing.colour(1, 2, 0.8)}"
    assert f'<span style="{style}" title="cell 1, 0.800">)</span>' in text
    strong, weak = routing.colour(0, 2, 1.0), routing.colour(0, 2, 0.5)
    assert strong.endswith("0.75)")
    assert weak.endswith("0.08)")
    assert len({routing.colour(cell, 5, 1.0) for cell in range(5)}) == 5


def test_angles_by_hand():
    """Planes share one axis and differ by 30 degrees in the other, or are equal, or orthogonal."""
    c, s = math.cos(math.pi / 6), math.sin(math.pi / 6)
    a = np.array([[1.0, 0], [0, 1], [0, 0], [0, 0]])
    b = np.array([[2.0, 0], [0, c], [0, s], [0, 0]])
    d = np.array([[0.0, 0], [0, 0], [1, 3], [0, 1]])
    found = subspaces.angles(np.stack([a, b, a, d]))
    assert list(found) == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    assert found[0, 1] == pytest.approx([0, 30], abs=1e-5)
    assert found[0, 2] == pytest.approx([0, 0], abs=1e-5)
    assert found[0, 3] == pytest.approx([90, 90])


def test_the_table_of_angles_and_its_file(tmp_path):
    found = {"layer 1": {(0, 2): np.array([1.0, 2.0, 9.0]), (1, 2): np.array([3.0, 4.0, 8.0])}}
    lines = subspaces.table_lines(found)
    assert [line.split()[2:] for line in lines[1:]] == [
        ["0,", "2", "1.0°", "2.0°", "9.0°"], ["1,", "2", "3.0°", "4.0°", "8.0°"],
    ]  # fmt: skip
    subspaces.write_csv(tmp_path / "angles.csv", found)
    assert (tmp_path / "angles.csv").read_text().splitlines()[1:4] == [
        '"layer 1",0,2,1,1.0000', '"layer 1",0,2,2,2.0000', '"layer 1",0,2,3,9.0000'
    ]  # fmt: skip


def test_matrices_of_each_cell():
    """Cell s has the rows s·4H to (s + 1)·4H of each weight."""
    layer = stack("second_order_lstm", bidirectional=True)
    found = subspaces.recurrent_matrices(layer)
    assert set(found) == {(k, way) for k in range(2) for way in ("", "_reverse")}
    weight = layer.weight_hh_l1_reverse.detach().numpy()
    assert np.array_equal(found[1, "_reverse"][1], weight[16:32])


def test_cells_of_tables_are_escaped():
    """Cells are neither formulas of a spreadsheet nor commands to a terminal."""
    cells = ["=1+1", "+", "-x", "@", "a=1", "'s", "''-1", "\x1b[2J", "\t="]
    shown = ["'=1+1", "'+", "'-x", "'@", "a=1", "'s", "'''-1", r"\x1b[2J", r"\t="]
    assert [table_cell(text) for text in cells] == shown
    assert [cell_text(cell) for cell in shown[:7]] == cells[:7]
