"""Networks that call activations inside their methods, in every way that people write, and in some more."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.nn.functional import gelu as smooth
from torch.nn.functional import relu

X = torch.linspace(-3, 3, 24).reshape(4, 6)


class Layer(nn.Module):
    """A linear layer, so that there is something between two activations."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(6, 6)
        self.__own = nn.Linear(6, 6)

    def own(self, x: Tensor) -> Tensor:
        return self.__own(x)


class Spelled(Layer):
    def forward(self, x: Tensor) -> Tensor:
        a = F.relu(self.fc(x)) + torch.nn.functional.relu(x - 0.5)
        b = torch.relu(a - 1) + relu(x - 0.1) + x.relu() + (x - 0.2).clamp(min=0) + torch.clamp(x, min=0)
        c = F.relu(input=x) + torch.clamp_min(x, 0) + torch.Tensor.relu(x) + torch.relu(input=self.fc(x) - 0.3)
        return a * b + c + F.threshold(x, 0.0, 0.0) + F.leaky_relu(x, 0.0) + F.leaky_relu(x, negative_slope=0.0)


class Nested(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(F.gelu(self.fc(F.relu(x)), approximate="tanh") - F.relu(x)) + smooth(x)


class Lines(Layer):
    def forward(self, x: Tensor) -> Tensor:
        y = (
            self.fc(x)
            .add(0.1)
            .relu()
        )  # fmt: skip
        return F.relu(
            self.own(
                y,
            )
            - 0.1
        )


class InPlace(Layer):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu_(self.fc(x))
        return F.relu(self.fc(y), inplace=True) + F.relu_(self.own(x)) + self.fc(x).relu_()


class Looped(Layer):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = F.relu(self.fc(x))
        return x


class Inner(Layer):
    def forward(self, x: Tensor) -> Tensor:
        each = [F.relu(row) for row in x]
        more = (lambda y: torch.relu(y - 1))(x)

        def act(y: Tensor) -> Tensor:
            return self.fc(y.relu())

        return torch.stack(each) + more + act(x) + torch.stack([F.relu(self.fc(row)) for row in x])


class Methods(Layer):
    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor, *, shift: float = 0.5) -> Tensor:
        """What it does."""
        return self._part(x + shift) + torch.utils.checkpoint.checkpoint(self._part, x, use_reentrant=False)

    def _part(self, x: Tensor, times: int = 2) -> Tensor:
        return F.relu(self.fc(x)) * self.scale * times


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.__fc = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.__fc(x))


class ChildA(Base):
    pass


class ChildB(Base):
    def extra(self) -> int:
        return 1


class Family(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.again = ChildA(), ChildB(), ChildA()

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) + self.b(x) + self.again(x)


class Super(Layer):
    def own(self, x: Tensor) -> Tensor:
        return super().own(F.relu(x)) if isinstance(self, __class__) else x

    def forward(self, x: Tensor) -> Tensor:
        return self.own(x) + torch.tanh(x)


class OldStyle(Layer):
    def __init__(self) -> None:
        super(OldStyle, self).__init__()  # noqa: UP008 - as it was written for years

    def forward(self, x: Tensor) -> Tensor:
        return super(OldStyle, self).own(F.relu(x)) if isinstance(self, OldStyle) else x  # noqa: UP008


def attached(self: Any, x: Tensor) -> Tensor:
    return F.relu(self.fc(x)) + (0 if attached.__name__ == "attached" else 1)


class Attached(Layer):
    forward = attached


class Counts(Layer):
    def forward(self, x: Tensor) -> Tensor:
        global CALLS
        CALLS += 1
        return F.relu(self.own(x))


CALLS = 0


class Me(Layer):
    def forward(me, x: Tensor) -> Tensor:
        return F.relu(me.fc(x))


def closed_over(offset: float, act: Callable[[Tensor], Tensor]) -> type[nn.Module]:
    class Closed(Layer):
        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.fc(x) + offset) + act(x) + super().own(x)

    return Closed


