"""The targets of hardening that a tolerance, data or a number give."""

import math

import pytest
import torch
from torch import nn

import softknee as sk
from hardening_models import HARDENED
from helpers import ordinary_values
from softknee.errors import InputError, ParameterError
from softknee.spec import Activation
from softknee.surgery.hardening import distance_bound
from softknee.surgery.hardening.sites import SIZE, HardeningSite, samples
from softknee.surgery.hardening.targets import by_data, by_tolerance, largest_within

TOLERANCE = 5e-3


def site(module: nn.Module) -> HardeningSite:
    return HardeningSite("act", module)


# -- targets by tolerance ---------------------------------------------------------------------------------


def test_lambda_gelu_has_the_number_of_the_paper():
    result = by_tolerance(site(sk.nn.LambdaGELU(learn=True)), TOLERANCE)["lam"].item()
    assert result == pytest.approx(159.576912161, abs=5e-10)


def test_targets_in_closed_form():
    wanted = {
        "srelu": ("delta", 16 * TOLERANCE / 3),
        "smelu": ("beta", 4 * TOLERANCE),
        "softplus": ("beta", math.log(2) / TOLERANCE),
        "gelu": ("beta", 0.16997120747990366 / TOLERANCE),
        "celu": ("beta", TOLERANCE),
        "crrelu": ("eps", TOLERANCE * math.exp(0.5)),
        "sigmoid_rescu": ("beta", TOLERANCE * (1 + math.exp(2)) / 2),
    }
    for name, (knob, target) in wanted.items():
        soft = 0.7 if name not in ("softplus", "gelu") else 1.3
        actual = by_tolerance(site(sk.nn.make(name, **{knob: soft}, dtype=torch.float64)), TOLERANCE)
        assert actual[knob].item() == pytest.approx(target, rel=1e-12), name


@pytest.mark.parametrize("act", [a for a in HARDENED.values() if a.name != "lambda_gelu"], ids=lambda a: a.name)
def test_at_the_target_the_tolerance_is_kept_and_used(act: Activation):
    module = sk.nn.make(act, **ordinary_values(act), dtype=torch.float64)
    target = by_tolerance(site(module), TOLERANCE)
    module.set_(**{name: value.item() for name, value in target.items()})
    assert distance_bound(module) == pytest.approx(TOLERANCE, rel=1e-12)


def test_several_knobs_keep_their_ratio():
    module = sk.nn.GeneralizedSmeLU(alpha=0.5, beta=2.0, dtype=torch.float64)
    target = by_tolerance(site(module), TOLERANCE)
    assert target["beta"].item() / target["alpha"].item() == pytest.approx(4.0, rel=1e-12)


def test_channels_are_solved_one_by_one_and_hard_ones_stay():
    widths = torch.tensor([0.001, 0.5, 0.02])
    module = sk.nn.SmeLU(beta=widths, per="channel", size=3, learn=True)
    target = by_tolerance(site(module), TOLERANCE)["beta"]
    assert target[1].item() == pytest.approx(4 * TOLERANCE, rel=1e-6)
    assert torch.equal(target[[0, 2]], module.beta.detach()[[0, 2]].double())
    # The width is fixed, one for all channels, and the leak of one channel asks for more than the others.
    mixed = sk.nn.make("leaky_smelu", beta=0.5, g_minus=torch.tensor([0.0, 0.8]), per="channel", size=2)
    result = by_tolerance(site(mixed), TOLERANCE)["beta"].item()
    assert result == pytest.approx(TOLERANCE / (3.4 / 4), rel=1e-6)


def test_a_negative_knob_keeps_its_sign():
    result = by_tolerance(site(sk.nn.CRReLU(eps=-0.3)), TOLERANCE)["eps"].item()
    assert result == pytest.approx(-TOLERANCE * math.exp(0.5), rel=1e-6)


def test_designed_functions_are_solved_by_certificates():
    # As wide as this, the two knees overlap, and the distance is not proportional to the width.
    module = sk.nn.make(sk.design.mollify("hardtanh", "box"), delta=3.0, dtype=torch.float64)
    result = by_tolerance(site(module), 0.01)["delta"].item()
    module.set_(delta=result)
    assert distance_bound(module) == pytest.approx(0.01, rel=1e-11)


