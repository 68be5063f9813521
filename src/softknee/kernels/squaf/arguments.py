"""What the arguments of SQUAF mean, for the function and the module alike: defaults, samples, refusals.

Without q and alpha they are the paper's for fitting with an MLP, 0.5 and 5. With q alone alpha follows it, so
that neighbours keep the same overlap on every grid: 1.5/q^2 (the paper's), and 1.5/q for Laplacian weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from softknee.errors import ParameterError, SoftkneeError
from softknee.spec import Param, SoftTable
from softknee.spec.soft_table import read_window

from ..pointwise import check_input, find, held_number
from .function import auto_window, check_tails, squaf
from .plain import compute_dtype

SOFTNESS = 1.5


def run(act: SoftTable, x: Tensor, values: Mapping[str, Any]) -> Tensor:
    """What `act(x, **values)` does."""
    check_input(act, x)  # pyright: ignore[reportArgumentType] - it reads the name alone
    arguments = dict(values)
    tails = check_tails(arguments.pop("tails", "flat"))
    act.check(arguments)
    weights = act.with_weights(arguments.get("weights", act.weights)).weights

    def tensor(value: Any) -> Tensor:
        if isinstance(value, Tensor):
            return value
        return torch.as_tensor(value, dtype=compute_dtype(x), device=x.device)

    def number(name: str, value: Any) -> Tensor:
        if isinstance(value, Tensor):
            return value
        p, work = act.param(name), compute_dtype(x)
        assert isinstance(p, Param)
        # Not as_tensor, of which torch.compile would make a graph for each number.
        return torch.full((), held_number(act.name, p, float(value), work), dtype=work, device=x.device)

    grid = arguments.get("grid")
    if grid is not None:
        refuse_beside_grid(arguments)
        points = as_numbers("grid", grid, like=tensor(0.0))
        alpha = number("alpha", default_number(act, "alpha") if arguments.get("alpha") is None else arguments["alpha"])
        z = sample(arguments.get("z", "relu"), points=points)
        return squaf(
            x, grid=points, alpha=alpha, z=tensor(z), window=None, weights=weights, order=act.order, tails=tails
        )
    q = number("q", default_number(act, "q") if arguments.get("q") is None else arguments["q"])
    alpha = number("alpha", read_alpha(act, arguments, q=q, weights=weights))
    z = arguments.get("z", "relu")
    k = read_k(arguments.get("k"), z=z, usual=act.options["k"])
    window = arguments.get("window", act.options["window"])
    if isinstance(window, str) and window == "auto":
        tolerance = arguments.get("tolerance", act.options["tolerance"])
        window = auto_window(q, alpha=alpha, k=k, tolerance=tolerance, weights=weights)
    z = tensor(sample(z, points=uniform_points(q, k=k)))
    window = read_window(window, auto=True)
    return squaf(x, q=q, alpha=alpha, z=z, k=k, window=window, weights=weights, order=act.order, tails=tails)


def default_number(act: SoftTable, name: str) -> float:
    """The default of a parameter that is a number."""
    p = act.param(name)
    assert isinstance(p, Param)
    return p.default


def read_alpha(act: SoftTable, arguments: Mapping[str, Any], *, q: Any, weights: str) -> Any:
    """alpha as given, or the one that goes with q."""
    alpha = arguments.get("alpha")
    if isinstance(alpha, str) and alpha != "auto":
        raise ParameterError(f"squaf: alpha must be a number, a tensor or 'auto', and {alpha!r} was given.")
    if alpha is None and arguments.get("q") is None:
        return default_number(act, "alpha")
    return default_alpha(q, weights=weights) if alpha is None or isinstance(alpha, str) else alpha


def default_alpha(q: Any, *, weights: str) -> Any:
    """The alpha that goes with a spacing; of the kind of q, a number or a tensor without gradient."""
    q = q.detach() if isinstance(q, Tensor) else q
    if not isinstance(q, Tensor) and not q * q:  # the square of a denormal
        raise ParameterError(f"squaf: q={q:g} is too small for an alpha that goes with it; give alpha, or a larger q.")
    return SOFTNESS / q if weights == "laplacian" else SOFTNESS / q**2


def read_k(k: Any, *, z: Any, usual: int) -> int:
    """How many grid points there are on each side: as given, else as many as z has values for."""
    if k is None:
        while isinstance(z, (list, tuple)) and z and isinstance(z[0], (list, tuple)):  # one list for each channel
            z = z[0]
        size = len(z) if isinstance(z, (list, tuple)) else None
        if isinstance(z, Tensor) and z.dim():
            size = z.shape[-1]
        if size is None:
            return usual
        if size % 2 == 0 or size < 3:
            raise ParameterError(f"squaf: z must have 2k+1 values, 3, 5, 7, ..., and {size} were given.")
        return size // 2
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ParameterError(
            f"squaf: k must be a whole number of at least 1 (a grid of 2k+1 points), and {k!r} was given."
        )
    return k


def refuse_beside_grid(arguments: Mapping[str, Any]) -> None:
    """A general grid says where its points are, and is summed in full."""
    for name in ("q", "k"):
        if arguments.get(name) is not None:
            raise ParameterError(
                f"squaf was given both {name} and grid; {name} belongs to the uniform grid: leave one of the two out."
            )
    if arguments.get("window") is not None:
        raise ParameterError(
            f"squaf: on a general grid it is the full sum, and window={arguments['window']!r} was given; leave it out."
        )
    if isinstance(arguments.get("alpha"), str):
        raise ParameterError("squaf: a general grid has no spacing to choose alpha from; give a number.")


def as_numbers(name: str, values: Any, *, like: Tensor) -> Tensor:
    """A tensor of what was given as a list of numbers, or a sentence that says it is none."""
    if isinstance(values, Tensor):
        return values
    try:
        return torch.as_tensor(values, dtype=like.dtype, device=like.device)
    except (TypeError, ValueError, RuntimeError):
        raise ParameterError(
            f"squaf: {name} is a list or a tensor of numbers, and {values!r} was given; give one list for all, or "
            "lists of equal lengths, one for each channel."
        ) from None


def uniform_points(q: Tensor, *, k: int) -> Tensor:
    """The points i q, along a new last dimension."""
    steps = torch.arange(-k, k + 1, dtype=q.dtype, device=q.device)
    return q.detach().unsqueeze(-1) * steps


def sample(source: Any, *, points: Tensor) -> Tensor:
    """z from what was given: its values, or a function (a name, a definition, a callable) at the points."""
    if isinstance(source, Tensor):
        return source
    if isinstance(source, (list, tuple)):
        return as_numbers("z", source, like=points)
    if isinstance(source, str) and source == "random":
        raise ParameterError(
            "squaf: a random table belongs to a module, which keeps what it drew: use sk.nn.SQUAF(z='random'); the "
            "function takes z as a tensor, a list, a name or a function."
        )
    if isinstance(source, str) and source == "relu":
        return points.detach().relu()
    function = find(source) if isinstance(source, str) else source
    if not callable(function):
        raise ParameterError(
            "squaf: z must be a tensor, a list, the name of an activation or a function to sample at the "
            f"grid points, and {type(source).__name__} was given."
        )
    try:
        values = function(points.detach())
    except SoftkneeError:
        raise
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"squaf: z samples a function of a tensor, and this one does not take one ({error}); use torch's "
            "functions in it, for instance torch.sin for math.sin."
        ) from error
    if not isinstance(values, Tensor) or values.shape != points.shape:
        raise ParameterError(
            "squaf: the function that z is to sample must give one value for each of the grid points it is called with."
        )
    return values.detach()
