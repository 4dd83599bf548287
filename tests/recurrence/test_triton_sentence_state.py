"""The sentence-state LSTM on the engine triton, compared with ``reference`` in float64.

Without a GPU these tests run in Triton's interpreter, which test_triton.py starts, together with
the tests of all engines in tests/layers/test_sentence_state.py.
"""

import pytest
import torch
from helpers import HALVES, assert_close, gradients, rand, randomize, weighted

from fairseq_casrnn import recurrence
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.layers import SentenceStateLSTM
from fairseq_casrnn.recurrence.triton import sentence_state as kernels

from .test_triton import DEVICE, HALF, INTERPRETING, runs


def results(engine, sizes, dtype=torch.float64, lengths=None, device=DEVICE, **options):
    """Return h, g and the gradients of x and of all parameters, in float64.

    The layer runs in ``dtype``. ``sizes`` are words, sentences, H, steps, window, nodes. Values are
    rounded to ``dtype`` for all engines, and x is NaN at padding.
    """
    words, batch, size, *rest = sizes
    layer = SentenceStateLSTM(5, size, *rest, engine=engine, **options)
    scale = 1 / max(1, size / 16) ** 0.5  # avoids saturated gates
    layer = randomize(layer.double())
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(scale)
    x = rand(words, batch, 5)
    if lengths is not None:
        lengths = torch.tensor(lengths)
        x[torch.arange(words).unsqueeze(1) >= lengths] = torch.nan
        lengths = lengths.to(device)
    layer, x = layer.to(dtype), x.to(dtype)
    if engine == "reference":
        layer, x = layer.double(), x.double()
    layer, x = layer.to(device), x.to(device).requires_grad_()
    out = layer(x, lengths)
    grads = gradients(weighted(out), [x, *layer.parameters()])
    assert all(t.dtype == x.dtype for t in (*out, *grads))
    return [t.double().cpu() for t in (*out, *grads)]


def assert_norms_close(ours, theirs, tolerance):
    for a, b in zip(ours, theirs, strict=True):
        assert a.isfinite().all()
        assert (a - b).norm() <= tolerance * b.norm()


@runs
@HALF
def test_half_precision(dtype):
    """Errors have the size of rounding the products' factors to 8 or 11 bits."""
    sizes, lengths = (6, 2, 5, 5, 1, 1), [2, 6]
    ours = results("triton", sizes, dtype, lengths)
    theirs = results("reference", sizes, dtype, lengths, "cpu")
    assert_norms_close(ours, theirs, HALVES[dtype]["rtol"] / 3)


@runs
def test_more_tiles_than_one():
    """There are several tiles of words and of units, and parts of a tile left over."""
    words, units = kernels.TILE
    sizes, lengths = (words + 3, 2, units + 1, 2, 2, 2), [words + 3, 2]
    ours = results("triton", sizes, torch.float32, lengths)
    assert_norms_close(ours, results("reference", sizes, torch.float32, lengths, "cpu"), 1e-5)


@runs
@pytest.mark.parametrize("nodes", [0, 2])
def test_a_sentence_of_one_word(nodes):
    sizes = (1, 1, 3, 2, 1, nodes)
    assert_close(results("triton", sizes), results("reference", sizes, device="cpu"))


@runs
def test_recomputing_in_half_precision():
    """The gradients of the weights are summed over steps in float32."""
    sizes, lengths, dtype = (3, 2, 5, 3, 1, 1), [3, 1], torch.bfloat16
    ours = results("triton", sizes, dtype, lengths, recompute=True)
    assert_norms_close(ours, results("triton", sizes, dtype, lengths), 0.005)


@runs
def test_without_gradients():
    """Two steps alternate between two buffers."""
    layer, x = SentenceStateLSTM(3, 4, 4, engine="triton").to(DEVICE), torch.randn(5, 2, 3)
    x, lengths = x.to(DEVICE), torch.tensor([5, 2], device=DEVICE)
    expected = layer(x, lengths)
    with torch.no_grad():
        assert_close(layer(x, lengths), expected, {"rtol": 0, "atol": 0})


@runs
def test_saturated_gates_and_nan():
    """No gate overflows, and NaN stays in its sentence."""
    layer, x = SentenceStateLSTM(3, 4, 2, engine="triton").to(DEVICE), torch.randn(5, 3, 3)
    x, lengths = x.to(DEVICE), torch.tensor([5, 2, 5], device=DEVICE)
    clean = layer(1e4 * x, lengths)
    grads = gradients(weighted(clean), layer.parameters())
    assert all(t.isfinite().all() for t in (*clean, *grads))
    x[1, 1] = torch.nan
    with_nan = layer(1e4 * x, lengths)
    assert with_nan[1][1].isnan().all()
    assert with_nan[0][:2, 1].isnan().all()
    others = [0, 2]
    assert_close(
        [with_nan[0][:, others], with_nan[1][others]], [clean[0][:, others], clean[1][others]]
    )


@runs
def test_unsupported_inputs():
    layer, x = SentenceStateLSTM(2, 3, 1, engine="triton").to(DEVICE), torch.randn(2, 1, 2)
    h, _ = layer(x.to(DEVICE).requires_grad_())
    with pytest.raises(UserError, match="no second derivatives"):
        torch.autograd.grad(h.sum(), [layer.h0], create_graph=True)
    h, _ = layer(x.to(DEVICE))
    with pytest.raises(UserError, match="one gradient at a time"):
        torch.autograd.grad(h, [layer.h0], h.new_ones(2, *h.shape), is_grads_batched=True)


@runs
def test_an_empty_batch():
    layer = SentenceStateLSTM(2, 3, 1, engine="triton").to(DEVICE)
    h, g = layer(torch.zeros(4, 0, 2, device=DEVICE))
    assert (h.shape, g.shape) == ((4, 0, 3), (0, 3))


@pytest.mark.skipif(INTERPRETING, reason="there it runs on the CPU, too")
def test_on_the_cpu_the_default_runs(messages):
    pytest.importorskip("triton")
    layer, x = SentenceStateLSTM(2, 3, 2, engine="triton"), torch.randn(4, 1, 2)
    ours, other = layer(x), recurrence.default()
    layer.engine = other
    assert_close(ours, layer(x), {"rtol": 0, "atol": 0})
    reason = "its kernels run on NVIDIA GPUs"
    said = f"engine 'triton' is not available, '{other}' runs instead: {reason}"
    assert messages().count(said) == 1


SMALL, USUAL = (12, 5, 33, 3, 2, 3), (40, 32, 300, 9, 1, 1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@runs
@pytest.mark.parametrize(
    ("sizes", "dtype", "tolerance"),
    [
        (SMALL, torch.float64, 1e-10),
        (SMALL, torch.float32, 1e-5),
        (USUAL, torch.float32, 1e-5),
        (USUAL, torch.bfloat16, 0.02),
        (USUAL, torch.float16, 0.003),
        ((7, 8, 650, 4, 1, 0), torch.bfloat16, 0.02),
        ((1, 1, 1, 1, 1, 1), torch.float32, 1e-5),
    ],
    ids=str,
)
def test_agrees_on_a_gpu(sizes, dtype, tolerance):
    words, batch = sizes[:2]
    for lengths in ([1 + 7 * b % words for b in range(batch)], None):
        ours = results("triton", sizes, dtype, lengths)
        assert_norms_close(ours, results("reference", sizes, dtype, lengths), tolerance)
