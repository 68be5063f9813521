"""The kernels of the flow under DiTAC on a real device: against float64 on the CPU, under vmap, and in a CUDA graph."""

import pytest
import torch

import softknee as sk
from softknee.kernels.flow import bend
from test_baselines_flow import OPTIONS, drawn, outer_slopes, value_and_gradients

pytestmark = [
    pytest.mark.gpu,
]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1,), (8, 1), (128,), (8, 128)])
@pytest.mark.parametrize("spread", [0.3, 2.0])
def test_gpu_kernels_match_float64_and_repeat_their_bits(dtype, shape, spread):
    x, theta = drawn(40, 8, 128, spread=2.0, dtype=dtype), drawn(*shape, 9, spread=spread, dtype=torch.float32)
    for gated in (True, False):
        options = OPTIONS | {"gated": gated}
        truth = value_and_gradients(bend, x.double(), theta.double(), **options)
        first, again = (value_and_gradients(bend, x.cuda(), theta.cuda(), **options) for _ in range(2))
        for ours, same, true in zip(first, again, truth, strict=True):
            assert torch.equal(ours, same)
            # Where two cells repel each other a rounding error of x grows by e^(slope).
            rough = 2 * torch.finfo(ours.dtype).eps if ours.dtype.itemsize == 2 else 2e-5 if spread < 1 else 1e-3
            torch.testing.assert_close(ours.cpu().double(), true, rtol=rough, atol=rough * float(true.abs().max()))


def test_replicas_sum_as_they_would_alone_and_a_half_reads_and_writes_halves():
    x = drawn(4, 256, 128, spread=2.0, dtype=torch.float32).cuda()
    theta = drawn(4, 1, 9, seed=1, dtype=torch.float32).cuda()

    def gradients(theta, x):
        return torch.func.grad(lambda t, x: bend(x, t, **OPTIONS).square().sum(), argnums=(0, 1))(theta, x)

    together = torch.func.vmap(gradients)(theta, x)
    for at in range(4):
        for ours, alone in zip(together, gradients(theta[at], x[at]), strict=True):
            assert torch.equal(ours[at], alone)
    assert bend(x.half(), theta[0], **OPTIONS).dtype == torch.float16


def test_more_groups_than_the_second_side_of_a_grid_counts():
    groups = 65_536 + 100
    x = drawn(1, groups, 32, spread=2.0, dtype=torch.float32).cuda()
    theta = drawn(groups, 1, 9, spread=0.3, dtype=torch.float32).cuda()
    truth = value_and_gradients(bend, x.double(), theta.double(), **OPTIONS)
    for ours, true in zip(value_and_gradients(bend, x, theta, **OPTIONS), truth, strict=True):
        torch.testing.assert_close(ours.double(), true, rtol=2e-5, atol=2e-5 * float(true.abs().max()))


# The capture has a stream of its own, and the parameters are older than it.
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream:UserWarning")
def test_a_graph_replays_values_and_gradients():
    act = sk.nn.DiTAC([0.5, -1.0, 2.0, 0.0, 1.0, 1.0, -3.0, 0.2, 0.1], device="cuda")
    x = drawn(4096, spread=2.0, dtype=torch.float32).cuda().requires_grad_()

    def step():
        out = act(x)
        return [out, *torch.autograd.grad(out, [x, *act.parameters()], outer_slopes(out))]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    with torch.no_grad():
        x.copy_(drawn(4096, spread=2.0, seed=5))
        next(act.parameters()).mul_(-0.5)
    graph.replay()
    torch.cuda.synchronize()
    for ours, theirs in zip(found, step(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_training_step_costs_little_more_than_with_a_polynomial():
    """A step of four layers with 4 replicas and a batch of 1024, the size of the paper's tables."""

    def milliseconds(make) -> float:
        act = make(device="cuda")
        x = torch.randn(4, 1024, 128, device="cuda", requires_grad=True)
        vector = next(act.parameters()).detach().expand(4, 1, 1, -1).clone().requires_grad_()
        times = []
        for _ in range(20):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(4):
                torch.autograd.grad(act.compute(x, vector).sum(), [x, vector])
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end))
        return min(times)

    assert milliseconds(sk.nn.DiTAC) < max(3.0, 5 * milliseconds(sk.nn.PolyReLU))
