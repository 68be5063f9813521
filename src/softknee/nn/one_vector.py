"""What the activations with a vector of numbers share: PolyReLU, PolyNorm, KAF, DiTAC and the entropic spline."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import InputError, ParameterError
from ..spec import VectorParam
from .parameters import Granularity, Parameterised, choose_learned, leaf_of_graph, require_tensor


class OneVector(Parameterised):
    """A module whose only parameter is a vector; a subclass says what it is and computes with it."""

    vector: ClassVar[VectorParam]  # the parameter
    settings: ClassVar[tuple[str, ...]] = ()  # what else a module is built with, each an attribute of that name
    words: ClassVar[tuple[str, ...]] = ()  # arguments that may be a word
    leading: ClassVar[int] = 0  # dimensions that stand in front of the input's own: 1 where replicas are stacked

    def _hold_vector(
        self, title: str, start: Tensor, *, learn: Any, per: str, size: Any, dim: int, device: Any, dtype: Any
    ) -> None:
        self._points, name = start.shape[-1], self.vector.name
        learned = choose_learned(title, names=[name], learn=learn)
        granularity = Granularity.read(title, per=per, size=size, dim=dim)
        self._hold(title, (self.vector,), {name: start}, learned, granularity, device=device, dtype=dtype)

    def _tail(self, name: str) -> tuple[int, ...]:
        return (self._points,)

    def compute(self, x: Tensor, vector: Tensor) -> Tensor:
        """The function, of x in the type to compute in and a vector whose other dimensions broadcast against x."""
        raise NotImplementedError

    def forward(self, input: Tensor) -> Tensor:
        if (node := leaf_of_graph(self, input)) is not None:
            return node
        require_tensor(self.title, input)
        # A vector has at least one dimension of its own, which an input of none would take over.
        return self.compute(*self._ready(input)).to(input.dtype).reshape(input.shape)

    def _ready(self, input: Tensor) -> tuple[Tensor, Tensor]:
        """The input and the vector in the type to compute in (float32 for half types), the vector's dimension last."""
        if not input.is_floating_point():
            raise InputError(
                f"{self.title}: the input must be of a floating-point type, and its type is {input.dtype}; convert it "
                f"first, for example with .float()."
            )
        vector: Any = self.granularity.shaped(self.effective(self.params[0]), input, self.title, tail=1)
        own = vector.shape[:-1]
        lead = input.dim() - len(own)
        if own.numel() > 1 and (lead < 0 or any(size not in (1, input.shape[lead + d]) for d, size in enumerate(own))):
            raise ParameterError(
                f"{self.title}: built with {self.granularity}, and the input has shape {tuple(input.shape)}, the last "
                f"dimensions of which must be {tuple(own)}; pass the right size=."
            )
        work = torch.promote_types(torch.float32, input.dtype)
        return input.to(work), vector.to(work)

    def extra_repr(self) -> str:
        return ", ".join(self._shown())
