"""Densities of the inputs, by name, formula and samples: their entropies, and that `eafo` takes each of them."""

import math

import pytest
import torch

import softknee as sk
from entropic_samples import normal_samples
from helpers import F64
from softknee.design.entropic.densities import nearest_named, of_formula, of_samples, read
from softknee.design.entropic.entropy import mean_of


@pytest.mark.parametrize("name", ["normal", "laplace", "logistic"])
def test_the_nearest_named_density_is_the_one_that_samples_come_from(name: str) -> None:
    z = torch.linspace(0.5 / 20_000, 1 - 0.5 / 20_000, 20_000, dtype=torch.float64)
    quantiles = {
        "normal": torch.special.ndtri(z),
        "laplace": -torch.sign(z - 0.5) * torch.log1p(-2 * (z - 0.5).abs()),
        "logistic": torch.logit(z),
    }
    near = nearest_named(0.5 * quantiles[name] - 0.25)
    assert near.name.startswith(name)
    assert near.fit is not None
    assert near.fit < 2e-3
    assert near.centre == pytest.approx(-0.25, abs=1e-3)
    text = f"eafo(relu, density={near.name})"
    made, expected = sk.design.definition(text), sk.design.eafo("relu", near).activation
    assert made.formula == expected.formula
    assert made.recipe == expected.recipe == text


@pytest.mark.parametrize(
    "density", ["normal(2)", "normal(low=1)", "normal(mean=1, mean=2)", "normal(scale=x)", "no(mean=1)"]
)
def test_a_density_in_a_text_has_a_place_and_a_scale(density: str) -> None:
    with pytest.raises(sk.FormulaError):
        sk.design.definition(f"eafo(relu, density={density})")


def test_entropies_of_the_named_densities():
    known = {
        "normal": math.log(2 * math.pi * math.e) / 2,
        "laplace": 1 + math.log(2),
        "logistic": 2.0,
        "uniform": math.log(2),
    }
    for name, entropy in known.items():
        assert read(name).entropy == pytest.approx(entropy, abs=1e-13)
        assert read(name).mass(-math.inf, math.inf) == pytest.approx(1, abs=1e-13)
    assert sk.design.normal(mean=3, scale=2).entropy == pytest.approx(known["normal"] + math.log(2), abs=1e-12)


def test_a_formula_means_the_same_as_the_name():
    by_formula, by_name = sk.design.eafo("softplus", "3 * exp(-x**2 / 2)"), sk.design.eafo("softplus", "normal")
    assert by_formula.predicted == pytest.approx(by_name.predicted, rel=1e-9)
    assert by_formula.measured == pytest.approx(by_name.measured, rel=1e-9)
    assert of_formula("exp(-abs(x))").entropy == pytest.approx(1 + math.log(2), abs=1e-12)
    assert of_formula("1/(1+x**2)").entropy == pytest.approx(math.log(4 * math.pi), abs=1e-6)
    assert of_formula("exp(-abs(x - 50))").centre == pytest.approx(50, abs=1e-9)
    assert of_formula("where(abs(x) < 1, 1 - x**2, 0)").reach == (-1, 1)


@pytest.mark.slow
def test_samples_give_about_what_their_density_gives():
    exact = sk.design.eafo("softplus", "normal")
    result = sk.design.eafo("softplus", normal_samples(50_000))
    assert not result.symbolic
    assert result.density.fit < 0.01
    assert result.predicted == pytest.approx(exact.predicted, rel=0.05)
    assert result.measured == pytest.approx(result.predicted, rel=0.05)
    assert "differs from the samples" in str(result)
    at = torch.linspace(-3, 3, 61, dtype=F64)
    torch.testing.assert_close(
        result.activation.partial("eps")(at), exact.activation.partial("eps")(at), atol=0.03, rtol=0
    )


def test_samples_of_other_shapes_are_fitted():
    generator = torch.Generator().manual_seed(1)
    two = torch.cat([torch.randn(10_000, generator=generator) - 3, torch.randn(10_000, generator=generator) + 2])
    skew = torch.log(torch.rand(20_000, generator=generator)).neg()
    for seen, distance in ((two, 0.03), (skew, 0.04), (1000 + 5 * two, 0.03)):
        density = of_samples(seen)
        assert density.fit < distance
        assert density.mass(-math.inf, math.inf) == pytest.approx(1, abs=1e-9)
        assert density.entropy == pytest.approx(sk.design.spacing_entropy(seen), abs=0.1)


def mean(curve, density) -> float:
    return mean_of(curve, read(density), -math.inf, math.inf)[0]


@pytest.mark.slow
@pytest.mark.parametrize("density", ["normal", "laplace", "uniform"])
@pytest.mark.parametrize("at", [0.0, 1 / 3, -0.71], ids=str)
def test_a_pole_has_no_mean(density: str, at: float):
    """Panels give all of them a number, of whatever size the last panel is."""
    for power in (1, 2, 4):
        assert math.isnan(mean(lambda x, n=power: (x - at) ** -n, density))
    assert math.isnan(mean(lambda x: 1 / (4 * (x - at).abs()), density))


@pytest.mark.parametrize(
    ("curve", "density"),
    [
        (lambda x: (x * x / 2).exp(), "normal"),
        (lambda x: (0.51 * x * x).exp(), "normal"),
        (lambda x: x.exp(), "laplace"),
        (lambda x: x, "1 / (1 + x**2)"),
        (lambda x: x**3, "1 / (1 + x**4)"),
        (lambda x: x.exp().exp(), "normal"),
    ],
)
def test_a_tail_that_outgrows_the_density_has_no_mean(curve, density: str):
    assert math.isnan(mean(curve, density))


@pytest.mark.parametrize(
    ("curve", "density", "wanted"),
    [
        (lambda x: x.abs().log(), "normal", -(math.log(2) + 0.5772156649015329) / 2),
        (lambda x: x.abs() ** -0.5, "normal", 2**-0.25 * math.gamma(0.25) / math.sqrt(math.pi)),
        (lambda x: (x - 1 / 3).abs().log(), "uniform", (4 / 3 * math.log(4 / 3) + 2 / 3 * math.log(2 / 3)) / 2 - 1),
        (lambda x: (x > 1 / 3).double(), "uniform", 1 / 3),
        (lambda x: (x * x / 4).exp(), "normal", math.sqrt(2)),
        (lambda x: (x / 2).exp(), "laplace", 4 / 3),
        (lambda x: x**20, "normal", 654729075.0),
        (lambda x: x * x, "1 / (1 + x**4)", 1.0),
        # Its rounding errors grow like 1/x about 0, its values do not.
        (lambda x: (x / x.cosh() ** 2 - x.tanh()) / (x * x), "uniform", 0.0),
    ],
)
def test_a_mean_that_exists_is_found_however_sharp_the_function(curve, density: str, wanted: float):
    assert mean(curve, density) == pytest.approx(wanted, rel=1e-6, abs=1e-9)
