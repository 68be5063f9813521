"""SQUAF's marginal and rate: a plain loop, closed forms, finite differences, sampling, and what is kept in memory."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import softknee as sk
from softknee.errors import InputError, ParameterError
from softknee.kernels.squaf.eager import PIECE
from softknee.kernels.squaf.marginal import entropy_in_bits, squaf_marginal
from softknee.measure import rate
from squaf_reference import inputs, parameters

WEIGHTS = ["gaussian", "laplacian"]
SHAPES = [(1,), (3, 1), (2, 3, 5), (5,), (2, 1, 5)]


def by_loop(x: Tensor, q: Tensor, alpha: Tensor, *, k: int, window: int | None, laplacian: bool) -> list[float]:
    """The pooled marginal, one element and one point after another, straight from the definition."""
    sums = [0.0] * (2 * k + 1)
    for at, q_, alpha_ in zip(*(t.reshape(-1).tolist() for t in torch.broadcast_tensors(x, q, alpha)), strict=True):
        centre = max(-k, min(k, round(at / q_)))
        half = window // 2 if window else 2 * k
        kept = range(max(-k, centre - half), min(k, centre + half) + 1)
        away = [abs(at - i * q_) for i in kept]
        weights = [math.exp(-alpha_ * (d if laplacian else d * d)) for d in away]
        for i, weight in zip(kept, weights, strict=True):
            sums[i + k] += weight / sum(weights)
    return [item / x.numel() for item in sums]


@pytest.mark.parametrize("window", [3, 5, None])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_marginal_against_a_loop(shape, weights, window):
    drawn, x = parameters(shape), inputs(2, 3, 5)
    result = squaf_marginal(x, q=drawn["q"], alpha=drawn["alpha"], points=9, window=window, weights=weights)
    laplacian = weights == "laplacian"
    truth = by_loop(x, drawn["q"], drawn["alpha"], k=4, window=window, laplacian=laplacian)
    torch.testing.assert_close(result, torch.tensor(truth, dtype=torch.float64), rtol=1e-12, atol=1e-15)
    assert float(result.sum()) == pytest.approx(1, abs=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "weights", "window"),
    [((1,), "gaussian", 5), ((3, 1), "gaussian", None), ((3, 1), "laplacian", 5), ((1,), "laplacian", None)],
)
def test_gradients_equal_finite_differences_to_second_order(shape, weights, window):
    drawn, x = parameters(shape), inputs(2, 3, 2)
    tensors = [t.requires_grad_() for t in (x, drawn["q"], drawn["alpha"])]

    def bits(x: Tensor, q: Tensor, alpha: Tensor) -> Tensor:
        return entropy_in_bits(squaf_marginal(x, q=q, alpha=alpha, points=9, window=window, weights=weights))

    assert torch.autograd.gradcheck(bits, tensors)
    assert torch.autograd.gradgradcheck(bits, tensors)
    mapped = torch.func.grad(bits, argnums=(0, 1, 2))(*tensors)
    for ours, theirs in zip(mapped, torch.autograd.grad(bits(*tensors), tensors), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_each_channel_has_a_marginal_and_the_layer_their_mean():
    drawn, x = parameters((3, 1)), inputs(4, 3, 6)
    each = squaf_marginal(x, q=drawn["q"], alpha=drawn["alpha"], points=9, pooled=False)
    assert each.shape == (3, 1, 9)
    for channel in range(3):
        alone = squaf_marginal(x[:, channel], q=drawn["q"][channel], alpha=drawn["alpha"][channel], points=9)
        torch.testing.assert_close(each[channel, 0], alone)
    pooled = squaf_marginal(x, q=drawn["q"], alpha=drawn["alpha"], points=9)
    torch.testing.assert_close(pooled, each.mean((0, 1)))
    assert entropy_in_bits(pooled) > entropy_in_bits(each).mean()


def test_a_general_grid_agrees_with_the_uniform_one_and_learns_its_points():
    drawn, x = parameters(), inputs(40)
    grid = (drawn["q"] * torch.arange(-4, 5)).detach().requires_grad_()
    result = squaf_marginal(x, grid=grid, alpha=drawn["alpha"], window=None)
    torch.testing.assert_close(result, squaf_marginal(x, q=drawn["q"], alpha=drawn["alpha"], points=9, window=None))

    def bits(x: Tensor, grid: Tensor) -> Tensor:
        return entropy_in_bits(squaf_marginal(x, grid=grid, alpha=drawn["alpha"], window=None))

    assert torch.autograd.gradcheck(bits, (x.requires_grad_(), grid))


class Largest(TorchDispatchMode):
    """The size of the largest tensor that any operation makes."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for item in out if isinstance(out, list | tuple) else [out]:
            if isinstance(item, Tensor) and item.untyped_storage().nbytes():
                self.elements = max(self.elements, item.untyped_storage().nbytes() // item.element_size())
        return out


@pytest.mark.slow
@pytest.mark.parametrize("window", [5, 0])
def test_no_tensor_of_elements_times_points(window):
    x = torch.randn(400_000, generator=torch.Generator().manual_seed(0))
    q, alpha, ops = torch.ones(1), torch.ones(1), torch.ops.softknee

    def marginal(x: Tensor) -> Tensor:
        return ops.squaf_marginal(x, q.to(x.dtype), alpha.to(x.dtype), 33, window, False)

    with Largest() as seen:
        result = marginal(x)
        ops.squaf_marginal_backward(torch.ones(1, 33), x, q, alpha, window, False, True)
    # x itself, its gradient, or a piece: never 400,000 times 5 or 33.
    assert seen.elements <= max(PIECE, 400_000) + 33
    # The same bits come again, and pieces add up to what one piece gives. The latter in float64: far out a few elements
    # are all there is, and in which piece they stand may change their last bit.
    assert torch.equal(result, marginal(x))
    one_by_one = sum(marginal(part) for part in x.double().split(50_000)) / 8
    torch.testing.assert_close(marginal(x.double()), one_by_one, rtol=1e-10, atol=0)


def test_only_x_and_the_parameters_are_kept_for_the_gradient():
    kept: list[int] = []
    x, q = torch.randn(500, 20, requires_grad=True), torch.ones(1, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        entropy_in_bits(squaf_marginal(x, q=q, alpha=torch.ones(1), points=33)).backward()
    assert sum(kept) <= x.numel() + 10 * 33


def test_closed_forms():
    points = torch.arange(-4.0, 5.0)
    sharp = {"q": torch.ones(1), "alpha": torch.full((1,), 1e4), "points": 9}
    assert float(entropy_in_bits(squaf_marginal(points, **sharp))) == pytest.approx(math.log2(9), rel=1e-6)
    constant = torch.full((7,), 2.0, requires_grad=True)
    none = entropy_in_bits(squaf_marginal(constant, **sharp))
    assert none.item() == 0
    # Points that nothing comes near have probability 0 exactly; the gradient stays finite.
    assert torch.autograd.grad(none, constant)[0].tolist() == [0.0] * 7
    # Half way between two points each has one half: one bit.
    assert float(entropy_in_bits(squaf_marginal(torch.full((3,), 0.5), **sharp))) == pytest.approx(1)


def test_drawn_symbols_have_that_entropy():
    torch.manual_seed(0)
    x, q, alpha = torch.randn(20_000), torch.full((1,), 0.25), torch.full((1,), 24.0)
    logits = -alpha * (x[:, None] - q * torch.arange(-16, 17)).square()
    symbols = torch.multinomial(torch.softmax(logits, 1), 1).flatten()
    share = torch.bincount(symbols, minlength=33).double() / len(symbols)
    bits = float(entropy_in_bits(squaf_marginal(x, q=q, alpha=alpha, points=33, window=None)))
    assert float(entropy_in_bits(share)) == pytest.approx(bits, rel=0.003)


@pytest.mark.parametrize("window", [5, 0])
@pytest.mark.parametrize("shape", [(1,), (3, 1)])
def test_the_operators_keep_torchs_rules(shape, window):
    drawn = parameters(shape, dtype=torch.float32)
    x, q, alpha = inputs(2, 3, 4, dtype=torch.float32), drawn["q"], drawn["alpha"]
    tensors = [t.requires_grad_() for t in (x, q, alpha)]
    ways = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.softknee.squaf_marginal.default, (*tensors, 9, window, False), test_utils=ways)
    backward = torch.ops.softknee.squaf_marginal_backward.default
    grad = torch.ones(*shape, 9, requires_grad=True)
    torch.library.opcheck(backward, (grad, *tensors, window, False, True), test_utils=ways)


def net(**values) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3),
        sk.nn.SQUAF(k=4, q=0.3, per="channel", size=3, learn=True, **values),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(27, 6),
        sk.nn.SQUAF(k=2, q=0.1, inplace=True),
    )


