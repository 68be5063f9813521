"""SQUAF, SQUAF-P and SQUAF-S as modules: switching, state, symbols for the wire, checkpointing, compilers, replicas."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import softknee as sk
from softknee.errors import InputError, ParameterError
from softknee.kernels.squaf import squaf, squaf_sampled, squaf_step
from squaf_reference import inputs, parameters

F32 = torch.float32
MODES = {"soft": sk.nn.SQUAF, "sampled": sk.nn.SQUAFP, "step": sk.nn.SQUAFS}


def build(mode: str = "soft", **arguments) -> sk.nn.SQUAF:
    return MODES[mode](**{"k": 4, "q": 0.5, "z": "gelu", "learn": True, **arguments})


def net(*, mode: str = "soft") -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), build(mode), nn.Linear(8, 8), build(mode, q=0.25), nn.Linear(8, 2))


# ---- switching ----------------------------------------------------------------------------------------------


def test_the_names():
    assert sk.nn.Squaf is sk.nn.SQUAF
    for mode, cls in MODES.items():
        made = sk.nn.make("squaf", k=4, mode=mode)
        assert type(made) is cls
        assert made.mode == mode
        assert repr(made).startswith(f"{cls.__name__}(k=4, ")
        text = sk.surgery.name_of(made)
        assert type(sk.surgery.module_of(text)) is cls
    assert "mode=step" in sk.surgery.name_of(sk.nn.SQUAFS())
    with pytest.raises(ParameterError, match="mean 'sampled'"):
        sk.nn.make("squaf", mode="sample")


@pytest.mark.parametrize("start", MODES)
@pytest.mark.parametrize("end", MODES)
def test_a_layer_in_another_mode_has_the_same_parameters(start, end):
    layer = build(start, per="channel", size=3, window="auto").eval()
    turned = {"soft": layer.as_soft, "sampled": layer.as_sampled, "step": layer.as_step}[end]()
    assert type(turned) is MODES[end]
    assert not turned.training
    assert turned is not layer
    assert list(turned.state_dict()) == list(layer.state_dict())
    assert all(ours is theirs for ours, theirs in zip(turned.parameters(), layer.parameters(), strict=True))
    # A layer of that mode from the start loads the state, and is the same function.
    loaded = build(end, per="channel", size=3, window="auto", alpha=1.0)
    loaded.load_state_dict(layer.state_dict())
    x = inputs(50, 3, dtype=F32)
    torch.manual_seed(1)
    here = turned(x)
    torch.manual_seed(1)
    assert torch.equal(here, loaded(x))
    # Moving one moves both, with fixed values as well as with learned ones.
    turned.double()
    assert layer.z.dtype == layer.get_buffer("anchor_q").dtype == torch.float64


def test_what_one_mode_learns_or_keeps_the_others_do_too():
    """What is trained, and how many points are kept, belongs to the parameters that layers hold in common."""
    layer = build(learn=False, window="auto", alpha=60.0)
    step, sampled = layer.as_step(), layer.as_sampled()
    sk.train_squaf_(nn.Sequential(sampled), ("q", "z"))
    assert layer.learned == step.learned == ("q", "z")
    x = inputs(50, dtype=F32)
    assert torch.equal(step(x), build("step", learn=False, alpha=60.0)(x))
    assert layer.window == 3
    layer.set_(alpha=2.0)
    assert layer.refresh_window_() == step.window == sampled.window != 3
    other = build(learn=("q", "z"), window="auto", alpha=60.0)
    step.load_state_dict(other.state_dict())
    assert layer.window == sampled.window == 3
    assert torch.equal(layer(x), other(x))


def test_each_mode_is_its_function():
    x = inputs(60, dtype=F32)
    layer = build()
    values = {"q": layer.q, "alpha": layer.alpha, "z": layer.z}
    assert torch.equal(layer(x), squaf(x, **values))
    torch.manual_seed(4)
    result = layer.as_sampled()(x)
    torch.manual_seed(4)
    assert torch.equal(result, squaf_sampled(x, **values))
    assert torch.equal(layer.as_step()(x), squaf_step(x, q=layer.q, z=layer.z))
    assert not torch.equal(layer(x), layer.as_step()(x))


@pytest.mark.parametrize("mode", ["sampled", "step"])
def test_inplace_overwrites_only_where_no_gradient_is_needed(mode):
    layer, x = build(mode, learn=False, inplace=True), inputs(30, dtype=F32)
    before = x.clone()
    value, symbols = layer.with_symbols(x)
    assert torch.equal(x, before)
    assert torch.equal(layer.from_symbols(symbols), value)
    assert layer(x) is x
    assert not torch.equal(x, before)
    y = before.clone().requires_grad_()
    layer(y).sum().backward()
    assert torch.equal(y.detach(), before)


def test_hooks_stay_with_the_layer_they_were_given_to():
    layer, seen = build(), []
    layer.register_forward_hook(lambda *_: seen.append(1))
    layer.as_step()(torch.zeros(3))
    assert not seen


def test_a_whole_model_is_switched_in_place():
    model = net()
    layers, state, x = [model[1], model[3]], model.state_dict(), inputs(20, 3, dtype=F32)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    soft = model(x)
    report = sk.squaf_mode_(model, "sampled")
    assert (report.count, report.switched, report.paths, report.mode) == (2, 2, ("1", "3"), "sampled")
    assert str(report) == "2 SQUAF layers in the mode 'sampled' (2 switched): 1, 3"
    assert [model[1], model[3]] == layers
    assert all(type(layer) is sk.nn.SQUAFP for layer in layers)
    assert not torch.equal(model(x), model(x))
    model(x).square().sum().backward()
    assert all(p.grad is not None for group in optimiser.param_groups for p in group["params"])
    assert sk.squaf_mode_(model, "step").switched == 2
    assert sk.squaf_mode_(model, "step").switched == 0
    assert torch.equal(model(x), model(x))
    assert list(model.state_dict()) == list(state)
    sk.squaf_mode_(model, "soft")
    assert torch.equal(model(x), soft)
    assert sk.squaf_mode_(model[1], "step").paths == ("",)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_layer_that_has_run_runs_in_its_new_mode(device):
    """At a size for which a call is prepared once and kept: what was prepared in one mode is not run in another."""
    layer, x = build(window=5).to(device), inputs(64, 128, dtype=F32).to(device)
    for mode in ("soft", "sampled", "step", "sampled", "soft", "step"):
        sk.squaf_mode_(layer, mode)
        fresh, results = build(mode, window=5).to(device), []
        fresh.load_state_dict(layer.state_dict())
        for each in (layer, fresh):
            torch.manual_seed(1)
            y = each(x)
            gradients = torch.autograd.grad(y.square().sum(), list(each.parameters()), materialize_grads=True)
            results.append([y.detach(), *gradients])
        for ours, expected in zip(*results, strict=True):
            assert torch.equal(ours, expected)


def test_what_cannot_be_switched_is_refused_and_nothing_changes():
    with pytest.raises(InputError, match=r"Sequential has no SQUAF layer to switch; put them in with"):
        sk.squaf_mode_(nn.Sequential(nn.ReLU()), "step")
    with pytest.raises(InputError, match=r"squaf_mode_: a torch\.nn\.Module is needed, and str was given"):
        sk.squaf_mode_("text", "step")
    model = net()
    with pytest.raises(ParameterError, match=r"mode must be 'soft', 'sampled' or 'step', and 'hard' was given"):
        sk.squaf_mode_(model, "hard")

    class Mine(sk.nn.SQUAF):
        pass

    model[3] = Mine()
    with pytest.raises(ParameterError, match=r"3: Mine is made of a SQUAF .* Nothing was changed"):
        sk.squaf_mode_(model, "step")
    assert type(model[1]) is sk.nn.SQUAF
    with pytest.raises(ParameterError, match="Mine"):
        model[3].as_step()
    slope = sk.nn.make(sk.get("squaf").derivative(1))
    with pytest.raises(ParameterError, match="not of one of its derivatives"):
        slope.as_sampled()
    with pytest.raises(ParameterError, match="not of one of its derivatives"):
        sk.nn.SQUAFS(sk.get("squaf").derivative(1))


# ---- symbols ------------------------------------------------------------------------------------------------

PER = {
    "layer": {},
    "channel": {"per": "channel", "size": 3},
    "last": {"per": "channel", "size": 5, "dim": -1},
    "neuron": {"per": "neuron", "size": (3, 5)},
}


@pytest.mark.parametrize("per", PER)
@pytest.mark.parametrize("mode", ["sampled", "step"])
@pytest.mark.parametrize("grid", [False, True], ids=["uniform", "grid"])
def test_symbols_give_the_output_back(per, mode, grid):
    where = {"k": None, "q": None, "grid": [-2.0, -0.5, 0.0, 0.1, 3.0], "alpha": 2.0} if grid else {}
    layer = build(mode, **where, **PER[per])
    x = inputs(40, 3, 5, dtype=F32).requires_grad_()
    value, symbols = layer.with_symbols(x)
    assert symbols.shape == x.shape
    assert torch.equal(layer.from_symbols(symbols), value)
    assert torch.equal(layer.from_symbols(symbols.to(torch.uint8), dtype=torch.bfloat16), value.bfloat16())
    if per == "layer":
        assert torch.equal(layer.z[0][symbols], value)
    (slope,) = torch.autograd.grad(value.sum(), x)
    assert slope.any() == (mode == "sampled")
    torch.manual_seed(3)
    again = layer.symbols(x)
    torch.manual_seed(3)
    assert torch.equal(layer.from_symbols(again), layer(x))


def test_symbols_go_over_the_wire():
    layer = build("sampled", k=16, q=0.25)
    value, symbols = layer.with_symbols(inputs(5000, dtype=F32))
    data = sk.wire.encode(symbols, levels=33)
    assert torch.equal(layer.from_symbols(sk.wire.decode(data)), value)
    assert len(data) < 5000 * 5.34 / 8


def test_what_has_no_symbols_says_so():
    with pytest.raises(ParameterError, match=r"ask as_sampled\(\) or as_step\(\) for symbols"):
        build().symbols(torch.zeros(3))
    step = build("step")
    for wrong in (torch.tensor([9]), torch.tensor([-1, 2])):
        with pytest.raises(InputError, match=r"symbols must be in 0\.\.8"):
            step.from_symbols(wrong)
    for wrong in (torch.zeros(3), [1, 2], torch.zeros(2, dtype=torch.complex64)):
        with pytest.raises(InputError, match="a tensor of whole numbers"):
            step.from_symbols(wrong)
    for ask in (step.symbols, step.with_symbols, build("sampled").symbols, build("sampled").with_symbols):
        with pytest.raises(InputError, match="and list was given"):
            ask([1.0])
    with pytest.raises(ParameterError, match=r"ask as_sampled\(\)"):
        build().from_symbols(torch.tensor([1]))


# ---- checkpointing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_draws_the_same_again(reentrant):
    model, x = net(mode="sampled"), inputs(30, 3, dtype=F32).requires_grad_()
    results = []
    for run in (model, lambda at: checkpoint(model, at, use_reentrant=reentrant)):
        torch.manual_seed(6)
        value = run(x)
        # Numbers drawn between forward and backward do not matter.
        torch.rand(5)
        value.square().sum().backward()
        sources = [x, *model.parameters()]
        results.append([value, *(source.grad for source in sources)])
        for source in sources:
            source.grad = None
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*results, strict=True))


# ---- compilers ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager_decomp_partition", "inductor"])
def test_compiled_in_one_graph_it_draws_the_same(backend):
    # Without a parameter to train or an operation to fuse, inductor has no C++ to compile: that would take 10 s.
    train = backend != "inductor"

    class Twice(nn.Module):
        """Two layers of one input: their draws must not become one."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = (build("sampled", learn=train) for _ in range(2))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.first(x), self.second(x)

    model, x = Twice(), inputs(200, dtype=F32).requires_grad_(train)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    results = []
    for run in (model, compiled):
        torch.manual_seed(8)
        runs = [run(x) for _ in range(2)]
        values = [item for pair in runs for item in pair]
        assert all(not torch.equal(values[0], other) for other in values[1:])
        loss = sum(value.square().sum() for value in values)
        results.append([*values, *(torch.autograd.grad(loss, [x, *model.parameters()]) if train else ())])
    for ours, theirs in zip(results[1][:4], results[0][:4], strict=True):
        assert torch.equal(ours, theirs)
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sampled", "step"])
def test_switching_a_compiled_model_is_noticed(mode):
    model, x = net(), inputs(20, 3, dtype=F32)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    compiled(x)
    sk.squaf_mode_(model, mode)
    torch.manual_seed(2)
    ours = compiled(x)
    torch.manual_seed(2)
    assert torch.equal(ours, model(x))


