"""Any layout of input, parameter and gradient gives what contiguous memory gives; `inplace` says the truth."""

import itertools

import pytest
import torch
from torch import Tensor

import softknee as sk
from helpers import F64, each_kind, each_learned_kind, ordinary_values
from softknee.spec import Activation

pytestmark = pytest.mark.usefixtures("small_blocks")
SHAPE = (2, 3, 4, 5)
LARGE = (4, 8, 17, 17)  # more than two blocks, and not a whole number of them


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


LAYOUTS = {
    "contiguous": lambda: numbers(*SHAPE),
    "transposed": lambda: numbers(2, 3, 5, 4).transpose(2, 3),
    "channels_last": lambda: numbers(*SHAPE).contiguous(memory_format=torch.channels_last),
    "strided_slice": lambda: numbers(2, 3, 8, 10)[:, :, ::2, 1::2],
    "offset": lambda: numbers(121)[1:].reshape(SHAPE),
    "reversed_dims": lambda: numbers(5, 4, 3, 2).permute(3, 2, 1, 0),
    "expanded": lambda: numbers(1, 3, 1, 5).expand(SHAPE),
    "one_number_expanded": lambda: numbers(1).expand(SHAPE),
    "large_transposed": lambda: numbers(4, 8, 18, 17).transpose(2, 3),
    "large_slice": lambda: numbers(4, 8, 34, 17)[:, :, ::2],
}
# Each test goes through all layouts of one function: a thousand tests of a millisecond each would take seconds more.


def test_large_tensors_take_the_way_of_blocks_where_their_memory_is_dense():
    paths = {layout: sk.explain(sk.get("srelu"), LAYOUTS[layout]()).path for layout in LAYOUTS}
    assert [layout for layout, path in paths.items() if path == "blocks"] == ["large_transposed"]
    assert sk.explain(sk.get("srelu"), numbers(*LARGE)).path == "blocks"


def spread(value: float, shape: tuple[int, ...]) -> Tensor:
    """A parameter that differs from place to place, near its value."""
    return value * (1 + 0.01 * torch.rand(shape, generator=torch.Generator().manual_seed(7), dtype=F64))


def run(act: Activation, x: Tensor, params: dict[str, Tensor], g: Tensor) -> list[Tensor]:
    inputs = [t.detach().requires_grad_() for t in (x, *params.values())]
    value = act(inputs[0], **dict(zip(params, inputs[1:], strict=True)))
    return [value.detach(), *torch.autograd.grad(value, inputs, g)]


def assert_same(found: list[Tensor], expected: list[Tensor], case: object = "") -> None:
    for item, other in zip(found, expected, strict=True):
        torch.testing.assert_close(item, other, rtol=1e-12, atol=1e-11, msg=lambda text: f"{case}: {text}")


@each_kind
def test_a_layout_changes_nothing(act: Activation):
    params = {name: spread(value, (1,)) for name, value in ordinary_values(act).items()}
    for layout, make in LAYOUTS.items():
        x = make()
        g = numbers(*x.shape, seed=1)
        result = run(act, x, params, g)
        assert result[0].shape == result[1].shape == x.shape, layout
        assert_same(result, run(act, x.contiguous(), params, g), layout)


PARAM_SHAPES = {
    "channel": (3, 1, 1),
    "neuron": (3, 4, 5),
    "last": (5,),
    "rows": (4, 1),
    "split": (3, 1, 5),
    "batch": (2, 1, 1, 1),
}


@pytest.mark.parametrize("per", PARAM_SHAPES)
@pytest.mark.parametrize("layout", [name for name in LAYOUTS if "large" not in name])
def test_parameters_in_any_shape_meet_any_layout(layout: str, per: str):
    """One parameter of several shapes beside others of one number, against the sum over a full expansion."""
    act = sk.get("generalized_smelu")
    x, g = LAYOUTS[layout](), numbers(*SHAPE, seed=1)
    values = ordinary_values(act)
    params = {name: spread(v, PARAM_SHAPES[per] if name in ("beta", "g_plus") else (1,)) for name, v in values.items()}
    full = {name: p.expand(SHAPE).contiguous() for name, p in params.items()}
    value, dx, *grads = run(act, x, full, g)
    summed = [grad.sum_to_size(p.shape) for grad, p in zip(grads, params.values(), strict=True)]
    assert_same(run(act, x, params, g), [value, dx, *summed])


