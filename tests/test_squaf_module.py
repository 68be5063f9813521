"""SQUAF as a module: parameters, granularity, window and state."""

import io

import pytest
import torch

import softknee as sk
from helpers import F32, F64, rounding
from softknee.errors import ParameterError
from softknee.kernels.squaf import squaf
from squaf_reference import inputs

ALL = ("q", "alpha", "z")


def build(**arguments):
    return sk.nn.make("squaf", **{"k": 4, "q": 0.5, "z": "gelu", **arguments})


# ---- parameters -------------------------------------------------------------------------------------


def test_the_papers_size_has_35_parameters():
    module = sk.nn.make("squaf", k=16, q=0.25, learn=True)
    assert isinstance(module, sk.nn.Squaf)
    assert sum(p.numel() for p in module.parameters()) == 35
    assert set(module.state_dict()) == {"raw_q", "anchor_q", "raw_alpha", "anchor_alpha", "z"}
    assert not list(sk.nn.Squaf(k=16).parameters())
    assert torch.equal(module.z[0], torch.relu(0.25 * torch.arange(-16, 17)))
    assert module.alpha.item() == pytest.approx(24, rel=1e-6)


def test_without_arguments_it_is_the_definition():
    x = inputs(30, dtype=F32)
    torch.testing.assert_close(sk.nn.Squaf()(x), sk.get("squaf")(x), rtol=0, atol=1e-6)
    same = sk.get("squaf")(x, k=4, q=0.3, z="gelu", weights="laplacian")
    module = sk.nn.make("squaf", k=4, q=0.3, z="gelu", weights="laplacian")
    torch.testing.assert_close(module(x), same, rtol=0, atol=1e-6)


@pytest.mark.parametrize("learn", [False, "q", ("z", "alpha"), True])
def test_learned_and_fixed_start_at_the_same_function(learn):
    x = inputs(50, dtype=F32)
    module = build(learn=learn)
    named = {learn} if isinstance(learn, str) else set(ALL) if learn is True else set(learn or ())
    trained = {name.removeprefix("raw_") for name, _ in module.named_parameters()}
    assert trained == named
    torch.testing.assert_close(module(x), build()(x), rtol=0, atol=4e-6)


def test_a_random_table_follows_the_seed_and_comes_back_at_a_reset():
    def drawn(seed, **named):
        torch.manual_seed(seed)
        return sk.nn.make("squaf", k=2, q=0.5, alpha=5, z="random", learn=True, **named)

    module = drawn(0)
    assert torch.equal(module.z, drawn(0).z)
    assert not torch.equal(module.z, drawn(1).z)
    assert torch.equal(module.z, drawn(0, device="cpu").z)
    assert module.z.shape == (1, 5)
    start = module.z.detach().clone()
    module.set_(z=torch.zeros(5)).reset_parameters()
    assert torch.equal(module.z, start)
    wide = drawn(0, per="channel", size=2000).z.detach()
    assert wide[0].ne(wide[1]).any()
    assert -1 <= wide.min() < -0.999
    assert 0.999 < wide.max() < 1
    assert abs(wide.mean()) < 0.03
    assert abs(wide.square().mean() - 1 / 3) < 0.02
    with pytest.raises(ParameterError, match="a random table belongs to a module"):
        sk.get("squaf")(torch.zeros(3), z="random")


@pytest.mark.parametrize("start", [1e-6, 0.1, 0.25, 3.0, 1e6])
def test_a_learned_start_comes_back(start):
    module = sk.nn.make("squaf", q=start, alpha=start, learn=True)
    for value in (module.q, module.alpha):
        assert abs(value.item() - start) <= 4 * start * torch.finfo(F32).eps


def test_no_step_leaves_the_constraint():
    torch.manual_seed(0)
    module = build(learn=True)
    optimiser = torch.optim.SGD(module.parameters(), lr=1e4)
    for _ in range(5):
        optimiser.zero_grad()
        module(inputs(64, dtype=F32)).square().sum().backward()
        optimiser.step()
        assert module.q.item() > 0
        assert module.alpha.item() > 0