@pytest.mark.slow
def test_opcheck():
    p = parameters((2, 1))
    x, seed = inputs(4, 2, 3).requires_grad_(), torch.tensor(5)
    q, alpha, z = (p[name].requires_grad_() for name in ("q", "alpha", "z"))
    ops = torch.ops.softknee
    torch.library.opcheck(ops.squaf_sample.default, (x, seed, q, alpha, z, 5, False))
    lying = inputs(4, 3, 2).transpose(1, 2).requires_grad_()
    torch.library.opcheck(ops.squaf_sample.default, (lying, torch.arange(4), q, alpha, z, 0, True))
    torch.library.opcheck(ops.squaf_step.default, (x, q, z))
    torch.library.opcheck(ops.squaf_step_backward.default, (x.detach(), x, q, z))
    torch.library.opcheck(ops.squaf_symbols.default, (x.detach(), seed, q.detach(), alpha.detach(), 9, 5, False))
    torch.library.opcheck(ops.squaf_symbols.default, (x.detach(), None, q.detach(), alpha.detach(), 9, 0, False))


# torch loads its forward-mode formulas with its own deprecated function on first use.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_forward_mode_has_the_slope_of_squaf():
    p, x, direction = parameters(), inputs(9), inputs(9, seed=9)
    value, tangent = torch.func.jvp(lambda at: squaf_sampled(at, **p, seed=torch.tensor(4)), (x,), (direction,))
    assert torch.equal(value, squaf_sampled(x, **p, seed=torch.tensor(4)))
    torch.testing.assert_close(tangent, torch.func.grad(lambda at: squaf(at, **p).sum())(x) * direction)
    flat = torch.func.jvp(lambda at: squaf_step(at, q=p["q"], z=p["z"]), (x,), (direction,))[1]
    assert not flat.any()


