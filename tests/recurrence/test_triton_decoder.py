"""The decoder's kernels of the engine triton; models/test_decoder_loop.py tests all engines."""

from dataclasses import replace

import pytest
import torch
from helpers import FAMILIES, HALVES, assert_close, every_compiled_family, gradients, weighted
from models.test_decoder_loop import in_single, make

from fairseq_casrnn import recurrence
from fairseq_casrnn.recurrence import decoding
from fairseq_casrnn.recurrence.decoder import DecoderLayer, run_reference
from fairseq_casrnn.recurrence.triton import decoder as attention_triton
from fairseq_casrnn.recurrence.triton import decoder_loop as triton_decoder_loop
from fairseq_casrnn.recurrence.triton import decoder_plan as triton_decoder_plan
from fairseq_casrnn.recurrence.triton import decoder_steps as triton_decoder_steps
from fairseq_casrnn.recurrence.triton import support as triton_support
from fairseq_casrnn.recurrence.triton.barriers import RefusedError

from .test_triton import INTERPRETING, interpret_together
from .test_triton_compiling import compiled_only  # noqa: F401

interpreted = pytest.mark.skipif(not INTERPRETING, reason="for Triton's interpreter")
SMALL = {"rtol": 1e-4, "atol": 1e-5}


def make_float32(case, **options):
    """Return a decoder's inputs in float32, and their leaves."""
    decode, named = make(case, **options)
    leaves = {name: tensor.detach().float().requires_grad_() for name, tensor in named.items()}
    return in_single(decode, leaves), leaves


def assert_agrees(decode, named, tolerance=SMALL):
    """Compare outputs and gradients with the reference."""
    results = attention_triton.run(decode), run_reference(decode)
    assert_close(*results, tolerance)
    grads = [gradients(weighted(result), named.values()) for result in results]
    assert_close(*grads, {**tolerance, "atol": 10 * tolerance["atol"]}, names=list(named))


def launch_in_processes(kernel, grid, /, **arguments):
    """Replaces ``launch_together``: each program is interpreted in a process of its own."""
    options = ("num_warps", "num_stages")
    arguments = {name: value for name, value in arguments.items() if name not in options}
    interpret_together(kernel, grid, arguments, seconds=200)


@interpreted
@pytest.mark.parametrize("name", ["cas_lstm", "stacked_gru", "second_order_lstm"])
def test_programs_wait_for_each_other(name, monkeypatch):
    """As on a GPU, all programs run at once, from the first step to the last."""
    case = next(case for case in FAMILIES if case.name == name)
    decode, named = make_float32(case, layers=2, size=20, batch=35, mask=None)
    with torch.no_grad():
        for leaf in named.values():
            leaf.mul_(0.4)
    monkeypatch.setattr(triton_decoder_plan, "interpreting", lambda: False)
    monkeypatch.setattr(triton_decoder_plan, "launch_together", launch_in_processes)
    assert_agrees(decode, named)


@interpreted
def test_more_tiles_of_rows_than_programs(monkeypatch):
    """Each program computes several tiles of rows, and sources are read in several parts."""
    tiling = triton_decoder_plan.tiling

    def few(*args):
        found = tiling(*args)
        return found._replace(grid=(1, found.grid[1]))

    monkeypatch.setattr(triton_decoder_loop, "tiling", few)
    tiles = triton_decoder_loop.tiles

    def short(*args):
        layer_tiles, attention_tiles = tiles(*args)
        return layer_tiles, attention_tiles._replace(SPAN=2, CHUNK=16)

    monkeypatch.setattr(triton_decoder_loop, "tiles", short)
    case = next(case for case in FAMILIES if case.name == "cas_lstm")
    mask = torch.arange(5).unsqueeze(0) >= torch.arange(70).unsqueeze(1) % 5 + 1
    decode, named = make_float32(case, layers=2, size=20, batch=70, mask=mask)
    with torch.no_grad():
        for leaf in named.values():
            leaf.mul_(0.4)
    assert_agrees(decode, named)


