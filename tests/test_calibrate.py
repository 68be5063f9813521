"""Widths and grids from pre-activations: against quantiles of all values at once; where it fails nothing changes."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import softknee as sk
from softknee.errors import InputError, ParameterError
from softknee.surgery.calibration import Spread

MEDIAN = 0.6744897501960817  # of |x| for a standard normal x
NORMAL = torch.randn(20000, 1, generator=torch.Generator().manual_seed(0))


def spread(x: Tensor) -> float:
    return float(x.double().abs().reshape(-1).quantile(0.5)) / MEDIAN


def alone(name: str, **arguments) -> nn.Module:
    return nn.Sequential(sk.nn.make(name, **arguments))


# -- counting -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 300.0])
def test_quantiles_of_a_stream_are_those_of_all_values(kind: torch.dtype, scale: float):
    values = (NORMAL * scale).to(kind).reshape(4, -1)
    seen = Spread(4)
    for part in values.split([1, 7, 992, 4000], dim=1):
        seen.add(part)
    assert seen.count == values.numel()
    for level in (0.1, 0.5, 0.9, 0.999):
        truth = values.double().abs().quantile(level, dim=1)
        # The width of a bin bounds the error; only 5 of a group's 5000 numbers lie beyond the last level.
        torch.testing.assert_close(seen.quantile(level), truth, rtol=2 ** (1 / 16) - 1 if level > 0.9 else 0.01, atol=0)
    whole = Spread(4)
    whole.add(values.flip(1))
    # A number on the edge of two bins may be counted in either.
    assert (whole.counts.cumsum(1) - seen.counts.cumsum(1)).abs().max() <= 2
    assert whole.count == seen.count
    assert seen.pooled.share_below(0.5 * scale) == pytest.approx(math.erf(0.5 / math.sqrt(2)), abs=0.01)


def test_a_few_huge_values_do_not_move_the_spread():
    x = NORMAL.clone()
    x[::200] *= 1000.0
    seen = Spread(1)
    seen.add(x.reshape(1, -1))
    assert float(x.std()) > 30
    assert float(seen.scale) == pytest.approx(1.0, rel=0.03)


def test_zeros_and_extremes_have_a_place():
    seen = Spread(1)
    seen.add(torch.tensor([[0.0, 0.0, 0.0, 1e-30, 1e30]]))
    assert float(seen.quantile(0.5)) == 0.0
    assert seen.share_below(1.0) == pytest.approx(0.8)
    assert seen.share_below(1e38) == 1.0


# -- what is set --------------------------------------------------------------------------------------------------

WIDTHS = {"srelu", "smelu", "generalized_smelu", "asymmetric_smelu", "leaky_smelu", "origin_smelu", "shifted_smelu",
          "squareplus", "sparse_plus",
          "celu", "sigmoid_rescu"}  # fmt: skip
HARD = {"gelu", "gelu_tanh", "lambda_gelu", "swish", "silu", "mish", "tanhexp", "softplus", "smooth_relu", "quick_gelu",
        "gelu_python", "gelu_new", "gelu_fast", "gelu_accurate", "gelu_pytorch_tanh", "gelu_python_tanh"}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in sk.names() if name != "squaf"])
def test_every_function_gets_what_its_knob_is(name: str):
    model = alone(name)
    if name not in WIDTHS | HARD:
        with pytest.raises(InputError, match="nothing to calibrate"):
            sk.calibrate_(model, [NORMAL])
        return
    report = sk.calibrate_(model, [0.25 * NORMAL], fraction=0.8)
    width = 0.8 * spread(0.25 * NORMAL)
    (site,) = report.sites
    assert site.kind == ("width" if name in WIDTHS else "hardness")
    for knob in sk.get(name).knobs:
        expected = width if name in WIDTHS else 1 / width
        assert getattr(model[0], knob).item() == pytest.approx(expected, rel=0.02)
    assert site.inside == pytest.approx(math.erf(0.8 / math.sqrt(2)), abs=0.02)


def test_the_width_follows_the_scale_exactly():
    small, large = alone("srelu"), alone("srelu")
    sk.calibrate_(small, [NORMAL])
    sk.calibrate_(large, [64 * NORMAL])
    assert large[0].delta.item() == 64 * small[0].delta.item()
    torch.testing.assert_close(large(64 * NORMAL), 64 * small(NORMAL))
    assert 0.66 < sk.calibrate_(small, [NORMAL]).sites[0].inside < 0.70  # the share that the default promises


@pytest.mark.parametrize("name", sorted(WIDTHS | HARD))
def test_for_a_standard_normal_input_the_default_is_right(name: str):
    model, act = alone(name), sk.get(name)
    sk.calibrate_(model, [NORMAL])
    for knob in act.knobs:
        assert getattr(model[0], knob).item() == pytest.approx(act.param(knob).default, rel=0.02)


def test_two_widths_keep_their_ratio():
    model = alone("generalized_smelu", alpha=1.0, beta=3.0, t=0.5, g_minus=0.1)
    sk.calibrate_(model, [NORMAL], fraction=1.0)
    assert float(model[0].beta / model[0].alpha) == pytest.approx(3.0, rel=1e-6)
    assert float(model[0].beta + model[0].alpha) / 2 == pytest.approx(spread(NORMAL), rel=0.02)
    assert model[0].t.item() == 0.5


@pytest.mark.parametrize(("learn", "least"), [(False, 1.0), (True, 1.01)])
def test_lambda_stops_at_its_bound_and_says_so(learn: bool, least: float):
    model = alone("lambda_gelu", lam=1.5, learn=learn)
    report = sk.calibrate_(model, [50 * NORMAL])
    assert model[0].lam.item() == pytest.approx(least, rel=1e-6)
    assert "lam would be below" in report.sites[0].note
    assert "lam would be below" in str(report)


@pytest.mark.parametrize("per", ["channel", "last", "neuron"])
def test_parameters_of_channels_get_their_own(per: str):
    x = torch.randn(64, 3, 5, 4, generator=torch.Generator().manual_seed(1))
    x = x * torch.tensor([0.1, 1.0, 20.0])[:, None, None] * torch.tensor([1.0, 2.0, 3.0, 4.0])
    size, dim = {"channel": (3, 1), "last": (4, -1), "neuron": ((3, 5, 4), 1)}[per]
    model = alone("smelu", learn=True, per="neuron" if per == "neuron" else "channel", size=size, dim=dim)
    report = sk.calibrate_(model, x.split(16), fraction=1.0)
    if per == "channel":
        expected = [spread(x[:, i]) for i in range(3)]
    elif per == "last":
        expected = [spread(x[..., i]) for i in range(4)]
    else:
        expected = [spread(item) for item in x.reshape(64, -1).T]
    # Few numbers have no quantile finer than their gaps: 64 for each neuron.
    near = 0.15 if per == "neuron" else 0.05
    torch.testing.assert_close(model[0].beta.detach().reshape(-1), torch.tensor(expected), rtol=near, atol=0)
    assert report.sites[0].spread.numel() == len(expected)
    assert model[0].raw_beta.requires_grad


def test_a_channel_without_spread_keeps_its_value():
    x = NORMAL.repeat(1, 4) * torch.tensor([1.0, 0.0, 2.0, 3.0])
    model = alone("srelu", delta=0.125, learn=True, per="channel", size=4)
    report = sk.calibrate_(model, [x], fraction=1.0)
    assert model[0].delta[1].item() == pytest.approx(0.125)
    assert model[0].delta[2].item() == pytest.approx(2 * spread(NORMAL), rel=0.02)
    assert "1 of 4 saw nothing but 0" in report.sites[0].note


def test_a_shared_value_among_channels_comes_from_all_of_them():
    x = NORMAL.repeat(1, 2) * torch.tensor([1.0, 9.0])
    model = alone("generalized_smelu", alpha=2.0, beta=1.0, learn="alpha", per="channel", size=2)
    sk.calibrate_(model, [x], fraction=1.0)
    assert model[0].beta.shape == (1,)
    expected = torch.full((2,), 2 * spread(x))
    torch.testing.assert_close((model[0].alpha + model[0].beta).detach(), expected, rtol=0.02, atol=0)


# -- tables -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["gaussian", "laplacian"])
def test_a_grid_reaches_the_quantile_and_stands_for_the_same_function(weights: str):
    model = alone("squaf", k=16, q=0.25, z="gelu", learn=True, weights=weights)
    report = sk.calibrate_(model, [3 * NORMAL], cover=0.99)
    act = model[0]
    assert 16 * act.q.item() == pytest.approx(float((3 * NORMAL).abs().quantile(0.99)), rel=0.02)
    overlap = (act.alpha * act.q ** (1 if weights == "laplacian" else 2)).item()
    assert overlap == pytest.approx(1.5, rel=1e-5)  # alpha = 1.5/q^2 still
    assert report.sites[0].inside == pytest.approx(0.99, abs=0.003)
    # The old grid ended at 4; the new one goes on to 7.7 as GELU does.
    x = torch.linspace(-7, 7, 1401)
    assert (act(x) - sk.get("gelu")(x)).abs().max() < 0.15
    assert (alone("squaf", k=16, q=0.25, z="gelu", weights=weights)[0](x) - sk.get("gelu")(x)).abs().max() > 2.9
    assert "fitted to gelu" in report.sites[0].note


def test_a_trained_table_keeps_its_own_curve():
    z = [0.3, -1.0, 0.5, 1.0, -0.4, 0.2, 1.1, 0.0, 0.9, 0.9, 0.9, 0.9, 0.9]
    model = alone("squaf", k=6, q=1.0, alpha=1.5, z=z, learn=True, window=None)
    x = torch.linspace(-2.5, 2.5, 501)
    before = model(x).detach()
    report = sk.calibrate_(model, [NORMAL], cover=0.999)
    assert model[0].q.item() == pytest.approx(float(NORMAL.abs().quantile(0.999)) / 6, rel=0.03)
    assert (model(x) - before).abs().max() < 0.02
    assert "its curve" in report.sites[0].note


def test_a_table_can_be_told_what_it_stands_for():
    model = alone("squaf", k=8, q=0.1, z=[0.0] * 17, window="auto")
    sk.calibrate_(model, [NORMAL], stands_for="smelu")
    x = torch.linspace(-2.5, 2.5, 501)
    assert (model(x) - sk.get("smelu")(x)).abs().max() < 0.02
    window = model[0].window
    assert window == model[0].refresh_window_()


def test_channels_have_grids_of_their_own():
    x = NORMAL.repeat(1, 3) * torch.tensor([0.1, 1.0, 10.0])
    model = alone("squaf", k=8, q=0.5, z="relu", learn=True, per="channel", size=3)
    sk.calibrate_(model, [x])
    q = model[0].q.detach()
    torch.testing.assert_close(q / q[1], torch.tensor([0.1, 1.0, 10.0]), rtol=0.02, atol=0)
    reached = x.abs() <= 8 * q
    assert reached.float().mean() > 0.998
    off = ((model(x) - x.relu()).abs() / q)[reached]
    assert off.max() < 0.12  # 0.15 steps where a table is sampled
    shared = alone("squaf", k=8, q=0.5, z="relu", learn=("q", "z"), per="channel", size=3)
    sk.calibrate_(shared, [x])  # one alpha for all: spacings of their own would overlap differently
    assert shared[0].q.detach().unique().numel() == 1
    reached = x.abs() <= 8 * shared[0].q.detach()
    assert reached.float().mean() > 0.998
    assert ((shared(x) - x.relu()).abs() / shared[0].q)[reached].max() < 0.12


# -- real models and batches --------------------------------------------------------------------------------------


def test_a_timm_model():
    timm = pytest.importorskip("timm", reason="timm is not installed; the extra 'vision' brings it")
    torch.manual_seed(0)
    model = timm.create_model(
        "vit_tiny_patch16_224", depth=2, img_size=32, patch_size=8, num_classes=4, act_layer=sk.nn.SReLU
    )
    seen: list[Tensor] = []
    hook = model.blocks[1].mlp.act.register_forward_pre_hook(lambda m, args: seen.append(args[0]))
    images = torch.randn(8, 3, 32, 32)
    with torch.no_grad():
        model.eval()(images)
    hook.remove()
    report = sk.calibrate_(model, images.split(2), where="blocks.*.mlp.act")
    assert [site.path for site in report.sites] == ["blocks.0.mlp.act", "blocks.1.mlp.act"]
    assert model.blocks[1].mlp.act.delta.item() == pytest.approx(spread(seen[0]), rel=0.02)
    assert report.batches == 4
    lines = str(report).splitlines()
    assert lines[0].split() == ["site", "activation", "was", "is", "spread", "inside"]
    assert lines[1].startswith("blocks.0.mlp.act  srelu       delta 1  delta ")


class Two(nn.Module):
    """A dropout in front, a way that is taken only when asked for, and an argument by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.first, self.second = nn.Dropout(0.5), sk.nn.SReLU(learn=True), sk.nn.SmeLU()
        self.plain, self.norm = nn.ReLU(), nn.BatchNorm1d(1)

    def forward(self, x: Tensor, deep: bool = True) -> Tensor:
        torch.rand(3)  # some models draw numbers whatever the mode
        x = self.norm(self.plain(self.first(input=self.drop(x))))
        return self.second(x - x.mean()) if deep else x