def test_rate_of_a_model_against_running_by_hand():
    model, data = net(), list(torch.randn(3, 8, 1, 5, 5, generator=torch.Generator().manual_seed(1)))
    with torch.no_grad():
        model[1].set_(q=torch.tensor([0.1, 0.2, 0.3]))
    model.train()
    result = rate(model, data)
    model.eval()
    with torch.no_grad():
        first = model[0](torch.cat(data))
        last = model[:5](torch.cat(data))
    model.train()
    q, alpha = model[1].q.detach().reshape(3, 1, 1), model[1].alpha.detach().reshape(3, 1, 1)
    truth = by_loop(first, q, alpha, k=4, window=5, laplacian=False)
    assert result.sites[0].marginal == pytest.approx(truth, abs=1e-6)
    assert result.sites[0].bits == pytest.approx(-sum(p * math.log2(p) for p in truth if p), abs=1e-5)
    assert result.sites[0].outside == float((first.abs() > 4.5 * q).double().mean())
    assert result.sites[1].outside == pytest.approx(float((last.abs() > 0.25).double().mean()))
    assert [site.elements for site in result.sites] == [24 * 27, 24 * 6]
    assert result.bits == pytest.approx((result.sites[0].bits * 27 + result.sites[1].bits * 6) / 33)
    assert 0 < result.outside < 1
    # What `activity` sums batch by batch is the same.
    other = sk.measure.activity(model, data)
    assert [item.rate for item in other.sites] == pytest.approx([value.bits for value in result.sites], abs=1e-6)
    assert model.training
    assert not model[1]._forward_pre_hooks
    assert "outside the grid" in str(result)


