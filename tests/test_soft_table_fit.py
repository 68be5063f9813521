"""The table of a SQUAF by least squares: against normal equations in 30 digits, exactness, and the sampled table."""

import itertools
import math

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

import softknee as sk
from softknee.design import fit_table
from softknee.errors import InputError, ParameterError

PAPER = {"relu": 1.0, "gelu": 0.25}  # the spacing of the SQUAF paper for each, with k = 16 and alpha = 1.5/q^2


def value(
    x: Tensor, z: Tensor, *, q: float, alpha: float, weights: str = "gaussian", window: int | None = None
) -> Tensor:
    return sk.get("squaf")(x, k=len(z) // 2, q=q, alpha=alpha, z=z, weights=weights, window=window)


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("name", PAPER)
def test_a_fitted_table_is_nearer_than_a_sampled_one(name: str, window: int | None):
    k, q = 16, PAPER[name]
    fit = fit_table(name, k=k, q=q, alpha=1.5 / q**2, window=window)
    # Midpoints for the mean, and the ends themselves, which count for nothing in it.
    inner = (torch.arange(40000, dtype=torch.float64) + 0.5) / 20000 - 1
    x = torch.cat([inner, torch.tensor([-1.0, 1.0], dtype=torch.float64)]) * (k + 0.5) * q
    truth = sk.get(name)(x)
    sampled = sk.get(name)(q * torch.arange(-k, k + 1, dtype=torch.float64))

    def errors(z: Tensor, *, within: float) -> tuple[float, float]:
        off = (value(x, z, q=q, alpha=1.5 / q**2, window=window) - truth)[x.abs() <= within * k * q].abs()
        return float(off.max()), float(off[:40000].square().mean().sqrt())

    for within in (2.0, 1.0, 0.5):
        assert errors(fit.z, within=within)[0] < 0.6 * errors(sampled, within=within)[0]
    assert errors(fit.z, within=2.0)[1] < 0.5 * errors(sampled, within=2.0)[1]
    # What it says of itself is what the kernels compute.
    assert fit.error == pytest.approx(errors(fit.z, within=2.0)[0], rel=1e-3)
    assert fit.rms == pytest.approx(errors(fit.z, within=2.0)[1], rel=1e-3)
    assert fit.sampled == pytest.approx(errors(sampled, within=2.0)[0], rel=1e-3)


@pytest.mark.parametrize("weights", ["gaussian", "laplacian"])
@pytest.mark.parametrize("window", [None, 3])
def test_the_table_solves_the_normal_equations(weights: str, window: int | None):
    k, q, alpha = 2, 0.5, 5.0
    fit = fit_table("gelu", k=k, q=q, alpha=alpha, weights=weights, window=window)
    steps = range(-k, k + 1)

    def shares(x: mpmath.mpf) -> list:
        nearest = max(-k, min(k, int(mpmath.nint(x / q))))
        power = 1 if weights == "laplacian" else 2
        kept = [window is None or abs(i - nearest) <= window // 2 for i in steps]
        w = [mpmath.exp(-alpha * abs(x - i * q) ** power) if keep else 0 for i, keep in zip(steps, kept, strict=True)]
        return [item / mpmath.fsum(w) for item in w]

    with mpmath.workdps(20):
        edges = [mpmath.mpf(i) * q / 2 for i in range(-2 * k - 1, 2 * k + 2)]
        places, masses = mpmath_nodes()
        nodes = [(a + b) / 2 + (b - a) / 2 * t for a, b in itertools.pairwise(edges) for t in places]
        node_weights = [(b - a) / 2 * w for a, b in itertools.pairwise(edges) for w in masses]
        rows = [shares(x) for x in nodes]
        gelu = [x * mpmath.ncdf(x) for x in nodes]
        gram = mpmath.matrix(5, 5)
        right = mpmath.matrix(5, 1)
        for row, f, w in zip(rows, gelu, node_weights, strict=True):
            for i in range(5):
                right[i] += w * row[i] * f
                for j in range(5):
                    gram[i, j] += w * row[i] * row[j]
        truth = [float(v) for v in mpmath.lu_solve(gram, right)]
    np.testing.assert_allclose(fit.z.numpy(), truth, rtol=0, atol=1e-11)


def mpmath_nodes() -> tuple[list, list]:
    """Gauss-Legendre of order 10, from the roots of the polynomial: not the rule, nor the order, of the code."""
    order = 10
    roots = mpmath.polyroots(
        mpmath.taylor(lambda t: mpmath.legendre(order, t), 0, order)[::-1], maxsteps=200, extraprec=60
    )
    weights = [2 / ((1 - r**2) * mpmath.diff(lambda t: mpmath.legendre(order, t), r) ** 2) for r in roots]
    return roots, weights


@pytest.mark.parametrize(
    ("weights", "window", "h"),
    [("gaussian", None, 1.5), ("gaussian", 5, 1.5), ("gaussian", 5, 0.6), ("laplacian", 3, 2.0)],
)
def test_a_target_that_is_such_a_table_comes_back(weights: str, window: int | None, h: float):
    k, q = 6, 0.3
    alpha = h / q if weights == "laplacian" else h / q**2
    z = torch.tensor(np.random.default_rng(3).normal(size=2 * k + 1))
    fit = fit_table(lambda x: value(x, z, q=q, alpha=alpha, weights=weights, window=window), k=k, q=q, alpha=alpha,
                    weights=weights, window=window)  # fmt: skip
    torch.testing.assert_close(fit.z, z, rtol=0, atol=1e-10)
    assert fit.error < 1e-11
    assert fit.sampled > 0.1


@pytest.mark.parametrize("h", [0.3, 0.03, 1e-4, 1e-8, 1e-16, 50.0, 1e6])
def test_tables_stay_tame_where_the_weights_hardly_differ_or_do_not_overlap(h: float):
    q = 0.25
    fit = fit_table("gelu", k=16, q=q, alpha=h / q**2)
    assert fit.z.isfinite().all()
    assert fit.z.abs().max() < 2e4
    assert fit.error <= fit.sampled * (1 + 1e-9)
    # In float32, as it is trained, the table does what it says in float64.
    x = torch.linspace(-4, 4, 4001)
    narrow, wide = (value(x.to(kind), fit.z.to(kind), q=q, alpha=h / q**2) for kind in (torch.float32, torch.float64))
    assert (narrow - wide).abs().max() < 1e-6 * (1 + fit.z.abs().max()) * (1 + 2 * h)


def test_the_interval_is_respected():
    near = fit_table("relu", k=4, q=1.0, alpha=1.5, low=-1.0, high=1.0)
    wide = fit_table("relu", k=4, q=1.0, alpha=1.5)
    assert (near.low, near.high, wide.low, wide.high) == (-1.0, 1.0, -4.5, 4.5)
    x = torch.linspace(-1, 1, 2001, dtype=torch.float64)
    errors = [(value(x, fit.z, q=1.0, alpha=1.5) - x.relu()).square().mean() for fit in (near, wide)]
    assert errors[0] < errors[1]


@pytest.mark.parametrize("target", ["smelu", sk.get("smelu"), lambda x: sk.get("smelu")(x)])
def test_a_target_may_be_a_name_a_definition_or_a_function(target: object):
    fit = fit_table(target, k=8, q=0.25, alpha=24.0)
    torch.testing.assert_close(fit.z, fit_table("smelu", k=8, q=0.25, alpha=24.0).z, rtol=0, atol=1e-6)


GOOD = {"k": 4, "q": 0.5, "alpha": 6.0}


@pytest.mark.parametrize(
    ("target", "change", "says"),
    [
        ("relu", {"k": 0}, "k must be"),
        ("relu", {"k": 2.0}, "k must be"),
        ("relu", {"q": -1.0}, "q must be"),
        ("relu", {"alpha": math.inf}, "alpha must be"),
        ("relu", {"weights": "cauchy"}, "weights must be"),
        ("relu", {"window": 4}, "window must be"),
        ("relu", {"low": 1.0, "high": 1.0}, "low must be below high"),
        ("relu", {"high": math.nan}, "low must be below high"),
        (3.0, {}, "must be a name, a definition or a function"),
        (lambda x: x.sum(), {}, "one value for each"),
        (lambda x: x.log(), {}, "not finite"),
    ],
)
def test_what_cannot_be_fitted_is_refused(target: object, change: dict, says: str):
    with pytest.raises((ParameterError, InputError), match=says):
        fit_table(target, **GOOD | change)
