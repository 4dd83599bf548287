"""The engines' fused decoder loops against the loop under autograd."""

import functools
from dataclasses import replace

import pytest
import torch
from helpers import (
    DOUBLE,
    FAMILIES,
    SINGLE,
    assert_close,
    every_case,
    every_compiled_family,
    every_family,
    gradients,
    rand,
    three_threads,
    weighted,
)
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from fairseq_casrnn import recurrence
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.recurrence import decoding
from fairseq_casrnn.recurrence.decoder import DecoderInputs, DecoderLayer, run_reference
from fairseq_casrnn.recurrence.triton import support as triton_support

pytestmark = pytest.mark.sampled(1)

T, B, S, E, H, L = 4, 3, 5, 6, 4, 3
MASK = torch.arange(S).unsqueeze(0) >= torch.tensor([[5], [2], [3]])


@pytest.fixture(params=[name for name in recurrence.installed() if name != "reference"])
def fused(request):
    """The loop of an engine, which is compared with the loop of the engine ``reference``."""
    return functools.partial(decoding.run, request.param)


every_stepping = pytest.mark.parametrize(
    "engine",
    [
        pytest.param(
            "cpp",
            marks=pytest.mark.skipif("cpp" not in recurrence.installed(), reason="not compiled"),
        ),
        pytest.param(
            "triton",
            marks=pytest.mark.skipif(
                not triton_support.interpreting(), reason="for the interpreter"
            ),
        ),
    ],
)


def dropout_mask(*shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(*shape, generator=generator, dtype=torch.float64) > 0.4).double() / 0.6


def make(case, layers=L, dropout=True, mask=MASK, soft=True, steps=T, size=H, batch=B):
    """A random problem, and the named leaf tensors that gradients are taken of."""
    stack = case.random(E + size, size, layers)
    decoder_layers = []
    for k, cell in enumerate(stack.cells):
        attention = getattr(stack, f"attention_l{k}", None)
        w_ih, w_hh, bias, params = stack.layer_parameters(k)
        decoder_layers.append(DecoderLayer(cell, w_ih, w_hh, bias, params, attention))
    state = (layers, batch, size)
    leaves = {
        "embedded": rand(steps, batch, E, seed=1),
        "h0": rand(*state, seed=2),
        "c0": rand(*state, seed=3) if stack.has_cell else None,
        "keys": rand(batch, S, size, seed=4),
        "values": rand(batch, S, size, seed=5),
        "weight_out": rand(size, size, seed=6),
    }
    leaves = {k: None if v is None else v.requires_grad_() for k, v in leaves.items()}
    routed = stack.cells[0].num_cells and soft
    decode = DecoderInputs(
        layers=decoder_layers,
        mask=mask,
        drop_layers=dropout_mask(layers - 1, steps, batch, size, seed=7)
        if dropout and layers > 1
        else None,
        drop_out=dropout_mask(steps, batch, size, seed=8) if dropout else None,
        temperature=torch.tensor(0.7) if routed else None,
        **leaves,
    )
    named = {k: v for k, v in leaves.items() if v is not None} | dict(stack.named_parameters())
    return decode, named


def in_single(decode, single):
    """``decode`` with the tensors of ``single``, which are of single precision."""
    layers = []
    for k, layer in enumerate(decode.layers):
        names = [f"{name}_l{k}" for name in ("weight_ih", "weight_hh", "bias")]
        params = tuple(single[f"{name}_l{k}"] for name, _ in layer.cell.params)
        weights = [single[name] for name in names]
        layers.append(DecoderLayer(layer.cell, *weights, params, single.get(f"attention_l{k}")))
    inputs = {name: single[name] for name in ("embedded", "h0", "keys", "values", "weight_out")}
    masks = {
        name: None if mask is None else mask.float()
        for name, mask in (("drop_layers", decode.drop_layers), ("drop_out", decode.drop_out))
    }
    return replace(decode, layers=layers, c0=single.get("c0"), **inputs, **masks)