def wrapped(x: Tensor) -> dict[str, Callable[[], object]]:
    return {
        "list": lambda: list(x.split(5000)),
        "generator": lambda: (part for part in x.split(5000)),
        "pairs": lambda: [(part, torch.zeros(3)) for part in x.split(5000)],
        "dicts": lambda: [{"x": part, "deep": True} for part in x.split(5000)],
        "pairs of dicts": lambda: [({"x": part}, 1) for part in x.split(5000)],
        "loader": lambda: DataLoader(TensorDataset(x, x), batch_size=5000, shuffle=True),
    }


@pytest.mark.parametrize("kind", wrapped(NORMAL))
def test_batches_come_in_many_forms_and_nothing_else_changes(kind: str):
    model = Two()
    model.train()
    model.plain.eval()
    buffers = {name: value.clone() for name, value in model.norm.state_dict().items()}
    torch.manual_seed(5)
    state = torch.get_rng_state()
    report = sk.calibrate_(model, wrapped(NORMAL)[kind]())
    assert torch.equal(torch.get_rng_state(), state)
    assert report.batches == 4
    assert model.first.delta.item() == pytest.approx(spread(NORMAL), rel=0.02)  # no dropout: eval mode
    assert [m.training for m in (model, model.drop, model.plain, model.norm)] == [True, True, False, True]
    assert all(torch.equal(model.norm.state_dict()[name], value) for name, value in buffers.items())
    assert not any(m._forward_pre_hooks for m in model.modules())
    assert all(p.grad is None for p in model.parameters())


