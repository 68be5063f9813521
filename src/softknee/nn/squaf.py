"""SQUAF as a module: a table of values on a grid, each of table, spacing and sharpness learned or fixed.

Its two other modes are SQUAF-P, which draws from the table, and SQUAF-S, the staircase. All three hold the same
parameters under the same names, so that a state dict of one loads into each of the others.

Reference: Soft quantization activation functions (the SQUAF paper), equation 10 and appendix A.4, equations 43 and 44.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..errors import InputError, ParameterError, did_you_mean, require_choice
from ..kernels import find
from ..kernels.calls import Calls, has_kernels
from ..kernels.layout import writable
from ..kernels.squaf import auto_window, new_seed, sampled_symbols, squaf, squaf_sampled, squaf_step, step_symbols
from ..kernels.squaf.arguments import read_alpha, read_k, refuse_beside_grid, sample, uniform_points
from ..kernels.squaf.function import check_tails
from ..kernels.squaf.quick import TableCall, TableParameters, has_usual_types
from ..kernels.squaf.symbols import value_at
from ..spec import Param, SoftTable, VectorParam
from ..spec.soft_table import read_window
from .parameters import Granularity, Parameterised, choose_learned, leaf_of_graph, require_tensor


class Left(enum.Enum):
    """Says that an argument was left out, where None has a meaning of its own."""

    OUT = "left out"


_GRID = VectorParam("grid", "", about="the points of a grid that is not uniform")


class SQUAF(Parameterised):
    """Soft quantisation: the mean of z_i under weights e^(-alpha (x - i q)^2), i = -k..k.

    Args:
        k: the grid has 2k+1 points; left out, as many as z has, else 2.
        q, alpha: spacing and sharpness. Left out, 0.5 and 5; with q alone, or alpha="auto", alpha is 1.5/q^2.
        z: the values at the points: a tensor, a list, or a function to sample there, by name ("relu",
            "gelu", ...), as a definition or as any callable on tensors; or "random", drawn from U(-1, 1) with torch's
            generator, the paper's start for fitting with an MLP.
        window: how many of the nearest points are kept (5), None for all, or "auto": as many as keep the jump
            of a sliding window below `tolerance`, chosen now and again by `refresh_window_()`.
        weights: "gaussian", or "laplacian" for e^(-alpha |x - i q|).
        grid: the points of a general grid instead of q and k; summed in full.
        tails: "flat", or "linear" to go on beyond the grid with value and slope of its ends. Flat tails have next to no
            slope: a fitted ReLU with k=16 and q=0.25, whose grid ends at 4, has 4e-6 at x=5 and 3e-11 at x=6. At the
            very end the points lie on one side only, which leaves 0.4665 of the slope inside (Gaussian weights,
            alpha = 1.5/q^2): a linear tail of that ReLU has the slope 0.4665, not 1.
        learn: any of "q" (or "grid"), "alpha", "z"; True for all, 2k+3 numbers.
        per: "layer" for one value of q and alpha and one table, "channel" for one of each per channel, "neuron" for one
            of each per element of the input without the batch.
        size: with per="channel" the number of channels, with per="neuron" the trailing shape of the input.
        dim: with per="channel" the input's dimension that the channels lie along.
        inplace: overwrite the input where no gradient is needed; elsewhere it has no effect.
        device, dtype: of the parameters. float16 ends at 65504: an alpha above it (1.5/q^2 from q = 0.0047 down;
            learned, above 45404) or a z above it is refused, here, by .half(), by set_ and by load_state_dict.
            bfloat16 holds them.

    A trained layer becomes SQUAF-P by `as_sampled()` and SQUAF-S by `as_step()`; a whole model by `sk.squaf_mode_`.

    >>> import softknee as sk
    >>> sk.nn.make("squaf", k=16, q=0.25, z="gelu", learn=("q", "alpha", "z"))
    SQUAF(k=16, q=0.25 (learned), alpha=24 (learned), z=-0.17..4 (learned), per='layer', window=5)
    """

    activation: ClassVar[str] = "squaf"
    mode: ClassVar[str] = "soft"

    def __init__(
        self,
        definition: SoftTable | None = None,
        *,
        k: int | None = None,
        q: float | Tensor | None = None,
        alpha: float | Tensor | str | None = None,
        z: Tensor | Sequence[float] | str | Callable[[Tensor], Tensor] = "relu",
        window: int | str | Left | None = Left.OUT,
        tolerance: float = 1e-4,
        weights: str | None = None,
        grid: Tensor | Sequence[float] | None = None,
        tails: str = "flat",
        learn: bool | str | Iterable[str] = False,
        per: str = "layer",
        size: int | Sequence[int] | None = None,
        dim: int = 1,
        inplace: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **unknown: Any,
    ) -> None:
        super().__init__()
        _refuse_unknown(unknown)
        if definition is not None and not isinstance(definition, SoftTable):
            raise ParameterError(
                f"squaf: what comes first is a definition, and {definition!r} was given; give every other argument by "
                "its name, for instance k=16."
            )
        # What layers that are made of each other (`as_step()` and so on) have in common beside their tensors.
        self._common: dict[str, Any] = {"learned": (), "window": None}
        act: SoftTable = find(self.activation) if definition is None else definition
        self.definition = act if weights is None else act.with_weights(weights)
        self.weights, self.inplace, self.tolerance = self.definition.weights, inplace, tolerance
        self.tails = check_tails(tails)
        if tails == "linear" and self.definition.order:
            raise ParameterError(f"{act.name}: a derivative of SQUAF has no tails to continue; leave tails= out.")
        self.title, self.granularity = act.name, Granularity.read(act.name, per=per, size=size, dim=dim)
        spacing = _GRID if grid is not None else act.param("q")
        params: tuple[Param | VectorParam, ...] = (spacing, act.param("alpha"), act.param("z"))
        self.learned = choose_learned(act.name, names=[p.name for p in params], learn=learn)  # pyright: ignore
        shape: dict[str, Any] = {"k": k, "q": q, "alpha": alpha, "grid": grid}
        if grid is None:
            starts = self._on_uniform_grid(shape, z=z)
            window_setting = act.options["window"] if window is Left.OUT else window
        else:
            refuse_beside_grid(shape | {"window": None if window is Left.OUT else window})
            starts = self._on_grid(shape, z=z)
            window_setting = None
        self.window_is_auto = isinstance(window_setting, str) and window_setting == "auto"
        if self.window_is_auto:
            self._first_window = self._wide_enough(starts["q"], starts["alpha"])
            # Kept beside the parameters, so that a loaded state is the same function.
            self.register_buffer("window_kept", torch.zeros(1, dtype=torch.int64, device=device))
        else:
            self._first_window = read_window(window_setting, auto=True)
        self._hold(act.name, params, starts, self.learned, self.granularity, device=device, dtype=dtype)

    # -- construction -----------------------------------------------------------------------------------

    def _on_uniform_grid(self, shape: dict[str, Any], *, z: Any) -> dict[str, Any]:
        act = self.definition
        self.k: int | None = read_k(shape["k"], z=z, usual=act.options["k"])
        self.points = 2 * self.k + 1
        q = self._checked(act.param("q"), act.param("q").default if shape["q"] is None else shape["q"])
        alpha = self._checked(act.param("alpha"), read_alpha(act, shape, q=q, weights=self.weights))
        # Sampled on the CPU whatever device stands for all tensors here, such as transformers' meta device.
        where = uniform_points(torch.as_tensor(q, dtype=torch.float64, device="cpu"), k=self.k)
        return {"q": q, "alpha": alpha, "z": self._table(z, where)}

    def _on_grid(self, shape: dict[str, Any], *, z: Any) -> dict[str, Any]:
        act = self.definition
        try:
            grid = torch.as_tensor(shape["grid"])
        except (TypeError, ValueError, RuntimeError):
            kind = type(shape["grid"]).__name__
            raise ParameterError(f"{act.name}: grid is a list or a tensor of numbers, and {kind} was given.") from None
        self.k, self.points = None, grid.shape[-1] if grid.dim() else 0
        grid = grid if grid.is_floating_point() else grid.to(torch.float64)
        if self.points < 2 or not (grid.diff() > 0).all():
            raise ParameterError(
                f"{act.name}: grid must have two points or more in rising order, and {shape['grid']!r} was given."
            )
        alpha = act.param("alpha").default if shape["alpha"] is None else shape["alpha"]
        return {"grid": grid, "alpha": self._checked(act.param("alpha"), alpha), "z": self._table(z, grid)}

    def _table(self, z: Any, where: Tensor) -> Tensor:
        """z at its start, with as many values as there are points."""
        if isinstance(z, str) and z == "random":
            # On the CPU from torch's global generator, whatever the device: a seed gives one table everywhere.
            shape = (*self.granularity.shape, self.points)
            return torch.rand(shape, dtype=torch.float64, device="cpu").mul_(2.0).sub_(1.0)
        table = sample(z, points=where.double()).detach()
        if not table.dim() or table.shape[-1] != self.points:
            count = f"2k+1 = {self.points} values for k={self.k}" if self.k else f"{self.points} values"
            raise ParameterError(
                f"{self.title}: z must have {count}, one for each point of the grid, and its shape is "
                f"{tuple(table.shape)}."
            )
        return table

    def _tail(self, name: str) -> tuple[int, ...]:
        return (self.points,) if name in ("z", "grid") else ()

    @property
    def learned(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The names of the parameters that can be trained."""
        return self._common["learned"]

    @learned.setter
    def learned(self, names: tuple[str, ...]) -> None:
        self._common["learned"] = names

    # -- the window -------------------------------------------------------------------------------------

    @property
    def window(self) -> int | None:
        """How many of the nearest points are kept; None: all."""
        return self._common["window"]

    @window.setter
    def window(self, window: int | None) -> None:
        self._common["window"] = window

    def _wide_enough(self, q: Any, alpha: Any) -> int | None:
        assert self.k is not None
        q, alpha = (v.detach().double().cpu() if isinstance(v, Tensor) else v for v in (q, alpha))
        return auto_window(q, alpha=alpha, k=self.k, tolerance=self.tolerance, weights=self.weights)

    def _set_window(self, window: int | None) -> None:
        self.window = window
        if self.window_is_auto:
            self._held("window_kept").fill_(window or 0)

    def refresh_window_(self) -> int | None:
        """With window="auto", choose it again for q and alpha as they are now; returns it (None: all)."""
        if self.window_is_auto and self._held("window_kept").device.type != "meta":
            self._set_window(self._wide_enough(self.q, self.alpha))
        return self.window

    def reset_parameters(self) -> None:
        """Bring every parameter, and the window, back to what the module was built with."""
        super().reset_parameters()
        self._set_window(self._first_window)

    def _start_what_was_not_loaded(self) -> None:
        super()._start_what_was_not_loaded()
        if self.window_is_auto:
            stored = self._held("window_kept")
            loaded = getattr(stored, "_is_hf_initialized", False)
            self._set_window(int(stored.item()) or None if loaded else self._first_window)

    def _load_from_state_dict(  # as torch calls it
        self, state_dict: Any, prefix: str, local_metadata: Any, *others: Any, **named: Any
    ) -> None:
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *others, **named)
        if self.window_is_auto and self._held("window_kept").device.type != "meta":
            self.window = int(self._held("window_kept").item()) or None

    # -- computing --------------------------------------------------------------------------------------

    def fitted(self, input: Tensor) -> dict[str, Any]:
        """The effective parameters by name, in shapes that broadcast against this input."""
        return {
            p.name: self.granularity.shaped(self.effective(p), input, self.title, tail=len(self._tail(p.name)))
            for p in self.params
        }

    def compute(self, input: Tensor, values: dict[str, Any]) -> Tensor:
        """The function in this mode, with parameters that fit the input."""
        order = self.definition.order
        return squaf(input, **values, window=self.window, weights=self.weights, order=order, tails=self.tails)

    def forward(self, input: Tensor) -> Tensor:
        if (node := leaf_of_graph(self, input)) is not None:
            return node
        require_tensor(self.title, input)
        if torch.compiler.is_compiling():
            params = self._table_parameters() if self.mode == "soft" else None
            if params is not None and has_usual_types(input, params):
                return torch.ops.softknee.squaf_table(input, *params)
        elif has_kernels(input) and (value := self._run_prepared(input)) is not None:
            return value
        result = self.compute(input, self.fitted(input))
        if self.inplace and not torch.compiler.is_compiling() and not result.requires_grad:
            return input.copy_(result) if writable(input) else result
        return result

    def _run_prepared(self, input: Tensor) -> Tensor | None:
        """What a call gives that is prepared for inputs like this one; None where the general way must be taken."""
        key = type(self), input.shape, self._common["window"], self.weights, self.tails, self.inplace
        call = self._calls.get(key)
        if call is not None and (value := call.run(input, self._parameters, self._buffers)) is not None:
            return value
        if (params := self._table_parameters()) is None:
            return None
        call = TableCall.of(input, params, self._held_names(), self.mode)
        if call is None:
            return None
        self.__dict__.setdefault("_calls", Calls()).add(key, call)
        return call.run(input, self._parameters, self._buffers)

    def _held_names(self) -> tuple[str, ...]:
        learned = self.learned
        q, alpha = ("raw_q" if "q" in learned else "q", "raw_alpha" if "alpha" in learned else "alpha")
        return q, alpha, "z", "anchor_q", "anchor_alpha"

    def _table_parameters(self) -> TableParameters | None:
        """The parameters as they are held, where this is the case that there is a short way for; else None."""
        if self.window != 5 or self.weights != "gaussian" or self.tails != "flat" or self.k is None or self.inplace:
            return None
        if self.granularity.per != "layer" or self.definition.order or type(self).compute not in _QUICK:
            return None
        q, alpha, z, *anchors = self._held_names()
        return TableParameters(
            self._held(q), self._held(alpha), self._held(z), *(self._buffers.get(name) for name in anchors)
        )

    # -- modes ------------------------------------------------------------------------------------------

    def as_soft(self) -> SQUAF:
        """This layer as SQUAF, the mean of the table: the same parameters, the same names in a state dict."""
        return in_mode(self, "soft")

    def as_sampled(self) -> SQUAFP:
        """This layer as SQUAF-P, which draws from the table: the same parameters, the same names in a state dict."""
        return in_mode(self, "sampled")

    def as_step(self) -> SQUAFS:
        """This layer as SQUAF-S, the staircase: the same parameters, the same names in a state dict."""
        return in_mode(self, "step")

    def with_symbols(self, input: Tensor) -> tuple[Tensor, Tensor]:
        """The output, which can be differentiated, and the places in z it was taken from (int32; -1 where x is NaN)."""
        raise ParameterError(
            f"{self.title}: SQUAF itself is a mean of its table and takes no single place in it; ask as_sampled() or "
            "as_step() for symbols."
        )

    def from_symbols(self, symbols: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
        """What symbols stand for; as_sampled() and as_step() have them."""
        return self.with_symbols(symbols)[0]

    def symbols(self, input: Tensor) -> Tensor:
        """The places in z, 0..2k, that are taken for this input (int32; -1 where x is NaN): what goes on the wire."""
        return self.with_symbols(input)[1]

    def extra_repr(self) -> str:
        parts = [] if self.title == self.activation else [repr(self.title)]
        parts += [f"k={self.k}"] if self.k else [f"points={self.points}"]
        parts += self._shown()
        parts.append(f"window='auto' ({self.window})" if self.window_is_auto else f"window={self.window}")
        parts += [f"weights={self.weights!r}"] if self.weights != "gaussian" else []
        parts += [f"tails={self.tails!r}"] if self.tails != "flat" else []
        return ", ".join([*parts, "inplace=True"] if self.inplace else parts)


def _refuse_unknown(arguments: dict[str, Any]) -> None:
    known = [name for name in inspect.signature(SQUAF).parameters if name not in ("definition", "unknown")]
    for name in arguments:
        raise ParameterError(f"squaf has no argument {name!r}; it takes {', '.join(known)}.{did_you_mean(name, known)}")


Squaf = SQUAF  # the name it had first


class Chosen(SQUAF):
    """What SQUAF-P and SQUAF-S share: every output is one value of the table, known by its place, the symbol."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        _refuse_mode(self, type(self))

    def from_symbols(self, symbols: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
        """What the symbols stand for: z there, in the shape of the symbols (those of per-channel tables have the shape
        of the input that they were made from).

        >>> import softknee as sk, torch
        >>> step = sk.nn.SQUAFS(k=2, q=0.5)
        >>> x = torch.tensor([-3.0, 0.6, 3.0])
        >>> step.symbols(x), step.from_symbols(step.symbols(x))
        (tensor([0, 3, 4], dtype=torch.int32), tensor([0.0000, 0.5000, 1.0000]))
        """
        whole = isinstance(symbols, Tensor) and not (symbols.is_floating_point() or symbols.is_complex())
        if not whole or symbols.dtype == torch.bool:
            what = symbols.dtype if isinstance(symbols, Tensor) else type(symbols).__name__
            raise InputError(
                f"{self.title}: symbols are a tensor of whole numbers, as symbols() gives them, and {what} was given."
            )
        if symbols.numel() and not 0 <= int(symbols.min()) <= int(symbols.max()) < self.points:
            raise InputError(
                f"{self.title}: symbols must be in 0..{self.points - 1}, and {int(symbols.min())}.."
                f"{int(symbols.max())} were given (-1 is the symbol of NaN, which has no value)."
            )
        z = self.granularity.shaped(self.z, symbols, self.title, tail=1)
        like = torch.zeros(symbols.shape or (1,), dtype=dtype or z.dtype, device=symbols.device)
        return value_at(z, symbols.to(torch.int64), x=like).reshape(symbols.shape)


class SQUAFP(Chosen):
    """SQUAF-P: gives z_i with probability P(y_i | x), drawn anew at every call, in training and in eval mode alike.

    Arguments are those of `SQUAF`, and so are the gradients by x, q, alpha and z, to the bit: the output is a sample,
    the backward pass that of its mean. Draws come from torch's default generator (one number a call), so that
    torch.manual_seed, activation checkpointing and the replay of CUDA graphs do what they do for dropout.

    >>> import softknee as sk, torch
    >>> _ = torch.manual_seed(0)
    >>> layer = sk.nn.SQUAFP(k=16, q=0.25, learn=True)
    >>> x = torch.randn(1000)
    >>> y, symbols = layer.with_symbols(x)
    >>> bool((y == layer.z[0, symbols]).all()), bool((layer(x) == y).all())
    (True, False)
    >>> bool((torch.stack([layer(x) for _ in range(200)]).mean(0) - layer.as_soft()(x)).abs().max() < 0.1)
    True
    """

    mode: ClassVar[str] = "sampled"

    def compute(self, input: Tensor, values: dict[str, Any]) -> Tensor:
        return squaf_sampled(input, **values, window=self.window, weights=self.weights)

    def with_symbols(self, input: Tensor) -> tuple[Tensor, Tensor]:
        """The output, which can be differentiated, and the places in z it was taken from (int32; -1 where x is NaN).

        One draw decides both; the next call draws anew.
        """
        require_tensor(self.title, input)
        values = self.fitted(input) | {"window": self.window, "weights": self.weights, "seed": new_seed(input)}
        return squaf_sampled(input, **values), sampled_symbols(input, **values)

    def symbols(self, input: Tensor) -> Tensor:
        """The places in z drawn for this input in a call of its own; see `with_symbols` for both of one draw."""
        require_tensor(self.title, input)
        values = self.fitted(input)
        return sampled_symbols(input, **values, window=self.window, weights=self.weights, seed=new_seed(input))


class SQUAFS(Chosen):
    """SQUAF-S: the staircase z at clamp(round(x/q), -k, k), on a general grid z at the nearest point; no exponential.

    Arguments are those of `SQUAF`; alpha, window and weights are kept for the other modes. In the paper it stands in
    for a trained SQUAF-P at inference and is never trained. Here its gradients are the true ones: 0 by x and q, none by
    alpha, and by z the sums of the elements at each point. Layers before it get nothing to learn from: train with SQUAF
    or SQUAFP, then switch.

    >>> import softknee as sk, torch
    >>> sk.nn.SQUAF(k=2, q=0.5, z="gelu").as_step()(torch.tensor([-9.0, 0.3, 0.6, 9.0]))
    tensor([-0.1587,  0.3457,  0.3457,  0.8413])
    """

    mode: ClassVar[str] = "step"

    def compute(self, input: Tensor, values: dict[str, Any]) -> Tensor:
        return squaf_step(input, **_of_step(values))

    def with_symbols(self, input: Tensor) -> tuple[Tensor, Tensor]:
        """The output and the places in z it was taken from (int32; -1 where x is NaN)."""
        require_tensor(self.title, input)
        values = _of_step(self.fitted(input))
        return squaf_step(input, **values), step_symbols(input, **values)

    def symbols(self, input: Tensor) -> Tensor:
        """The place in z of the point nearest to each x (int32; -1 where x is NaN): what goes on the wire."""
        require_tensor(self.title, input)
        return step_symbols(input, **_of_step(self.fitted(input)))


MODES: dict[str, type[SQUAF]] = {cls.mode: cls for cls in (SQUAF, SQUAFP, SQUAFS)}
# The forms of `compute` that have a short way; a tuple, as torch 2.6 cannot compile what asks a set of functions.
_QUICK = tuple(cls.compute for cls in MODES.values())


def read_mode(mode: str) -> type[SQUAF]:
    """The class of a mode, or a sentence that says which there are."""
    require_choice("squaf", "mode", mode, MODES)
    return MODES[mode]


def class_in_mode(module: SQUAF, mode: str) -> type[SQUAF]:
    """The class that this layer has in a mode, or a sentence that says why it cannot be switched."""
    cls, kind = read_mode(mode), type(module)
    if kind not in MODES.values():
        raise ParameterError(
            f"{kind.__name__} is made of a SQUAF but is none itself (clipped, stacked, or a class of your own); switch "
            "before it is changed, or undo the change first."
        )
    _refuse_mode(module, cls)
    return cls


def in_mode(module: SQUAF, mode: str) -> Any:
    """A module over the very same parameters and buffers in another mode, without the hooks of the first.

    Both hold them in common: what trains, moves or loads one does so to the other.
    """
    cls = class_in_mode(module, mode)
    made = cls.__new__(cls)
    nn.Module.__init__(made)
    common = {"training", "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"}
    inherited = {name: value for name, value in vars(module).items() if name in common or name not in vars(made)}
    inherited.pop("_calls", None)  # of the other mode
    vars(made).update(inherited)
    return made


def _refuse_mode(module: SQUAF, cls: type[SQUAF]) -> None:
    if module.definition.order and cls is not SQUAF:
        raise ParameterError(
            f"{module.title}: {cls.__name__} is a form of SQUAF itself, not of one of its derivatives."
        )
    if module.tails != "flat" and cls is not SQUAF:
        raise ParameterError(
            f"{module.title}: {cls.__name__} gives values of its table alone, and with tails={module.tails!r} the "
            "layer has other values beyond its grid; build it with tails='flat', or widen the grid (sk.calibrate_)."
        )


def _of_step(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "alpha"}
