"""SQUAF's short way, on a CPU and on a GPU, against the operator: values, gradients, what must not take it."""

import copy

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import softknee as sk
from softknee.kernels.compiled import SMALLEST
from softknee.kernels.squaf.compiled import why_not
from softknee.kernels.squaf.quick import has_usual_types
from squaf_reference import inputs


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    if request.param == "cpu" and (reason := why_not(torch.empty(SMALLEST))):
        pytest.skip(f"No compiled kernels: {reason}.")
    return request.param


def layer_of(device="cuda", **more):
    torch.manual_seed(0)
    return sk.nn.SQUAF(**{"k": 16, "q": 0.25, "z": "gelu", "learn": True, "device": device, **more})


def by_operator(layer, x):
    return layer.compute(x, layer.fitted(x))


def takes_short_way(layer, x):
    return layer._run_prepared(x) is not None


@pytest.mark.parametrize("learn", [True, False, "z", "q", "alpha", ("q", "z")])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("parameters", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(8, 129, 64), (3, 5), (2, 7, 33), (2, 64, 64)])
def test_values_and_gradients_are_those_of_the_operator(device, learn, kind, parameters, shape):
    layer = layer_of(device, learn=learn, dtype=parameters)
    x = inputs(*shape, dtype=kind, spread=5.0).to(device).requires_grad_()
    x.data.view(-1)[:3] = torch.tensor([torch.inf, -torch.inf, 100.0])
    g = torch.randn_like(x)
    # A CPU's kernels hold parameters in float32, and small inputs are not for them.
    assert takes_short_way(layer, x) == (device == "cuda" or (parameters == torch.float32 and x.numel() >= SMALLEST))
    ours, theirs = layer(x), by_operator(layer, x)
    assert torch.equal(ours, theirs)
    sources = [x, *layer.parameters()]
    for a, b in zip(torch.autograd.grad(ours, sources, g), torch.autograd.grad(theirs, sources, g), strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        scale = b.abs().max().clamp(min=1e-6)
        assert (a - b).abs().max() <= (3e-6 if parameters == kind == torch.float32 else 2e-2) * scale


def test_nan_reaches_the_value_and_every_gradient(device):
    layer, x = layer_of(device), torch.linspace(-3, 3, SMALLEST, device=device)
    x[1] = torch.nan
    x.requires_grad_()
    assert takes_short_way(layer, x)
    y = layer(x)
    assert y.isnan().nonzero().tolist() == [[1]]
    y.sum().backward()
    assert all(p.grad.isnan().any() for p in layer.parameters())


def test_a_parameter_at_the_end_of_its_range_stays_there(device):
    layer = layer_of(device)
    layer.raw_q.data.fill_(-60.0)  # 2^-40 is reached long before
    x = torch.randn(SMALLEST, device=device, requires_grad=True)
    assert takes_short_way(layer, x)
    ours = torch.autograd.grad(layer(x).sum(), layer.raw_q)[0]
    assert torch.equal(ours, torch.autograd.grad(by_operator(layer, x).sum(), layer.raw_q)[0])
    assert not ours.any()


def test_channels_last_keeps_its_order(device):
    layer = layer_of(device)
    x = torch.randn(8, 16, 7, 9, device=device).contiguous(memory_format=torch.channels_last).requires_grad_()
    y = layer(x)
    assert takes_short_way(layer, x)
    assert y.is_contiguous(memory_format=torch.channels_last)
    g = torch.randn(8, 16, 7, 9, device=device)
    (ours,) = torch.autograd.grad(y, x, g)
    (theirs,) = torch.autograd.grad(by_operator(layer, x), x, g)
    assert torch.allclose(ours, theirs, atol=1e-6)


def test_second_derivatives_are_those_of_the_operator(device):
    layer = layer_of(device, k=2, q=0.5, alpha=5.0, z="random")
    x = inputs(SMALLEST, dtype=torch.float32, spread=1.0).to(device).requires_grad_()
    assert takes_short_way(layer, x)
    sources = [x, *layer.parameters()]

    def second(value):
        first = torch.autograd.grad(value.square().sum(), sources, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), sources)

    for a, b in zip(second(layer(x)), second(by_operator(layer, x)), strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-4 * b.abs().max())


@pytest.mark.gpu
def test_a_step_is_captured_and_replayed():
    layer, x = layer_of(), torch.randn(4096, device="cuda", requires_grad=True)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            torch.autograd.grad(layer(x).sum(), [x, *layer.parameters()])
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = layer(x)
        slopes = torch.autograd.grad(value.sum(), [x, *layer.parameters()])
    x.data.copy_(torch.randn(4096, device="cuda"))
    layer.z.data.mul_(1.5)
    graph.replay()
    # Leaves of their own: those of the graph belong to the stream of its recording.
    fresh, other = x.detach().clone().requires_grad_(), copy.deepcopy(layer)
    again = other(fresh)
    assert torch.equal(value, again)
    for a, b in zip(slopes, torch.autograd.grad(again.sum(), [fresh, *other.parameters()]), strict=True):
        assert torch.equal(a, b)


