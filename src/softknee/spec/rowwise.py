"""Functions that are not element-wise: norm-based ones, gated pairs. Their place, and how they are written.

A `Rowwise` works on rows along one dimension of its input and is plain torch code of its author: every
device, transform and derivative that torch has works for it, and no kernel is generated. Registered, it is
asked for by name and made into a module like any other activation.

    def swiglu(x, *, beta):
        value, gate = x.chunk(2, -1)
        return value * gate * torch.sigmoid(beta * gate)

    sk.register(Rowwise("swiglu", swiglu, params=(positive("beta", 1.0),), size_out=lambda n: n // 2))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import DefinitionError, InputError, ParameterError
from ..registry import restore
from .param import Param, check_values, find_param

if TYPE_CHECKING:
    from torch import Tensor


def same_size(size: int) -> int:
    """The size of a row whose function keeps its length."""
    return size


@dataclass(frozen=True, eq=False)
class Rowwise:
    """A function of rows as data.

    name:     what it is called.
    compute:  compute(x, **params) on tensors; each parameter arrives as a tensor of x's dtype that broadcasts
              against x with the row's dimension left out (size 1).
    params:   its parameters, numbers with constraints, as an `Activation` has them.
    dim:      the dimension of x that a row lies along.
    size_out: the size of that dimension in the result, from its size in x; a DefinitionError or a
              ParameterError of yours refuses a size.
    about:    one sentence with the reference.
    """

    name: str
    compute: Callable[..., Any]
    params: tuple[Param, ...] = ()
    dim: int = -1
    size_out: Callable[[int], int] = same_size
    about: str = ""

    def param(self, name: str) -> Param:
        """The parameter of that name, or an error with a did-you-mean."""
        return find_param(self.name, self.params, name)

    def check(self, values: Mapping[str, Any]) -> None:
        """Refuse names that do not exist and numbers that are not allowed."""
        check_values(self.name, self.params, values)

    @property
    def text_arguments(self) -> tuple[list[str], list[str]]:
        """What a text can set: the arguments that are numbers, and those that are words."""
        return [p.name for p in self.params], []

    def __call__(self, input: Tensor, **values: Any) -> Tensor:
        """Compute the function on a tensor; parameters are numbers, or tensors that broadcast against it."""
        import torch

        self._check_input(input)
        self.check(values)
        result: Any = self.compute(input, **{p.name: self._fitted(p, values, input) for p in self.params})
        if not isinstance(result, torch.Tensor):
            raise DefinitionError(
                f"{self.name} must give a tensor, and its compute gave {type(result).__name__}; correct it."
            )
        expected = list(input.shape)
        expected[self.dim] = self.size_out(input.shape[self.dim])
        if list(result.shape) != expected:
            raise DefinitionError(
                f"{self.name} gave a result of shape {tuple(result.shape)} for an input of shape "
                f"{tuple(input.shape)}, and its size_out promises {tuple(expected)}; correct one of the two."
            )
        return result

    def _fitted(self, p: Param, values: Mapping[str, Any], input: Tensor) -> Tensor:
        import torch

        number = values.get(p.name, p.default)
        if not isinstance(number, torch.Tensor):
            return torch.full((1,), float(number), dtype=input.dtype, device=input.device)
        lead = input.dim() - number.dim()
        row = self.dim % input.dim()
        if number.numel() != 1 and (
            lead < 0
            or any(
                size != 1 and (lead + d == row or size != input.shape[lead + d]) for d, size in enumerate(number.shape)
            )
        ):
            raise ParameterError(
                f"{self.name}: {p.name} has shape {tuple(number.shape)}, which does not broadcast against an "
                f"input of shape {tuple(input.shape)} with one value for each row (rows lie along dimension "
                f"{self.dim}); (1,) is one value for all."
            )
        return (number.reshape(1) if number.numel() == 1 else number).to(input.dtype)

    def _check_input(self, input: Any) -> None:
        import torch

        if not isinstance(input, torch.Tensor):
            raise InputError(
                f"{self.name} works on a torch.Tensor, and {type(input).__name__} was given; wrap it with "
                f"torch.as_tensor."
            )
        if not input.is_floating_point():
            raise InputError(
                f"{self.name} works on real floating-point tensors, and {input.dtype} was given; convert it first."
            )
        if not -input.dim() <= self.dim < input.dim():
            raise InputError(
                f"{self.name} works on rows along dimension {self.dim}, which an input of shape "
                f"{tuple(input.shape)} does not have."
            )

    def __repr__(self) -> str:
        defaults = ", ".join(f"{p.name}={p.default:g}" for p in self.params)
        return f"<row-wise activation {self.name}({defaults})>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Rowwise:
        return self  # immutable, and compared by identity

    def __reduce__(self) -> tuple[Any, ...]:
        return restore, (self.name, ())