# ---- replicas -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1,), (3, 1, 1), (1, 3, 1, 5)])
@pytest.mark.parametrize("randomness", ["different", "same"])
def test_replicas_draw_as_they_would_alone(shape, randomness):
    replicas = [parameters(shape, dtype=F32, seed=s) for s in range(3)]
    stacked = {name: torch.stack([r[name] for r in replicas]) for name in replicas[0]}
    x = inputs(3, 4, 3, 2, 5, dtype=F32)

    def loss(p, x):
        value = squaf_sampled(x, **p)
        return value.square().sum(), value

    torch.manual_seed(7)
    slopes, values = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1), has_aux=True), randomness=randomness)(
        stacked, x
    )
    torch.manual_seed(7)
    seeds = torch.randint(0, 2**63 - 1, (3,) if randomness == "different" else ())
    for number, replica in enumerate(replicas):
        seed = seeds[number] if randomness == "different" else seeds
        alone = squaf_sampled(x[number], **replica, seed=seed)
        assert torch.equal(values[number], alone)

        def soft(p, at, g=2 * alone):
            return (squaf(at, **p) * g).sum()

        by_p, by_x = torch.func.grad(soft, argnums=(0, 1))(replica, x[number])
        torch.testing.assert_close(slopes[1][number], by_x, rtol=1e-5, atol=1e-5)
        for name in replica:
            torch.testing.assert_close(slopes[0][name][number], by_p[name], rtol=1e-4, atol=1e-4)
    same = inputs(50, dtype=F32)
    one = torch.func.vmap(lambda p: squaf_sampled(same, **p), randomness="different")
    first = {name: t[:1].expand(2, *t.shape[1:]) for name, t in stacked.items() if shape == (1,)}
    if first:
        assert not torch.equal(*one(first))