@interpreted
@every_compiled_family
@pytest.mark.parametrize("dtype", HALVES, ids=["bf16", "f16"])
def test_half_precision_keeps_states_and_sums_in_single(case, dtype):
    """The loop agrees with a float32 loop that has the same weights and inputs."""
    decode, named = make(case, layers=2)
    half = {name: tensor.detach().to(dtype).requires_grad_() for name, tensor in named.items()}
    wide = {name: tensor.detach().float().requires_grad_() for name, tensor in half.items()}
    ours = in_single(decode, half)
    ours = replace(ours, drop_layers=ours.drop_layers.to(dtype), drop_out=ours.drop_out.to(dtype))
    theirs = in_single(decode, wide)
    masks = {name: getattr(ours, name).float() for name in ("drop_layers", "drop_out")}
    results = attention_triton.run(ours), run_reference(replace(theirs, **masks))
    assert {part.dtype for part in results[0]} == {dtype}
    assert_close([part.float() for part in results[0]], results[1], HALVES[dtype])
    grads = gradients(weighted(results[0]), half.values())
    assert {grad.dtype for grad in grads} == {dtype}
    expected = gradients(weighted(results[1]), wide.values())
    for grad, other, name in zip(grads, expected, named, strict=True):
        error = (grad.float() - other).norm()
        assert error <= 2 * HALVES[dtype]["rtol"] * other.norm(), name


@pytest.mark.sampled(every=7)
@every_compiled_family
def test_kernels_compile_for_a_gpu(case, compiled_only):  # noqa: F811
    """All batches, lengths and depths use the same two kernels, with cooperative launches."""
    for dtype in (torch.float32, torch.bfloat16)[case.name != "cas_lstm" :]:
        texts = set()
        for steps, batch, layers in ((2, 3, 2), (3, 5, 3)):
            decode, named = make(case, layers=layers, steps=steps, batch=batch, mask=None, size=32)
            leaves = {k: t.detach().to(dtype).requires_grad_() for k, t in named.items()}
            decode = in_single(decode, leaves)
            masks = {name: getattr(decode, name).to(dtype) for name in ("drop_layers", "drop_out")}
            del compiled_only[:]
            out, _ = attention_triton.run(replace(decode, **masks))
            out.sum().backward()
            assert [k.name for k in compiled_only] == ["decode_forward", "decode_backward"]
            assert all(k.metadata.launch_cooperative_grid for k in compiled_only)
            texts |= {k.asm["ptx"] for k in compiled_only}
        assert len(texts) == 2


@pytest.mark.sampled(every=14)
@every_compiled_family
@pytest.mark.parametrize("input_feed", [True, False])
def test_steps_compile_for_a_gpu(case, input_feed, compiled_only):  # noqa: F811
    """Beam search needs one kernel, for any number of rows."""
    decode, _ = without_feed(case, input_feed)
    with torch.no_grad():
        steps = triton_decoder_steps.TritonDecoderSteps(decode, torch.tensor([0, 0, 1]), input_feed)
        for order in ([2, 0, 0, 1], [1, 0]):
            steps.step(torch.zeros(steps.buffer.size(2), decode.embedded.size(-1)))
            steps.reorder(torch.tensor(order))
    assert [k.name for k in compiled_only] == ["decode_forward"] * 2
    assert len({k.asm["ptx"] for k in compiled_only}) == 1


def without_feed(case, input_feed):
    """Return a decoder's inputs without soft routing, with or without input feeding."""
    decode, named = make_float32(case, layers=2, dropout=False, soft=False)
    bottom, width = decode.layers[0], decode.embedded.size(-1)
    attention = bottom.attention
    if not input_feed:
        if attention is not None:
            attention = attention[:, :width]
        bottom = replace(bottom, weight_ih=bottom.weight_ih[:, :width], attention=attention)
    return replace(decode, layers=[bottom, *decode.layers[1:]]), named


