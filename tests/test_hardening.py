"""Hardener: Algorithm 1 to the number, every function with a knob, schedules, the plateau, and what is refused."""

import itertools
import json
import math
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import softknee as sk
from hardening_models import F32, Net, adam, train
from helpers import ZOO
from softknee.errors import InputError, ParameterError

TARGET = 2 / (5e-3 * math.sqrt(2 * math.pi))


# -- Algorithm 1 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("total", [1, 4, 7, 8, 30, 100])
def test_algorithm_1_to_the_number(total: int):
    """Against the algorithm written down once more, with the knobs trained between the steps."""
    net = Net()
    optimizer = adam(net)
    hardener = sk.Hardener(net, total=total)
    e_s = math.floor(0.25 * total)
    learned = [act.lam.item() for act in net.acts]
    for e in range(1, total + 1):
        hardener.step(e)
        for act, lam in zip(net.acts, learned, strict=True):
            wanted = lam if e <= e_s else lam + (e - e_s) / (total - e_s) * (TARGET - lam)
            assert act.lam.item() == pytest.approx(wanted, rel=2 * F32)
            assert act.raw_lam.requires_grad == (e <= e_s)
        train(net, optimizer)
        if e <= e_s:
            assert all(act.lam.item() != lam for act, lam in zip(net.acts, learned, strict=True))
            learned = [act.lam.item() for act in net.acts]  # lambda(e_s) is what epoch e_s leaves behind
    assert all(act.lam.item() == pytest.approx(159.576912161, rel=F32) for act in net.acts)


def test_numbers_of_numpy_are_numbers():
    starts = (np.float64(0.25), np.int64(2), np.float64(0.29), 0.29)
    assert [sk.Hardener(Net(), total=np.int64(8), start=start).last_free for start in starts] == [2, 2, 2, 2]


def test_the_share_is_the_decimal_that_was_written():
    assert sk.Hardener(Net(), total=100, start=0.29).last_free == 29
    assert sk.Hardener(Net(), total=100, start=0.1).last_free == 10
    assert sk.Hardener(Net(), total=10, start=3).last_free == 3
    assert sk.Hardener(Net(), total=10, start=0).last_free == 0
    assert sk.Hardener(Net(), total=10, start=1).last_free == 1


HARDENING = [name for name, act in ZOO.items() if act.knobs and name not in ("leaky_relu", "prelu", "smooth_relu")]


@pytest.mark.parametrize("learn", [True, False], ids=["learned", "fixed"])
@pytest.mark.parametrize("name", HARDENING)
def test_every_function_with_a_knob_goes_to_its_limit(name: str, learn: bool):
    act = ZOO[name]
    soft = {item: {"eps": 0.5, "lam": 1.5}.get(item, 1.25) for item in act.knobs}
    net = Net(lambda i: sk.nn.make(act, learn=list(act.knobs) if learn else False, **soft))
    before = [{k: getattr(entry, k).item() for k in act.knobs} for entry in net.acts]
    hardener = sk.Hardener(net, total=8, start=0.5)
    distances = []
    for e in range(1, 9):
        hardener.step(e)
        distances.append(sk.surgery.hardening.distance_bound(net.acts[0]))
        share = max(0, e - 4) / 4
        for module, begin in zip(net.acts, before, strict=True):
            for knob in act.knobs:
                end = hardener.targets["acts.0"][knob].item() if e > 4 else begin[knob]
                value = begin[knob] + share * (end - begin[knob])
                assert getattr(module, knob).item() == pytest.approx(value, rel=4 * F32)
    assert distances[:4] == [distances[0]] * 4
    assert all(after < before for before, after in itertools.pairwise(distances[3:]))
    assert distances[-1] <= 5e-3 * (1 + 4 * F32)


def test_channels_move_one_by_one():
    start = torch.tensor([1.5, 200.0, 3.0])
    module = sk.nn.LambdaGELU(lam=start, per="channel", size=3, learn=True)
    net = nn.Sequential(module)
    hardener = sk.Hardener(net, total=4, start=0.5)
    for e in range(1, 5):
        hardener.step(e)
    assert torch.allclose(module.lam, torch.tensor([TARGET, 200.0, TARGET]), rtol=2 * F32)
    hardener = sk.Hardener(nn.Sequential(sk.nn.LambdaGELU(lam=start, per="channel", size=3)), total=2, start=1)
    hardener.step(1), hardener.step(2)
    assert torch.allclose(hardener.sites[0].module.lam, torch.tensor([TARGET, 200.0, TARGET]), rtol=2 * F32)


