"""The kernels of SQUAF's marginal on a real device, against float64 on the CPU."""

import pytest
import torch
from torch import Tensor

from softknee.kernels.squaf.marginal import entropy_in_bits, squaf_marginal
from squaf_reference import inputs, parameters


def marginal_and_gradients(x: Tensor, q: Tensor, alpha: Tensor, **options) -> list[Tensor]:
    tensors = [t.detach().requires_grad_() for t in (x, q, alpha)]
    p = squaf_marginal(tensors[0], q=tensors[1], alpha=tensors[2], points=33, **options)
    return [p.detach(), *torch.autograd.grad(entropy_in_bits(p), tensors)]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1,), (8, 1), (8, 128)])
@pytest.mark.parametrize(
    ("window", "weights"), [(5, "gaussian"), (7, "gaussian"), (None, "gaussian"), (5, "laplacian")]
)
def test_gpu_kernels_match_float64_and_repeat_their_bits(dtype, shape, window, weights):
    drawn = parameters(shape, k=16, dtype=torch.float32)
    q, alpha = drawn["q"], drawn["alpha"]
    x = inputs(16, 8, 128, dtype=dtype, spread=8.0)
    # Where the window slides, float32 and float64 may stand on different sides of the jump.
    place = x.double() / q.double()
    x = torch.where((place - place.floor() - 0.5).abs() < 1e-4, torch.zeros_like(x), x)
    options = {"window": window, "weights": weights}
    truth = marginal_and_gradients(x.double(), q.double(), alpha.double(), **options)
    first, again = (marginal_and_gradients(x.cuda(), q.cuda(), alpha.cuda(), **options) for _ in range(2))
    rough = max(2e-5, 2 * torch.finfo(dtype).eps)
    for ours, same, true in zip(first, again, truth, strict=True):
        assert torch.equal(ours, same)
        scale = true.abs().max().item()
        torch.testing.assert_close(ours.cpu().double(), true, rtol=rough, atol=1e-4 * scale)


@pytest.mark.gpu
def test_more_groups_than_the_second_side_of_a_grid_counts():
    drawn = {name: t.cuda() for name, t in parameters((65_536 + 100, 1), k=2, dtype=torch.float32).items()}
    q, alpha = drawn["q"], drawn["alpha"]
    x = inputs(1, len(q), 32, dtype=torch.float32, spread=8.0).cuda()
    truth = marginal_and_gradients(x.double(), q.double(), alpha.double(), window=None)
    for ours, true in zip(marginal_and_gradients(x, q, alpha, window=None), truth, strict=True):
        torch.testing.assert_close(ours.double(), true, rtol=2e-5, atol=1e-4 * true.abs().max().item())