def test_training_fits_a_function():
    x = torch.linspace(-1.5, 1.5, 200)
    module = sk.nn.make("squaf", k=4, q=0.4, learn=True, window=None)
    optimiser = torch.optim.Adam(module.parameters(), lr=0.05)
    for _ in range(150):
        optimiser.zero_grad()
        loss = (module(x) - torch.sin(3 * x)).square().mean()
        loss.backward()
        optimiser.step()
    assert loss.item() < 1e-2


PER = {
    "layer": ({}, (1,)),
    "channel": ({"per": "channel", "size": 3}, (3, 1, 1)),
    "last": ({"per": "channel", "size": 5, "dim": -1}, (5,)),
    "neuron": ({"per": "neuron", "size": (3, 4, 5)}, (3, 4, 5)),
}


@pytest.mark.parametrize("per", PER)
def test_every_granularity_is_the_function_with_those_rows(per):
    options, shape = PER[per]
    x = inputs(2, 3, 4, 5)
    module = sk.nn.make("squaf", k=4, q=0.5, z="gelu", learn=True, dtype=F64, **options)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for p in module.parameters():
            p += 0.3 * torch.randn(p.shape, generator=generator, dtype=F64)
    p = {"q": module.q.reshape(shape), "alpha": module.alpha.reshape(shape), "z": module.z.reshape(*shape, 9)}
    torch.testing.assert_close(module(x), squaf(x, **p, window=5))
    module(x).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in module.parameters())


def test_values_of_their_own_for_each_channel():
    q = torch.tensor([0.25, 0.5])
    module = sk.nn.make("squaf", k=3, q=q, per="channel", size=2)
    torch.testing.assert_close(module.alpha, 1.5 / q**2)
    assert torch.equal(module.z, torch.relu(q[:, None] * torch.arange(-3, 4)))
    x = inputs(4, 2, dtype=F32)
    for channel in range(2):
        alone = sk.nn.make("squaf", k=3, q=q[channel].item())
        torch.testing.assert_close(module(x)[:, channel], alone(x[:, channel]), rtol=0, atol=1e-6)


def test_set_and_reset():
    module = build(learn=("q", "z"), per="channel", size=2)
    raw, x = module.raw_q, inputs(3, 2, dtype=F32)
    start = module(x)
    assert module.set_(q=torch.tensor([0.3, 0.9]), z=torch.arange(9.0), alpha=2.0) is module
    torch.testing.assert_close(module.q, torch.tensor([0.3, 0.9]))
    torch.testing.assert_close(module.z, torch.arange(9.0).expand(2, 9))
    assert module.alpha.item() == 2
    assert module.raw_q is raw
    module.reset_parameters()
    torch.testing.assert_close(module(x), start)
    with pytest.raises(ParameterError, match="no parameter 'Q'"):
        module.set_(Q=1.0)
    with pytest.raises(ParameterError, match="q must be"):
        module.set_(q=0.0)
    with pytest.raises(ParameterError, match="does not expand"):
        module.set_(z=torch.zeros(8))


def test_meta_device_and_dtype():
    module = build(learn=True, device="meta", window="auto")
    assert all(t.is_meta for t in module.state_dict().values())
    assert module.refresh_window_() == 7
    assert "q=? (learned)" in repr(module)
    module.to_empty(device="cpu").reset_parameters()
    x = inputs(40, dtype=F32)
    torch.testing.assert_close(module(x), build(learn=True, window="auto")(x))
    with torch.autocast("cpu", torch.bfloat16):
        assert build()(x).dtype == F32