def test_the_bisection_finds_the_largest_share():
    assert largest_within(lambda s: s**3, 0.001, "f") == pytest.approx(0.1, rel=1e-12)
    assert largest_within(lambda s: 0.0, 1e-9, "f") == 1
    with pytest.raises(ParameterError, match="however hard"):
        largest_within(lambda s: 1.0, 0.5, "f")


@pytest.mark.slow
def test_a_distance_that_is_open_is_not_guessed():
    bump = sk.nn.make(sk.design.mollify("relu", "bump"), delta=0.5)
    with pytest.raises(ParameterError, match=r"not settled .*target="):
        distance_bound(bump)


# -- targets from data ------------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self, *acts: nn.Module, width: int = 6):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in acts)
        self.acts = nn.ModuleList(acts)
        self.drop = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, act in zip(self.layers, self.acts, strict=True):
            x = self.drop(self.norm(act(layer(x))))
        return x


def batches(count: int = 6, width: int = 6) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(50, width, generator=generator) for _ in range(count)]


def pre_activations(net: Net, data: list[torch.Tensor]) -> list[torch.Tensor]:
    """What reaches each activation, collected by hand."""
    seen = [[] for _ in net.acts]
    handles = [
        act.register_forward_pre_hook(lambda _, x, keep=keep: keep.append(x[0]))
        for act, keep in zip(net.acts, seen, strict=True)
    ]
    with torch.no_grad():
        net.eval()
        for item in data:
            net(item)
        net.train()
    for handle in handles:
        handle.remove()
    return [torch.cat(keep).double() for keep in seen]


def test_a_layer_gets_the_softest_knob_that_its_own_inputs_allow():
    torch.manual_seed(0)
    net = Net(sk.nn.LambdaGELU(learn=True), sk.nn.SReLU(delta=2.0), sk.nn.Softplus(beta=1.5, learn=True))
    hardener = sk.Hardener(net, total=10, tolerance=TOLERANCE, data=batches())
    before = net.state_dict()
    rng = torch.get_rng_state()
    targets = hardener.targets_from(batches())
    assert torch.equal(torch.get_rng_state(), rng)
    assert net.training
    assert all(torch.equal(before[name], now) for name, now in net.state_dict().items())
    assert not any(act._forward_pre_hooks for act in net.acts)

    errors = (
        ("lam", lambda x, lam: (x * torch.special.ndtr(lam * x) - x.relu()).abs().mean()),
        ("delta", lambda x, d: (d / 16 * (1 - x.abs() / d).clamp(min=0) ** 3 * (3 + x.abs() / d)).mean()),
        ("beta", lambda x, b: (torch.log1p((-b * x.abs()).exp()) / b).mean()),
    )
    for i, (x, (knob, error)) in enumerate(zip(pre_activations(net, batches()), errors, strict=True)):
        result = targets[f"acts.{i}"][knob].item()
        # All inputs fit into the sample, so that the sample is the data.
        assert x.numel() < SIZE
        softer = result * (1.001 if knob == "delta" else 1 / 1.001)
        assert error(x, result).item() == pytest.approx(TOLERANCE, rel=1e-6)
        assert error(x, softer) > TOLERANCE
    # Softer than the number that holds for every distribution.
    assert targets["acts.0"]["lam"].item() < 159


def test_targets_differ_where_the_inputs_do():
    """A layer whose inputs lie far from 0 may stay softer."""
    torch.manual_seed(0)
    net = Net(sk.nn.LambdaGELU(lam=1.5), sk.nn.LambdaGELU(lam=1.5))
    with torch.no_grad():
        net.layers[0].weight.mul_(10)
    targets = sk.Hardener(net, total=4, data=batches()).targets_from(batches())
    assert targets["acts.0"]["lam"] < 0.6 * targets["acts.1"]["lam"]


