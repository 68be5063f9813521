"""SQUAF-P and SQUAF-S as functions: what is drawn and how often, gradients, extremes, layouts, replicas."""

import math

import pytest
import torch
from scipy.stats import chi2, norm
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from softknee.kernels.squaf import new_seed, sampled_symbols, squaf, squaf_sampled, squaf_step, step_symbols
from softknee.kernels.squaf.symbols import hash_bits, uniform
from squaf_reference import inputs, parameters

F32, F64 = torch.float32, torch.float64
WEIGHTS = ["gaussian", "laplacian"]
GRID = torch.tensor([-2.0, -0.7, -0.6, 0.0, 0.4, 2.5])
KINDS = ["window 3", "window 5", "window 7", "full", "grid"]


def setting(kind: str, weights: str, dtype: torch.dtype = F32, shape: tuple[int, ...] = (1,)) -> dict:
    """The arguments of `squaf` but x."""
    if kind == "grid":
        z = inputs(*shape, len(GRID), seed=4, dtype=dtype)
        grid = GRID.to(dtype).expand(*shape, -1).clone()
        return {"grid": grid, "alpha": torch.full(shape, 1.3, dtype=dtype), "z": z, "window": None, "weights": weights}
    window = None if kind == "full" else int(kind.split()[1])
    return {**parameters(shape, k=4, dtype=dtype), "window": window, "weights": weights}


