"""Tensors without ordinary memory: traced, fake, meta, batched, functional, or of a subclass."""

import warnings

import pytest
import torch
from helpers import (
    LENGTHS,
    B,
    H,
    I,
    T,
    as_tuple,
    assert_close,
    every_family,
    flat,
    gradients,
    rand,
    weighted,
)
from tiers import mostly_full
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

from fairseq_casrnn import recurrence
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.layers import LSTM, SentenceStateLSTM, ShortcutStackedLSTM
from fairseq_casrnn.layers.dropout import dropout
from fairseq_casrnn.recurrence.memory import readable
from fairseq_casrnn.recurrence.products import linear
from fairseq_casrnn.recurrence.shared_weight import SharedWeightLinear

pytestmark = pytest.mark.sampled(1)

OTHERS = {
    "shortcut": lambda engine: ShortcutStackedLSTM(I, (H, H), engine=engine, dtype=torch.float64),
    "sentence state": lambda engine: SentenceStateLSTM(I, H, 3, engine=engine, dtype=torch.float64),
    "recomputed": lambda engine: SentenceStateLSTM(
        I, H, 3, engine=engine, recompute=True, dtype=torch.float64
    ),
}
LAYERS = {
    **{
        f"{name}{'-lengths' if lengths else ''}": (make, lengths)
        for name, make in OTHERS.items()
        for lengths in (None, LENGTHS)
    },
    "lstm": (lambda engine: LSTM(I, H, 2, engine=engine, dtype=torch.float64), None),
    "lstm-lengths": (
        lambda engine: LSTM(I, H, 2, bidirectional=True, engine=engine, dtype=torch.float64),
        LENGTHS,
    ),
}
# Both engines have code that only ordinary tensors may reach.
every_fast_engine = pytest.mark.parametrize(
    "engine", [name for name in ("cpp", "eager") if name in recurrence.installed()]
)
every_layer = pytest.mark.parametrize("name", LAYERS)
every_length = pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["full", "padded"])


TRACED = [(recurrence.default(), None, False), ("eager", LENGTHS, True)]


def outputs(result) -> tuple[torch.Tensor, ...]:
    output, state = result
    return output, *as_tuple(state)


def build(name, engine):
    """Return a layer in double precision and its lengths."""
    make, lengths = LAYERS[name]
    return make(engine), lengths


def trace(layer, x, lengths):
    """Return the traced layer as a function of x and lengths, which may be None."""
    arguments = {"x": x} if lengths is None else {"x": x, "lengths": torch.tensor(lengths)}
    with warnings.catch_warnings(action="ignore", category=torch.jit.TracerWarning):
        module = torch.jit.trace(layer, example_kwarg_inputs=arguments, check_trace=False)

    def run(x, lengths):
        return module(x) if lengths is None else module(x=x, lengths=as_lengths(lengths))

    return run


def as_lengths(lengths):
    return None if lengths is None else torch.tensor(lengths)


@every_family
@pytest.mark.parametrize(("engine", "lengths", "requires_grad"), TRACED)
def test_trace(case, engine, lengths, requires_grad):
    """The traced layer computes the same as the layer, also for other inputs and lengths."""
    layer = case.random(bidirectional=True, engine=engine).eval().requires_grad_(requires_grad)
    run = trace(layer, rand(T, B, I), lengths)
    for seed, other in ((0, lengths), (1, lengths and [5, 2, 4])):
        x = rand(T, B, I, seed=seed).requires_grad_(requires_grad)
        expected, found = flat(layer(x, None, other)), flat(run(x, other))
        assert_close(found, expected)
        if requires_grad:
            assert_close(gradients(weighted(found), [x]), gradients(weighted(expected), [x]))


@every_layer
@every_fast_engine
def test_trace_in_other_layers(name, engine):
    layer, lengths = build(name, engine)
    run = trace(layer, rand(T, B, I), lengths and [T] * B)
    x = rand(T, B, I, seed=1)
    assert_close(outputs(run(x, lengths)), outputs(layer(x, lengths=lengths)))


@every_family
@every_fast_engine
@every_length
def test_fake_tensors(case, engine, lengths):
    """torch.compile and memory estimators ask for shapes without data."""
    layer = case.random(bidirectional=True, engine=engine)
    real = flat(layer(rand(T, B, I), None, lengths))
    with FakeTensorMode() as mode:
        fake = case.layer(bidirectional=True, engine=engine, dtype=torch.float64)
        x = mode.from_tensor(rand(T, B, I).requires_grad_())
        found = flat(fake(x, None, as_lengths(lengths)))
        weighted(found).backward()
    assert [t.shape for t in found] == [t.shape for t in real]
    assert x.grad.shape == x.shape
    assert fake.weight_hh_l1.grad.shape == fake.weight_hh_l1.shape