def test_replicas_step_and_refuse_draws_without_a_word_on_them():
    layer, x = build("step"), inputs(2, 20, dtype=F32)
    assert torch.equal(torch.func.vmap(layer)(x), layer(x))
    z = torch.stack([layer.z, -layer.z])
    both = torch.func.vmap(torch.func.grad(lambda z: squaf_step(x, q=layer.q.detach(), z=z).square().sum()))(z)
    torch.testing.assert_close(both[0], -both[1])
    raw = torch.func.vmap(lambda z: torch.ops.softknee.squaf_step(x, layer.q.detach(), z))(z.detach())
    assert torch.equal(raw, torch.stack([layer(x), -layer(x)]).detach())
    with pytest.raises(RuntimeError, match="randomness"):
        torch.func.vmap(build("sampled"))(x)
    token = torch.empty(0)
    with pytest.raises(RuntimeError, match="randomness='different'"):
        torch.func.vmap(lambda at: torch.ops.softknee.squaf_seed(at, token, []))(x)
    seeds = torch.func.vmap(lambda at: torch.ops.softknee.squaf_seed(at, token, []), randomness="different")(x)
    assert len(seeds.unique()) == 2
    make = lambda: nn.Sequential(nn.Linear(3, 4), build("sampled"), nn.Linear(4, 2))  # noqa: E731
    replicas = sk.train.Replicas(make, count=2)  # which draw from their own keys
    state = torch.get_rng_state()
    replicas.fit(x[:, :3].repeat(4, 1), torch.zeros(8, dtype=torch.int64), epochs=1, batch=4, lr=0.1)
    assert torch.equal(torch.get_rng_state(), state)
