"""What activations do on data, gradient norms and trajectories: loops, closed forms, and a model left as it was."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import softknee as sk
from softknee.measure import ParameterTrace, activity, gradient_norms


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(36, 6),
        sk.nn.SmeLU(beta=0.4),
        nn.Linear(6, 5),
        nn.GELU(),
        nn.Linear(5, 2),
    )


def batches(count: int = 3) -> list[Tensor]:
    return list(torch.randn(count, 8, 1, 5, 5, generator=torch.Generator().manual_seed(1)))


def test_zeros_and_dead_units_against_running_by_hand():
    model = net()
    with torch.no_grad():
        model[5].bias[2] = -50.0
        model[1].bias[1] = -50.0
    model.eval()
    result = activity(model, batches())
    x = torch.cat(batches())
    with torch.no_grad():
        outs = [model[:3](x.clone()), model[:7](x), model[:9](x)]
    assert [site.path for site in result.sites] == ["2", "6", "8"]
    assert [value.activation for value in result.sites] == ["relu", "smelu", "gelu"]
    for item, out in zip(result.sites, outs, strict=True):
        assert item.elements == out.numel()
        assert item.zero_fraction == float((out == 0).double().mean())
        silent = [unit for unit in range(out.shape[1]) if not bool(out[:, unit].any())]
        assert item.dead_units == tuple(silent)
        assert item.units == out.shape[1]
    assert (result.sites[0].dead_units, result.sites[1].dead_units, result.sites[2].dead) == ((1,), (2,), 0)
    assert (result.dead, result.batches) == (2, 3)
    assert result.zero_fraction == pytest.approx(
        sum(int((out == 0).sum()) for out in outs) / sum(out.numel() for out in outs)
    )
    assert "1 of 4 units dead" in str(result)


def test_a_unit_that_speaks_in_one_batch_is_not_dead():
    model = nn.Sequential(nn.ReLU())
    given = [torch.tensor([[-1.0, -1.0, 1.0]]), torch.tensor([[-1.0, 2.0, -1.0]])]
    assert activity(model, given).sites[0].dead_units == (0,)
    assert activity(model, given[:1]).sites[0].dead_units == (0, 1)


def test_where_units_are():
    x = torch.ones(2, 3, 4)
    x[:, :, 1] = -1.0
    model = nn.Sequential(nn.ReLU())
    assert activity(model, [x]).sites[0].dead_units == (1,)
    assert activity(model, [x], dim=1).sites[0].units == 3
    assert activity(model, [x[..., None]]).sites[0].units == 3
    assert activity(model, [x[..., None]], dim=2).sites[0].dead_units == (1,)
    assert activity(model, [x[0, 0]]).sites[0].units is None
    with pytest.raises(sk.ParameterError, match="no dimension"):
        activity(model, [x], dim=3)
    with pytest.raises(sk.ParameterError, match="had 4 units and now 5"):
        activity(model, [x, torch.ones(2, 3, 5)])


def test_the_entropy_of_normal_pre_activations():
    """log(s sqrt(2 pi e)) nats, whatever the batches; and it is that of the pre-activations, inplace or not."""
    x = 3 * torch.randn(60_000, generator=torch.Generator().manual_seed(0))
    expected = math.log(3 * math.sqrt(2 * math.pi * math.e))
    for given in ([x], list(x.split(700))):
        for model in (nn.Sequential(nn.ReLU(inplace=True)), nn.Sequential(sk.nn.SReLU())):
            actual = activity(model, [item.clone()[:, None] for item in given])
            assert actual.sites[0].entropy == pytest.approx(expected, abs=0.02)
    uniform = activity(nn.Sequential(nn.ReLU()), [torch.rand(20_000, 1)], samples=5000)
    assert uniform.sites[0].entropy == pytest.approx(0.0, abs=0.03)


def test_the_sample_is_drawn_from_all_batches():
    """Uniform on (0, 1) in one batch and on (1, 2) in the next: log 2, where either alone has 0."""
    parts = [torch.rand(30_000, 1, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    result = activity(nn.Sequential(nn.ReLU()), [parts[0], parts[1] + 1], samples=4000)
    assert result.sites[0].entropy == pytest.approx(math.log(2), abs=0.03)


def test_no_entropy_without_a_density():
    assert activity(nn.Sequential(nn.ReLU()), [torch.ones(100, 1)]).sites[0].entropy is None
    assert activity(nn.Sequential(nn.ReLU()), [torch.rand(3, 1)]).sites[0].entropy is None


# -- the rate ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("per", ["layer", "channel"])
def test_the_rate_against_its_definition(window: int | None, per: str):
    k = 3
    size = {"per": per, "size": 2} if per == "channel" else {}
    model = nn.Sequential(sk.nn.make("squaf", k=k, q=0.5, alpha=4.0, window=window, z="gelu", learn=True, **size))
    x = torch.randn(40, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    model.double()
    actual = activity(model, list(x.split(9)))
    # What is learned is kept through a raw number, so q and alpha are what was asked for to 1e-8.
    q, alpha = (float(getattr(model[0], name).detach().flatten()[0]) for name in ("q", "alpha"))
    points = q * np.arange(-k, k + 1)
    total = np.zeros(2 * k + 1)
    for item in x.flatten().tolist():
        weights = np.exp(-alpha * (item - points) ** 2)
        if window is not None:
            nearest = np.clip(round(item / q), -k, k)
            weights[np.abs(np.arange(-k, k + 1) - nearest) > window // 2] = 0
        total += weights / weights.sum()
    share = total / total.sum()
    expected = -(share[share > 0] * np.log2(share[share > 0])).sum()
    assert actual.sites[0].rate == pytest.approx(expected, rel=1e-9)
    assert actual.rate == pytest.approx(expected, rel=1e-9)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_rate_of_a_model_weighs_its_layers():
    model = nn.Sequential(
        nn.Linear(2, 6), sk.nn.make("squaf", k=2), nn.Linear(6, 3), sk.nn.make("squaf", k=4), nn.ReLU()
    )
    result = activity(model, [torch.randn(50, 2)])
    first, second, relu = result.sites
    assert relu.rate is None
    assert result.rate == pytest.approx((6 * first.rate + 3 * second.rate) / 9)
    assert activity(nn.Sequential(nn.ReLU()), [torch.randn(9, 2)]).rate is None


# -- left as it was ---------------------------------------------------------------------------------------


def state(model: nn.Module) -> dict[str, Any]:
    return {
        "modes": [module.training for module in model.modules()],
        "hooks": [len(item._forward_hooks) + len(item._forward_pre_hooks) for item in model.modules()],
        "values": {name: value.clone() for name, value in model.state_dict().items()},
        "grads": [None if parameter.grad is None else parameter.grad.clone() for parameter in model.parameters()],
        "random": torch.get_rng_state(),
    }


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one["modes"] == other["modes"]
    assert one["hooks"] == other["hooks"]
    assert torch.equal(one["random"], other["random"])
    assert all(torch.equal(value, other["values"][name]) for name, value in one["values"].items())
    for a, b in zip(one["grads"], other["grads"], strict=True):
        assert (a is None) == (b is None)
        assert a is None or torch.equal(a, b)


def mixed() -> nn.Sequential:
    """A model in training mode with one part in eval mode, and gradients."""
    model = net()
    model(batches()[0]).sum().backward()
    model[3].eval()
    return model


def broken() -> Iterator[Tensor]:
    yield from batches(2)
    raise OSError("no more data")


def test_the_model_is_left_as_it_was():
    model = mixed()
    before = state(model)
    activity(model, batches())
    assert_same(before, state(model))
    gradient_norms(model, lambda m, x: m(x).square().mean() + torch.rand(()), batches())
    assert_same(before, state(model))


@pytest.mark.parametrize(
    "given", [broken, lambda: [*batches(1), torch.zeros(2, 3)], lambda: [torch.full((8, 1, 5, 5), torch.nan)]]
)
def test_the_model_is_left_as_it_was_after_an_error(given: Any):
    model = mixed()
    before = state(model)
    with pytest.raises((OSError, sk.InputError)):
        activity(model, given())
    assert_same(before, state(model))

    def loss(m: nn.Module, x: Tensor) -> Tensor:
        m.eval()
        torch.rand(3)
        m[1].train()
        return m(x).sum()

    with pytest.raises((OSError, RuntimeError, sk.InputError)):
        gradient_norms(model, loss, given())
    assert_same(before, state(model))


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.act, self.unused = nn.Linear(3, 3), nn.Tanh(), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.fc(self.act(x)))


def test_what_cannot_be_watched_is_said():
    model = Functional()
    result = activity(model, [torch.randn(4, 3)], example=torch.randn(1, 3))
    assert [site.path for site in result.sites] == ["act"]
    assert result.skipped["unused"] == "No batch reached it."
    assert len(result.skipped) == 2
    assert any("sk.swap_" in item for item in result.skipped.values())


def test_where_and_shared_modules():
    result = activity(net(), batches(), where=["6", "8"])
    assert [site.path for site in result.sites] == ["6", "8"]
    act = nn.ReLU()
    twice = activity(nn.Sequential(act, nn.Linear(2, 2), act), [torch.randn(5, 2)])
    assert [(item.path, item.elements) for item in twice.sites] == [("0", 20)]


@pytest.mark.parametrize(
    ("model", "given", "more", "words"),
    [
        (nn.Sequential(nn.Linear(2, 2)), [torch.randn(2, 2)], {}, "no activation module"),
        (nn.Sequential(nn.ReLU()), [torch.randn(2, 2)], {"where": "mlp*"}, "matches where='mlp"),
        (nn.Sequential(nn.ReLU()), [], {}, "empty"),
        (nn.Sequential(nn.ReLU()), torch.randn(2, 2), {}, "put it in a list"),
        (nn.Sequential(nn.ReLU()), [torch.tensor([[torch.inf]])], {}, "NaN or infinite"),
        (nn.Sequential(nn.ReLU()), ["text"], {}, "Batch 0 must be"),
        (nn.Sequential(nn.ReLU()), [torch.randn(2, 2)], {"samples": 3}, "at least 32"),
    ],
)
def test_refusals(model: nn.Module, given: Any, more: dict[str, Any], words: str):
    with pytest.raises((sk.InputError, sk.ParameterError), match=words):
        activity(model, given, **more)


# -- gradients --------------------------------------------------------------------------------------------


def test_gradient_norms_against_backward():
    model = net().double().eval()
    model[7].weight.requires_grad_(False)
    given = [batch.double() for batch in batches(5)]

    def loss(m: nn.Module, x: Tensor) -> Tensor:
        return F.cross_entropy(m(x), torch.arange(8) % 2)

    result = gradient_norms(model, loss, iter(given))
    each: dict[str, list[float]] = {}
    for x in given:
        model.zero_grad()
        loss(model, x).backward()
        for name, item in model.named_parameters():
            if item.grad is not None:
                each.setdefault(name, []).append(float(item.grad.norm()))
    whole = np.sqrt((np.array(list(each.values())) ** 2).sum(0))
    assert result.batches == 5
    assert result.mean == pytest.approx(whole.mean(), rel=1e-10)
    assert result.variance == pytest.approx(whole.var(ddof=1), rel=1e-10)
    assert (result.whole.smallest, result.whole.largest) == pytest.approx((whole.min(), whole.max()), rel=1e-10)
    assert result.whole.relative_variance == pytest.approx(whole.var(ddof=1) / whole.mean() ** 2, rel=1e-10)
    assert list(result.parameters) == list(each)
    for name, norms in each.items():
        assert result.parameters[name].variance == pytest.approx(np.var(norms, ddof=1), rel=1e-9, abs=1e-25), name


def test_gradient_norms_of_one_batch_and_of_unused_parameters():
    model = nn.ModuleDict({"used": nn.Linear(2, 1), "unused": nn.Linear(2, 1)})
    result = gradient_norms(model, lambda m, x: m["used"](x).sum(), [torch.ones(1, 2)])
    assert result.variance is None
    assert result.mean == pytest.approx(math.sqrt(3))
    assert result.parameters["unused.weight"].mean == 0.0
    with torch.no_grad():  # it asks for gradients itself
        assert gradient_norms(model, lambda m, x: m["used"](x).sum(), [torch.ones(1, 2)]).mean == result.mean


@pytest.mark.parametrize(
    ("loss", "given", "words"),
    [
        (lambda m, x: m(x), [torch.ones(2, 2)], "one number"),
        (lambda m, x: m(x).sum().item(), [torch.ones(2, 2)], "float"),
        (lambda m, x: m(x).sum().detach(), [torch.ones(2, 2)], "without a gradient"),
        (lambda m, x: m(x).sum() * torch.nan, [torch.ones(2, 2)], "'weight' on batch 0"),
        (lambda m, x: m(x).sum(), [], "empty"),
    ],
)
def test_gradient_refusals(loss: Any, given: Any, words: str):
    with pytest.raises(sk.InputError, match=words):
        gradient_norms(nn.Linear(2, 1), loss, given)


def test_a_model_without_trained_parameters_is_refused():
    with pytest.raises(sk.InputError, match="no parameter that is trained"):
        gradient_norms(nn.ReLU(), lambda m, x: m(x).sum(), [torch.ones(1)])


# -- trajectories -----------------------------------------------------------------------------------------


def test_a_trajectory_is_what_training_did():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), sk.nn.SmeLU(beta=0.5, learn=True, per="channel", size=4), nn.Linear(4, 1))
    sgd, x = torch.optim.SGD(model.parameters(), lr=0.5), torch.randn(20, 3)
    trace, seen = ParameterTrace(model), []
    for step in range(4):
        trace.record(step)
        seen.append(model[1].beta.detach().double().flatten())
        sgd.zero_grad()
        model(x).square().mean().backward()
        sgd.step()
    assert trace.path("1", "beta") == [(step, pytest.approx(float(item.mean()))) for step, item in enumerate(seen)]
    assert [point.low[0] for point in trace.points] == pytest.approx([float(value.min()) for value in seen])
    assert [point.high[0] for point in trace.points] == pytest.approx([float(entry.max()) for entry in seen])
    assert trace.points[-1].low[0] < trace.points[-1].high[0]
    assert trace.rows()[2]["step"] == 2
    with pytest.raises(sk.ParameterError, match="order of time"):
        trace.record(3)


def test_tables_are_kept_whole():
    model = nn.Sequential(sk.nn.make("squaf", k=2, z="relu", learn="z"), sk.nn.SReLU())
    trace = ParameterTrace(model)
    trace.record(0)
    assert [(point.path, point.name) for point in trace.points] == [("0", "z")]
    assert trace.points[0].mean == pytest.approx([0, 0, 0, 0.5, 1])
    with pytest.raises(sk.InputError, match="table of 5"):
        trace.path("0", "z")
    with pytest.raises(sk.InputError, match=r"No parameter 0\.zz was recorded\. Did you mean '0\.z'"):
        trace.path("0", "zz")
    everything = ParameterTrace(model, learned=False)
    everything.record(1)
    assert {(point.path, point.name) for point in everything.points} == {
        ("0", "q"),
        ("0", "alpha"),
        ("0", "z"),
        ("1", "delta"),
    }
    with pytest.raises(sk.InputError, match="learns a parameter"):
        ParameterTrace(model[1])


def test_a_compiled_model_is_watched_as_the_model_itself():
    net = nn.Sequential(nn.Linear(3, 8), sk.nn.SQUAF(k=2, q=0.5), nn.Linear(8, 4), nn.ReLU())
    x = torch.randn(20, 3)
    plain = activity(net, [x])
    compiled = torch.compile(net, backend="eager")
    compiled(x)
    result = activity(compiled, [x])
    assert [site.elements for site in result.sites] == [160, 80]
    assert [(item.zero_fraction, item.rate, item.dead_units) for item in result.sites] == [
        (value.zero_fraction, value.rate, value.dead_units) for value in plain.sites
    ]