@every_layer
@every_fast_engine
def test_fake_tensors_in_other_layers(name, engine):
    real, lengths = build(name, engine)
    expected = outputs(real(rand(T, B, I), lengths=lengths))
    with FakeTensorMode():
        layer, _ = build(name, engine)
        found = outputs(layer(torch.zeros(T, B, I).double(), lengths=as_lengths(lengths)))
        weighted(found).backward()
    assert [t.shape for t in found] == [t.shape for t in expected]


@every_layer
@every_fast_engine
def test_meta_device(name, engine):
    real, lengths = build(name, engine)
    expected = outputs(real(rand(T, B, I), lengths=lengths))
    found = outputs(real.to("meta")(rand(T, B, I).to("meta"), lengths=lengths))
    assert [t.shape for t in found] == [t.shape for t in expected]
    assert all(t.is_meta for t in found)


@every_family
@every_fast_engine
def test_vmap(case, engine):
    """The layer can be mapped over inputs and over the parameters of an ensemble."""
    layer = case.random(I, H, 2, engine=engine)
    x = rand(2, T, B, I)
    expected = [flat(layer(part, None, LENGTHS)) for part in x]
    found = torch.vmap(lambda part: flat(layer(part, None, LENGTHS)))(x)
    assert_close(found, [torch.stack(parts) for parts in zip(*expected, strict=True)])

    ensemble = [case.random(I, H, 2, engine=engine, seed=seed) for seed in (0, 5)]
    params, buffers = torch.func.stack_module_state(ensemble)
    expected = [flat(layer(x[0])) for layer in ensemble]
    found = torch.vmap(
        lambda p, b: flat(torch.func.functional_call(layer, (p, b), (x[0],))), randomness="same"
    )(params, buffers)
    assert_close(found, [torch.stack(parts) for parts in zip(*expected, strict=True)])


@every_layer
@every_fast_engine
def test_vmap_in_other_layers(name, engine):
    layer, lengths = build(name, engine)
    x = rand(2, T, B, I)
    expected = [outputs(layer(part, lengths=lengths)) for part in x]
    if name.startswith("recomputed"):  # torch.utils.checkpoint does not support vmap
        with torch.no_grad():
            found = torch.vmap(lambda part: outputs(layer(part, lengths=lengths)))(x)
    else:
        found = torch.vmap(lambda part: outputs(layer(part, lengths=lengths)))(x)
    assert_close(found, [torch.stack(parts) for parts in zip(*expected, strict=True)])


@every_family
@every_fast_engine
@every_length
def test_functional_derivatives(case, engine, lengths):
    """Gradients of torch.func and forward-mode derivatives agree with autograd."""
    layer = case.random(I, H, 2, engine=engine)
    x, direction = rand(T, B, I), rand(T, B, I, seed=1)

    def loss(x):
        return weighted(flat(layer(x, None, lengths)))

    leaf = x.clone().requires_grad_()
    (grad,) = gradients(loss(leaf), [leaf])
    assert_close([torch.func.grad(loss)(x)], [grad])
    _, along = torch.func.jvp(loss, (x,), (direction,))
    assert_close([along], [(grad * direction).sum()])
    with forward_ad.dual_level():
        dual = loss(forward_ad.make_dual(x, direction))
        assert_close([forward_ad.unpack_dual(dual).tangent], [along])


@pytest.mark.sampled(every=3)
@every_family
def test_functionalize_and_make_fx(case):
    layer = case.random(I, H, 2)
    x = rand(T, B, I)
    expected = flat(layer(x))
    assert_close(torch.func.functionalize(lambda x: flat(layer(x)))(x), expected)
    for mode in ("real", "fake"):
        graph = make_fx(lambda x: flat(layer(x)), tracing_mode=mode, _allow_non_fake_inputs=True)(x)
        assert_close(graph(x), expected)
        assert_close(graph(2 * x), flat(layer(2 * x)))


@pytest.mark.parametrize(
    "name", mostly_full(["lstm-lengths", "sentence state-lengths"], "sentence state-lengths")
)
def test_export(name):
    layer, lengths = build(name, None)
    x, lengths = rand(T, B, I), torch.tensor(lengths)
    program = torch.export.export(layer, (x,), {"lengths": lengths}, strict=False)
    other = torch.tensor([2, 4, 5])
    assert_close(
        outputs(program.module()(2 * x, lengths=other)), outputs(layer(2 * x, lengths=other))
    )


class PlainSubclass(torch.Tensor):
    """A tensor subclass that changes nothing."""