def test_what_is_not_usual_takes_the_operator(device):
    x = torch.randn(64, 128, device=device)
    for other in (
        {"window": 7},
        {"weights": "laplacian"},
        {"per": "channel", "size": 128},
        {"tails": "linear"},
        {"inplace": True},
    ):
        assert not takes_short_way(layer_of(device, **other), x), other
    layer = layer_of(device)
    assert not takes_short_way(layer, x.t())
    assert not takes_short_way(layer, x.double())
    assert takes_short_way(layer, x[1:])
    if device == "cuda":
        assert not takes_short_way(layer, x[0, 1:])  # not on a boundary of 16 bytes
    for mode in (layer.as_step(), layer.as_sampled()):
        assert takes_short_way(mode, x) == (device == "cuda")
    if device == "cpu":
        assert not takes_short_way(layer_of(device, k=2500), x)  # whose sums are too many for a thread's stack

    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Watch():
        layer(x)
    assert any("softknee.squaf" in item for item in seen)
    mapped = torch.func.vmap(layer)(x)
    assert torch.equal(mapped, layer(x))


@pytest.mark.gpu
def test_a_sample_is_drawn_from_torchs_generator_and_has_squafs_gradients():
    layer = layer_of()
    drawn, x = layer.as_sampled(), torch.randn(256, 64, device="cuda", requires_grad=True)
    torch.manual_seed(5)
    first = drawn(x)
    torch.manual_seed(5)
    assert torch.equal(first, drawn(x))
    assert not torch.equal(first, drawn(x))
    torch.manual_seed(5)
    assert torch.equal(first, by_operator(drawn, x))
    for a, b in zip(
        torch.autograd.grad(first.sum(), [x, *layer.parameters()]),
        torch.autograd.grad(layer(x).sum(), [x, *layer.parameters()]),
        strict=True,
    ):
        assert torch.equal(a, b)
    mean = torch.stack([drawn(x.detach()) for _ in range(400)]).double()
    error = (mean.mean(0) - layer(x).double()) / (mean.std(0) / 20).clamp(min=1e-3)
    assert error.abs().mean() < 1.2


def test_usual_refuses_parameters_elsewhere(device):
    layer = layer_of(device)
    x = torch.randn(8, device=device)
    given = layer._table_parameters()
    assert has_usual_types(x, given)
    assert not has_usual_types(x, type(given)(given.q.to("meta"), given.alpha, given.z))


def test_a_prepared_call_sees_what_has_changed(device):
    """Other tensors under the same names, another window, a copy, frozen parameters, another mode."""
    layer, x = layer_of(device), torch.randn(64, 64, device=device)
    assert takes_short_way(layer, x)
    before = layer(x)
    layer.z = torch.nn.Parameter(layer.z.detach() * 2)
    assert torch.equal(layer(x), 2 * before)
    layer.z.data = layer.z.data / 2
    assert torch.equal(layer(x), before)
    other = copy.deepcopy(layer)
    other.z.data.zero_()
    assert not other(x).any()
    assert torch.equal(layer(x), before)
    assert torch.equal(layer.as_step()(x), by_operator(layer.as_step(), x))
    layer.requires_grad_(False)
    assert not layer(x).requires_grad
    layer.requires_grad_(True)
    layer(x).sum().backward()
    assert layer.z.grad is not None
    layer.window = 3
    assert torch.equal(layer(x), by_operator(layer, x))


@pytest.mark.parametrize("k", [2, 16])
def test_in_a_compiled_model_it_is_one_operator_with_the_same_bits(k, device):
    torch._dynamo.reset()
    layer = layer_of(device, k=k)
    x = inputs(32, 256, dtype=torch.bfloat16, spread=3.0).to(device).requires_grad_()
    g = torch.randn_like(x)
    sources = [x, *layer.parameters()]
    results = []
    for run in (layer, torch.compile(layer, fullgraph=True)):
        value = run(x)
        results.append([value, *torch.autograd.grad(value, sources, g)])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.gpu
def test_the_staircase_takes_the_short_way_too():
    layer = layer_of()
    step, x = layer.as_step(), inputs(31, 65, dtype=torch.float32, spread=6.0).cuda().requires_grad_()
    g = torch.randn_like(x)
    ours, theirs = step(x), by_operator(step, x)
    assert torch.equal(ours, theirs)
    sources = [x, layer.raw_q, layer.z]
    for a, b in zip(torch.autograd.grad(ours, sources, g), torch.autograd.grad(theirs, sources, g), strict=True):
        assert torch.equal(a, b)


def test_any_number_of_threads_gives_the_same_bits(device):
    layer, x = layer_of(device), inputs(3, 100, 1000, dtype=torch.float32, spread=3.0).to(device).requires_grad_()
    assert takes_short_way(layer, x)
    g, before, results = torch.randn_like(x), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            value = layer(x)
            results.append([value, *torch.autograd.grad(value, [x, *layer.parameters()], g)])
    finally:
        torch.set_num_threads(before)
    for others in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], others, strict=True))


def test_a_gradient_in_another_order_of_memory_is_read_in_its_own(device):
    layer, x = layer_of(device), torch.randn(64, 96, device=device, requires_grad=True)
    g = torch.randn(96, 64, device=device).t()
    assert takes_short_way(layer, x)
    sources = [x, *layer.parameters()]
    for a, b in zip(
        torch.autograd.grad(layer(x), sources, g), torch.autograd.grad(layer(x), sources, g.contiguous()), strict=True
    ):
        assert torch.equal(a, b)