def assert_same(fused, decode, named, loss=weighted, tolerance=DOUBLE):
    """Compare outputs, attention and all gradients with those of the reference."""
    results = fused(decode), run_reference(decode)
    assert_close(*results, tolerance)
    grads = [gradients(loss(result), named.values()) for result in results]
    assert_close(*grads, tolerance, names=list(named))


@every_family
@pytest.mark.parametrize("engine", recurrence.installed())
def test_empty_target(engine, case):
    decode, _ = make(case, 2, steps=0)
    out, alpha = decoding.run(engine, decode)
    assert out.shape == (0, B, H)
    assert alpha.shape == (0, B, S)


@every_family
def test_transformed_tensors(fused, case):
    """Traced, batched and fake tensors run PyTorch operations, as in the reference."""
    decode, _ = make(case, 2)
    x = decode.embedded.detach()

    def run(embedded):
        return fused(replace(decode, embedded=embedded))

    expected = [run(part) for part in (x, 2 * x)]
    assert_close(make_fx(run)(x)(2 * x), expected[1])
    batched = torch.vmap(run)(torch.stack([x, 2 * x]))
    assert_close(batched, [torch.stack(parts) for parts in zip(*expected, strict=True)])
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        found = run(mode.from_tensor(x))
        assert [part.shape for part in found] == [part.shape for part in expected[0]]
        assert decoding.steps(None, decode, None, True) is None


@pytest.mark.sampled
@every_case
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("dropout", [False, True])
def test_agrees_with_reference(fused, case, layers, dropout):
    assert_same(fused, *make(case, layers, dropout))


@every_family
def test_several_threads(fused, case):
    """The batches are so large that each thread gets some of the rows."""
    batch = 67
    mask = torch.arange(S).unsqueeze(0) >= torch.randint(1, S + 1, (batch, 1))
    decode, named = make(case, layers=2, mask=mask, size=96, batch=batch)
    with torch.no_grad():
        for leaf in named.values():
            leaf.mul_(0.3)  # otherwise gradients would be in the hundreds
    with three_threads():
        assert_same(fused, decode, named)


@every_family
@pytest.mark.parametrize(
    "options",
    [{"mask": None}, {"soft": False}, {"steps": 1}],
    ids=["no-padding", "hard", "one-step"],
)
def test_agrees_with_reference_in_other_settings(fused, case, options):
    assert_same(fused, *make(case, **options))


@every_family
@pytest.mark.parametrize("size", [1, 5, 16, 33, 70])
def test_sizes_that_are_not_multiples_of_a_vector(fused, case, size):
    """The largest size exceeds those for which the compiled loop multiplies matrices itself."""
    decode, named = make(case, size=size)
    with torch.no_grad():
        for tensor in named.values():
            tensor /= max(1, size / 4) ** 0.5
    assert_same(fused, decode, named, tolerance={"rtol": 1e-9, "atol": 1e-9})


@every_compiled_family
@every_stepping
@pytest.mark.parametrize("size", [5, 70])
def test_compiled_steps(case, size, engine):
    """Rows that share a sentence are reordered, and equal the loop with a sentence for each row."""
    decode, _ = make(case, dropout=False, soft=False, size=size)
    embedded, order = decode.embedded, torch.tensor([2, 0, 0, 1])
    source = torch.tensor([1, 1, 0])
    with torch.no_grad():
        own = {name: getattr(decode, name)[source] for name in ("keys", "values", "mask")}
        steps = decoding.steps(engine, decode, source, input_feed=True)
        plain = run_reference(replace(decode, **own))
        for t in range(2):
            assert_close(steps.step(embedded[t]), [part[t] for part in plain])
        steps.reorder(torch.tensor([1, 2, 0]))
        steps.reorder(torch.tensor([1, 2, 2, 0]))  # two reorderings before one step are combined
        last = steps.step(embedded[2][order])
        assert_close(last, [part[2][order] for part in plain])
        assert_close([steps.step(embedded[3][order])[0]], [plain[0][3][order]])


