"""Entropy before and after an activation: closed forms, cells by hand, and a study that measures it twice."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch
from torch import nn

import softknee as sk
from softknee.lab.studies.running import run_trial
from softknee.measure import activity, entropies
from softknee.surgery.modules import smallest_keys
from trial_models import examples, trial

NORMAL = math.log(math.sqrt(2 * math.pi * math.e))


def drawn(count: int = 200_000) -> torch.Tensor:
    return torch.randn(count, 1, generator=torch.Generator().manual_seed(0))


def test_a_normal_distribution_and_its_scale():
    for scale in (1.0, 3.0):
        (result,) = entropies(nn.Sequential(nn.PReLU(init=1.0)), [scale * drawn()])
        assert result.input == pytest.approx(NORMAL + math.log(scale), abs=0.01)
        assert result.output == result.input
        assert result.spread == pytest.approx(scale, rel=0.01)
        assert result.shape == pytest.approx(NORMAL, abs=0.01)


@pytest.mark.parametrize("width", [2.0**-6, 0.25])
def test_relu_of_a_normal_distribution_by_its_cells(width: float):
    """Half of it and half a cell are 0; the probabilities of the other cells are scipy's."""
    edges = width * (np.arange(0, round(8 / width)) + 0.5)
    cells = np.diff(scipy.stats.norm.cdf(edges))
    shares = np.concatenate([[scipy.stats.norm.cdf(width / 2)], cells[cells > 0]])
    expected = -(shares * np.log(shares / width)).sum()
    for model in (nn.Sequential(nn.ReLU(inplace=True)), nn.Sequential(sk.nn.make("relu"))):
        (actual,) = entropies(model, list(drawn().clone().split(70_000)), width=width)
        assert actual.output == pytest.approx(expected, abs=0.01)
        assert actual.input == pytest.approx(NORMAL, abs=0.01)  # also where the activation writes over it
    one = math.sqrt(0.5 - 1 / (2 * math.pi))  # of max(0, x)
    assert actual.spread == pytest.approx(one, rel=0.01)


def test_one_number_alone_and_a_sample():
    (result,) = entropies(nn.Sequential(nn.ReLU()), [-torch.rand(50, 2)])
    assert (result.output, result.spread, result.shape) == (pytest.approx(math.log(2.0**-6)), 0.0, -math.inf)
    few, many = (entropies(nn.Sequential(nn.GELU()), [drawn()], samples=n)[0] for n in (50_000, 10**6))
    assert few.output == pytest.approx(many.output, abs=0.02)
    assert few.output != many.output


def test_what_cannot_be_measured_is_said():
    net = nn.Sequential(nn.ReLU())
    for given, said in (([torch.tensor([[math.nan]])], "NaN or infinite"), (torch.ones(2, 2), "put it in a list")):
        with pytest.raises(sk.InputError, match=said):
            entropies(net, given)
    with pytest.raises(sk.InputError, match="no activation module"):
        entropies(nn.Sequential(nn.Linear(2, 2)), [torch.ones(2, 2)])
    with pytest.raises(sk.InputError, match="nothing to go by"):
        entropies(net, [])
    with pytest.raises(sk.ParameterError, match="above 0"):
        entropies(net, [torch.ones(1, 1)], width=0.0)


def test_a_study_measures_it_before_and_after_training():
    asked = trial("gelu", measures=("entropy",))
    result = run_trial(asked, examples=examples()).outcome
    assert result.entropy
    for site in result.entropy:
        for when in ("start", "end"):
            assert all(len(site[when][name]) == asked.seeds.count for name in ("input", "output", "spread"))
        assert site["start"]["output"] != site["end"]["output"]
        assert len(set(site["start"]["output"])) == asked.seeds.count  # every seed has weights of its own
    plain = run_trial(replace(asked, measures=()), examples=examples()).outcome
    assert plain.entropy == ()
    assert plain.test == result.test  # measuring changes nothing


# -- the sample that activity draws of very many numbers ----------------------------------------------------------


def test_the_smallest_keys_without_drawing_all():
    generator = torch.Generator().manual_seed(0)
    runs = [smallest_keys(100_000, 500, generator) for _ in range(200)]
    largest = [float(keys[-1]) for keys, _ in runs]
    # Number k of n uniform numbers in order has the beta distribution (k, n + 1 - k).
    assert scipy.stats.kstest(largest, scipy.stats.beta(500, 99_501).cdf).pvalue > 0.001
    places = torch.cat([places for _, places in runs])
    assert all(len(places.unique()) == 500 for _, places in runs[:5])
    assert scipy.stats.kstest((places / 100_000).numpy(), "uniform").pvalue > 0.001
    # Smaller keys do not prefer any places.
    first = torch.stack([places[0] for _, places in runs]) / 100_000
    assert scipy.stats.kstest(first.numpy(), "uniform").pvalue > 0.001


def test_activity_of_very_many_numbers():
    x = torch.cat([torch.rand(40_000, 1), torch.rand(40_000, 1) + 1])
    result = activity(nn.Sequential(nn.ReLU()), [x], samples=4000).sites[0]
    assert result.entropy == pytest.approx(math.log(2), abs=0.04)