def test_repr_says_what_it_is():
    assert repr(build(k=2, z="relu")) == "SQUAF(k=2, q=0.5, alpha=6, z=0..1, window=5)"
    module = build(learn=ALL, per="channel", size=2, window="auto", weights="laplacian", inplace=True)
    assert repr(module) == (
        "SQUAF(k=4, q=0.5 (learned), alpha=3 (learned), z=-0.1587..1.954 (learned), per='channel', size=2, "
        "dim=1, window='auto' (None), weights='laplacian', inplace=True)"
    )


# ---- window -----------------------------------------------------------------------------------------


def test_the_automatic_window_follows_when_asked():
    module = sk.nn.make("squaf", k=16, q=1.0, alpha=1.5, window="auto", tolerance=2e-4, learn=True)
    assert module.window == 5
    module.set_(alpha=0.4)
    assert module.window == 5
    assert module.refresh_window_() == module.window == 11
    module.set_(alpha=1e-3)
    assert module.refresh_window_() is None
    x = inputs(30, dtype=F32)
    full = squaf(x, q=module.q, alpha=module.alpha, z=module.z, window=None)
    assert torch.equal(module(x), full)
    module.reset_parameters()
    assert module.window == 5
    assert sk.nn.make("squaf", k=16, q=1.0, alpha=1e-3, window=3).refresh_window_() == 3


def test_a_loaded_state_has_the_window_it_was_saved_with():
    options = {"k": 16, "q": 1.0, "alpha": 1.5, "window": "auto", "tolerance": 2e-4, "learn": True}
    module, other = sk.nn.make("squaf", **options), sk.nn.make("squaf", **options)
    module.set_(alpha=0.4).refresh_window_()
    other.load_state_dict(_through_a_file(module.state_dict()))
    assert other.window == module.window == 11
    x = inputs(50, dtype=F32)
    assert torch.equal(other(x), module(x))


def _through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


# ---- general grids ----------------------------------------------------------------------------------


def test_a_general_grid_is_learned_too():
    grid = [-2.0, -0.5, 0.0, 1.0, 4.0]
    module = sk.nn.make("squaf", grid=grid, z="gelu", alpha=2.0, learn=True)
    assert {name for name, _ in module.named_parameters()} == {"grid", "raw_alpha", "z"}
    x = inputs(20, dtype=F32)
    expected = squaf(x, grid=torch.tensor(grid), alpha=torch.tensor([2.0]), z=module.z, window=None)
    torch.testing.assert_close(module(x), expected)
    module(x).sum().backward()
    assert module.grid.grad.abs().sum() > 0
    assert "points=5, grid=-2..4 (learned)" in repr(module)
    assert "grid" in sk.explain(module, x).reason
    per = sk.nn.make("squaf", grid=grid, per="channel", size=3, learn="grid")
    assert per.grid.shape == (3, 5)
    assert per(inputs(2, 3, 4, dtype=F32)).shape == (2, 3, 4)


# ---- state and copies -------------------------------------------------------------------------------


def test_a_misfit_input_is_refused():
    with pytest.raises(ParameterError, match="built for 3 channels"):
        build(per="channel", size=3)(torch.zeros(2, 4))
    for make in (sk.nn.SQUAF, sk.nn.SQUAFP, sk.nn.SQUAFS):
        with pytest.raises(sk.InputError, match="to_dense"):
            make(k=4)(torch.eye(2).to_sparse())
        with pytest.raises(ParameterError, match="a definition, and 16 was given; give every other"):
            make(16)


def test_inplace_where_no_gradient_is_needed():
    x = inputs(20, dtype=F32)
    expected, module = build()(x), build(inplace=True)
    kept = x.clone().requires_grad_()
    assert module(kept) is not kept
    assert torch.equal(kept, x)
    overwritten = x.clone()
    assert module(overwritten) is overwritten
    assert torch.equal(overwritten, expected)
    close = rounding(F32)
    torch.testing.assert_close(module(x[:1].expand(20)), expected[:1].expand(20), rtol=close, atol=close)


def test_explain():
    choice = sk.explain(build(), torch.zeros(3, dtype=F64))
    assert choice.path == "plain"
    assert "float64" in choice.reason