def test_a_harder_knob_stays_and_is_named():
    net = Net(lambda i: sk.nn.LambdaGELU(lam=(500.0, 1.5)[i], learn=True))
    hardener = sk.Hardener(net, total=4)
    hardener.step(1)
    assert hardener.stays == ()
    raw = net.acts[0].raw_lam.detach().clone()
    with pytest.warns(UserWarning, match=r"1 of 2 activations are as hard as asked already .*'acts.0'"):
        hardener.step(2)
    # Where warnings are errors the step is done all the same.
    strict = sk.Hardener(Net(lambda i: sk.nn.LambdaGELU(lam=500.0)), total=4)
    strict.step(1)
    with pytest.raises(UserWarning, match="2 of 2"):
        strict.step(2)
    assert (strict.begun, strict.position) == (True, 2)
    assert hardener.stays == ("acts.0",)
    hardener.step(4)
    assert torch.equal(net.acts[0].raw_lam, raw)
    assert not net.acts[0].raw_lam.requires_grad


def test_steps_count_by_themselves_and_may_be_parts_of_an_epoch():
    net, same = Net(), Net()
    counted, told = sk.Hardener(net, total=8), sk.Hardener(same, total=8)
    for e in range(1, 9):
        assert counted.step() == told.step(e)
        told.step(e)  # again, for instance after a crash: the same
        assert torch.equal(net.acts[0].lam, same.acts[0].lam)
    assert counted.step() == 1  # more training than planned: it stays at the target
    hardener = sk.Hardener(Net(), total=np.int64(8))
    hardener.step(np.int64(2))
    assert hardener.step(2.75) == pytest.approx(0.75 / 6)
    assert json.loads(json.dumps(hardener.state_dict()))["position"] == 2.75


# -- schedules --------------------------------------------------------------------------------------------


def path_of(schedule, start: float = 4.0, target: float = 0.25) -> list[float]:
    net = Net(lambda i: sk.nn.SReLU(delta=start, learn=True), depth=1)
    hardener = sk.Hardener(net, total=5, start=1, target=target, schedule=schedule)
    return [net.acts[0].delta.item() for _ in range(5) if hardener.step() >= 0]


def test_schedules_in_closed_form():
    progress = [0, 0.25, 0.5, 0.75, 1]
    assert path_of("linear") == pytest.approx([4 - 3.75 * p for p in progress], rel=4 * F32)
    assert path_of("geometric") == pytest.approx([4, 2, 1, 0.5, 0.25], rel=4 * F32)
    cosine = [4 - 3.75 * (1 - math.cos(math.pi * p)) / 2 for p in progress]
    assert path_of("cosine") == pytest.approx(cosine, rel=4 * F32)
    assert path_of(lambda p: p**2) == pytest.approx([4 - 3.75 * p**2 for p in progress], rel=4 * F32)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (lambda p: p + 0.3 * math.sin(2 * math.pi * p), "goes backwards"),
        (lambda p: 1 - p, "0 at progress 0"),
        (lambda p: p / 2, "1 at progress 1"),
        (lambda p: math.nan if 0.4 < p < 0.6 else p, "goes backwards"),
        (lambda p: "soon", "failed"),
        (lambda p: 1 / p, "failed"),
        ("quadratic", "'linear', 'cosine', 'geometric'"),
        ("liner", "Did you mean 'linear'"),
        (3, "name or a function"),
    ],
)
def test_schedules_that_are_refused(schedule, words):
    with pytest.raises(ParameterError, match=words):
        sk.Hardener(Net(), total=4, schedule=schedule)


def test_a_geometric_way_does_not_lead_to_or_through_zero():
    def leak(slope: float) -> Net:
        return Net(lambda i: sk.nn.make(sk.get("crrelu"), eps=slope))

    with pytest.raises(ParameterError, match="never arrives at 0"):
        sk.Hardener(leak(0.5), total=4, target=0.0, schedule="geometric")
    hardener = sk.Hardener(leak(0.5), total=4, target=-0.01, schedule="geometric")
    hardener.step(1)
    with pytest.raises(ParameterError, match="other sign"):
        hardener.step(2)
    assert not hardener.begun
    net = leak(0.5)
    hardener = sk.Hardener(net, total=4, target=0.0)
    hardener.step(1), hardener.step(4)
    assert net.acts[0].eps.item() == 0


# -- the plateau ------------------------------------------------------------------------------------------


def test_it_begins_when_the_metric_has_flattened():
    net = Net()
    hardener = sk.Hardener(net, total=20, start="plateau", better="lower", patience=2, min_delta=0.01)
    losses = [None, 1.0, 0.5, 0.499, 0.498, 0.4]  # the last is never asked for
    begun = []
    for e, loss in enumerate(losses, start=1):
        hardener.step(e, metric=loss)
        begun.append(hardener.begun)
    # 0.499 and 0.498 are not a hundredth below 0.5; the second of them is known before epoch 5.
    assert begun == [False, False, False, False, True, True]
    assert hardener.last_free == 4
    assert hardener.progress == pytest.approx(2 / 16)
    for e in range(7, 21):
        hardener.step(e)
    assert net.acts[0].lam.item() == pytest.approx(TARGET, rel=F32)


