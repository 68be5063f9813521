"""The Triton kernels of SQUAF-P and SQUAF-S, run by Triton's interpreter and held to the plain form in float64.

Run with TRITON_INTERPRET=1 in the environment: Triton reads it when it is imported.
"""

import os

import pytest
import torch
from torch import Tensor

from softknee.kernels.squaf import fused, sampled_symbols, squaf, squaf_sampled, squaf_step, step_symbols
from softknee.kernels.squaf.symbols import uniform

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("Triton's interpreter is asked for with TRITON_INTERPRET=1.", allow_module_level=True)

WINDOWS = [3, 5, 7, None]
WEIGHTS = ["gaussian", "laplacian"]
# Whole tensor, channels, neurons, features, and two separate dimensions, as vmap leaves them.
SHAPES = [(1,), (3, 1), (2, 3, 50), (50,), (2, 1, 50)]
SEED = 0x1234_5678_9ABC_DEF0


def parameters(shape: tuple[int, ...] = (1,), *, k: int = 4) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    q = 0.5 + torch.rand(shape, generator=generator)
    alpha = 0.5 + torch.rand(shape, generator=generator)
    return {"q": q, "alpha": alpha, "z": torch.randn(*shape, 2 * k + 1, generator=generator)}


def inputs(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return (2.5 * torch.randn(shape, generator=torch.Generator().manual_seed(1))).to(dtype)


def bounds(x: Tensor, p: dict[str, Tensor], window: int | None, weights: str) -> Tensor:
    """The running sums of P, from the definition in float64; [..., n]."""
    n = p["z"].shape[-1]
    q, alpha = (p[name].double().unsqueeze(-1) for name in ("q", "alpha"))
    places = torch.arange(n) - n // 2
    at = x.double().unsqueeze(-1)
    kept = (places - (at / q).round().clamp(-(n // 2), n // 2)).abs() <= (window // 2 if window else n)
    away = at - q * places
    logs = -alpha * (away.abs() if weights == "laplacian" else away.square())
    return logs.masked_fill(~kept, -torch.inf).softmax(-1).cumsum(-1)


def drawn(x: Tensor, p: dict[str, Tensor], window: int | None, weights: str, u: Tensor) -> tuple[Tensor, Tensor]:
    """The symbols that u draws, and whether rounding can have no say in them."""
    sums = bounds(x, p, window, weights)[..., :-1]
    u = u.double().reshape(*x.shape, 1)
    return (sums <= u).sum(-1), ((sums - u).abs() > 1e-5).all(-1)


def test_the_kernels_are_what_runs(monkeypatch):
    calls = []
    monkeypatch.setattr(fused, "choose", lambda x, *_, **__: calls.append(1) or x)
    p, x = parameters(), inputs(5)
    squaf_sampled(x, **p)
    squaf_step(x, q=p["q"], z=p["z"])
    squaf_sampled(x.double(), **p)
    assert len(calls) == 2


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_draws_are_those_of_the_hash_and_the_definition(shape, weights, window):
    p, x, seed = parameters(shape), inputs(2, 3, 50), torch.tensor(SEED)
    expected, clear = drawn(x, p, window, weights, uniform(seed, torch.arange(x.numel()), torch.float32))
    symbols = sampled_symbols(x, **p, window=window, weights=weights, seed=seed)
    assert clear.float().mean() > 0.99
    assert torch.equal(symbols[clear].long(), expected[clear])
    value = squaf_sampled(x, **p, window=window, weights=weights, seed=seed)
    assert torch.equal(value, p["z"].expand(2, 3, 50, 9).gather(-1, symbols.long()[..., None])[..., 0])


def test_many_programs_and_seeds_of_replicas():
    p, x = parameters((3, 1, 1), k=16), inputs(3, 5, 217)
    seeds = torch.tensor([SEED, 1, 2**62])
    expected = torch.stack([sampled_symbols(x[i], **_row(p, i), seed=seeds[i]) for i in range(3)])
    actual = torch.ops.softknee.squaf_symbols(x, seeds, p["q"], p["alpha"], 33, 5, False)
    assert torch.equal(actual, expected)
    mapped = torch.func.vmap(lambda x, seed, p: squaf_sampled(x, **p, seed=seed))
    rows = {name: t.reshape(3, 1, *t.shape[3:]) for name, t in p.items()}
    assert torch.equal(
        mapped(x, seeds, rows), p["z"].expand(3, 5, 217, 33).gather(-1, actual.long()[..., None])[..., 0]
    )


def _row(p: dict[str, Tensor], i: int) -> dict[str, Tensor]:
    return {name: t[i].reshape(1, *t.shape[3:]) for name, t in p.items()}


@pytest.mark.parametrize("shape", SHAPES)
def test_steps_are_those_of_the_definition(shape):
    p, x = parameters(shape), 2 * inputs(2, 3, 50)
    expected = (x / p["q"]).round().clamp(-4, 4).long() + 4
    assert torch.equal(step_symbols(x, q=p["q"], z=p["z"]).long(), expected)
    value = squaf_step(x, q=p["q"], z=p["z"])
    assert torch.equal(value, p["z"].expand(2, 3, 50, 9).gather(-1, expected[..., None])[..., 0])


def test_the_middle_goes_to_the_even_point():
    middle = torch.tensor([-1.5, -0.5, 0.5, 1.5])
    assert squaf_step(middle, q=torch.ones(1), z=torch.arange(-2.0, 3.0)).tolist() == [-2, 0, 0, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("window", WINDOWS)
def test_ends_nan_and_half_types(window, dtype):
    p, huge = parameters(), torch.finfo(dtype).max
    x = torch.tensor([torch.inf, huge, -torch.inf, -huge, torch.nan, 0.1], dtype=dtype)
    # The interpreter cuts the digits of a bfloat16 off where a GPU rounds: only a table without more digits can tell.
    p["z"], seed = p["z"].bfloat16().float(), torch.tensor(SEED)
    for value, symbols in (
        (squaf_sampled(x, **p, window=window, seed=seed), sampled_symbols(x, **p, window=window, seed=seed)),
        (squaf_step(x, q=p["q"], z=p["z"]), step_symbols(x, q=p["q"], z=p["z"])),
    ):
        assert value.dtype == dtype
        assert symbols[:5].tolist() == [8, 8, 0, 0, -1]
        assert value.isnan().tolist() == [False] * 4 + [True, False]
        fine = ~x.isnan()
        assert torch.equal(value[fine], p["z"][0][symbols[fine]].to(dtype))


@pytest.mark.parametrize("softness", [1e-8, 1e8])
def test_softest_and_hardest_tables(softness):
    x = torch.full((2000,), 0.3)
    p = {"q": torch.ones(1), "alpha": torch.tensor([softness]), "z": torch.arange(-2.0, 3.0)}
    for window in (3, 5, None):
        result = squaf_sampled(x, **p, window=window, seed=torch.tensor(8)).unique().tolist()
        reach = {3: 1, 5: 2, None: 2}[window]
        assert result == ([0.0] if softness > 1 else [float(i) for i in range(-reach, reach + 1)])


def test_gradients_are_those_of_squaf_and_layouts_are_kept():
    p = {name: t.requires_grad_() for name, t in parameters((3, 1, 1)).items()}
    x = inputs(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
    value = squaf_sampled(x, **p)
    assert value.is_contiguous(memory_format=torch.channels_last)
    ours = torch.autograd.grad(value.sum(), [x, *p.values()])
    theirs = torch.autograd.grad(squaf(x, **p).sum(), [x, *p.values()])
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    step = squaf_step(x, q=p["q"], z=p["z"])
    by_x, by_z = torch.autograd.grad(step.sum(), [x, p["z"]])
    assert not by_x.any()
    assert by_z.sum() == x.numel()
    assert squaf_sampled(x[:0], **p).shape == (0, 3, 4, 5)
