"""The order of the layers by hardness, epoch by epoch, from the records of the evidence."""

import math
from dataclasses import replace

import pytest
import scipy.stats
import torch
from papers.lambda_gelu.findings import ADULT, FASHION, LEARNED, correlations, order_figure
from papers.runs import Runs
from papers.statement import mean

PAIRS = ["uniform and increasing", "uniform and decreasing", "increasing and decreasing"]


@pytest.fixture(scope="module")
def runs() -> Runs:
    return Runs.committed()


@pytest.mark.parametrize("name", [FASHION, ADULT])
def test_each_epoch_is_spearmans_correlation_of_the_two_profiles(runs: Runs, name: str) -> None:
    study, found = runs.study(name), correlations(runs.study(name))
    assert list(found) == PAIRS
    uniform, increasing = (
        torch.tensor([way["curve"] for way in study.outcomes[label].parameters.values()]) for label in LEARNED[:2]
    )
    seeds = found[PAIRS[0]]
    assert (len(seeds), {len(seed) for seed in seeds}) == (3, {50})
    for seed in range(3):
        for epoch in (0, 9, 49):
            expected = scipy.stats.spearmanr(uniform[:, epoch, seed], increasing[:, epoch, seed]).statistic
            assert seeds[seed][epoch] == pytest.approx(expected)


def test_fashion_keeps_an_order_that_adult_finds_late(runs: Runs) -> None:
    """What the figures show: the starts are opposite on Adult in the first epoch, and agree on Fashion-MNIST soon."""
    fashion, adult = (correlations(runs.study(name))[PAIRS[2]] for name in (FASHION, ADULT))
    assert mean(seed[9] for seed in fashion) == 1.0
    assert mean(seed[0] for seed in adult) == -1.0
    assert mean(seed[-1] for seed in adult) > 0.8


def test_what_is_not_there_is_left_out(runs: Runs) -> None:
    study = runs.study(FASHION)
    one = study.outcomes[LEARNED[0]]
    alone = replace(study, outcomes={LEARNED[0]: one})
    assert correlations(alone) == {}
    assert order_figure(alone) is None
    # The second seed diverged after three epochs: nothing of it counts, from no pair it is in.
    gone = {
        name: {**way, "curve": [[a, b if epoch < 3 else None, c] for epoch, (a, b, c) in enumerate(way["curve"])]}
        for name, way in one.parameters.items()
    }
    less = replace(study, outcomes={**study.outcomes, LEARNED[0]: replace(one, parameters=gone)})
    assert [len(seeds) for seeds in correlations(less).values()] == [2, 2, 3]
    unmoved = replace(study, outcomes={**study.outcomes, LEARNED[0]: replace(one, parameters={})})
    assert [len(seeds) for seeds in correlations(unmoved).values()] == [0, 0, 3]
    assert (order_figure(unmoved) or b"")[:4] == b"\x89PNG"


def test_equal_layers_have_no_order(runs: Runs) -> None:
    study = runs.study(FASHION)
    one = study.outcomes[LEARNED[0]]
    flat = {name: {**way, "curve": [[1.0] * 3, *way["curve"][1:]]} for name, way in one.parameters.items()}
    found = correlations(replace(study, outcomes={**study.outcomes, LEARNED[0]: replace(one, parameters=flat)}))
    assert all(math.isnan(seed[0]) for seed in found[PAIRS[0]])
    assert not any(math.isnan(seed[1]) for seed in found[PAIRS[0]])