def test_outside_a_general_grid_is_half_a_step_beyond_its_ends():
    model = nn.Sequential(sk.nn.SQUAF(grid=[-1.0, 0.0, 2.0], alpha=3.0))
    result = rate(model, [torch.tensor([-1.6, -1.4, 0.0, 2.9, 3.1])])
    assert result.outside == 2 / 5


def test_what_a_sampled_layer_sends_has_that_rate():
    torch.manual_seed(0)
    model, x = nn.Sequential(sk.nn.SQUAFP(k=16, q=0.25)), torch.randn(20_000)
    share = torch.bincount(model[0].symbols(x), minlength=33).double() / len(x)
    assert float(entropy_in_bits(share)) == pytest.approx(rate(model, [x]).bits, rel=0.003)


def test_what_has_no_rate_is_refused():
    with pytest.raises(InputError, match="no SQUAF layer"):
        rate(nn.Sequential(nn.ReLU()), [torch.zeros(1)])
    with pytest.raises(InputError, match="put it in a list"):
        rate(net(), torch.zeros(1))
    with pytest.raises(InputError, match="No batch reached"):
        rate(net(), [])
    with pytest.raises(InputError, match="RatePenalty's last call"):
        rate(net())
    with pytest.raises(InputError, match="NaN or infinite"):
        rate(nn.Sequential(sk.nn.SQUAF(k=2)), [torch.tensor([math.nan])])
    with pytest.raises(InputError, match="empty"):
        squaf_marginal(torch.empty(0), q=torch.ones(1), alpha=torch.ones(1), points=3)
    with pytest.raises(ParameterError, match="odd number"):
        squaf_marginal(torch.ones(1), q=torch.ones(1), alpha=torch.ones(1), points=4)


def test_what_lies_outside_is_the_same_in_every_mode_and_with_linear_tails():
    x = 3 * inputs(40, 4)
    layers = [item for mode in ("soft", "sampled", "step") for item in [sk.nn.make("squaf", k=2, q=0.5, mode=mode)]]
    layers.append(sk.nn.SQUAF(k=2, q=0.5, tails="linear"))
    wanted = float((x.abs() > 1.25).double().mean())
    assert 0.2 < wanted < 0.9
    for layer in layers:
        actual = rate(nn.Sequential(layer), [x])
        assert actual.sites[0].outside == pytest.approx(wanted)
        assert actual.outside == pytest.approx(wanted)


@pytest.mark.parametrize("mode", ["soft", "step"])
def test_general_grids_of_channels_have_their_own_ends(mode):
    grid = torch.tensor([[-1.0, 0.0, 2.0], [0.0, 1.0, 1.5]])
    layer = sk.nn.make("squaf", grid=grid, alpha=3.0, z="relu", per="channel", size=2, learn=True, mode=mode)
    x = torch.tensor([[-1.6, -0.6], [-1.4, -0.4], [2.9, 1.8], [3.1, 1.7]])
    # Half a step beyond: below -1.5 and above 3 in the first channel, below -0.5 and above 1.75 in the second.
    assert rate(nn.Sequential(layer), [x]).sites[0].outside == 4 / 8