def chances(x: Tensor, p: dict) -> Tensor:
    """P(y_i | x), worked out in float64 from the definition; [len(x), n]. One table for all of x."""
    x, alpha, n = x.double(), p["alpha"].double(), p["z"].shape[-1]
    if "grid" in p:
        points, kept = p["grid"].double().reshape(1, -1), torch.ones(1, n, dtype=torch.bool)
    else:
        places, q = torch.arange(n) - n // 2, p["q"].double()
        points = (q * places).reshape(1, -1)
        nearest = (x / q).round().clamp(-(n // 2), n // 2)
        kept = (places - nearest[:, None]).abs() <= (p["window"] // 2 if p["window"] else n)
    away = x[:, None] - points
    logs = -alpha * (away.abs() if p["weights"] == "laplacian" else away.square())
    return logs.masked_fill(~kept, -torch.inf).softmax(1)


# ---- what is drawn ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_symbols_are_as_frequent_as_they_are_likely(kind, weights):
    p, draws = setting(kind, weights), 20_000
    x = torch.tensor([-9.0, -1.4, -0.1, 0.3, 1.9, 3.3])
    torch.manual_seed(1)
    actual = sampled_symbols(x.repeat(draws, 1), **p, seed=new_seed(x))
    counts = torch.stack([torch.bincount(column, minlength=p["z"].shape[-1]) for column in actual.T]).double()
    expected = draws * chances(x, p)
    assert not counts[expected == 0].any()  # outside of the window
    for seen, due in zip(counts, expected, strict=True):
        likely = due >= 5
        # What is too rare for a cell of its own is one cell together.
        seen = torch.cat([seen[likely], seen[~likely].sum(0, keepdim=True)])
        due = torch.cat([due[likely], due[~likely].sum(0, keepdim=True)])
        if due[-1] < 5:
            assert seen[-1] <= due[-1] + 6 * math.sqrt(due[-1]) + 2
            seen, due = seen[:-1], due[:-1]
        if len(due) > 1:
            statistic = ((seen - due).square() / due).sum().item()
            assert chi2.sf(statistic, len(due) - 1) > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_the_mean_of_samples_is_squaf_within_its_standard_error(kind, weights):
    p, draws = setting(kind, weights), 20_000
    x = torch.linspace(-4, 4, 23)
    torch.manual_seed(2)
    result = squaf_sampled(x.repeat(draws, 1), **p).double()
    error = (result.mean(0) - squaf(x, **p).double()) / (result.std(0) / math.sqrt(draws)).clamp(min=1e-5)
    assert error.abs().max() < norm.isf(1e-3 / 2 / len(x))
    assert result.std(0).max() > 0.1


def test_neither_places_nor_calls_are_correlated():
    p, x = setting("window 5", "gaussian"), torch.full((40_000,), 0.4)
    torch.manual_seed(3)
    first, second = (squaf_sampled(x, **p).double() for _ in range(2))
    first, second = first - first.mean(), second - second.mean()
    for pair in ((first, second), (first[1:], first[:-1]), (first[64:], first[:-64]), (first[1:], second[:-1])):
        share = (pair[0] * pair[1]).mean() / (first.std() * second.std())
        assert abs(share) < 4 / math.sqrt(len(x))


def test_bits_of_the_hash_are_fair_and_all_positions_differ():
    seed = torch.tensor(0x1234_5678_9ABC_DEF0)
    position = torch.arange(100_000)
    bits = hash_bits(seed, position)
    ones = torch.stack([(bits >> i & 1).double().mean() for i in range(32)])
    assert (ones - 0.5).abs().max() < 4.5 * 0.5 / math.sqrt(len(position))
    assert len(bits.unique()) == len(position)
    # One bit of the seed or the position changes half of the bits.
    for other in (hash_bits(seed ^ 1, position), hash_bits(seed ^ 1 << 40, position), hash_bits(seed, position ^ 1)):
        changed = torch.stack([((bits ^ other) >> i & 1).double().mean() for i in range(32)])
        assert (changed - 0.5).abs().max() < 0.02
    assert (hash_bits(seed, position + (1 << 32)) != bits).all()
    assert len(uniform(seed, position, F64).unique()) == len(position)
    assert uniform(seed, position, F32).max() < 1


def python_bits(seed: int, position: int) -> int:
    """The hash in whole numbers of Python."""

    def mix(h: int) -> int:
        h = (h ^ h >> 16) * 0x7FEB352D % 2**32
        h = (h ^ h >> 15) * 0x846CA68B % 2**32
        return h ^ h >> 16

    return mix(mix((position + seed) % 2**32) ^ (seed >> 32) ^ mix(position >> 32))


def test_the_hash_is_the_one_that_is_written_down():
    seeds, positions = [0, 1, 2**63 - 2, 0x1234_5678_9ABC_DEF0], [0, 1, 2**31, 2**32 - 1, 2**32, 2**40 + 7]
    result = hash_bits(torch.tensor(seeds)[:, None], torch.tensor(positions))
    assert result.tolist() == [[python_bits(seed, position) for position in positions] for seed in seeds]


def test_the_generator_decides_and_a_seed_repeats():
    p, x = setting("window 5", "gaussian"), inputs(500, dtype=F32)
    torch.manual_seed(5)
    first, second = squaf_sampled(x, **p), squaf_sampled(x, **p)
    torch.manual_seed(5)
    assert torch.equal(squaf_sampled(x, **p), first)
    assert not torch.equal(first, second)
    seed = torch.tensor(77)
    assert torch.equal(squaf_sampled(x, **p, seed=seed), squaf_sampled(x, **p, seed=seed))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [F64, F32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1,), (3, 1), (2, 3, 5)])
def test_values_are_the_table_at_the_symbols(kind, dtype, shape):
    p = setting(kind, "gaussian", shape=shape)
    x, seed = inputs(2, 3, 5, dtype=dtype), torch.tensor(11)
    z = p["z"].expand(2, 3, 5, -1).to(dtype)
    place = {name: p[name] for name in ("q", "grid", "z") if name in p}
    pairs = (
        (squaf_sampled(x, **p, seed=seed), sampled_symbols(x, **p, seed=seed)),
        (squaf_step(x, **place), step_symbols(x, **place)),
    )
    for value, symbols in pairs:
        assert symbols.dtype == torch.int32
        assert value.dtype == dtype
        assert torch.equal(value, z.gather(-1, symbols.long()[..., None])[..., 0])


# ---- the staircase ------------------------------------------------------------------------------------------


def test_a_step_is_the_nearest_point():
    p = parameters((3, 1), dtype=F32)
    x = inputs(50, 3, 7, dtype=F32, spread=4.0)
    index = (x / p["q"]).round().clamp(-4, 4).long() + 4
    expected = p["z"].expand(50, 3, 7, 9).gather(-1, index[..., None])[..., 0]
    assert torch.equal(squaf_step(x, q=p["q"], z=p["z"]), expected)
    y = inputs(500, dtype=F32)
    nearest = (y[:, None] - GRID).abs().argmin(1)
    assert torch.equal(step_symbols(y, grid=GRID, z=GRID).long(), nearest)
    # On the middle: the even point of the uniform grid, the upper point of a general one.
    middle = torch.tensor([-1.5, -0.5, 0.5, 1.5])
    points = torch.arange(-2.0, 3.0)
    assert squaf_step(middle, q=torch.ones(1), z=points).tolist() == [-2, 0, 0, 2]
    assert squaf_step(middle, grid=points, z=points).tolist() == [-1, 0, 1, 2]


def test_a_sharp_squaf_becomes_the_staircase():
    p = parameters(dtype=F64) | {"alpha": torch.tensor([1e5], dtype=F64)}
    x = inputs(400)
    away = (x / p["q"] - (x / p["q"]).round()).abs()
    x = x[away < 0.49]
    step = squaf_step(x, q=p["q"], z=p["z"])
    torch.testing.assert_close(squaf(x, **p), step)
    assert torch.equal(squaf_sampled(x, **p), step)


# ---- gradients ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(("dtype", "shape"), [(F64, (1,)), (F32, (3, 1)), (torch.bfloat16, (1,))])
def test_gradients_of_samples_are_those_of_squaf_to_the_bit(kind, weights, dtype, shape):
    p = setting(kind, weights, shape=shape)
    x, g = inputs(40, 3, 2, dtype=dtype).requires_grad_(), inputs(40, 3, 2, dtype=dtype, seed=9)
    names = [name for name, item in p.items() if isinstance(item, Tensor)]
    for name in names:
        p[name].requires_grad_()
    sources = [x, *(p[name] for name in names)]
    soft = torch.autograd.grad(squaf(x, **p), sources, g)
    sampled = torch.autograd.grad(squaf_sampled(x, **p), sources, g)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(sampled, soft, strict=True))
    assert all(value.abs().sum() > 0 for value in soft)


