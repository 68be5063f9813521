"""Replicas of networks with SQUAF and its baselines as a captured CUDA graph, against a plain loop of single models."""

import pytest
import torch

import softknee as sk
from replica_squaf import EACH, FIT, X, Y, mlp
from softknee.kernels.squaf import squaf
from softknee.kernels.squaf.cuda import soft

pytestmark = [
    pytest.mark.gpu,
]


@EACH
def test_a_captured_step_trains_as_a_plain_loop(name):
    together = sk.train.Replicas(lambda: mlp(name), count=4, device="cuda").fit(X, Y, **FIT)
    singly = sk.train.OneByOne(lambda: mlp(name), count=4, device="cuda").fit(X, Y, **FIT)
    torch.testing.assert_close(together.losses, singly.losses, rtol=1e-3, atol=1e-5)
    on_cpu = sk.train.OneByOne(lambda: mlp(name), count=4).fit(X, Y, **FIT)
    torch.testing.assert_close(together.losses, on_cpu.losses, rtol=5e-3, atol=5e-5)


def test_sampled_replicas_draw_on_a_gpu_what_they_draw_on_a_cpu():
    def make():
        act = sk.nn.SQUAFP(k=4, q=0.5, learn=True)
        return torch.nn.Sequential(torch.nn.Linear(1, 64), act, torch.nn.Linear(64, 1))

    losses = [sk.train.Replicas(make, count=3, device=where).fit(X, Y, **FIT).losses for where in ("cpu", "cuda")]
    # A draw on the seam between two points may go the other way, by the rounding of an exponential.
    torch.testing.assert_close(*losses, rtol=0.1, atol=0.05)


def test_replicas_take_the_cuda_kernels_with_a_table_each(monkeypatch):
    runs = []
    for name in ("forward", "backward"):
        real = getattr(soft, name)
        monkeypatch.setattr(soft, name, lambda *a, real=real, name=name, **k: (runs.append(name), real(*a, **k))[1])
    x = torch.randn(4, 24, 64, device="cuda", requires_grad=True)
    q, alpha = (torch.full((4, 1, 1), value, device="cuda", requires_grad=True) for value in (0.5, 5.0))
    z = torch.rand(4, 1, 1, 5, device="cuda", requires_grad=True)
    squaf(x, q=q, alpha=alpha, z=z).sum().backward()
    assert runs == ["forward", "backward"]


def test_a_graph_of_squaf_replays_its_gradients():
    layer = sk.nn.SQUAF(k=16, q=0.25, learn=True, device="cuda")
    x = torch.randn(4096, device="cuda", requires_grad=True)
    sources = [x, *layer.parameters()]

    def step():
        return torch.autograd.grad(layer(x).square().sum(), sources)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    with torch.no_grad():
        x.copy_(torch.randn(4096, device="cuda") * 3)
    graph.replay()
    torch.cuda.synchronize()
    for ours, theirs in zip(result, step(), strict=True):
        assert torch.equal(ours, theirs)
