"""How one would write each function without softknee: the baseline of the speed tables.

Where a paper prints pseudocode (S-ReLU, CRReLU) or a formula (SmeLU, lambda-GELU, SQUAF), this does the same
operations. Where torch has the function it is torch's, applied to `beta * x` where the function is a
rescaled one, because torch takes such numbers as Python floats and gives them no gradient. Everything else
is the straightforward composition. The parameters are tensors of one element that may need gradients.
"""

import math
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor


def leaky_relu(x: Tensor, *, slope: Tensor) -> Tensor:
    return torch.where(x >= 0, x, slope * x)


def prelu(x: Tensor, *, slope: Tensor) -> Tensor:
    return F.prelu(x, slope)


def elu(x: Tensor, *, beta: Tensor) -> Tensor:
    return torch.where(x > 0, x, beta * torch.expm1(x))


def celu(x: Tensor, *, beta: Tensor) -> Tensor:
    return beta * F.elu(x / beta)


def selu(x: Tensor, *, lam: Tensor, beta: Tensor) -> Tensor:
    return lam * torch.where(x > 0, x, beta * torch.expm1(x))


def softplus(x: Tensor, *, beta: Tensor) -> Tensor:
    return F.softplus(beta * x) / beta


def swish(x: Tensor, *, beta: Tensor | None = None) -> Tensor:
    return F.silu(x) if beta is None else x * torch.sigmoid(beta * x)


def gelu(x: Tensor, *, beta: Tensor) -> Tensor:
    return F.gelu(beta * x) / beta


def gelu_tanh(x: Tensor, *, beta: Tensor) -> Tensor:
    return F.gelu(beta * x, approximate="tanh") / beta


def lambda_gelu(x: Tensor, *, lam: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.erf(lam * x / math.sqrt(2)))


def mish(x: Tensor, *, beta: Tensor) -> Tensor:
    return F.mish(beta * x) / beta


def tanhexp(x: Tensor, *, beta: Tensor) -> Tensor:
    return x * torch.tanh(torch.exp(beta * x))


def srelu(x: Tensor, *, delta: Tensor) -> Tensor:
    left = x <= -delta
    inside = (x > -delta) & (x < delta)
    curve = x / 2 + 3 * x**2 / (8 * delta) + 3 * delta / 16 - x**4 / (16 * delta**3)
    return torch.where(left, torch.zeros_like(x), torch.where(inside, curve, x))


def smelu(x: Tensor, *, beta: Tensor) -> Tensor:
    curve = (x + beta) ** 2 / (4 * beta)
    return torch.where(x <= -beta, torch.zeros_like(x), torch.where(x >= beta, x, curve))


def generalized_smelu(x: Tensor, *, alpha: Tensor, beta: Tensor, g_minus: Tensor, g_plus: Tensor, t: Tensor) -> Tensor:
    width = alpha + beta
    left = g_minus * x + t + g_minus * alpha
    right = g_plus * x + t + g_minus * width / 2 + g_plus * (alpha - beta) / 2
    square = (g_plus - g_minus) / (2 * width)
    linear = (alpha * g_plus + beta * g_minus) / width
    constant = t + (alpha**2 * (g_plus + g_minus) + 2 * alpha * beta * g_minus) / (2 * width)
    return torch.where(x <= -alpha, left, torch.where(x >= beta, right, square * x**2 + linear * x + constant))


def asymmetric_smelu(x: Tensor, *, alpha: Tensor, beta: Tensor) -> Tensor:
    curve = (x + alpha) ** 2 / (2 * (alpha + beta))
    return torch.where(x <= -alpha, torch.zeros_like(x), torch.where(x >= beta, x + (alpha - beta) / 2, curve))


def leaky_smelu(x: Tensor, *, beta: Tensor, g_minus: Tensor) -> Tensor:
    curve = (1 - g_minus) * x**2 / (4 * beta) + (1 + g_minus) * x / 2 + beta * (1 + 3 * g_minus) / 4
    return torch.where(x <= -beta, g_minus * (x + beta), torch.where(x >= beta, x + g_minus * beta, curve))


def shifted_smelu(x: Tensor, *, beta: Tensor, shift: Tensor) -> Tensor:
    return smelu(x - shift, beta=beta)


def origin_smelu(x: Tensor, *, alpha: Tensor, beta: Tensor, g_minus: Tensor, g_plus: Tensor) -> Tensor:
    width = alpha + beta
    left = g_minus * x + alpha**2 * (g_minus - g_plus) / (2 * width)
    right = g_plus * x + beta**2 * (g_minus - g_plus) / (2 * width)
    curve = (g_plus - g_minus) / (2 * width) * x**2 + (alpha * g_plus + beta * g_minus) / width * x
    return torch.where(x <= -alpha, left, torch.where(x >= beta, right, curve))


def sigmoid_rescu(x: Tensor, *, beta: Tensor) -> Tensor:
    return torch.where(x <= beta, 2 * beta * torch.sigmoid(2 * (x - beta) / beta), x)


def smooth_relu(x: Tensor, *, beta: Tensor) -> Tensor:
    # The logarithm sees only x >= 0: below -1/beta it would put NaN into the gradient of a branch not taken.
    above = F.relu(x)
    return above - torch.log1p(beta * above) / beta


def crrelu(x: Tensor, *, eps: Tensor) -> Tensor:
    return F.relu(x) + eps * x * torch.exp(-(x**2) / 2)


def squaf(x: Tensor, *, q: Tensor, alpha: Tensor, z: Tensor, window: int = 5) -> Tensor:
    """The `window` grid points nearest to x: five of everything, and a gather from z for each."""
    k = (z.numel() - 1) // 2
    reach = window // 2
    nearest = torch.clamp(torch.round(x / q), -k, k)
    offsets = torch.arange(-reach, reach + 1, device=x.device, dtype=x.dtype)
    indices = nearest.unsqueeze(-1) + offsets
    distances = (x.unsqueeze(-1) - indices * q) ** 2
    logits = (-alpha * distances).masked_fill(indices.abs() > k, -math.inf)
    weights = torch.softmax(logits, dim=-1)
    values = z[(indices.clamp(-k, k) + k).long()]
    return (weights * values).sum(dim=-1)


PSEUDOCODE: Mapping[str, Callable[..., Tensor]] = {
    "relu": F.relu,
    "leaky_relu": leaky_relu,
    "prelu": prelu,
    "elu": elu,
    "celu": celu,
    "selu": selu,
    "softplus": softplus,
    "silu": swish,
    "swish": swish,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "lambda_gelu": lambda_gelu,
    "mish": mish,
    "tanhexp": tanhexp,
    "hardtanh": F.hardtanh,
    "hardswish": F.hardswish,
    "relu6": F.relu6,
    "softsign": F.softsign,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "srelu": srelu,
    "smelu": smelu,
    "generalized_smelu": generalized_smelu,
    "asymmetric_smelu": asymmetric_smelu,
    "leaky_smelu": leaky_smelu,
    "shifted_smelu": shifted_smelu,
    "origin_smelu": origin_smelu,
    "sigmoid_rescu": sigmoid_rescu,
    "smooth_relu": smooth_relu,
    "crrelu": crrelu,
    "squaf": squaf,
}