def test_data_is_looked_at_when_the_knobs_are_frozen():
    net = Net(sk.nn.LambdaGELU(learn=True))
    calls = []
    hardener = sk.Hardener(
        net, total=4, start=2, data=lambda: calls.append(1) or [(batch, "label") for batch in batches()]
    )
    hardener.step(1)
    hardener.step(2)
    assert not calls
    for epoch in (3, 4):
        hardener.step(epoch)
    assert calls == [1]
    assert net.acts[0].lam.item() == pytest.approx(hardener.targets["acts.0"]["lam"].item(), rel=1e-6)
    assert 1.01 < net.acts[0].lam.item() < 159


def test_channels_share_a_target_and_harder_ones_stay():
    widths = torch.tensor([1.0, 1e-4, 0.5, 2.0, 1e-5, 0.7])
    net = Net(sk.nn.SmeLU(beta=widths, per="channel", size=6, dim=-1, learn=True, dtype=torch.float64).float())
    x = pre_activations(net, batches())[0]
    target = sk.Hardener(net, total=4, data=batches()).targets_from(batches())["acts.0"]["beta"]
    assert torch.equal(target[[1, 4]], net.acts[0].beta.detach()[[1, 4]].double())
    assert len(set(target[[0, 2, 3, 5]].tolist())) == 1
    error = (target / 4 * (1 - x.abs() / target).clamp(min=0) ** 2).mean().item()
    assert error == pytest.approx(TOLERANCE, rel=1e-6)


