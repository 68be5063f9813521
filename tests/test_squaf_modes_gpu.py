"""SQUAF-P and SQUAF-S on a real device: draws against those of the CPU, replayed graphs, checkpointing."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import softknee as sk
from softknee.kernels.squaf import sampled_symbols, squaf, squaf_sampled, squaf_step, step_symbols
from squaf_reference import inputs, parameters

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1,), (8, 1), (8, 128), (16, 1, 1)])
@pytest.mark.parametrize(("window", "weights"), [(5, "gaussian"), (7, "gaussian"), (None, "laplacian")])
def test_a_gpu_chooses_as_a_cpu_does(dtype, shape, window, weights):
    p = parameters(shape, k=16, dtype=torch.float32)
    x, seed = inputs(16, 8, 128, dtype=dtype, spread=8.0), torch.tensor(0x1234_5678_9ABC_DEF0)
    x.view(-1)[:4] = torch.tensor([torch.inf, -torch.inf, torch.nan, 3e4], dtype=dtype)
    here = {name: t.cuda() for name, t in p.items()}
    options = {"window": window, "weights": weights}
    symbols = sampled_symbols(x.cuda(), **here, **options, seed=seed.cuda())
    expected = sampled_symbols(x, **p, **options, seed=seed)
    # A draw that falls on the seam of two points may go either way, by the rounding of the exponential.
    assert (symbols.cpu() != expected).float().mean() < 1e-3
    value = squaf_sampled(x.cuda(), **here, **options, seed=seed.cuda()).cpu()
    table, fine = p["z"].expand(16, 8, 128, -1).to(dtype), ~x.isnan()
    assert torch.equal(value[fine], table.gather(-1, symbols.cpu().clamp(min=0).long()[..., None])[..., 0][fine])
    assert torch.equal(value.isnan(), x.isnan())
    nearest = step_symbols(x.cuda(), q=here["q"], z=here["z"]).cpu()
    place = x.double() / p["q"].double()
    clear = (place - place.floor() - 0.5).abs() > 1e-4
    assert torch.equal(nearest[clear], step_symbols(x, q=p["q"], z=p["z"])[clear])
    step = squaf_step(x.cuda(), q=here["q"], z=here["z"]).cpu()
    assert torch.equal(step[fine], table.gather(-1, nearest.clamp(min=0).long()[..., None])[..., 0][fine])


def test_gradients_are_those_of_squaf_and_of_the_staircase():
    p = {name: t.cuda().requires_grad_() for name, t in parameters((8, 1), k=16, dtype=torch.float32).items()}
    x = inputs(16, 8, 128, dtype=torch.float32).cuda().requires_grad_()
    sources = [x, *p.values()]
    ours = torch.autograd.grad(squaf_sampled(x, **p).sum(), sources)
    theirs = torch.autograd.grad(squaf(x, **p).sum(), sources)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)
    by_x, by_z = torch.autograd.grad(squaf_step(x, q=p["q"], z=p["z"]).sum(), [x, p["z"]])
    assert not by_x.any()
    counts = torch.nn.functional.one_hot(step_symbols(x, q=p["q"], z=p["z"]).long(), 33).sum((0, 2))
    assert torch.equal(by_z.reshape(8, 33), counts.float())


def test_every_replay_of_a_graph_draws_anew():
    layer = sk.nn.SQUAFP(k=16, q=0.25, learn=True, device="cuda")
    x = torch.randn(4096, device="cuda", requires_grad=True)
    torch.manual_seed(0)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            layer(x).sum().backward()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = layer(x)
        (slope,) = torch.autograd.grad(value.sum(), x)
    runs = []
    for _ in range(200):
        graph.replay()
        runs.append(value.detach().clone())
    assert all(not torch.equal(runs[0], other) for other in runs[1:])
    mean = torch.stack(runs).double()
    soft = layer.as_soft()(x).detach().double()
    # Averaged over places and replays it is SQUAF, within 5 standard errors.
    error = (mean - soft).mean() / (mean.std() / mean.numel() ** 0.5)
    assert abs(error.item()) < 5
    assert torch.equal(slope, torch.autograd.grad(layer.as_soft()(x).sum(), x)[0])


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_draws_the_same_again(reentrant):
    layer = sk.nn.SQUAFP(k=16, q=0.25, learn=True, device="cuda")
    weight = torch.randn(64, 64, device="cuda", requires_grad=True)

    def block(x):
        return layer(layer(x) @ weight)

    found = []
    for run in (block, lambda x: checkpoint(block, x, use_reentrant=reentrant)):
        x = inputs(32, 64, dtype=torch.float32).cuda().requires_grad_()
        torch.manual_seed(3)
        value = run(x)
        torch.rand(5, device="cuda")
        weight.grad = None
        value.square().sum().backward()
        found.append((value, x.grad, weight.grad))
    for ours, theirs in zip(*found, strict=True):
        assert torch.equal(ours, theirs)
