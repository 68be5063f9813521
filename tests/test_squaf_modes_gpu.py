"""SQUAF-P and SQUAF-S on a real device: draws against those of the CPU, replayed graphs, checkpointing."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import softknee as sk
from softknee.kernels.squaf import sampled_symbols, squaf, squaf_sampled, squaf_step, step_symbols
from softknee.kernels.squaf.cuda import launch, modes, soft
from softknee.kernels.squaf.layout import arrange
from softknee.kernels.squaf.symbols import sampled_symbol, uniform
from squaf_reference import inputs, parameters

pytestmark = [
    pytest.mark.gpu,
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


# The kernels take eight elements a thread, and with float32 32 threads share 256 in two halves of four each: what lies
# around these borders, and runs of one group that end between them.
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "shape", [(n,) for n in (1, 7, 8, 9, 248, 255, 256, 257, 267, 2061, 100_003, 1_048_617)]
    + [(3, 4, 8 * n) for n in (1, 5, 31, 32, 33, 64, 100)],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("softness", [1.5, 30.0])  # the second is too steep for the quick way of the kernels
def test_every_size_and_run_chooses_as_a_cpu_does(dtype, shape, softness):
    rows = (1,) if len(shape) == 1 else (4, 1)
    p = parameters(rows, k=16, dtype=torch.float32)
    p["alpha"] = softness / p["q"] ** 2
    x, seed = inputs(*shape, dtype=dtype, spread=8.0), torch.tensor(0x0FED_CBA9_8765_4321)
    if x.numel() > 50:
        x.view(-1)[:: x.numel() // 5], x.view(-1)[1 :: x.numel() // 7] = torch.nan, torch.inf
    here, x_here = {name: t.cuda() for name, t in p.items()}, x.cuda()
    assert launch.fits(x_here, points=33, layout=arrange(x_here, parameter_shape=torch.Size(rows)))
    symbols = sampled_symbols(x_here, **here, seed=seed.cuda()).cpu()
    expected = sampled_symbols(x, **p, seed=seed)
    # Only a draw on the seam of two points may differ, by the rounding of the exponential.
    assert (symbols != expected).sum() <= 1 + x.numel() // 20_000
    nearest = step_symbols(x_here, q=here["q"], z=here["z"]).cpu()
    assert torch.equal(nearest, step_symbols(x, q=p["q"], z=p["z"]))
    table, fine = p["z"].expand(*shape, -1).to(dtype), ~x.isnan()
    for value, at in (
        (squaf_sampled(x_here, **here, seed=seed.cuda()), symbols),
        (squaf_step(x_here, q=here["q"], z=here["z"]), nearest),
    ):
        assert torch.equal(value.cpu()[fine], table.gather(-1, at.clamp(min=0).long()[..., None])[..., 0][fine])
        assert torch.equal(value.cpu().isnan(), x.isnan())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_view_off_the_boundary_of_16_bytes_chooses_alike(dtype):
    p = {name: t.cuda() for name, t in parameters(k=16, dtype=torch.float32).items()}
    whole, seed = inputs(5001, dtype=dtype, spread=8.0).cuda(), torch.tensor(99, device="cuda")
    view, copy = whole[1:], whole[1:].clone()
    assert view.data_ptr() % 16
    assert (sampled_symbols(view, **p, seed=seed) != sampled_symbols(copy, **p, seed=seed)).sum() <= 1
    assert (squaf_sampled(view, **p, seed=seed) != squaf_sampled(copy, **p, seed=seed)).sum() <= 1
    assert (step_symbols(view, q=p["q"], z=p["z"]) != step_symbols(copy, q=p["q"], z=p["z"])).sum() <= 1
    assert (squaf_step(view, q=p["q"], z=p["z"]) != squaf_step(copy, q=p["q"], z=p["z"])).sum() <= 1


def test_nothing_is_written_beyond_the_end():
    p = {name: t.cuda() for name, t in parameters(k=16, dtype=torch.float32).items()}
    for count in (256 - 8, 256, 256 + 8 * 5 + 3, 4096 + 13):
        x = inputs(count, dtype=torch.float32).cuda()
        room = torch.full((count + 512,), -77.0, device="cuda")
        layout = arrange(x, parameter_shape=torch.Size((1,)))
        soft.forward(x, p["q"], p["alpha"], p["z"], out=room, layout=layout, window=5)
        assert torch.equal(room[:count], squaf(x, **p))
        assert (room[count:] == -77.0).all()
        room.fill_(-77.0)
        modes.choose(x, None, p["q"], p["alpha"], p["z"], out=room, points=33, layout=layout)
        assert torch.equal(room[:count], squaf_step(x, q=p["q"], z=p["z"]))
        assert (room[count:] == -77.0).all()


def test_positions_beyond_32_bits_are_drawn_as_on_a_cpu():
    if torch.cuda.mem_get_info()[0] < 60 * 2**30:
        pytest.skip("needs 60 GB of free memory on the device")
    p = {name: t.cuda() for name, t in parameters(k=16, dtype=torch.float32).items()}
    count, beyond, seed = 2**32 + 4096, 2**32 - 2048, torch.tensor(0x0FED_CBA9_8765_4321)
    x = torch.full((count,), 0.3, device="cuda", dtype=torch.float32)
    result = squaf_sampled(x, **p, seed=seed.cuda())[beyond:].cpu()
    position = torch.arange(beyond, count)
    on_cpu = {name: t.cpu() for name, t in p.items()}
    u = uniform(seed, position, torch.float32)
    symbols = sampled_symbol(x[beyond:].cpu(), on_cpu["q"], on_cpu["alpha"], 33, 5, False, u=u)
    assert (result != on_cpu["z"][0][symbols]).sum() <= 1


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
    # A leaf of its own: that of the graph belongs to the stream of its recording.
    fresh = x.detach().clone().requires_grad_()
    assert torch.equal(slope, torch.autograd.grad(layer.as_soft()(fresh).sum(), fresh)[0])


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_draws_the_same_again(reentrant):
    layer = sk.nn.SQUAFP(k=16, q=0.25, learn=True, device="cuda")
    weight = torch.randn(64, 64, device="cuda", requires_grad=True)

    def block(x):
        return layer(layer(x) @ weight)

    results = []
    for run in (block, lambda x: checkpoint(block, x, use_reentrant=reentrant)):
        x = inputs(32, 64, dtype=torch.float32).cuda().requires_grad_()
        torch.manual_seed(3)
        value = run(x)
        torch.rand(5, device="cuda")
        weight.grad = None
        value.square().sum().backward()
        results.append((value, x.grad, weight.grad))
    for ours, theirs in zip(*results, strict=True):
        assert torch.equal(ours, theirs)
