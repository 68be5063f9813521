"""Hard limits, proved distances to them, and the targets that a tolerance, a number or data give."""

import math
from fractions import Fraction

import pytest
import torch
from torch import nn

import softknee as sk
from helpers import ZOO, ordinary_values
from softknee.errors import InputError, ParameterError
from softknee.spec import Activation, positive
from softknee.spec import x as X
from softknee.surgery.hardening import distance_bound, hard_module
from softknee.surgery.hardening.limits import distance_of
from softknee.surgery.hardening.samples import SIZE, samples
from softknee.surgery.hardening.sites import HardeningSite
from softknee.surgery.hardening.targets import by_data, by_tolerance, largest_within

HARDENED = {name: act for name, act in ZOO.items() if act.knobs and act.claims.distance.is_finite is not False}
HARDENED = {name: act for name, act in HARDENED.items() if name not in ("leaky_relu", "prelu")}
TOLERANCE = 5e-3


def site(module: nn.Module) -> HardeningSite:
    return HardeningSite("act", module)


def extreme_values(act: Activation) -> list[dict[str, float]]:
    """Ordinary ones, and some where another branch of a distance is the largest."""
    usual = ordinary_values(act)
    steep = {"alpha": 0.2, "beta": 3.0, "g_minus": -1.5, "g_plus": 0.4, "t": 2.0, "shift": 1.5, "eps": -0.9}
    return [usual, usual | {name: value for name, value in steep.items() if name in usual}]


# -- distances --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", [a for a in ZOO.values() if a.knobs], ids=lambda a: a.name)
def test_a_claimed_distance_is_the_proved_one(act: Activation):
    for values in extreme_values(act):
        proved = sk.design.certify(act, **values).distance
        claimed = distance_of(act)(values)
        if math.isinf(claimed):
            assert proved.lower == math.inf
        else:
            assert float(proved.lower) <= claimed <= float(proved.upper) * (1 + 1e-12), values


def test_what_has_no_knob_claims_no_distance():
    assert all((act.claims.distance is None) == (not act.knobs) for act in ZOO.values())


def test_the_distance_is_reached_and_not_passed_on_a_dense_grid():
    """An independent look: no certificate, only values."""
    x = torch.linspace(-30, 30, 60001, dtype=torch.float64)
    for act in HARDENED.values():
        for values in extreme_values(act):
            module = sk.nn.make(act, **values, dtype=torch.float64)
            hard = hard_values(act, values, x)
            seen = (module(x) - hard).abs().max().item()
            bound = distance_bound(module)
            assert seen <= bound * (1 + 1e-12), (act.name, values)
            assert seen >= bound * (1 - 3e-3), (act.name, values)  # a kink between two points of the grid


def hard_values(act: Activation, values: dict[str, float], x: torch.Tensor) -> torch.Tensor:
    """The hard limits, written down here."""
    if "g_minus" in values:
        rise = values.get("g_plus", 1.0)
        return torch.where(x < 0, values["g_minus"] * x, rise * x) + values.get("t", 0.0)
    return (x - values.get("shift", 0.0)).clamp(min=0)


def test_bounds_of_modules():
    assert distance_bound(sk.nn.SReLU(delta=0.5)) == pytest.approx(3 * 0.5 / 16, rel=1e-14)
    widths = torch.tensor([0.1, 0.4, 0.2])
    assert distance_bound(sk.nn.SmeLU(beta=widths, per="channel", size=3)) == pytest.approx(0.1, rel=1e-6)
    assert distance_bound(sk.nn.ReLU()) == distance_bound(sk.nn.PReLU(slope=0.3)) == 0
    assert distance_bound(sk.nn.SmoothReLU()) == math.inf
    # A bound is never below the truth, not even by rounding.
    for delta in torch.rand(50, generator=torch.Generator().manual_seed(0)).tolist():
        assert Fraction(distance_bound(sk.nn.SReLU(delta=delta, dtype=torch.float64))) >= Fraction(delta) * 3 / 16


