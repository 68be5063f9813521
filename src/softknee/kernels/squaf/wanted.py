"""Which of SQUAF's gradients are computed: a sum of these, in the order of the arguments x, q, alpha, z."""

from collections.abc import Sequence

from torch import Tensor

BY_X, BY_Q, BY_ALPHA, BY_Z = 1, 2, 4, 8
EVERY = BY_X | BY_Q | BY_ALPHA | BY_Z


def wanted_of(needs: Sequence[bool]) -> int:
    """From what autograd says that it needs of x, q, alpha and z."""
    return sum(flag for flag, need in zip((BY_X, BY_Q, BY_ALPHA, BY_Z), needs, strict=True) if need)


def only_wanted(gradients: Sequence[Tensor], wanted: int) -> list[Tensor | None]:
    """The gradients by x, q, alpha and z, None in the place of one that is not wanted."""
    flags = (BY_X, BY_Q, BY_ALPHA, BY_Z)
    return [g if wanted & flag else None for g, flag in zip(gradients, flags, strict=True)]
