"""SQUAF's CUDA and Triton kernels on a real device, against float64 on the CPU."""

import pytest
import torch
from torch import nn

import softknee as sk
from softknee.kernels.squaf import squaf
from squaf_reference import inputs, parameters

# --------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1,), (8, 1), (8, 128), (16, 1, 1)])
@pytest.mark.parametrize("softness", [0.3, 1.5, 30.0])
@pytest.mark.parametrize(
    ("window", "weights", "k"),
    [(5, "gaussian", 16), (5, "gaussian", 2), (5, "gaussian", 4), (7, "gaussian", 16), (None, "gaussian", 16),
     (5, "laplacian", 16)],
)  # fmt: skip
def test_gpu_kernels_match_float64_and_repeat_their_bits(dtype, shape, softness, window, weights, k):
    p = parameters(shape, k=k, dtype=torch.float32)
    p["alpha"] = softness / (p["q"] if weights == "laplacian" else p["q"] ** 2)
    x = inputs(16, 8, 128, dtype=dtype, spread=8.0)
    # Where the window slides, float32 and float64 may stand on different sides of the jump.
    place = x.double() / p["q"].double()
    x = torch.where((place - place.floor() - 0.5).abs() < 1e-4, torch.zeros_like(x), x)
    x.view(-1)[:3] = torch.tensor([float("inf"), -float("inf"), 3e4], dtype=dtype)
    grad = inputs(16, 8, 128, dtype=dtype, seed=4)
    exact_p = {name: t.double().requires_grad_() for name, t in p.items()}
    exact_x = x.double().requires_grad_()
    exact = squaf(exact_x, **exact_p, window=window, weights=weights)
    wanted = torch.autograd.grad(exact, [exact_x, *exact_p.values()], grad.double())
    runs = []
    for _ in range(2):
        here = {name: t.cuda().requires_grad_() for name, t in p.items()}
        x_here = x.cuda().requires_grad_()
        value = squaf(x_here, **here, window=window, weights=weights)
        runs.append([value, *torch.autograd.grad(value, [x_here, *here.values()], grad.cuda())])
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(runs[0][0].cpu().double(), exact, rtol=4 * eps, atol=4e-6)
    torch.testing.assert_close(runs[0][1].cpu().double(), wanted[0], rtol=4 * eps, atol=4e-5 + eps)
    for actual, truth in zip(runs[0][2:], wanted[1:], strict=True):
        scale = truth.abs().max().item()
        torch.testing.assert_close(actual.cpu().double(), truth, rtol=1e-4, atol=2e-5 * scale)
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


# What lies around the borders of a thread's eight elements and of a warp's 256, and runs that end between them.
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "shape", [(n,) for n in (1, 7, 8, 9, 248, 255, 256, 257, 267, 2061, 100_003)]
    + [(3, 4, 8 * n) for n in (1, 5, 31, 32, 33, 64, 100)],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("offset", [0, 1])
def test_values_of_every_size_and_run_match_float64(dtype, shape, offset):
    p = parameters((1,) if len(shape) == 1 else (4, 1), k=16, dtype=torch.float32)
    x = inputs(*shape, dtype=dtype, spread=8.0)
    place = x.double() / p["q"].double()
    x = torch.where((place - place.floor() - 0.5).abs() < 1e-4, torch.zeros_like(x), x)
    exact = squaf(x.double(), **{name: t.double() for name, t in p.items()})
    # With an offset a view that begins between boundaries of 16 bytes, for which other kernels are used.
    room = torch.empty(x.numel() + offset, dtype=dtype, device="cuda")
    here = room[offset:].view(shape).copy_(x)
    value = squaf(here, **{name: t.cuda() for name, t in p.items()})
    torch.testing.assert_close(value.cpu().double(), exact, rtol=4 * torch.finfo(dtype).eps, atol=4e-6)


