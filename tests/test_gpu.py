"""The fused kernels on a real GPU: the same properties that Triton's interpreter shows on a CPU, at full size."""

import copy

import pytest
import torch

import softknee as sk
from helpers import SUBJECTS
from softknee.spec import Activation

pytestmark = pytest.mark.gpu

SHAPES = {"flat": ((100_003,), None), "image": ((4, 6, 33, 5), (6, 1, 1)), "rows": ((700, 40), (40,))}


def _parameters(act: Activation, shape: tuple[int, ...] | None) -> list[torch.Tensor]:
    generator = torch.Generator(device="cuda").manual_seed(1)
    spread = 0.2 * torch.rand(shape or (1,), generator=generator, device="cuda")
    return [(p.default + 0.3 + spread if p.name != "eps" else 0.1 + spread).requires_grad_() for p in act.params]


def _run(act: Activation, x: torch.Tensor, params: list[torch.Tensor], g: torch.Tensor) -> list[torch.Tensor]:
    y = act(x, **{p.name: value for p, value in zip(act.params, params, strict=True)})
    return [y, *torch.autograd.grad(y, [x, *params], g)]


@pytest.mark.parametrize("layout", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", SUBJECTS)
def test_fused_agrees_with_float64_and_repeats_its_bits(name: str, dtype: torch.dtype, layout: str) -> None:
    act = SUBJECTS[name]
    shape, own = SHAPES[layout]
    generator = torch.Generator(device="cuda").manual_seed(0)
    x = (3 * torch.randn(shape, generator=generator, device="cuda")).to(dtype).requires_grad_()
    g = torch.randn(shape, generator=generator, device="cuda").to(dtype)
    params = _parameters(act, own)
    assert sk.explain(act, x).path == "fused"
    once, again = _run(act, x, params, g), _run(act, x, params, g)
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
    wide = [p.detach().double().requires_grad_() for p in params]
    truth = _run(act, x.detach().double().requires_grad_(), wide, g.double())
    eps = torch.finfo(dtype).eps
    for got, want in zip(once[:2], truth[:2], strict=True):
        torch.testing.assert_close(got.double(), want, rtol=2 * eps, atol=4e-6)
    for got, want in zip(once[2:], truth[2:], strict=True):
        scale = want.abs().max().item() + shape[0] ** 0.5
        # Half types use coarser functions inside (2^-16 and, for bfloat16, 2^-12), and a sum may cancel.
        fine = {torch.float32: 2e-6, torch.float16: 2e-5, torch.bfloat16: 2e-4}[dtype]
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=fine * scale)


def test_more_elements_than_a_32_bit_number_counts() -> None:
    n = 2**31 + 4096
    x = torch.zeros(n, device="cuda", dtype=torch.bfloat16)
    x[-3:] = torch.tensor([-1.0, 0.5, 2.0], device="cuda", dtype=torch.bfloat16)
    x.requires_grad_()
    delta = torch.ones(1, device="cuda", requires_grad=True)
    y = sk.get("srelu")(x, delta=delta)
    expected = sk.get("srelu")(x[-3:].detach().cpu(), delta=1.0)
    assert torch.equal(y[-3:].detach().cpu(), expected)
    g = torch.zeros_like(y)
    g[-3:] = 1
    dx, ddelta = torch.autograd.grad(y, [x, delta], g)
    slope = sk.get("srelu").derivative()(x[-3:].detach().cpu(), delta=1.0)
    torch.testing.assert_close(dx[-3:].cpu(), slope)
    share = sk.get("srelu").partial("delta")(x[-3:].detach().cpu().float(), delta=1.0).sum()
    torch.testing.assert_close(ddelta.cpu()[0], share)


def test_more_elements_in_a_channel_than_a_32_bit_number_counts() -> None:
    x = torch.full((2**12, 2, 2**19 + 1024), -1.0, device="cuda", dtype=torch.bfloat16).requires_grad_()
    in_channel = x.shape[0] * x.shape[2]
    assert in_channel > 2**31
    weight = torch.tensor([[0.25], [0.5]], device="cuda", requires_grad=True)
    y = sk.get("prelu")(x, slope=weight)
    assert torch.equal(y[-1, :, -1].float(), -weight.detach()[:, 0])
    dx, by_weight = torch.autograd.grad(y, [x, weight], torch.ones(1, device="cuda", dtype=x.dtype).expand_as(y))
    assert torch.equal(dx[-1, :, -1].float(), weight.detach()[:, 0])
    torch.testing.assert_close(by_weight[:, 0].cpu(), torch.tensor([-1.0, -1.0]) * in_channel)


def test_a_cuda_graph_replays_the_kernels() -> None:
    module = sk.nn.SmeLU(beta=0.5).cuda()
    x = torch.randn(4096, device="cuda")
    module(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = module(x)
    x.copy_(torch.linspace(-2, 2, 4096, device="cuda"))
    graph.replay()
    torch.testing.assert_close(y, module(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["srelu", "lambda_gelu", "crrelu_exact", "generalized_smelu"])
def test_a_prepared_call_reaches_the_raw_parameters(name: str, dtype: torch.dtype) -> None:
    module = sk.nn.make(name, learn=True).cuda()
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.1)
    for x in (torch.randn(257, 300, device="cuda"), torch.randn(77101, device="cuda")[1:].reshape(257, 300)):
        x = x.to(dtype).requires_grad_()
        g = torch.randn_like(x)
        first, *others = [torch.autograd.grad(module(x), [x, *module.parameters()], g) for _ in range(3)]
        assert len(module._calls) == 1
        assert all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))
        wide = copy.deepcopy(module).double()
        exact = x.detach().double().requires_grad_()
        truth = torch.autograd.grad(wide(exact), [exact, *wide.parameters()], g.double())
        fine = 1e-5 if dtype == torch.float32 else 1e-2
        for got, want in zip(first, truth, strict=True):
            torch.testing.assert_close(got.double(), want, rtol=fine, atol=fine * x.numel() ** 0.5)


def test_sums_of_graphs_and_streams_do_not_mix() -> None:
    """Programs count themselves to find the last; each graph and each stream has a counter of its own."""
    module = sk.nn.make("srelu", learn=True).cuda()
    x = torch.randn(4096, 2048, device="cuda", requires_grad=True)
    g = torch.ones_like(x)

    def gradients() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(module(x), [x, *module.parameters()], g)

    expected, streams = gradients(), [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    with torch.cuda.stream(streams[0]):
        gradients()
    torch.cuda.synchronize()
    graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
    results = []
    for graph in graphs:
        with torch.cuda.graph(graph):
            results.append(gradients())
    for _ in range(10):
        for graph, stream in zip(graphs, streams, strict=False):
            with torch.cuda.stream(stream):
                graph.replay()
        with torch.cuda.stream(streams[2]):
            beside = gradients()
        now = gradients()
        torch.cuda.synchronize()
        for made in (*results, beside, now):
            assert all(torch.equal(a, b) for a, b in zip(made, expected, strict=True))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs a second GPU")
def test_a_gpu_that_is_not_the_current_one() -> None:
    x = torch.randn(1000, device="cuda:1", requires_grad=True)
    with torch.cuda.device(0):
        y = sk.get("gelu")(x, beta=torch.ones(1, device="cuda:1"))
        y.sum().backward()
    torch.testing.assert_close(y, torch.nn.functional.gelu(x))
