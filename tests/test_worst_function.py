"""The worst function of a density: the largest entropy between two bounds, its closed forms, and that of samples."""

import math

import pytest
import torch

import softknee as sk
from entropic_samples import DENSITIES, normal_samples
from helpers import F64
from softknee.design import quadrature
from softknee.design.entropic.densities import of_formula, read
from softknee.spec import Activation, Sigmoid, x


def random_monotone(density: sk.design.Density, low: float, high: float, seed: int):
    """The slope of a random increasing function from low to high, as a function of x: a mixture of steps, or the
    distribution function sent through a random increasing map of (0, 1)."""
    generator = torch.Generator().manual_seed(seed)
    rise = high - low
    if seed % 2:
        share = torch.rand(6, generator=generator, dtype=F64)
        share = rise * share / share.sum()
        centre = density.centre + 2 * density.spread * torch.randn(6, generator=generator, dtype=F64)
        width = density.spread * torch.exp(torch.randn(6, generator=generator, dtype=F64))

        def slope(at: torch.Tensor) -> torch.Tensor:
            z = (at[:, None] - centre) / width
            return (share * torch.sigmoid(z) * torch.sigmoid(-z) / width).sum(1)

        return slope
    power, mix = (
        torch.exp(0.8 * torch.randn(2, generator=generator, dtype=F64)),
        torch.rand(1, generator=generator, dtype=F64),
    )
    cdf = Activation("cdf", density.cdf)

    def through(at: torch.Tensor) -> torch.Tensor:
        share = cdf(at).clamp(1e-300, 1)
        bent = mix * power[0] * share ** (power[0] - 1) + (1 - mix) * power[1] * share ** (power[1] - 1)
        return rise * bent * density.pdf(at)

    return through


@pytest.mark.slow
@pytest.mark.parametrize("name", DENSITIES)
def test_the_worst_function_has_the_largest_entropy_of_a_hundred(name: str):
    density, (low, high) = read(name), (-1.0, 2.0)
    function = sk.design.worst(name, low, high)
    largest = sk.design.entropy(function, name)
    assert largest == pytest.approx(math.log(high - low), abs=1e-12)
    others = []
    # The integrals over the ends of a uniform density take ten times as long.
    for seed in range(100 if name != "uniform" else 10):
        slope = random_monotone(density, low, high, seed)
        inside = quadrature.integrate(slope, density.edges())
        assert inside <= (high - low) * (1 + 1e-9)  # it does not leave the bounds
        gain = lambda at, s=slope: torch.where(density.pdf(at) > 0, density.pdf(at) * torch.log(s(at)), 0.0)  # noqa: E731
        others.append(density.entropy + quadrature.integrate(gain, density.edges()))
    assert max(others) < largest
    assert max(others) > largest - 0.7  # some come near it, so that the test could fail


@pytest.mark.parametrize("name", DENSITIES)
def test_equation_five_leaves_the_worst_function_alone(name: str):
    result = sk.design.eafo(sk.design.worst(name, -1, 1), name)
    assert result.correction == 0
    assert result.measured == 0
    assert "worst function of this density" in str(result)


def test_the_worst_functions_have_closed_forms_and_hold_their_claims():
    assert sk.design.worst("logistic").formula == Sigmoid(x)
    line = sk.design.worst(sk.design.uniform(low=-2, high=3), 0, 1)
    at = torch.linspace(-2, 3, 101, dtype=F64)
    torch.testing.assert_close(line(at), (at + 2) / 5, rtol=1e-14, atol=1e-15)
    far = torch.tensor([-math.inf, -1e30, 1e30, math.inf], dtype=F64)
    dense = torch.linspace(-9, 9, 20001, dtype=F64)
    for name in DENSITIES:
        act = sk.design.worst(name, -1, 2)
        assert act(far).tolist() == [-1, -1, 2, 2]
        slope = act.derivative(1)(dense)
        assert float(slope.min()) >= 0
        assert float(slope.max()) == pytest.approx(float(act.claims.lipschitz), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("given", ["1/(1+x**2)", "exp(-x**4)", "where(abs(x)<1, 1-x**2, 0)"])
def test_the_worst_function_of_a_formula_is_its_distribution_function(given: str):
    act, density = sk.design.worst(given, 0, 1), of_formula(given)
    for share in (-0.9, -0.2, 0.0, 0.7):
        truth = density.mass(-math.inf, share)
        assert float(act(torch.tensor([share], dtype=F64))) == pytest.approx(truth, abs=2e-4)
    assert act(torch.tensor([-math.inf, math.inf])).tolist() == pytest.approx([0, 1], abs=1e-6)


@pytest.mark.slow
def test_the_worst_function_of_samples_makes_them_uniform():
    seen = normal_samples(5000) * 2 - 1
    act = sk.design.worst(seen, 0, 1)
    output = torch.sort(act(seen)).values
    even = (torch.arange(len(seen), dtype=F64) + 0.5) / len(seen)
    assert float((output - even).abs().max()) < 0.02
    assert bool((act.derivative(1)(torch.linspace(-9, 9, 2001, dtype=F64)) >= 0).all())