@torch.no_grad()  # with gradients torch's compiler warns of itself
def test_a_compiled_model_is_looked_into_and_not_compiled_again():
    torch._dynamo.reset()
    graphs: list[object] = []

    def backend(graph: Any, _: object) -> Any:
        graphs.append(graph)
        return graph.forward

    net = nn.Sequential(nn.Linear(1, 4), sk.nn.SReLU()).eval()
    fast = torch.compile(net, backend=backend)
    fast(NORMAL)
    report = sk.calibrate_(fast, [NORMAL])
    assert report.sites[0].count == 4 * len(NORMAL)
    assert len(graphs) == 1


def bad_batches() -> Iterator[object]:
    yield NORMAL
    raise OSError("the disk is gone")


@pytest.mark.parametrize(
    ("batches", "arguments", "error", "says"),
    [
        (NORMAL, {}, InputError, "put it in a list"),
        ({"x": NORMAL}, {}, InputError, "put it in a list"),
        (3, {}, InputError, "batches must be an iterable of batches, .* and int was given"),
        ([], {}, InputError, "empty"),
        ([3.0], {}, InputError, "Batch 0 must be a tensor"),
        ([()], {}, InputError, "Batch 0 must be a tensor"),
        ([NORMAL, torch.zeros(4, 7)], {}, InputError, "Batch 1 does not fit Two"),
        ([{"y": NORMAL}], {}, InputError, "Batch 0 does not fit Two"),
        ([NORMAL, NORMAL / 0], {}, InputError, "'first' is NaN or infinite"),
        ([torch.full((4, 1), math.nan)], {}, InputError, "'first' is NaN or infinite"),
        ([{"x": NORMAL, "deep": False}], {}, InputError, "No batch reached the activation 'second'"),
        ([torch.zeros(50, 1)], {}, InputError, "no spread to go by"),
        (bad_batches(), {}, OSError, "disk"),
        ([NORMAL], {"where": "secnd"}, InputError, "Did you mean 'second'"),
        ([NORMAL], {"where": 3}, ParameterError, "where takes a pattern .* and int was given"),
        ([NORMAL], {"fraction": 0.0}, ParameterError, "fraction must be"),
        ([NORMAL], {"fraction": math.inf}, ParameterError, "fraction must be"),
        ([NORMAL], {"cover": 1.5}, ParameterError, "cover must be"),
    ],
)
def test_all_or_nothing(batches: object, arguments: dict, error: type, says: str):
    model = Two()
    model.drop.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [m.training for m in model.modules()]
    state = torch.get_rng_state()
    with pytest.raises(error, match=says):
        sk.calibrate_(model, batches, **arguments)
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert [m.training for m in model.modules()] == modes
    assert not any(m._forward_pre_hooks for m in model.modules())
    assert torch.equal(torch.get_rng_state(), state)