def test_higher_may_be_better_and_nonsense_is_no_improvement():
    hardener = sk.Hardener(Net(), total=20, start="plateau", better="higher", patience=2)
    for e, metric in enumerate([None, 0.5, 0.7, 0.9, math.nan, 0.9, 1.0], start=1):
        hardener.step(e, metric=metric)
    assert hardener.last_free == 5
    hardener = sk.Hardener(Net(), total=20, start="plateau", better="lower", patience=1)
    hardener.step(1, metric=1.0)
    hardener.step(1, metric=1.0)  # the same step again is not another metric
    assert not hardener.begun


def test_it_begins_at_the_latest():
    hardener = sk.Hardener(Net(), total=10, start="plateau", better="lower", latest=0.3)
    for e in range(1, 6):
        hardener.step(e, metric=1 / e)
    assert (hardener.begun, hardener.last_free) == (True, 3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "better='lower'"),
        ({"better": "smaller"}, "better='lower'"),
        ({"better": "lower", "patience": 0}, "patience"),
        ({"better": "lower", "min_delta": -1}, "min_delta"),
        ({"better": "lower", "latest": 1.5}, "latest"),
    ],
)
def test_plateaus_that_are_refused(settings, words):
    with pytest.raises(ParameterError, match=words):
        sk.Hardener(Net(), total=8, start="plateau", **settings)


# -- bad input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"total": 0}, "total"),
        ({"total": 2.5}, "total"),
        ({"total": True}, "total"),
        ({"start": -0.1}, "start"),
        ({"start": 1.0}, "start"),
        ({"start": 8}, "start"),
        ({"start": True}, "start"),
        ({"start": "soon"}, "'plateau'"),
        ({"tolerance": 0}, "tolerance"),
        ({"tolerance": math.inf}, "tolerance"),
        ({"tolerance": "small"}, "tolerance"),
        ({"where": "encoder.*"}, "matches none of the 2 softknee activations"),
        ({"where": 3}, "where takes a pattern.*and int was given"),
        ({"data": 3}, "data must be batches.*and int was given"),
        ({"data": torch.zeros(4, 6)}, "and one Tensor was given; put a single batch in a list"),
    ],
)
def test_settings_that_are_refused(settings, words):
    with pytest.raises(ParameterError, match=words):
        sk.Hardener(Net(), **{"total": 8, **settings})


def test_models_that_are_refused():
    with pytest.raises(InputError, match="no softknee activation"):
        sk.Hardener(nn.Sequential(nn.Linear(2, 2), nn.GELU()), total=8)
    mixed = nn.Sequential(sk.nn.LambdaGELU(learn=True), sk.nn.Tanh())
    with pytest.raises(ParameterError, match=r"'1'.*tanh cannot be hardened.*where="):
        sk.Hardener(mixed, total=8)
    assert mixed[0].raw_lam.requires_grad
    assert len(sk.Hardener(mixed, total=8, where="0").sites) == 1
    assert len(sk.Hardener(mixed, total=8, where=lambda path, module: isinstance(module, sk.nn.LambdaGELU)).sites) == 1
    with pytest.raises(ParameterError, match="infinitely far"):
        sk.Hardener(nn.Sequential(sk.nn.SmoothReLU()), total=8)
    with pytest.raises(ParameterError, match="staircase"):
        sk.Hardener(nn.Sequential(sk.nn.Squaf()), total=8)
    with pytest.raises(ParameterError, match=r"hard already \(relu, prelu\)"):
        sk.Hardener(nn.Sequential(sk.nn.ReLU(), sk.nn.PReLU()), total=8)
    assert len(sk.Hardener(nn.Sequential(sk.nn.ReLU(), sk.nn.SReLU(delta=1.0)), total=8).sites) == 1


def test_time_does_not_go_back():
    net = Net()
    hardener = sk.Hardener(net, total=8)
    for e in range(1, 6):
        hardener.step(e)
    before = net.acts[0].lam.item()
    with pytest.raises(ParameterError, match="step 3 comes after step 5"):
        hardener.step(3)
    assert net.acts[0].lam.item() == before
    for nonsense in (math.nan, -1, "5", True, math.inf):
        with pytest.raises(ParameterError, match="number of an epoch"):
            hardener.step(nonsense)
    with pytest.raises(ParameterError, match="metric must be a number"):
        sk.Hardener(Net(), total=8, start="plateau", better="lower").step(1, metric="good")


def test_a_model_changed_by_surgery_is_refused():
    net = Net()
    hardener = sk.Hardener(net, total=8)
    net.acts[1] = sk.nn.LambdaGELU(learn=True)
    with pytest.raises(ParameterError, match=r"'acts.1' is not the one"):
        hardener.step(1)


def test_repr():
    hardener = sk.Hardener(Net(), total=8)
    assert repr(hardener) == "Hardener(2 sites: lambda_gelu; at 0 of 8, free until 2)"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hardener.step(1), hardener.step(5)
    assert repr(hardener) == "Hardener(2 sites: lambda_gelu; at 5 of 8, progress 50%)"