def test_a_designed_function_is_certified():
    module = sk.nn.make(sk.design.mollify("leaky_relu", "triangle"), delta=0.5, dtype=torch.float64)
    # The triangle kernel has E|u| = 1/3, half of it on either side of the knee, whose slopes differ by 0.99.
    assert distance_bound(module) == pytest.approx(0.99 * 0.5 / 6, rel=1e-12)
    assert isinstance(hard_module(module), nn.LeakyReLU)


# -- plain modules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", HARDENED.values(), ids=HARDENED)
def test_the_hard_module_is_the_limit(act: Activation):
    given = {"g_plus": 1.0, "t": 0.0, "shift": 0.0}
    values = ordinary_values(act) | {p.name: given[p.name] for p in act.params if p.name in given}
    # As hard as the limit, to the eye of float64.
    values |= dict.fromkeys(act.knobs, 1e-9 if act.toward == 0 else 1e9)
    module = sk.nn.make(act, **values, dtype=torch.float64)
    plain = hard_module(module)
    assert type(plain).__module__.startswith("torch.nn")
    x = torch.linspace(-3, 3, 1001, dtype=torch.float64)
    assert (plain(x) - module(x)).abs().max() < 1e-7  # a leak goes through float32


def test_which_torch_module_it_is():
    nn_ = sk.nn
    assert isinstance(hard_module(nn_.LambdaGELU(learn=True)), nn.ReLU)
    assert isinstance(hard_module(nn_.GeneralizedSmeLU()), nn.ReLU)
    assert isinstance(hard_module(nn_.OriginSmeLU()), nn.ReLU)
    leaky = hard_module(nn_.OriginSmeLU(g_minus=0.25))
    assert isinstance(leaky, nn.LeakyReLU)
    assert leaky.negative_slope == 0.25
    for ours, theirs in ((nn_.ReLU6, nn.ReLU6), (nn_.Hardtanh, nn.Hardtanh), (nn_.Hardswish, nn.Hardswish)):
        assert isinstance(hard_module(ours()), theirs)
        x = torch.linspace(-8, 8, 101)
        assert torch.allclose(hard_module(ours())(x), ours()(x))
    assert isinstance(hard_module(sk.nn.make(sk.design.mollify("relu6", "box"))), nn.ReLU6)


def test_a_prelu_keeps_a_slope_for_each_channel_even_while_they_are_equal() -> None:
    made = hard_module(sk.nn.PReLU(learn=True, slope=0.25, per="channel", size=4))
    assert isinstance(made, nn.PReLU)
    assert made.weight.tolist() == [0.25] * 4


def test_leaks_for_each_channel_become_a_prelu():
    slopes = torch.tensor([0.1, 0.2, 0.3])
    module = sk.nn.make("leaky_smelu", beta=1e-6, g_minus=slopes, per="channel", size=3)
    plain = hard_module(module)
    assert isinstance(plain, nn.PReLU)
    x = torch.randn(5, 3, 4)
    assert torch.allclose(plain(x), module(x), atol=1e-5)
    trained = hard_module(sk.nn.PReLU(learn=True, slope=0.4))
    assert isinstance(trained, nn.PReLU)
    assert trained.weight.requires_grad
    with pytest.raises(ParameterError, match="dimension 1 alone"):
        hard_module(sk.nn.make("leaky_smelu", g_minus=slopes, per="channel", size=3, dim=-1))


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (lambda: sk.nn.Tanh(), "no knob"),
        (lambda: sk.nn.Sigmoid(), "no knob"),
        (lambda: sk.nn.Softsign(), "no knob"),
        (lambda: sk.nn.SELU(), "no knob"),
        (lambda: sk.nn.SmoothReLU(), "infinitely far"),
        (lambda: sk.nn.Squaf(), "staircase"),
        (lambda: sk.nn.GeneralizedSmeLU(g_plus=1.5), "g_plus=1.5"),
        (lambda: sk.nn.GeneralizedSmeLU(t=0.5), "t=0.5"),
        (lambda: sk.nn.ShiftedSmeLU(shift=1.0), "bias"),
        (lambda: nn.GELU(), "is none"),
        (lambda: sk.nn.make(own_softplus()), "no name"),
    ],
)
def test_what_has_no_plain_module(module, words):
    with pytest.raises(ParameterError, match=words):
        hard_module(module())


