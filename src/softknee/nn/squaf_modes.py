"""SQUAF's two other modes as modules: SQUAF-P, which draws from its table, and SQUAF-S, the staircase.

All three hold the same parameters under the same names, so that a state dict of one loads into each of the others.

Reference: Soft quantization activation functions (the SQUAF paper), equation 10 and appendix A.4, equations 43 and 44.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..errors import InputError, ParameterError, did_you_mean
from ..kernels.squaf import new_seed, sampled_symbols, squaf_sampled, squaf_step, step_symbols
from ..kernels.squaf.dispatch import value_at
from .parameters import require_tensor
from .squaf import SQUAF


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


SQUAF._short_ways |= {SQUAFP.compute, SQUAFS.compute}
MODES: dict[str, type[SQUAF]] = {cls.mode: cls for cls in (SQUAF, SQUAFP, SQUAFS)}


def read_mode(mode: str) -> type[SQUAF]:
    """The class of a mode, or a sentence that says which there are."""
    if not isinstance(mode, str) or mode not in MODES:
        near = did_you_mean(mode, list(MODES)) if isinstance(mode, str) else ""
        raise ParameterError(f"squaf: mode must be 'soft', 'sampled' or 'step', and {mode!r} was given.{near}")
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


def in_mode(module: SQUAF, mode: str) -> SQUAF:
    """A module over the very same parameters and buffers in another mode, without the hooks of the first.

    Both hold them in common: what trains, moves or loads one does so to the other.
    """
    cls = class_in_mode(module, mode)
    made = cls.__new__(cls)
    nn.Module.__init__(made)
    common = {"training", "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"}
    vars(made).update({name: value for name, value in vars(module).items() if name in common or name not in vars(made)})
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
