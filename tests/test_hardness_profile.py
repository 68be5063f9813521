"""Hardness profiles, their drift and rank correlation, traces during training, and the figure of them."""

import copy
import math
import random
import statistics

import pytest
import torch
from torch import nn

import softknee as sk
from softknee.errors import InputError, ParameterError
from softknee.lab.hardening import draw_hardness, hardness_figure
from softknee.measure import HardnessTrace, Record, drift, hardness_profile, spearman


class Block(nn.Module):
    def __init__(self, act: nn.Module) -> None:
        super().__init__()
        self.fc, self.act = nn.Linear(4, 4), act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.fc(x))


def net(*acts: nn.Module) -> nn.Sequential:
    return nn.Sequential(*(Block(act) for act in acts))


# -- profiles ---------------------------------------------------------------------------------------------


def test_a_profile_has_every_knob_in_order_of_depth():
    widths = torch.tensor([0.1, 0.2, 0.4, 0.5])
    model = net(
        sk.nn.LambdaGELU(lam=1.5, learn=True),
        sk.nn.ReLU(),  # hard, and without a knob
        sk.nn.SReLU(delta=0.25),
        sk.nn.Tanh(),
        sk.nn.SmeLU(beta=widths, per="channel", size=4, learn=True),
        sk.nn.GeneralizedSmeLU(alpha=0.5, beta=1.5),
        sk.nn.CRReLU(eps=-0.1),
        sk.nn.CRReLU(eps=0.0),
        sk.nn.Squaf(k=2, alpha=5.0),
    )
    profile = hardness_profile(model)
    assert profile.paths == ("0.act", "2.act", "4.act", "5.act", "6.act", "7.act", "8.act")
    assert profile.values == pytest.approx((1.5, 0.25, 0.3, 1.0, -0.1, 0.0, 5.0))
    assert profile.hardness == pytest.approx((1.5, 4.0, 1 / 0.3, 1.0, 10.0, math.inf, 5.0))
    distances = [site.distance for site in profile.sites]
    assert distances[:4] == pytest.approx([0.16997120747990366 / 1.5, 3 * 0.25 / 16, 0.125, 0.5], rel=1e-6)
    assert distances[4:6] == pytest.approx([0.1 * math.exp(-0.5), 0.0], rel=1e-6)
    assert distances[6] is None  # nothing is proved of a staircase
    smelu = profile.sites[2]
    assert (smelu.low, smelu.high, smelu.knob) == pytest.approx((0.1, 0.5, "beta"))
    assert profile.sites[3].knob == "alpha, beta"
    assert "2.act  srelu, delta=0.25, at most 0.0469 from its limit" in str(profile)
    assert all(site.distance is None for site in hardness_profile(model, distances=False).sites)


def test_names_do_not_depend_on_the_wrapper():
    model = net(sk.nn.LambdaGELU(learn=True))
    assert hardness_profile(torch.compile(model, backend="eager")) == hardness_profile(model)


def test_a_model_without_a_knob_is_refused():
    for model in (net(nn.GELU()), net(sk.nn.ReLU(), sk.nn.Tanh())):
        with pytest.raises(InputError, match="no softknee activation with a knob"):
            hardness_profile(model)


# -- drift and rank correlation ---------------------------------------------------------------------------


def test_drift_is_the_mean_over_layers_of_the_way_gone():
    rng = random.Random(3)
    steps = [[rng.uniform(1, 2) for _ in range(5)] for _ in range(7)]
    wanted = statistics.fmean(sum(abs(steps[e + 1][layer] - steps[e][layer]) for e in range(6)) for layer in range(5))
    assert drift(steps) == pytest.approx(wanted, rel=1e-14)
    assert drift(steps[:1]) == 0
    assert drift([[1.0], [2.0], [1.0]]) == 2  # there and back