@pytest.mark.gpu
def test_the_cuda_source_compiles_and_is_used():
    from softknee.kernels.squaf.cuda import soft

    kinds = [(kind, stored, shared) for kind in (0, 1, 2) for stored in (0, kind) for shared in (True, False)]
    for kind, stored, shared in kinds:
        for wanted in (None, *range(1, 16)) if kind == 0 else (None, 15):  # every choice of gradients, once
            assert soft.soft_kernel(0, kind, stored, 33, shared, wanted) is not None


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(1,), (8, 1)])
@pytest.mark.parametrize("window", [5, 3])
def test_gradients_share_no_memory_on_the_device(shape, window):
    p = parameters(shape, k=16)
    x, q, alpha, z = (item.cuda() for item in (inputs(4, 8, 16), p["q"], p["alpha"], p["z"]))
    result = torch.ops.softknee.squaf_backward(torch.ones_like(x), x, q, alpha, z, window, False)
    assert len({entry.untyped_storage().data_ptr() for entry in result}) == 4
    assert all(value.data_ptr() % 16 == 0 and value.is_contiguous() for value in result)


@pytest.mark.gpu
@pytest.mark.parametrize("window", [5, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_nan_only_from_nan_and_limits_at_infinity(dtype, window):
    p = {name: t.cuda() for name, t in parameters(k=16, dtype=torch.float32).items()}
    x = torch.zeros(27, dtype=dtype, device="cuda")
    x[3], x[9], x[25], x[26] = float("nan"), float("inf"), float("nan"), -float("inf")
    value = squaf(x, **p, window=window)
    assert value.isnan().nonzero().flatten().tolist() == [3, 25]
    assert value[9] == p["z"][0, -1].to(dtype)
    assert value[26] == p["z"][0, 0].to(dtype)


@pytest.mark.gpu
def test_float64_and_double_backward_on_the_device():
    p = {name: t.cuda().requires_grad_() for name, t in parameters((3, 1)).items()}
    x = inputs(2, 3, 4).cuda().requires_grad_()

    def of_parts(x, q, alpha, z):
        return squaf(x, q=q, alpha=alpha, z=z)

    assert torch.autograd.gradcheck(of_parts, [x, *p.values()])
    assert torch.autograd.gradgradcheck(of_parts, [x, *p.values()], nondet_tol=1e-10)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("window", [5, 3])
@pytest.mark.parametrize("per", ["layer", "channel"])
@pytest.mark.parametrize("mode", ["soft", "sampled", "step"])
def test_a_compiled_network_learns_as_an_eager_one(mode, per, window):
    """The loss and every gradient of a network with SQUAF, of which all is trained."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    own = {"per": per, "size": 16} if per == "channel" else {}
    net = nn.Sequential(nn.Linear(8, 16), sk.nn.SQUAF(k=16, q=0.25, window=window, learn=True, **own), nn.Linear(16, 4))
    sk.squaf_mode_(net.cuda(), mode)
    x, y = torch.randn(64, 8, device="cuda"), torch.arange(64, device="cuda") % 4
    results = []
    for run in (net, torch.compile(net, fullgraph=True)):
        torch.manual_seed(1)
        loss = nn.functional.cross_entropy(run(x), y)
        results.append([loss, *torch.autograd.grad(loss, list(net.parameters()), materialize_grads=True)])
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("window", [None, 5])
def test_more_groups_than_the_second_side_of_a_grid_counts(window):
    groups = 65_536 + 100
    p = {name: t.cuda() for name, t in parameters((groups, 1), k=2, dtype=torch.float32).items()}
    x, grad = (inputs(1, groups, 32, dtype=torch.float32, seed=seed).cuda() for seed in (1, 4))
    place = x.double() / p["q"].double()
    x = torch.where((place - place.floor() - 0.5).abs() < 1e-4, torch.zeros_like(x), x)

    def gradients(x, grad, p):
        p = {name: t.requires_grad_() for name, t in p.items()}
        x = x.detach().requires_grad_()
        return torch.autograd.grad(squaf(x, **p, window=window), [x, *p.values()], grad)

    exact = gradients(x.double(), grad.double(), {name: t.double() for name, t in p.items()})
    for ours, true in zip(gradients(x, grad, p), exact, strict=True):
        torch.testing.assert_close(ours.double(), true, rtol=1e-4, atol=2e-5 * true.abs().max().item())