@every_compiled_family
@pytest.mark.skipif("cpp" not in recurrence.installed(), reason="not compiled")
@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
def test_steps_of_many_rows(case, shared):
    """The batch has more rows than the compiled loop computes at once; the last step has fewer."""
    batch, size = 300, 256
    mask = torch.arange(S).unsqueeze(0) >= torch.randint(1, S + 1, (batch, 1))
    decode, named = make(
        case, 2, dropout=False, mask=mask, soft=False, steps=2, size=size, batch=batch
    )
    source = torch.arange(batch) // 2 if shared else None
    order = torch.arange(batch - 1, 80, -1)
    with torch.no_grad():
        for leaf in named.values():
            leaf.mul_(0.1)
        read = ("keys", "values", "mask")
        own = {name: getattr(decode, name)[source] for name in read} if shared else {}
        steps = decoding.steps("cpp", decode, source, input_feed=True)
        plain = run_reference(replace(decode, **own))
        assert_close(steps.step(decode.embedded[0]), [part[0] for part in plain])
        steps.reorder(order)
        assert_close(steps.step(decode.embedded[1][order]), [part[1][order] for part in plain])


@every_compiled_family
@every_stepping
def test_the_order_of_rows_is_copied(case, engine):
    """The order may be a strided view, and is copied, since the caller may overwrite it."""
    decode, _ = make(case, dropout=False, soft=False)
    order = torch.tensor([2, 0, 0, 0, 1, 0])[::2]
    rows = order.clone()
    with torch.no_grad():
        steps = decoding.steps(engine, decode, None, input_feed=True)
        plain = run_reference(decode)
        steps.step(decode.embedded[0])
        steps.reorder(order)
        order.fill_(7)
        assert_close(steps.step(decode.embedded[1][rows]), [part[1][rows] for part in plain])


@every_compiled_family
@pytest.mark.skipif("cpp" not in recurrence.installed(), reason="not compiled")
def test_steps_read_negated_views(case):
    """With enough inputs for the extension to pack the weights, in single precision."""
    decode, named = make(case, 2, dropout=False, soft=False, steps=1, size=70)
    with torch.no_grad():
        decode = in_single(decode, {name: leaf.float() for name, leaf in named.items()})
        x = rand(B, 200, seed=9, dtype=torch.float32)
        bottom = decode.layers[0]
        for name in ("weight_ih", "attention"):
            if (weight := getattr(bottom, name)) is not None:
                wide = [rand(len(weight), 200, dtype=torch.float32), weight[:, E:]]
                setattr(bottom, name, torch.cat(wide, 1) / 10)
        decode.embedded = x.unsqueeze(0)
        ours, theirs = (
            decoding.steps("cpp", decode, None, input_feed=True).step(view)
            for view in (torch._neg_view(-x), x)
        )
    assert_close(ours, theirs)


@every_family
def test_negated_gradients(fused, case):
    decode, named = make(case)
    result = fused(decode)
    grads = [rand(*part.shape, seed=9) for part in result]
    expected = torch.autograd.grad(result, named.values(), grads, retain_graph=True)
    negated = [torch._neg_view(-grad) for grad in grads]
    assert_close(torch.autograd.grad(result, named.values(), negated), expected)


@every_family
def test_gradients_of_each_output_alone(fused, case):
    decode, named = make(case)
    assert_same(fused, decode, named, loss=lambda result: weighted(result[:1]))
    assert_same(fused, decode, named, loss=lambda result: weighted(result[1:]))


@every_family
def test_expanded_gradients(fused, case):
    """The gradient of a sum is an expanded scalar."""
    decode, named = make(case)
    assert_same(fused, decode, named, loss=lambda result: result[0].sum())
    assert_same(fused, decode, named, loss=lambda result: weighted([result[0].transpose(0, 2)]))


@every_family
def test_single_precision(fused, case):
    decode, named = make(case)
    single = {k: v.detach().float().requires_grad_() for k, v in named.items()}
    assert_same(fused, in_single(decode, single), single, tolerance=SINGLE)