@pytest.mark.parametrize(("per", "size", "dim"), [("channel", 3, 1), ("neuron", (3, 4), 1), ("channel", 4, -1)])
def test_a_sample_knows_which_parameters_it_meets(per, size, dim):
    """Inputs that say where they stand."""
    module = sk.nn.SmeLU(beta=1.0, learn=True, per=per, size=size, dim=dim)
    x = torch.arange(12.0).reshape(3, 4).expand(7, 3, 4)
    (sample,) = samples(nn.Sequential(module), [HardeningSite("0", module)], [x]).values()
    assert len(sample.x) == x.numel()
    place = {1: sample.x // 4, -1: sample.x % 4}[dim] if per == "channel" else sample.x
    assert torch.equal(sample.row, place.long())


def test_a_sample_is_bounded_and_uniform():
    module = sk.nn.SReLU()
    parts = [torch.full((40000,), float(i)) for i in range(5)] + [torch.full((200000,), 5.0)]
    (sample,) = samples(nn.Sequential(module), [HardeningSite("0", module)], iter(parts), size=10000).values()
    counts = torch.bincount(sample.x.long(), minlength=6)
    assert counts.sum() == 10000
    # Binomial with a standard deviation of 30 and 50; the seed is fixed.
    assert (counts[:5] - 1000).abs().max() < 150
    assert abs(counts[5] - 5000) < 250


def test_a_compiled_model_is_looked_into():
    net = Net(sk.nn.LambdaGELU(lam=1.5))
    fast = torch.compile(net, backend="eager")
    fast(batches()[0])
    plain = sk.Hardener(net, total=4, data=batches()).targets_from(batches())
    seen = sk.Hardener(fast, total=4, data=batches()).targets_from(batches())
    assert seen["acts.0"]["lam"] == plain["acts.0"]["lam"]


class ByName(nn.Module):
    """Calls its activation by keyword, and is called so itself."""

    def __init__(self) -> None:
        super().__init__()
        self.act = sk.nn.SReLU(delta=1.0)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.act(input=pixels)


def test_inputs_by_name_with_labels_beside_them():
    x = torch.linspace(-2, 2, 999)
    wanted = sk.Hardener(nn.Sequential(sk.nn.SReLU(delta=1.0)), total=4).targets_from([x])["0"]["delta"]
    for batch in ({"pixels": x}, ({"pixels": x}, torch.zeros(1))):
        assert sk.Hardener(ByName(), total=4).targets_from([batch])["act"]["delta"] == wanted


def test_refusals_of_data():
    net = Net(sk.nn.SReLU(delta=1.0))
    with pytest.raises(ParameterError, match="no batch"):
        sk.Hardener(net, total=4, data=[]).targets_from([])
    with pytest.raises(InputError, match="tuple whose first entry"):
        sk.Hardener(net, total=4, data=["text"]).targets_from(["text"])
    nan = [torch.full((4, 6), math.nan)]
    with pytest.raises(ParameterError, match="no finite number"):
        sk.Hardener(net, total=4, data=nan).targets_from(nan)
    with pytest.raises(ParameterError, match="give one of them"):
        sk.Hardener(net, total=4, data=batches(), target=0.1)
    narrow = sk.Hardener(net, total=4, start=0, data=[torch.zeros(4, 5)])
    with pytest.raises(InputError, match=r"Batch 0 does not fit Net: .*The knobs are as they were\.$"):
        narrow.step(1)
    assert (narrow.position, narrow.begun) == (0, False)
    assert not net.acts[0]._forward_pre_hooks
    assert net.training


def test_expected_error_of_an_unnamed_limit():
    """Shifted SmeLU hardens into relu(x - shift), which has no name."""
    module = sk.nn.ShiftedSmeLU(beta=1.0, shift=0.5, dtype=torch.float64)
    x = torch.linspace(-2, 3, 5001, dtype=torch.float64)
    (sample,) = samples(nn.Sequential(module), [HardeningSite("0", module)], [x]).values()
    result = by_data(site(module), sample, TOLERANCE)["beta"].item()
    # Uniform on an interval of length 5, the mean of (beta/4)(1 - |y|/beta)^2 is beta^2/6 over 5.
    assert result == pytest.approx(math.sqrt(30 * TOLERANCE), rel=1e-3)


# -- targets as given -------------------------------------------------------------------------------------


def ends(net: nn.Module, **settings) -> list[float]:
    hardener = sk.Hardener(net, total=2, start=0.0, **settings)
    hardener.step(1), hardener.step(2)
    return [round(getattr(act, act.definition.knobs[0]).item(), 6) for act in net.acts]


def test_a_target_for_all_by_knob_or_by_path():
    def mixed() -> Net:
        return Net(sk.nn.LambdaGELU(), sk.nn.SReLU(delta=1.0), sk.nn.SReLU(delta=1.0))

    assert ends(Net(sk.nn.SReLU(delta=1.0), sk.nn.SReLU(delta=1.0)), target=0.25) == [0.25, 0.25]
    assert ends(mixed(), target={"lam": 20.0, "delta": 0.5}) == [20.0, 0.5, 0.5]
    # A path says more than a knob, and what is not named goes by the tolerance.
    assert ends(mixed(), target={"acts.2": 0.125, "delta": 0.5}) == [159.57692, 0.5, 0.125]
    assert ends(mixed(), target={"acts.[12]": {"delta": 0.125}}) == [159.57692, 0.125, 0.125]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (0.5, "several kinds"),
        ({"width": 0.5}, "neither a knob"),
        ({"acts.1": {"beta": 0.5}}, "no knob 'beta'"),
        ({"delta": 0.0}, "above 0"),
        ({"delta": "thin"}, "must be a number"),
        ({"lam": 0.5}, "at least 1"),
        ({"lam": math.inf}, "at least 1"),
    ],
)
def test_targets_that_are_refused(target, words):
    with pytest.raises(ParameterError, match=words):
        sk.Hardener(Net(sk.nn.LambdaGELU(), sk.nn.SReLU(delta=1.0)), total=4, target=target)


def test_all_knobs_of_a_function_want_a_target():
    net = Net(sk.nn.GeneralizedSmeLU(alpha=1.0, beta=1.0))
    with pytest.raises(ParameterError, match="leaves out beta"):
        sk.Hardener(net, total=4, target={"acts.0": {"alpha": 0.5}})
    assert ends(net, target=0.25) == [0.25]
    assert net.acts[0].beta.item() == 0.25


def test_a_learned_target_stays_within_what_can_be_learned():
    with pytest.raises(ParameterError, match=r"2\^40"):
        sk.Hardener(Net(sk.nn.Softplus(learn=True)), total=4, tolerance=1e-14)