def own_softplus() -> Activation:
    """A function of a user's: a knob, and no name for where it leads."""
    beta = positive("beta", 1.0)
    formula = sk.spec.Softplus(beta.symbol * X) / beta.symbol
    return sk.Activation("own_softplus", formula, params=(beta,), knob="beta", toward=math.inf)


# -- targets by tolerance ---------------------------------------------------------------------------------


def test_lambda_gelu_has_the_number_of_the_paper():
    found = by_tolerance(site(sk.nn.LambdaGELU(learn=True)), TOLERANCE)["lam"].item()
    assert found == pytest.approx(159.576912161, abs=5e-10)


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
        found = by_tolerance(site(sk.nn.make(name, **{knob: soft}, dtype=torch.float64)), TOLERANCE)
        assert found[knob].item() == pytest.approx(target, rel=1e-12), name


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
    found = by_tolerance(site(mixed), TOLERANCE)["beta"].item()
    assert found == pytest.approx(TOLERANCE / (3.4 / 4), rel=1e-6)


def test_a_negative_knob_keeps_its_sign():
    found = by_tolerance(site(sk.nn.CRReLU(eps=-0.3)), TOLERANCE)["eps"].item()
    assert found == pytest.approx(-TOLERANCE * math.exp(0.5), rel=1e-6)


def test_designed_functions_are_solved_by_certificates():
    # As wide as this, the two knees overlap, and the distance is not proportional to the width.
    module = sk.nn.make(sk.design.mollify("hardtanh", "box"), delta=3.0, dtype=torch.float64)
    found = by_tolerance(site(module), 0.01)["delta"].item()
    module.set_(delta=found)
    assert distance_bound(module) == pytest.approx(0.01, rel=1e-11)


def test_the_bisection_finds_the_largest_share():
    assert largest_within(lambda s: s**3, 0.001, "f") == pytest.approx(0.1, rel=1e-12)
    assert largest_within(lambda s: 0.0, 1e-9, "f") == 1
    with pytest.raises(ParameterError, match="however hard"):
        largest_within(lambda s: 1.0, 0.5, "f")


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
        for one in data:
            net(one)
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
        found = targets[f"acts.{i}"][knob].item()
        # All inputs fit into the sample, so that the sample is the data.
        assert x.numel() < SIZE
        softer = found * (1.001 if knob == "delta" else 1 / 1.001)
        assert error(x, found).item() == pytest.approx(TOLERANCE, rel=1e-6)
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
    hardener = sk.Hardener(net, total=4, start=2, data=lambda: calls.append(1) or [(one, "label") for one in batches()])
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


def test_refusals_of_data():
    net = Net(sk.nn.SReLU(delta=1.0))
    with pytest.raises(ParameterError, match="no batch"):
        sk.Hardener(net, total=4, data=[]).targets_from([])
    with pytest.raises(InputError, match="pair whose first"):
        sk.Hardener(net, total=4, data=["text"]).targets_from(["text"])
    nan = [torch.full((4, 6), math.nan)]
    with pytest.raises(ParameterError, match="no finite number"):
        sk.Hardener(net, total=4, data=nan).targets_from(nan)
    with pytest.raises(ParameterError, match="give one of them"):
        sk.Hardener(net, total=4, data=batches(), target=0.1)
    assert not net.acts[0]._forward_pre_hooks
    assert net.training


def test_expected_error_of_an_unnamed_limit():
    """Shifted SmeLU hardens into relu(x - shift), which has no name."""
    module = sk.nn.ShiftedSmeLU(beta=1.0, shift=0.5, dtype=torch.float64)
    x = torch.linspace(-2, 3, 5001, dtype=torch.float64)
    (sample,) = samples(nn.Sequential(module), [HardeningSite("0", module)], [x]).values()
    found = by_data(site(module), sample, TOLERANCE)["beta"].item()
    # Uniform on an interval of length 5, the mean of (beta/4)(1 - |y|/beta)^2 is beta^2/6 over 5.
    assert found == pytest.approx(math.sqrt(30 * TOLERANCE), rel=1e-3)


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