@each_learned_kind
def test_large_tensors_with_channels(act: Activation):
    x, g = numbers(*LARGE), numbers(*LARGE, seed=1)
    params = {name: spread(value, (8, 1, 1)) for name, value in ordinary_values(act).items()}
    assert sk.explain(act, x).path == "blocks"
    value, dx, *grads = run(act, x, params, g)
    for c in range(8):
        items = {name: p[c, 0] for name, p in params.items()}
        assert_same([value[:, c], dx[:, c], *(grad[c, 0] for grad in grads)], run(act, x[:, c], items, g[:, c]))


GRADS = {
    "expanded": lambda shape: torch.ones((), dtype=F64).expand(shape),
    "transposed": lambda shape: numbers(*reversed(shape), seed=3).permute(*reversed(range(len(shape)))),
    "sliced": lambda shape: numbers(*shape[:-1], 2 * shape[-1], seed=4)[..., ::2],
}


@pytest.mark.slow
@each_kind
def test_an_incoming_gradient_of_any_layout(act: Activation):
    params = {name: spread(value, (1,)) for name, value in ordinary_values(act).items()}
    for shape, (kind, make) in itertools.product((SHAPE, LARGE), GRADS.items()):
        x, g = numbers(*shape), make(shape)
        assert_same(run(act, x, params, g), run(act, x, params, g.contiguous()), (shape, kind))


@pytest.mark.slow
@each_kind
def test_empty_and_tiny_tensors(act: Activation):
    params = {name: torch.full((1,), value, dtype=F64) for name, value in ordinary_values(act).items()}
    for shape in ((), (0,), (3, 0, 2), (1,), (1, 1, 1)):
        x, g = numbers(*shape), torch.ones(shape, dtype=F64)
        value, dx, *grads = run(act, x, params, g)
        assert value.shape == dx.shape == shape
        reference = act.derivative(1)(x.reshape(-1), **params).reshape(shape)
        torch.testing.assert_close(dx, reference, rtol=1e-13, atol=1e-13)
        for grad, (name, p) in zip(grads, params.items(), strict=True):
            expected = act.partial(name)(x.reshape(-1), **params).sum().reshape(p.shape)
            torch.testing.assert_close(grad, expected, rtol=1e-13, atol=1e-13)


# -- inplace ----------------------------------------------------------------------------------------------

INPLACE = [layout for layout in LAYOUTS if "expanded" not in layout]


@each_kind
def test_inplace_is_honoured_without_gradients(act: Activation):
    values = ordinary_values(act)
    module = sk.nn.make(act, inplace=True, dtype=F64, **values)
    for layout in INPLACE:
        x = LAYOUTS[layout]()
        expected, version = act(x, **values), x._version
        result = module(x)
        assert result is x or result.data_ptr() == x.data_ptr(), layout
        assert x._version > version, layout
        torch.testing.assert_close(x, expected, rtol=1e-14, atol=1e-14)


@each_kind
def test_inplace_is_ignored_where_a_gradient_is_wanted(act: Activation):
    x = numbers(7).requires_grad_()
    before = x.detach().clone()
    module = sk.nn.make(act, inplace=True, dtype=F64, **ordinary_values(act))
    result = module(x * 1.0)
    (gradient,) = torch.autograd.grad(result.sum(), x)
    torch.testing.assert_close(gradient, act.derivative(1)(before, **ordinary_values(act)))
    assert torch.equal(x.detach(), before)
    with torch.no_grad():
        assert module(x).data_ptr() == x.data_ptr()


@each_learned_kind
def test_inplace_is_ignored_while_a_parameter_learns(act: Activation):
    x = numbers(7)
    before = x.clone()
    module = sk.nn.make(act, inplace=True, learn=True, dtype=F64)
    module(x).sum().backward()
    assert torch.equal(x, before)


@pytest.mark.parametrize("name", ["srelu", "squaf"])
def test_inplace_is_ignored_where_torch_lets_nothing_be_overwritten(name: str):
    module, plain = sk.nn.make(name, inplace=True), sk.nn.make(name)
    wide = torch.linspace(-2, 2, 5).reshape(5, 1).expand(5, 3)
    with torch.inference_mode():
        kept = wide.clone()
    for x in (wide, kept):
        before = x.clone()
        assert torch.equal(module(x), plain(x))
        assert torch.equal(x, before)