def test_second_derivatives_are_those_of_squaf():
    p = {name: item.requires_grad_() for name, item in parameters().items()}
    x = inputs(20).requires_grad_()
    results = []
    for function in (squaf, squaf_sampled):
        (slope,) = torch.autograd.grad(function(x, **p).sum(), x, create_graph=True)
        results.append(torch.autograd.grad(slope.square().sum(), [x, *p.values()]))
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*results, strict=True))


@pytest.mark.parametrize("shape", [(1,), (3, 1)])
def test_gradients_of_the_staircase_are_the_true_ones(shape):
    p = {name: item.requires_grad_() for name, item in parameters(shape).items() if name != "alpha"}
    x, g = inputs(40, 3, 2).requires_grad_(), inputs(40, 3, 2, seed=9).requires_grad_()
    by_x, by_q, by_z = torch.autograd.grad(squaf_step(x, **p), [x, p["q"], p["z"]], g, create_graph=True)
    assert not by_x.any()
    assert not by_q.any()
    at = torch.nn.functional.one_hot(step_symbols(x, **p).long(), 9) * g[..., None]
    torch.testing.assert_close(by_z, at.sum_to_size(*(1,) * (3 - len(shape)), *shape, 9).reshape(by_z.shape))
    (back,) = torch.autograd.grad(by_z, g, p["z"])
    torch.testing.assert_close(back, squaf_step(x, **p))
    z = inputs(6, seed=3).requires_grad_()
    y = inputs(30).requires_grad_()
    on_grid = torch.autograd.grad(squaf_step(y, grid=GRID.double(), z=z).sum(), [y, z])
    assert not on_grid[0].any()
    assert on_grid[1].tolist() == torch.bincount(step_symbols(y, grid=GRID.double(), z=z), minlength=6).tolist()