class Wrapper(torch.Tensor):
    """A subclass without memory of its own, which passes every operation to the tensor inside."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def unwrapped(t):
            return t.inner if isinstance(t, cls) else t

        def wrapped(t):
            return cls(t) if isinstance(t, torch.Tensor) else t

        tree_map = torch.utils._pytree.tree_map
        result = func(*tree_map(unwrapped, args), **tree_map(unwrapped, kwargs or {}))
        return tree_map(wrapped, result)


@every_family
@every_fast_engine
@pytest.mark.parametrize("kind", [PlainSubclass, Wrapper])
def test_subclasses(case, engine, kind):
    layer = case.random(I, H, 2, engine=engine).requires_grad_(False)
    x = rand(T, B, I)
    given = x.as_subclass(PlainSubclass) if kind is PlainSubclass else Wrapper(x)
    found = flat(layer(given))
    found = [t.as_subclass(torch.Tensor) if kind is PlainSubclass else t.inner for t in found]
    assert_close(found, flat(layer(x)))


@every_family
@every_fast_engine
@every_length
@pytest.mark.parametrize("requires_grad", [False, True])
def test_results_may_be_changed_in_place(case, engine, lengths, requires_grad):
    """In-place changes of the results leave the gradients right."""
    layer = case.random(I, H, 2, engine=engine).requires_grad_(requires_grad)
    x = rand(T, B, I).requires_grad_(requires_grad)
    plain = weighted([t + 1 for t in flat(layer(x, None, lengths))])
    result = flat(layer(x, None, lengths))
    for part in result:
        part += 1
    assert_close([weighted(result)], [plain])
    if requires_grad:
        leaves = [x, *layer.parameters()]
        assert_close(gradients(weighted(result), leaves), gradients(plain, leaves))


@every_layer
@pytest.mark.parametrize("options", [{}, {"batch_first": True}], ids=["time first", "batch first"])
def test_results_are_no_views(name, options):
    """FSDP would lose its hooks on views."""
    layer, lengths = build(name, None)
    layer.batch_first = bool(options)
    x = rand(B, T, I) if options else rand(T, B, I)
    for result in (outputs(layer(x, lengths=lengths)), outputs(layer(x[0]))):
        assert not any(part._is_view() for part in result)


@every_layer
@every_fast_engine
def test_results_may_be_changed_in_place_in_other_layers(name, engine):
    layer, lengths = build(name, engine)
    leaves = list(layer.parameters())
    plain = weighted([t + 1 for t in outputs(layer(rand(T, B, I), lengths=lengths))])
    result = outputs(layer(rand(T, B, I), lengths=lengths))
    for part in result:
        part += 1
    assert_close(gradients(weighted(result), leaves), gradients(plain, leaves))


@every_fast_engine
@pytest.mark.parametrize("name", ["lstm", "lstm-lengths"])
def test_batched_gradients_are_refused(name, engine):
    layer, lengths = build(name, engine)
    x = rand(T, B, I).requires_grad_()
    output, _ = layer(x, lengths=lengths)
    with pytest.raises((UserError, RuntimeError), match="takes one gradient at a time"):
        torch.autograd.grad(output, x, torch.stack([output, output]), is_grads_batched=True)


# torch.utils.checkpoint does not support vmap.
@pytest.mark.parametrize("name", [name for name in LAYERS if not name.startswith("recomputed")])
def test_batched_gradients_of_the_reference(name):
    layer, lengths = build(name, "reference")
    x = rand(T, B, I).requires_grad_()
    output = layer(x, lengths=lengths)[0]
    grads = torch.stack([rand(*output.shape, seed=seed) for seed in (1, 2)])
    one_by_one = [torch.autograd.grad(output, x, g, retain_graph=True)[0] for g in grads]
    (found,) = torch.autograd.grad(output, x, grads, is_grads_batched=True)
    assert_close([found], [torch.stack(one_by_one)])


def test_functions_that_the_extension_replaces():
    """Functions that the compiled extension replaces work under transforms, too."""
    x, weight, bias = (rand(*n, dtype=torch.float32) for n in ((300, 40), (50, 40), (50,)))
    expected = torch.nn.functional.linear(x, weight, bias)
    tolerance = {"rtol": 1e-4, "atol": 1e-4}
    assert_close([linear(x, weight, bias)], [expected], tolerance)
    trace = torch.jit.trace(lambda x: linear(x, weight, bias), x)
    assert_close([trace(2 * x)], [2 * expected - bias], tolerance)
    batched = torch.vmap(linear, (None, 0, None))(x, weight.expand(2, -1, -1), bias)
    assert_close(batched, [expected] * 2, tolerance)
    trace = torch.jit.trace(lambda x: SharedWeightLinear(weight, 1)(x), x)
    assert_close([trace(2 * x)], [2 * (expected - bias)], tolerance)
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(t) for t in (x, weight, bias)]
        assert linear(*fakes).shape == (300, 50)
        assert dropout(fakes[0], 0.5).shape == (300, 40)


def test_readable():
    x = torch.ones(2)
    assert readable()
    assert readable(x, None, torch.nn.Parameter(x), torch._neg_view(x))
    with torch.inference_mode():
        assert readable(x, torch.ones(2))
    with torch.autocast("cpu"), torch.no_grad():
        assert readable(x)
    for other in (x.to("meta"), x.to_sparse(), torch._to_functional_tensor(x), Wrapper(x)):
        assert not readable(other)