def test_a_site_that_fails_at_the_end_takes_the_others_back():
    """The first site is written before the second is found to need a width that cannot be learned."""
    tiny = nn.Linear(1, 1, bias=False)
    nn.init.constant_(tiny.weight, 1e-9)
    model = nn.Sequential(sk.nn.make("squaf", k=4, z="tanh", window="auto", learn=True), tiny, sk.nn.SReLU(learn=True))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    window = model[0].window
    with pytest.raises(ParameterError, match="between 2"):
        sk.calibrate_(model, [NORMAL], fraction=1e-5)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model[0].window == window
    sk.calibrate_(model, [NORMAL], fraction=1.0)
    assert not torch.equal(model[0].z, before["0.z"])


def test_models_with_nothing_to_calibrate_are_told():
    with pytest.raises(InputError, match="swap_"):
        sk.calibrate_(nn.Sequential(nn.ReLU()), [NORMAL])
    with pytest.raises(InputError, match="nothing to calibrate"):
        sk.calibrate_(alone("squaf", grid=[0.0, 1.0, 3.0], z="relu"), [NORMAL])
    mixed = nn.Sequential(sk.nn.SReLU(), sk.nn.CRReLU(), sk.nn.ReLU())
    report = sk.calibrate_(mixed, [NORMAL])
    assert list(report.skipped) == ["1", "2"]
    assert "neither a width nor a hardness" in report.skipped["1"]
    assert "1 was skipped" in str(report)