def kept(function: Any) -> Any:
    """A decorator that leaves the function as it is, with a mark."""
    function.mark = "kept"
    return function


def named_itself(offset: float) -> type[nn.Module]:
    class Itself(Layer):
        def forward(self, x: Tensor) -> Tensor:
            nonlocal offset
            offset += 0.0
            return F.relu(self.fc(x) + offset) if isinstance(self, Itself) else x

    return Itself


class Marked(Layer):
    @kept
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.fc(x))


class Attribute(Layer):
    table = staticmethod(F.relu)

    def forward(self, x: Tensor) -> Tensor:
        act = F.relu
        return self.table(self.fc(x)) + act(x - 0.5) + functools.partial(F.relu)(x)


def helper(x: Tensor) -> Tensor:
    return F.relu(x)


def quiet(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


class Helped(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return helper(self.fc(x)) + helper(x)


class Static(Layer):
    @staticmethod
    def part(x: Tensor) -> Tensor:
        return F.relu(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.part(self.fc(x))


class Decorated(Layer):
    @quiet
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.fc(x))


class Overridden(Base):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 2


# Each with the number of calls that compute ReLU.
MODELS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "spelled": (Spelled, 14),
    "nested": (Nested, 3),
    "lines": (Lines, 2),
    "in place": (InPlace, 4),
    "looped": (Looped, 1),
    "inner": (Inner, 4),
    "methods": (Methods, 1),
    "family": (Family, 3),
    "super": (Super, 1),
    "old style": (OldStyle, 1),
    "attached": (Attached, 1),
    "counts": (Counts, 1),
    "me": (Me, 1),
    "closed over": (lambda: closed_over(0.25, torch.sin)(), 1),
    "named itself": (lambda: named_itself(0.25)(), 1),
    "marked": (Marked, 1),
    "attribute": (Attribute, 3),
    "helped": (Helped, 2),
    "static": (Static, 1),
    "decorated": (Decorated, 1),
    "overridden": (Overridden, 1),
}


class Failing(Layer):
    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.fc(x))
        return y + F.relu(x - 1) + 1 / self.bad  # fmt: skip


# -- what cannot be rewritten ---------------------------------------------------------------------------------


def wider(x: Tensor) -> Tensor:
    return F.relu(x).sum(-1, keepdim=True) * x


class Wider(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return wider(self.fc(x))


class Hiding:
    """A decorator that is an object, so that no other function can be put inside."""

    def __init__(self, function: Any) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return functools.partial(self.function, owner)


class Hidden(Layer):
    @Hiding
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.fc(x))


class Mapped(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack(list(map(F.relu, self.fc(x))))


class Unpacked(Layer):
    def forward(self, x: Tensor) -> Tensor:
        arguments = (self.fc(x),)
        return F.relu(*arguments)


class Rebound(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return (lambda self: F.relu(self))(self.fc(x))


class Assigned(Layer):
    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.fc(x))
        self = None
        return x if self is None else x + 1


class Several(Layer):
    def forward(self, x: Tensor) -> Tensor:
        for act in (F.relu, F.gelu):
            x = act(self.fc(x))
        return x


class Overwritten(Layer):
    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        y.relu_()
        return self.own(y)


class OverwrittenToo(Layer):
    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        z = F.relu(y, inplace=True)
        return y + z


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "Wider": (Wider, "function 'wider' (rewriting_nets.py:"),
    "Hidden": (Hidden, "which a decorator hides"),
    "Mapped": (Mapped, "handed over in"),
    "Unpacked": (Unpacked, "is its tensor cannot be told"),
    "Rebound": (Rebound, "'self' means something else"),
    "Assigned": (Assigned, "'self' means something else"),
    "Several": (Several, "several functions in turn"),
    "Overwritten": (Overwritten, "goes on to use what was overwritten"),
    "OverwrittenToo": (OverwrittenToo, "goes on to use what was overwritten"),
}