def test_spearman_against_scipy():
    scipy = pytest.importorskip("scipy.stats", reason="scipy comes with scikit-learn, in the lab's extra")
    rng = random.Random(5)
    for count in (2, 3, 8, 24):
        for ties in (False, True):
            for _ in range(5):
                a = [rng.randint(0, 4) if ties else rng.random() for _ in range(count)]
                b = [rng.randint(0, 4) if ties else rng.random() for _ in range(count)]
                if len(set(a)) > 1 and len(set(b)) > 1:
                    assert spearman(a, b) == pytest.approx(scipy.spearmanr(a, b).statistic, abs=1e-12)


def test_spearman_by_hand():
    assert spearman([1.0, 1.5, 1.2], [10.0, 30.0, 20.0]) == 1
    # Ranks 1.5, 1.5, 3 and 1, 2, 3: covariance 1.5, variances 1.5 and 2.
    assert spearman([1, 1, 2], [1, 2, 3]) == pytest.approx(1.5 / math.sqrt(3))
    assert math.isnan(spearman([1, 1, 1], [1, 2, 3]))
    hard, soft = net(sk.nn.SReLU(delta=0.1), sk.nn.SReLU(delta=0.9)), net(sk.nn.LambdaGELU(lam=3.0), sk.nn.LambdaGELU())
    # The smaller width is the harder.
    assert spearman(hardness_profile(hard), hardness_profile(soft)) == 1