@every_case
def test_gradcheck(fused, case):
    decode, named = make(case, layers=2, steps=2, size=2)
    inputs = [name for name in vars(decode) if name in named]

    def loop(*tensors):
        # The parameters were changed in place; tensors that are arguments are replaced.
        return fused(replace(decode, **dict(zip(inputs, tensors[: len(inputs)], strict=True))))

    parameters = [value for name, value in named.items() if name not in inputs]
    tensors = [named[name] for name in inputs] + parameters
    assert torch.autograd.gradcheck(loop, tensors, fast_mode=True)


@every_family
@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
def test_autocast(fused, case, inside):
    """Autocast changes no precision, whether the backward runs inside or outside of it."""
    decode, named = make(case, dropout=False)
    single = {name: value.detach().float().requires_grad_() for name, value in named.items()}
    decode = in_single(decode, single)
    expected = run_reference(decode)
    d_expected = gradients(weighted(expected), single.values())
    with torch.autocast("cpu", torch.bfloat16):
        result = fused(replace(decode, embedded=decode.embedded.bfloat16()))
    assert all(part.dtype == torch.float32 for part in result)
    with torch.autocast("cpu", torch.bfloat16, enabled=inside):
        grads = gradients(weighted(result), single.values())
    assert_close(result, expected, {"rtol": 0.05, "atol": 0.05})
    assert_close(grads, d_expected, {"rtol": 0.1, "atol": 0.3}, names=list(single))


@every_family
def test_backward_twice_with_retained_graph(fused, case):
    decode, named = make(case)
    result, plain = fused(decode), run_reference(decode)
    for seed in (3, 40):
        passes = [
            torch.autograd.grad(weighted(r, seed), named.values(), retain_graph=True)
            for r in (result, plain)
        ]
        assert_close(*passes, names=list(named))
    loss = weighted(result)
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


@every_family
def test_checkpointing(fused, case):
    decode, named = make(case)
    expected = gradients(weighted(fused(decode)), named.values())
    result = checkpoint(fused, decode, use_reentrant=False)
    assert_close(gradients(weighted(result), named.values()), expected, names=list(named))


@every_family
def test_frozen_inputs(fused, case):
    """Any single tensor may be the only one that requires a gradient."""
    decode, named = make(case)
    expected = dict(zip(named, gradients(weighted(fused(decode)), named.values()), strict=True))
    for name, tensor in named.items():
        for other in named.values():
            other.requires_grad_(other is tensor)
        (grad,) = torch.autograd.grad(weighted(fused(decode)), [tensor])
        assert_close([grad], [expected[name]], names=[name])


@every_family
def test_inputs_are_not_changed(fused, case):
    decode, named = make(case)
    before = [tensor.detach().clone() for tensor in named.values()]
    result = fused(decode)
    grads = [rand(*part.shape, seed=i) for i, part in enumerate(result)]
    kept = [grad.clone() for grad in grads]
    torch.autograd.backward(result, grads)
    assert_close([tensor.detach() for tensor in named.values()], before)
    assert_close(grads, kept)


@every_family
def test_without_gradients(fused, case):
    decode, _ = make(case)
    expected = [part.detach() for part in run_reference(decode)]
    with torch.inference_mode():
        assert_close([part.clone() for part in fused(decode)], expected)


@every_compiled_family
def test_second_derivatives_are_refused(fused, case):
    decode, named = make(case)
    with pytest.raises(UserError, match="no second derivatives"):
        torch.autograd.grad(fused(decode)[0].sum(), list(named.values()), create_graph=True)


def test_changing_an_output_is_an_error_or_harmless(fused):
    """In-place changes never lead to a wrong gradient."""
    decode, named = make(FAMILIES[0])
    expected = gradients(weighted(run_reference(decode)[:1]), named.values())
    out, alpha = fused(decode)
    loss = weighted([out])
    with torch.no_grad():
        out.add_(1.0)
    try:
        assert_close(gradients(loss, named.values()), expected)
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
    out, alpha = fused(decode)
    loss = weighted([out])
    with torch.no_grad():
        alpha.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
