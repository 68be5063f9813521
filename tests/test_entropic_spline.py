"""The monotone spline that repeated EAFO bends, and the module of it that refreshes itself."""

import copy
import itertools
import math
import pickle

import pytest
import torch

import softknee as sk
from deploy_networks import flat_digits
from entropic_samples import draw
from helpers import F32, F64
from softknee.design.entropic.spline import spline_value
from softknee.spec.reference import evaluate
from softknee.surgery import module_of, name_of

FAR = torch.tensor([-math.inf, -1e30, -100.0, 100.0, 1e30, math.inf])


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


# -- the module -------------------------------------------------------------------------------------------


def test_the_module_starts_as_its_function():
    at = torch.linspace(-3, 3, 601)
    softplus = sk.nn.EntropicSpline("softplus", beta=2.0, refresh=False, knots=128)
    assert float((softplus(at) - sk.get("softplus")(at, beta=2.0)).abs().max()) < 0.02
    relu = sk.nn.EntropicSpline("relu", refresh=False)
    assert float((relu(at) - torch.relu(at)).abs().max()) < 0.1
    assert float(relu.spline.slopes.min()) == pytest.approx(0.01, rel=0.05)
    result = sk.design.eafo_descent("softplus", draw(2000), 2)
    torch.testing.assert_close(
        sk.nn.EntropicSpline(result).double()(at.double()), result(at.double()), rtol=1e-5, atol=1e-5
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
    digits = flat_digits()
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


# -- learned slopes ---------------------------------------------------------------------------------------


def learned(**settings) -> sk.nn.EntropicSpline:
    module = sk.nn.EntropicSpline("softplus", knots=8, learn=True, dtype=F64, **settings)
    with torch.no_grad():
        module.gain.copy_(0.5 * torch.sin(torch.arange(8.0)))
    return module


def test_learned_slopes_are_those_of_the_start_times_a_gain():
    module, start = learned(refresh=False), sk.nn.EntropicSpline("softplus", knots=8, refresh=False, dtype=F64)
    knots = start.spline.knots
    torch.testing.assert_close(module.spline.slope(knots), start.spline.slope(knots) * module.gain[0].detach().exp())
    assert float(module(knots[4]).detach()) == pytest.approx(float(start(knots[4])), rel=1e-14)  # the middle stays
    at = torch.linspace(-4, 4, 101, dtype=F64)
    torch.testing.assert_close(module(at).detach(), module.spline(at))
    still = sk.nn.EntropicSpline("softplus", knots=8, learn=True, refresh=False, dtype=F64)
    torch.testing.assert_close(still(at), start(at), rtol=1e-13, atol=1e-14)


def test_the_gradient_of_learned_slopes():
    module = learned(refresh=False)
    inside, outside = torch.linspace(-2.9, 2.9, 17, dtype=F64), torch.tensor([-7.0, 6.0], dtype=F64)
    x = torch.cat([inside, outside]).requires_grad_()

    def value(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(module, {"gain": gain}, (x,))

    assert torch.autograd.gradcheck(value, (x, module.gain.detach().requires_grad_()))
    module(x.detach()).sum().backward()
    assert bool((module.gain.grad != 0).all())


def test_a_step_from_what_was_learned_leaves_that_where_it_is():
    module, x = learned(refresh=False), draw(6000)
    gain, before, slope = module.gain.detach().clone(), module(x).detach(), module.spline.slope(x)
    module.refresh_(x)
    after = module(x).detach()
    assert module.refreshes == 1
    assert torch.equal(module.gain, gain)
    assert float(after.mean()) == pytest.approx(float(before.mean()), rel=1e-6)
    assert float(after.std()) == pytest.approx(float(before.std()), rel=1e-6)
    assert float(torch.log(module.spline.slope(x)).mean()) < float(torch.log(slope).mean()) - 1e-3


def test_learning_and_refreshing_take_turns():
    """A refresh between a call and its gradient does not disturb the gradient of what is learned either."""
    module = learned(every=2)
    x = draw(600)
    plain = learned(refresh=False)
    plain(x).square().sum().backward()
    y = module(x)
    module(draw(600))
    assert module.refreshes == 1
    y.square().sum().backward()
    torch.testing.assert_close(module.gain.grad, plain.gain.grad)


def test_it_goes_by_a_name():
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    sk.swap_(net, "entropic_spline", start="gelu", every=7)
    assert isinstance(net[1], sk.nn.EntropicSpline)
    assert (net[1].every, net[1].learned) == (7, ())
    sk.swap_(net, "entropic_spline", replacing="entropic_spline", learn=True, refresh=False)
    groups = {group["name"]: group["params"] for group in sk.param_groups(net, lr=0.1)}
    assert [parameter.shape for parameter in groups["activations"]] == [(1, 48)]
    for text in ("entropic_spline", "entropic_spline(start=gelu, every=7, refresh=0, learn=gain)"):
        assert name_of(module_of(text)) == f"softknee:{text}"
    moved = module_of("entropic_spline").refresh_(draw(1000))
    with pytest.raises(sk.ParameterError, match=r"its numbers table are not those.*numbers=False"):
        name_of(moved)
    assert name_of(moved, numbers=False) == "softknee:entropic_spline"
    with pytest.raises(sk.ParameterError, match="one spline, and per='channel'"):
        sk.nn.make("entropic_spline", per="channel", size=3)


def test_many_replicas_at_once_have_it_only_without_steps():
    x = draw(64).reshape(16, 4).float()
    y = torch.arange(16) % 2

    def maker(**settings):
        linear, make = torch.nn.Linear, sk.nn.make
        return lambda: torch.nn.Sequential(linear(4, 8), make("entropic_spline", **settings), linear(8, 2))

    with pytest.raises(sk.InputError, match=r"sk\.train\.OneByOne"):
        sk.train.Replicas(maker(), count=2).fit(x, y, epochs=1, batch=8, lr=0.1)
    both = [
        trainer(maker(refresh=False, learn=True), count=2).fit(x, y, epochs=3, batch=8, lr=0.1)
        for trainer in (sk.train.Replicas, sk.train.OneByOne)
    ]
    torch.testing.assert_close(both[0].knobs()["1.gain"], both[1].knobs()["1.gain"], rtol=1e-4, atol=1e-6)
    assert float(both[0].knobs()["1.gain"].abs().max()) > 1e-3


def test_the_table_alone_is_enough():
    spline = knee()
    at = torch.linspace(-3, 3, 7, dtype=F64)
    torch.testing.assert_close(spline_value(at, spline.table), spline(at))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_scripting_is_refused_with_a_sentence():
    for model in (sk.nn.EntropicSpline(), torch.nn.Sequential(sk.nn.EntropicSpline())):
        with pytest.raises(sk.InputError, match=r"EntropicSpline cannot be scripted.*torch\.export"):
            torch.jit.script(model)