@interpreted
@every_compiled_family
def test_steps_without_input_feeding(case):
    """They equal steps with input feeding whose weights are 0."""
    decode, named = make_float32(case, layers=2, dropout=False, soft=False)
    width = decode.embedded.size(-1)
    with torch.no_grad():
        for name in ("weight_ih_l0", "attention_l0"):
            if name in named:
                named[name][:, width:] = 0
        plain, _ = without_feed(case, input_feed=False)
        steps = triton_decoder_steps.TritonDecoderSteps(plain, None, input_feed=False)
        out, alpha = run_reference(decode)
        for t, embedded in enumerate(decode.embedded):
            assert_close(steps.step(embedded), (out[t], alpha[t]), SMALL)


def test_reasons_to_use_eager(monkeypatch):
    monkeypatch.setattr(triton_support, "interpreting", lambda: True)
    monkeypatch.setattr(attention_triton, "interpreting", lambda: True)
    cas = next(case for case in FAMILIES if case.name == "cas_lstm")
    decode, _ = make(cas)
    assert attention_triton.why_not(decode) is None
    other, _ = make(next(case for case in FAMILIES if case.name == "dg_lstm"))
    mixed = replace(decode, layers=[*decode.layers[:2], other.layers[2]])
    assert attention_triton.why_not(mixed) == "the upper layers are of several kinds"
    mixed = replace(decode, keys=decode.keys.float())
    assert attention_triton.why_not(mixed) == "the tensors are of several dtypes"
    monkeypatch.setattr(attention_triton, "supports_grid_barrier", lambda _: False)
    assert "cannot wait for each other" in attention_triton.why_not(decode)
    monkeypatch.setattr(attention_triton, "supports_grid_barrier", lambda _: True)
    monkeypatch.setattr(attention_triton, "chip", lambda _: (0, 0))
    assert "has no room" in attention_triton.why_not(decode)


def test_eager_runs_if_a_launch_is_refused(messages, monkeypatch):
    """This happens while another process uses a part of the GPU."""
    decode, _ = make(FAMILIES[0])

    def refuse(_):
        raise RefusedError("too many blocks in cooperative launch")

    monkeypatch.setattr(recurrence.ENGINES["triton"], "available", lambda device: None)
    monkeypatch.setattr(attention_triton, "why_not", lambda _: None)
    monkeypatch.setattr(attention_triton, "run", refuse)
    assert_close(decoding.run("triton", decode), run_reference(decode))
    message = f"falls back to '{recurrence.default()}'"
    assert any(message in m and "too many blocks" in m for m in messages())


@pytest.mark.parametrize("size", [1, 33, 256, 300, 650, 1024, 2048])
def test_tiles_have_two_heights(size):
    """All units are covered, and there are no more programs than multiprocessors."""
    rows = set()
    for batch in (*range(1, 64), *range(64, 4000, 37)):
        tiling = triton_decoder_plan.tiling(size, batch, 132)
        assert tiling.grid[0] * tiling.grid[1] <= 132
        assert (tiling.grid[1] - 1) * tiling.units < size <= tiling.grid[1] * tiling.units
        assert (tiling.grid[0] - 1) * tiling.rows < batch
        rows.add((tiling.rows, tiling.units))
    assert len(rows) <= 2
    assert triton_decoder_plan.tiling(32 * 133, 1, 132) is None


def test_parameters_of_upper_layers_are_stacked():
    """The loop over the upper layers reads their parameters one after the other."""
    decode, _ = make(next(case for case in FAMILIES if case.name == "cas_lstm"))
    weights = triton_decoder_loop.gather_weights(decode.layers, decode.embedded.size(-1))
    for j, layer in enumerate(decode.layers[1:]):
        assert isinstance(layer, DecoderLayer)
        assert torch.equal(weights.upper.w_ih[j], layer.weight_ih)
        assert torch.equal(weights.upper.w_hh[j], layer.weight_hh)
        assert torch.equal(weights.upper.bias[j], layer.bias)