def test_profiles_that_do_not_fit_are_refused():
    with pytest.raises(ParameterError, match="have 2, 3 layers"):
        drift([[1.0, 2.0], [1.0, 2.0, 3.0]])
    with pytest.raises(ParameterError, match="none layers"):
        drift([])
    with pytest.raises(ParameterError, match="have 2 and 3"):
        spearman([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(ParameterError, match="have 1 and 1"):
        spearman([1.0], [1.0])
    with pytest.raises(ParameterError, match="diverged"):
        spearman([1.0, math.nan], [1.0, 2.0])
    item, other = net(sk.nn.LambdaGELU()), nn.Sequential(sk.nn.LambdaGELU())
    with pytest.raises(ParameterError, match=r"0.act where the next has 0"):
        drift([hardness_profile(item), hardness_profile(other)])


# -- traces -----------------------------------------------------------------------------------------------


def hardened(total: int = 8) -> tuple[nn.Module, HardnessTrace]:
    model = net(*(sk.nn.LambdaGELU(lam=1.2 + 0.2 * i) for i in range(3)))
    hardener, trace = sk.Hardener(model, total=total), HardnessTrace(model)
    trace.record(0)
    for e in range(1, total + 1):
        hardener.step(e)
        trace.record(e)
    return model, trace


def test_a_trace_follows_a_hardening():
    _, trace = hardened()
    target = 2 / (5e-3 * math.sqrt(2 * math.pi))
    assert trace.epochs == list(range(9))
    # The knobs go one way, so that the drift is the way from start to target.
    assert trace.drift == pytest.approx(statistics.fmean(target - start for start in (1.2, 1.4, 1.6)), rel=1e-6)
    assert trace.profiles[2].values == pytest.approx((1.2, 1.4, 1.6))
    assert spearman(trace.profiles[0], trace.profiles[5]) == 1


def test_a_trace_goes_into_a_record(tmp_path):
    _, trace = hardened()
    rows = trace.rows()
    assert len(rows) == 27
    assert rows[4] == {
        "epoch": 1,
        "path": "1.act",
        "activation": "lambda_gelu",
        "knob": "lam",
        "value": rows[4]["value"],
    }
    assert rows[4]["value"] == pytest.approx(1.4)
    record = Record.now("hardness", command="test", rows=rows)
    assert Record.read(record.write(tmp_path / "trace.json")) == record


def test_a_trace_that_does_not_go_on_is_refused():
    model, trace = hardened()
    with pytest.raises(ParameterError, match="8 does not come after 8"):
        trace.record(8)
    model[0].act = nn.ReLU()
    with pytest.raises(ParameterError, match="where the next has"):
        trace.record(9)
    assert len(trace.profiles) == len(trace.epochs) == 9
    with pytest.raises(InputError, match="no softknee activation with a knob"):
        HardnessTrace(net(nn.ReLU()))


# -- the figure -------------------------------------------------------------------------------------------


def shade(colour: str) -> int:
    return sum(int(colour[place : place + 2], 16) for place in (1, 3, 5))


def test_the_figure_shows_the_numbers_of_the_trace():
    _, trace = hardened()
    left, right = hardness_figure(trace)["concat"]
    cells = left["data"]["values"]
    for epoch, profile in zip(trace.epochs, trace.profiles, strict=True):
        column = [cell for cell in cells if cell["epoch"] < epoch < cell["to"]]
        assert [cell["value"] for cell in column] == list(profile.values)
        assert [cell["row"] for cell in column] == [0.5, 1.5, 2.5]
    scale = left["encoding"]["color"]["scale"]
    every = [value for profile in trace.profiles for value in profile.values]
    assert scale["domain"] == [min(every), max(every)]
    assert scale["type"] == right["encoding"]["y"]["scale"]["type"] == "log"
    assert right["encoding"]["color"]["scale"]["domain"] == ["epoch 0", "epoch 2", "epoch 4", "epoch 6", "epoch 8"]
    rows = [row["value"] for row in right["data"]["values"] if row["name"] == "epoch 6"]
    assert rows == list(trace.profiles[6].values)
    assert left["encoding"]["y"]["axis"]["labelExpr"].startswith('["0.act", "1.act", "2.act"]')
    assert left["encoding"]["x"]["title"] == "epoch"
    assert shade(scale["range"][-1]) < shade(scale["range"][0])  # darker is harder


def test_widths_are_darker_where_they_are_smaller():
    model = net(sk.nn.SReLU(delta=1.0), sk.nn.SReLU(delta=0.5))
    trace = HardnessTrace(model)
    trace.record(0)
    model[0].act.set_(delta=0.25)
    trace.record(1)
    left, right = hardness_figure(trace)["concat"]
    scale = left["encoding"]["color"]["scale"]
    assert scale["domain"] == [0.25, 1.0]
    assert shade(scale["range"][0]) < shade(scale["range"][-1])
    assert "type" not in right["encoding"]["y"]["scale"]
    assert left["title"] == "δ over depth and time"


def test_files_are_written_and_the_same_each_time(tmp_path):
    _, trace = hardened()
    for name in ("a.png", "a.svg"):
        first = draw_hardness(trace, tmp_path / name).read_bytes()
        assert draw_hardness(trace, tmp_path / f"again-{name}").read_bytes() == first
        assert first.startswith(b"\x89PNG" if name.endswith("png") else b"<svg")


def test_figures_that_are_refused(tmp_path):
    _, trace = hardened()
    with pytest.raises(ParameterError, match=r"\.png or \.svg"):
        draw_hardness(trace, tmp_path / "a.pdf")
    with pytest.raises(sk.measure.WriteError, match="could not be written"):
        draw_hardness(trace, tmp_path / "nowhere" / "a.png")
    short = HardnessTrace(net(sk.nn.LambdaGELU()))
    short.record(0)
    with pytest.raises(ParameterError, match="two epochs or more"):
        draw_hardness(short, tmp_path / "a.png")


def test_the_profile_of_a_swapped_model_is_in_the_order_of_execution() -> None:
    class Called(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.act = nn.Linear(2, 3), nn.Linear(3, 3), nn.GELU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.act(self.second(torch.nn.functional.gelu(self.first(x))))

    model = Called()
    sk.swap_(model, "lambda_gelu", lam=[1.5, 3.0], learn=True, example=torch.zeros(1, 2))
    profile = sk.measure.hardness_profile(copy.deepcopy(model))
    assert [site.path for site in profile.sites] == ["gelu", "act"]