# ---- extremes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [F64, F32, torch.bfloat16, torch.float16])
def test_infinities_take_the_ends_and_nan_comes_from_nan_alone(kind, dtype):
    p = setting(kind, "gaussian")
    place = {name: p[name] for name in ("q", "grid", "z") if name in p}
    last, huge = p["z"].shape[-1] - 1, torch.finfo(dtype).max
    x = torch.tensor([torch.inf, huge, -torch.inf, -huge, torch.nan, 0.1], dtype=dtype)
    seed = torch.tensor(3)
    for value, symbols in (
        (squaf_sampled(x, **p, seed=seed), sampled_symbols(x, **p, seed=seed)),
        (squaf_step(x, **place), step_symbols(x, **place)),
    ):
        assert symbols[:5].tolist() == [last, last, 0, 0, -1]
        assert value.isnan().tolist() == [False] * 4 + [True, False]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "x", [torch.zeros(0), torch.zeros(3, 0, 2), torch.tensor(0.7)], ids=["empty", "3x0x2", "0-dim"]
)
def test_empty_and_single(kind, x):
    p = setting(kind, "gaussian")
    place = {name: p[name] for name in ("q", "grid", "z") if name in p}
    x = x.clone().requires_grad_()
    for value in (squaf_sampled(x, **p), squaf_step(x, **place)):
        assert value.shape == x.shape
        (slope,) = torch.autograd.grad(value.sum(), x)
        assert slope.shape == x.shape
    assert step_symbols(x, **place).shape == sampled_symbols(x, **p, seed=torch.tensor(1)).shape == x.shape


@pytest.mark.parametrize("softness", [1e-8, 1e8])
def test_every_point_of_a_soft_table_and_one_of_a_hard_one(softness):
    x = torch.full((2000,), 0.3)
    p = {"q": torch.ones(1), "alpha": torch.tensor([softness]), "z": torch.arange(-2.0, 3.0)}
    result = squaf_sampled(x, **p, window=None, seed=torch.tensor(8)).unique()
    assert result.tolist() == ([0.0] if softness > 1 else [-2.0, -1.0, 0.0, 1.0, 2.0])


def test_layouts_keep_their_strides_and_pieces_change_nothing(monkeypatch):
    p = setting("window 5", "gaussian", shape=(3, 1, 1))
    x, seed = inputs(4, 3, 5, 6, dtype=F32), torch.tensor(21)
    last = x.to(memory_format=torch.channels_last)
    assert squaf_sampled(last, **p, seed=seed).is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(squaf_step(last, q=p["q"], z=p["z"]), squaf_step(x, q=p["q"], z=p["z"]))
    assert torch.equal(
        squaf_sampled(x[..., ::2], **p, seed=seed), squaf_sampled(x[..., ::2].contiguous(), **p, seed=seed)
    )
    whole = sampled_symbols(x, **p, seed=seed)
    monkeypatch.setattr("softknee.kernels.squaf.eager.PIECE", 300)
    cut = sampled_symbols(x, **p, seed=seed)
    # A CPU's vector exponential and the scalar one round differently: one draw in millions may fall on the seam.
    assert (whole != cut).sum() <= 1


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1,), (3, 1)], ids=["layer", "channel"])
def test_a_general_grid_is_drawn_from_without_a_tensor_of_elements_times_points(shape, monkeypatch):
    p, x, seed = setting("grid", "gaussian", F64, shape), inputs(40, 3, 7), torch.tensor(21)
    place = {"grid": p["grid"], "z": p["z"]}
    calls = [
        lambda at: squaf_sampled(at, **p, seed=seed),
        lambda at: sampled_symbols(at, **p, seed=seed),
        lambda at: squaf_step(at, **place),
        lambda at: step_symbols(at, **place),
    ]
    whole = [call(x) for call in calls]
    monkeypatch.setattr("softknee.kernels.squaf.eager.PIECE", 500)
    for call, before in zip(calls, whole, strict=True):
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True, acc_events=True) as seen:
            cut = call(x)
        shapes = [shape for event in seen.events() or [] for shape in event.input_shapes if shape]
        assert len(shapes) > 20
        assert max(map(math.prod, shapes)) <= x.numel()
        assert torch.equal(cut, before)
        assert torch.equal(call(x.movedim(1, 0).contiguous().movedim(0, 1)), before)  # by place in x, not in memory
