"""Gated activations, act(a) * b, as language models use them: SwiGLU, GeGLU and the same with any other function."""

from __future__ import annotations

import os
from typing import Any

import torch.fx
from torch import Tensor, nn

from ..errors import InputError, ParameterError
from ..kernels import call_gated
from ..registry import resolve
from ..spec import Activation, Rowwise, SoftTable
from .baselines import Baseline
from .make import make
from .module import Pointwise
from .parameters import require_tensor


class GatedPointwise(Pointwise):
    """An element-wise activation times a gate; its arguments and its state are those of `Pointwise`.

    With `inplace` the gradients overwrite both inputs in the backward pass: see `Gated`.
    """

    def _read_save(self, save: Any) -> str:
        if save == "output":
            raise ParameterError(
                f"{type(self).__name__}: save='output' is for a function of one input, and a product with a gate needs "
                "both factors. Use save='input', which is the default, or the activation alone and then the product."
            )
        return super()._read_save(save)

    def forward(self, input: Tensor, gate: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        if isinstance(input, torch.fx.Proxy):
            tracer: Any = input.tracer
            return tracer.create_proxy("call_module", tracer.path_of_module(self), (input, gate), {})
        require_tensor(self.title, gate)
        return call_gated(self.definition, input, self.fitted(input), gate, inplace=self.inplace)


class Gated(nn.Module):
    r"""act(a) * b, over two tensors or over the two halves of one.

    An element-wise activation runs as one kernel each way on a GPU, and a and b are all that is saved:

        y = f(a) b        da = g b f'(a)        db = g f(a)        dp = sum of g b df/dp

    Any other (SQUAF, a baseline) is computed and then multiplied.

    Args:
        activation: as `sk.nn.make` takes it: a name, a text with values, a definition.
        split: the dimension that a single input is halved along.
        gate_last: which half of a single input goes through the activation: the first one (Llama's order), or with
            True the last one, as in `torch.nn.GLU`.
        arguments: what `sk.nn.make` takes: the parameters by name, learn, per, size, dim, device, dtype. With
            inplace=True the gradients of a and b overwrite them in the backward pass, on a GPU, which saves two tensors
            more; whoever needs a or b after it, or goes backward twice, gets an error from torch.

    >>> import softknee as sk, torch
    >>> swiglu = sk.nn.Gated("silu")
    >>> a, b = torch.randn(2, 4, 8)
    >>> torch.allclose(swiglu(a, b), torch.nn.functional.silu(a) * b, atol=1e-6)
    True
    >>> swiglu(torch.cat([a, b], -1)).shape
    torch.Size([4, 8])
    >>> x = torch.randn(4, 6)
    >>> torch.allclose(sk.nn.Gated("sigmoid", gate_last=True)(x), torch.nn.functional.glu(x), atol=1e-6)
    True

    Reference: Dauphin et al., "Language Modeling with Gated Convolutional Networks" (2017); Shazeer, "GLU Variants
    Improve Transformer" (2020).
    """

    def __init__(
        self,
        activation: str | os.PathLike[str] | Activation | SoftTable | Rowwise | Baseline,
        *,
        split: int = -1,
        gate_last: bool = False,
        **arguments: Any,
    ) -> None:
        super().__init__()
        definition, values, learn = resolve(activation)
        arguments = {**values, **({} if learn is None else {"learn": learn}), **arguments}
        if isinstance(definition, Rowwise):
            raise ParameterError(f"Gated takes a function of single elements, and {definition.name} works on rows.")
        fused = isinstance(definition, Activation)
        self.act = GatedPointwise(definition, **arguments) if fused else make(definition, **arguments)
        self.split, self.gate_last = split, gate_last

    def forward(self, input: Tensor, gate: Tensor | None = None) -> Tensor:
        """act(input) * gate; without a gate, of the two halves of the input."""
        if gate is None:
            input, gate = self._halves(input)
        return self.act(input, gate) if isinstance(self.act, GatedPointwise) else self.act(input) * gate

    def _halves(self, input: Tensor) -> tuple[Tensor, Tensor]:
        if not isinstance(input, torch.fx.Proxy):
            require_tensor("Gated", input)
            if not -input.dim() <= self.split < input.dim() or input.shape[self.split] % 2:
                raise InputError(
                    f"Gated halves dimension {self.split} of its input, and an input of shape {tuple(input.shape)} was "
                    "given; pass two tensors, or one of even size there."
                )
        first, second = input.chunk(2, self.split)
        return (second, first) if self.gate_last else (first, second)

    def extra_repr(self) -> str:
        return f"split={self.split}" + ", gate_last=True" * self.gate_last
