"""Repeated EAFO: the monotone spline, its descent on samples, and the module that refreshes itself."""

import copy
import itertools
import math
import pickle
import time

import pytest
import torch

import softknee as sk
from helpers import F32, F64
from softknee import InputError, ParameterError
from softknee.design.entropic.descent import _knots, _Sample
from softknee.design.entropic.spline import spline_value
from softknee.lab.digits import load_digits
from softknee.spec.reference import evaluate

FAR = torch.tensor([-math.inf, -1e30, -100.0, 100.0, 1e30, math.inf])


def draw(count: int, seed: int = 0) -> torch.Tensor:
    """Two unequal bumps: skewed, and no worst function of any of the starts below."""
    generator = torch.Generator().manual_seed(seed)
    left = 0.6 * torch.randn(count // 2, generator=generator, dtype=F64) - 1
    return torch.cat([left, torch.randn(count - count // 2, generator=generator, dtype=F64) + 0.8])


def knee() -> sk.design.Spline:
    knots = torch.tensor([-2.0, -0.5, 0.3, 1.0, 2.5], dtype=F64)
    slopes = torch.tensor([0.05, 0.4, 1.5, 0.7, 1.0], dtype=F64)
    steps = (knots[1:] - knots[:-1]) * (slopes[1:] + slopes[:-1]) / 2
    return sk.design.Spline(knots, torch.cat([steps.new_zeros(1), steps.cumsum(0)]), slopes)


# -- the spline -------------------------------------------------------------------------------------------


def test_a_spline_is_smooth_increasing_and_invertible():
    spline, x = knee(), torch.linspace(-6, 6, 4001, dtype=F64)
    y = spline(x)
    assert bool((y[1:] > y[:-1]).all())
    torch.testing.assert_close(spline.inverse(y), x, rtol=1e-13, atol=1e-13)
    middle = (x[1:] + x[:-1]) / 2
    torch.testing.assert_close((y[1:] - y[:-1]) / (x[1:] - x[:-1]), spline.slope(middle), rtol=2e-3, atol=1e-12)
    around = spline.knots[:, None] + torch.tensor([-1e-9, 1e-9], dtype=F64)
    for curve in (spline, spline.slope):
        left, right = curve(around).unbind(1)
        torch.testing.assert_close(left, right, rtol=0, atol=1e-8)


def test_a_spline_is_differentiated_twice_and_vectorised():
    spline = knee()
    at = torch.tensor([-3.0, -1.0, 0.0, 0.7, 2.0, 4.0], dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(spline, (at,))
    assert torch.autograd.gradgradcheck(spline, (at,))
    batch = at.detach().reshape(2, 3)
    torch.testing.assert_close(torch.func.vmap(spline)(batch), spline(batch))
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(spline))(at.detach()), spline.slope(at.detach()))


@pytest.mark.parametrize("dtype", [F32, F64, torch.bfloat16, torch.float16])
def test_a_spline_has_straight_tails_and_keeps_nan(dtype: torch.dtype):
    spline, far = knee(), FAR[[0, 2, 3, 5]].to(dtype).requires_grad_()
    y = spline(far)
    assert y.dtype == dtype
    assert y[0] == -math.inf
    assert y[-1] == math.inf
    last = float(spline.values[-1]) + 97.5
    assert y[1:3].double().tolist() == pytest.approx([-98 * 0.05, last], rel=1e-2 if dtype.itemsize == 2 else 1e-6)
    y.sum().backward()
    assert far.grad.double().tolist() == pytest.approx([0.05, 0.05, 1.0, 1.0], rel=1e-2)
    bad = torch.tensor([math.nan], dtype=dtype, requires_grad=True)
    assert spline(bad).isnan().all()
    spline(bad).sum().backward()
    assert bad.grad.isnan().all()


def test_a_spline_is_a_definition_too():
    spline = knee()
    act = spline.definition()
    at = torch.linspace(-4, 4, 81, dtype=F64)
    torch.testing.assert_close(act(at), spline(at), rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(act.derivative(1)(at), spline.slope(at), rtol=1e-14, atol=1e-14)
    assert float(evaluate(act, 0.25)) == pytest.approx(float(spline(torch.tensor([0.25], dtype=F64))), rel=1e-14)


def test_more_knots_do_not_change_it():
    spline, at = knee(), torch.linspace(-4, 4, 801, dtype=F64)
    finer = spline.refined(17)
    assert len(finer.knots) == 17
    torch.testing.assert_close(finer(at), spline(at), rtol=1e-13, atol=1e-14)


# -- descent ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["softplus", "tanh", "elu", "gelu"])
def test_the_entropy_falls_at_every_step_at_fixed_mean_and_variance(start: str):
    x = draw(8000)
    output = sk.get(start)(x)
    found = sk.design.eafo_descent(start, x, steps=25)
    assert 5 <= found.steps <= 25
    assert all(later < earlier for earlier, later in itertools.pairwise(found.entropies))
    assert found.fall > 0.5
    for means, variances in zip(found.means, found.variances, strict=True):
        assert means == pytest.approx(float(output.mean()), abs=1e-12)
        assert variances == pytest.approx(float(output.var(unbiased=False)), rel=1e-12)
    y = found(x)
    assert float(y.mean()) == pytest.approx(float(output.mean()), abs=1e-12)
    assert float(y.var(unbiased=False)) == pytest.approx(float(output.var(unbiased=False)), rel=1e-12)
    # Invertible: the slopes keep above the floor, and the samples come back.
    assert float(found.spline.slopes.min()) >= 0.01 * float(found.spline.slopes.max()) * (1 - 1e-8)
    torch.testing.assert_close(found.spline.inverse(y), x, rtol=1e-9, atol=1e-9)
    assert ("lowest slope" in found.started) or start in ("softplus", "elu")


def test_an_estimate_that_knows_no_slope_sees_the_same_fall():
    x = draw(60_000)
    start = sk.design.eafo_descent("softplus", x, steps=0)
    found = sk.design.eafo_descent("softplus", x, steps=12)
    seen = sk.design.spacing_entropy(start(x)) - sk.design.spacing_entropy(found(x))
    assert found.fall > 1
    assert seen == pytest.approx(found.fall, abs=0.05)


def test_the_start_is_the_function_itself():
    """With a function whose slope is linear between the knots the spline is it, and without steps nothing changes."""
    x = draw(4000)
    line = sk.design.eafo_descent(lambda at: 3 * at - 1, x, steps=0)
    torch.testing.assert_close(line(x), 3 * x - 1, rtol=1e-9, atol=1e-9)
    assert line.entropies == (pytest.approx(math.log(3), abs=1e-12),)
    softplus = sk.design.eafo_descent("softplus", x, steps=0, knots=200)
    assert float((softplus(x) - sk.get("softplus")(x)).abs().max()) < 0.02
    assert softplus.entropies[0] == pytest.approx(float(torch.log(torch.sigmoid(x)).mean()), abs=2e-3)


def test_it_goes_on_where_it_stopped():
    x = draw(4000)
    first = sk.design.eafo_descent("softplus", x, steps=5)
    second = sk.design.eafo_descent(first, x, steps=5)
    assert second.entropies[0] == pytest.approx(first.entropies[-1], abs=0.02)
    assert second.entropies[-1] < first.entropies[-1]


def test_the_gradient_is_that_of_the_objective():
    """Against differences of E log f' - log std f, both measured from the finished spline."""
    x = torch.sort(draw(3000)).values
    sample = _Sample(x, _knots(x, 10), centre=0.3, spread=1.1, floor=0.01)
    slopes = torch.exp(torch.linspace(-1, 1, 10, dtype=F64).sin())

    def objective(logs: torch.Tensor) -> float:
        spline = sample.spline(torch.exp(logs))
        return float(torch.log(spline.slope(x)).mean() - torch.log(spline(x).std(unbiased=False)))

    now, gradient = sample.gradient(slopes)
    logs, step = torch.log(slopes), 1e-5
    assert now == pytest.approx(objective(logs), abs=1e-12)
    for i in range(10):
        move = torch.zeros(10, dtype=F64).index_fill(0, torch.tensor([i]), step)
        difference = (objective(logs + move) - objective(logs - move)) / (2 * step)
        assert float(gradient[i]) == pytest.approx(difference, abs=1e-8)


def test_its_first_step_is_an_eafo_step():
    """Along the correction of equation 5 the objective's first term falls as `eafo` measures it on the same samples."""
    x = draw(4000)
    found = sk.design.eafo("softplus", x)
    c = found.activation.partial("eps").derivative(1)(torch.sort(x).values)
    weak = float((c / torch.sigmoid(torch.sort(x).values)).mean())  # E[c'/f']
    assert weak < 0
    assert found.change(1e-6) / 1e-6 == pytest.approx(weak, rel=1e-4)


def test_it_stops_honestly():
    x = draw(2000)
    found = sk.design.eafo_descent("softplus", x, steps=3000, knots=8, floor=0.5)
    assert found.steps < 3000
    assert "no step lowered the entropy" in found.stopped
    assert "lowest allowed" in found.stopped
    assert all(later < earlier for earlier, later in itertools.pairwise(found.entropies))
    assert "5 steps were taken" in sk.design.eafo_descent("softplus", x, steps=5).stopped
    assert "nats down" in str(found)
    # The end is a broken line: each slope is the lowest or the highest allowed.
    share = found.spline.slopes / found.spline.slopes.max()
    assert bool(((share - 1).abs() < 1e-6).logical_or((share - 0.5).abs() < 1e-6).all())


def test_a_leaky_relu_is_a_minimum_and_softplus_ends_as_one():
    """At the end every slope is at a limit that the gradient pushes it through (Karush, Kuhn and Tucker)."""
    x = draw(8000)
    for start in ("relu", "leaky_relu", "softplus"):
        found = sk.design.eafo_descent(start, x, steps=100)
        assert "no step lowered the entropy" in found.stopped
        share = found.spline.slopes / found.spline.slopes.max()
        low, high = share < 0.0101, share > 0.9999
        assert bool((low | high).all())
        # One kink: flat to the left of it and steep to the right.
        assert low.tolist() == sorted(low.tolist(), reverse=True)
        held = {"centre": found.means[-1], "spread": math.sqrt(found.variances[-1])}
        sample = _Sample(torch.sort(x).values, found.spline.knots, **held, floor=0.01)
        _, gradient = sample.gradient(found.spline.slopes)
        assert float(gradient[low].min()) > 1e-3
        assert float(gradient[high].max()) < -1e-3


def test_the_cost_grows_like_n_log_n():
    """Processor time, best of two in turns: from 1e5 to 1e6 samples n log n grows 12-fold, n squared 100-fold.

    The limit lies between: on a busy machine the large one may lack the cache that the small one had.
    """

    def cost(x: torch.Tensor) -> float:
        start = time.process_time()
        sk.design.eafo_descent("softplus", x, steps=3)
        return time.process_time() - start

    cost(draw(10_000))  # what is built once is built here
    few, many = draw(100_000), draw(1_000_000)
    pairs = [(cost(few), cost(many)) for _ in range(2)]
    least_of_few, least_of_many = map(min, zip(*pairs, strict=True))
    assert least_of_many < 40 * least_of_few


def test_samples_that_coincide():
    coarse = torch.round(draw(5000) * 4) / 4  # 30 different numbers
    found = sk.design.eafo_descent("softplus", coarse, steps=5)
    assert len(found.spline.knots) < 40
    assert found.fall > 0
    shifted = sk.design.eafo_descent("softplus", draw(5000) * 1e-3 + 20, steps=3)
    assert shifted.fall > 0


REFUSED = {
    "few": (lambda: sk.design.eafo_descent("relu", torch.randn(5)), InputError, ["at least 32"]),
    "nan": (lambda: sk.design.eafo_descent("relu", torch.full((99,), math.nan)), InputError, ["NaN"]),
    "dead": (lambda: sk.design.eafo_descent("relu", torch.zeros(99)), InputError, ["same number"]),
    "constant": (lambda: sk.design.eafo_descent("relu", -draw(99).abs() - 1), InputError, ["constant"]),
    "shape": (lambda: sk.design.eafo_descent(torch.sum, draw(99)), InputError, ["one finite number for each"]),
    "falling": (lambda: sk.design.eafo_descent(torch.neg, draw(99)), InputError, ["falls on all", "mirror"]),
    "no function": (lambda: sk.design.eafo_descent(3, draw(99)), InputError, ["int"]),
    "loose parameter": (lambda: sk.design.eafo_descent(torch.tanh, draw(99), beta=1), ParameterError, ["beta", "bind"]),
    "steps": (lambda: sk.design.eafo_descent("relu", draw(99), -1), ParameterError, ["steps", "-1"]),
    "knots": (lambda: sk.design.eafo_descent("relu", draw(99), knots=2), ParameterError, ["knots", "4 to 512"]),
    "floor": (lambda: sk.design.eafo_descent("relu", draw(99), floor=0.0), ParameterError, ["floor"]),
    "rate": (lambda: sk.design.eafo_descent("relu", draw(99), rate=0), ParameterError, ["rate"]),
    "falling spline": (
        lambda: sk.design.Spline(torch.arange(3.0), torch.arange(3.0), -torch.ones(3)),
        ParameterError,
        ["slopes above 0"],
    ),
    "one knot": (lambda: sk.design.Spline(*torch.ones(3, 1)), ParameterError, ["two or more"]),
    "every": (lambda: sk.nn.EntropicSpline(every=0), ParameterError, ["every", "at least 1"]),
    "memory": (lambda: sk.nn.EntropicSpline(memory=10), ParameterError, ["memory", "256"]),
    "integers": (lambda: sk.nn.EntropicSpline()(torch.arange(3)), InputError, ["floating-point", "int64"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_are_sentences(case: str):
    do, kind, words = REFUSED[case]
    with pytest.raises(kind) as caught:
        do()
    for word in words:
        assert word in str(caught.value), str(caught.value)


# -- the module -------------------------------------------------------------------------------------------


def test_the_module_starts_as_its_function():
    at = torch.linspace(-3, 3, 601)
    softplus = sk.nn.EntropicSpline("softplus", beta=2.0, refresh=False, knots=128)
    assert float((softplus(at) - sk.get("softplus")(at, beta=2.0)).abs().max()) < 0.02
    relu = sk.nn.EntropicSpline("relu", refresh=False)
    assert float((relu(at) - torch.relu(at)).abs().max()) < 0.1
    assert float(relu.spline.slopes.min()) == pytest.approx(0.01, rel=0.05)
    found = sk.design.eafo_descent("softplus", draw(2000), 2)
    torch.testing.assert_close(
        sk.nn.EntropicSpline(found).double()(at.double()), found(at.double()), rtol=1e-5, atol=1e-5
    )


def test_it_refreshes_itself_in_training_and_never_in_eval():
    module, generator = sk.nn.EntropicSpline("softplus", every=4, steps=2), torch.Generator().manual_seed(0)
    seen = [torch.randn(64, 32, generator=generator) for _ in range(12)]
    tables = []
    for batch in seen:
        module(batch)
        tables.append(module.table.clone())
    changed = [not torch.equal(a, b) for a, b in itertools.pairwise(tables)]
    assert changed == [False, False, True, False, False, False, True, False, False, False, True]
    assert module.refreshes == 3
    assert module.last.entropies[-1] < module.last.entropies[0]
    module.eval()
    for batch in seen:
        module(batch)
    assert torch.equal(module.table, tables[-1])
    assert module.calls == 12
    held = sk.nn.EntropicSpline("softplus", every=1, refresh=False)
    before = held.table.clone()
    held(seen[0])
    assert torch.equal(held.table, before)


def test_a_refresh_keeps_mean_and_variance_of_what_it_saw():
    module = sk.nn.EntropicSpline("softplus", refresh=False).double()
    x = draw(6000)
    before, slope = module(x), module.spline.slope(x)
    module.refresh_(x)
    after = module(x)
    assert float(after.mean()) == pytest.approx(float(before.mean()), rel=1e-6)
    assert float(after.std()) == pytest.approx(float(before.std()), rel=1e-6)
    assert float(torch.log(module.spline.slope(x)).mean()) < float(torch.log(slope).mean()) - 1e-3


def test_collecting_is_even_bounded_and_without_random_numbers():
    module = sk.nn.EntropicSpline("softplus", every=4, memory=512)
    state = torch.get_rng_state()
    channels = torch.arange(64.0).repeat(128, 1)  # 64 channels, each with a value of its own
    for _ in range(3):
        module(channels)
    assert torch.equal(torch.get_rng_state(), state)
    assert module.recent.numel() == 512
    kept = module.recent[:384]
    assert len(kept.unique()) == 64  # every channel is seen
    assert int(torch.bincount(kept.long()).max()) <= 12


def test_a_dead_layer_and_few_numbers_change_nothing_and_say_so():
    module = sk.nn.EntropicSpline("softplus", every=1)
    before = module.table.clone()
    module(torch.zeros(1000))
    assert "same number" in module.skipped
    module(torch.randn(10))
    assert "256" in module.skipped
    module(torch.full((1000,), math.nan))
    assert "0 had been seen" in module.skipped
    assert torch.equal(module.table, before)
    assert module.refreshes == 0
    module(torch.randn(1000))
    assert module.skipped == ""
    assert module.refreshes == 1


def test_copies_states_and_types():
    module = sk.nn.EntropicSpline("softplus", every=2)
    for _ in range(2):
        module(torch.randn(64, 64, generator=torch.Generator().manual_seed(3)))
    other = sk.nn.EntropicSpline("tanh", every=2)
    other.load_state_dict(module.state_dict())
    at = torch.linspace(-4, 4, 101)
    module.eval(), other.eval()
    assert torch.equal(other(at), module(at))
    assert list(module.state_dict()) == ["table"]
    twin, thawed = copy.deepcopy(module), pickle.loads(pickle.dumps(module))
    assert len({module.key, twin.key, thawed.key}) == 3
    twin.refresh_(draw(1000))
    assert not torch.equal(twin.table, module.table)
    assert torch.equal(thawed(at), module(at))
    half = copy.deepcopy(module).bfloat16()
    assert half.table.dtype == F32
    assert half(at.bfloat16()).dtype == torch.bfloat16
    torch.testing.assert_close(half(at.bfloat16()).float(), module(at.bfloat16().float()), rtol=2**-8, atol=2**-8)
    assert module.double()(at.double()).dtype == F64
    assert "knots=48, every=2" in repr(module)


def test_two_calls_before_one_backward():
    """A refresh between a call and its gradient does not disturb the gradient."""
    module = sk.nn.EntropicSpline("softplus", every=2)
    first = torch.randn(500, generator=torch.Generator().manual_seed(0), requires_grad=True)
    slope = module.spline.slope(first.detach().double())
    y = module(first)
    module(torch.randn(500, generator=torch.Generator().manual_seed(1)))
    assert module.refreshes == 1
    y.sum().backward()
    torch.testing.assert_close(first.grad.double(), slope, rtol=1e-5, atol=1e-6)


def test_it_compiles_whole_in_both_modes():
    torch._dynamo.reset()
    module = sk.nn.EntropicSpline("softplus", every=3)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    x = torch.randn(64, 16, generator=torch.Generator().manual_seed(0), requires_grad=True)
    for _ in range(6):
        compiled(x).sum().backward()
    assert (module.calls, module.refreshes) == (6, 2)
    plain = sk.nn.EntropicSpline("softplus", every=3)
    for _ in range(6):
        plain(x)
    torch.testing.assert_close(module.table, plain.table)
    module.eval()
    torch.testing.assert_close(compiled(x), plain.eval()(x))


def test_a_network_learns_with_it():
    """The digits, two layers of it: it learns as well as anything does in so few steps, and its entropy has fallen."""
    digits = load_digits()
    torch.manual_seed(0)
    first, second = (sk.nn.EntropicSpline("softplus", every=10) for _ in range(2))
    linear = torch.nn.Linear
    model = torch.nn.Sequential(linear(64, 48), first, linear(48, 48), second, linear(48, 10))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(120):
        rows = torch.randint(0, len(digits.train_images), (128,), generator=torch.Generator().manual_seed(step))
        loss = torch.nn.functional.cross_entropy(model(digits.train_images[rows]), digits.train_labels[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.eval()
    right = (model(digits.test_images).argmax(1) == digits.test_labels).double().mean()
    assert float(right) > 0.9
    for act in (first, second):
        assert act.refreshes == 12
        assert act.last.entropies[-1] < act.last.entropies[0]
        assert bool((act.spline.slopes > 0).all())
    assert not list(first.parameters())


def test_the_table_alone_is_enough():
    spline = knee()
    at = torch.linspace(-3, 3, 7, dtype=F64)
    torch.testing.assert_close(spline_value(at, spline.table), spline(at))