# -- a swap that calibrates ---------------------------------------------------------------------------------------


def two_layers(scale: float = 30.0) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.GELU(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 1))
    model[0].weight.data *= scale
    return model


INPUTS = torch.randn(1000, 2, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("calibrate", [True, 0.5])
def test_a_swap_takes_widths_from_the_example(calibrate, tmp_path):
    model, twice = two_layers(), two_layers()
    report = sk.swap_(model, "srelu", calibrate=calibrate, example=INPUTS)
    sk.swap_(twice, "srelu")
    sk.calibrate_(twice, [INPUTS], fraction=None if calibrate is True else calibrate)
    assert [module.delta.item() for module in (model[1], model[3])] == [twice[1].delta.item(), twice[3].delta.item()]
    reach = spread(model[0](INPUTS).detach())
    assert model[1].delta.item() == pytest.approx(reach * (1.0 if calibrate is True else 0.5), rel=0.02)
    assert "delta=1)" not in str(report)  # the report shows what is there now
    report.save(tmp_path / "plan.json")
    again = two_layers()
    sk.apply_(again, tmp_path / "plan.json")
    torch.testing.assert_close(again(INPUTS), model(INPUTS), rtol=0, atol=0)
    report.undo()
    torch.testing.assert_close(model(INPUTS), two_layers()(INPUTS), rtol=0, atol=0)


def test_a_calibrating_swap_per_channel_and_of_a_grid():
    model = two_layers()
    sk.swap_(model, "smelu", calibrate=True, example=INPUTS, per="channel", learn=True)
    assert len(set(model[1].beta.tolist())) == 8
    model = two_layers()
    report = sk.swap_(model, "squaf", k=16, calibrate=True, example=INPUTS)
    reach = model[0](INPUTS).detach().abs().reshape(-1).quantile(0.999)
    assert 16 * model[1].q.item() == pytest.approx(float(reach), rel=0.05)
    assert any("z fitted to relu" in note for note in report.notes)


def test_a_dry_run_calibrates_and_changes_nothing():
    model = two_layers()
    report = sk.swap_(model, "srelu", calibrate=True, example=INPUTS, dry_run=True)
    assert "SReLU(delta=11." in str(report)
    assert isinstance(model[1], nn.GELU)


def test_a_bound_that_stops_a_swap_is_in_its_report():
    report = sk.swap_(two_layers(), "lambda_gelu", calibrate=True, example=INPUTS)
    assert any("lam would be below 1" in note for note in report.notes)


@pytest.mark.parametrize(
    ("name", "arguments", "error", "message"),
    [
        ("srelu", {}, InputError, "which needs a run; give example="),
        ("srelu", {"example": INPUTS, "delta": 0.5}, ParameterError, "leave it out, or .* calibrate=0.5"),
        ("srelu(delta=0.5)", {"example": INPUTS}, ParameterError, "calibrate sets delta, and delta=0.5 was given"),
        ("srelu", {"example": INPUTS, "calibrate": -1.0}, ParameterError, "must be a finite number above 0"),
        ("crrelu", {"example": INPUTS}, InputError, "eps of crrelu is neither a width nor a hardness .* Leave it out"),
        ("tanh", {"example": INPUTS}, InputError, "nothing to set at '1': tanh has no knob"),
        ("srelu", {"example": torch.zeros(4, 2)}, InputError, "Half or more of the pre-activations"),
    ],
)
def test_a_swap_that_cannot_calibrate_says_why_and_changes_nothing(name, arguments, error, message):
    model = two_layers()
    nn.init.zeros_(model[0].bias)
    with pytest.raises(error, match=message):
        sk.swap_(model, name, **{"calibrate": True, **arguments})
    assert isinstance(model[1], nn.GELU)
    assert isinstance(model[3], nn.GELU)
