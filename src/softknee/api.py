"""The functions of the front page. They import what they need when called: SymPy alone takes 0.35 s."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from . import registry, zoo  # noqa: F401 - importing the zoo announces its names

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from torch import Tensor

    from .kernels import Choice
    from .spec import Activation, Param
    from .spec.soft_table import SoftTable


@overload
def get(name: Literal["squaf"]) -> SoftTable: ...  # pyright: ignore[reportOverlappingOverload] - the one name apart
@overload
def get(name: str, *, preset: str | None = None) -> Activation: ...
def get(name: str, *, preset: str | None = None) -> Any:
    """The definition that a text stands for.

    Args:
        name: a name of `names()`, also with values that become its defaults ("srelu(delta=0.05)"), a file (.json) that
            holds a definition, a formula ("x * sigmoid(2 * x)") or an engine's call ("mollify(relu, box, width=0.5)").
        preset: the name of other values than the usual defaults: "paper" has those of the function's paper, where it
            had others. "srelu(preset=paper)" is the same as a text.

    >>> import softknee as sk, torch
    >>> act = sk.get("srelu")
    >>> act.derivative(1)(torch.tensor([0.0]), delta=0.1)
    tensor([0.5000])
    >>> sk.get("srelu", preset="paper")
    <activation srelu(delta=0.01)>
    """
    from .kernels import find

    return find(name) if preset is None else registry.get(name, preset=preset)


def names() -> tuple[str, ...]:
    """Every name there is: the zoo's, those of installed packages, and those registered here."""
    return registry.names()


def register(activation: Any, *, replace: bool = False) -> Any:
    """Make a definition of your own available everywhere a name is; returns it."""
    from . import kernels  # noqa: F401 - a definition computes itself only once the kernels are there

    return registry.register(activation, replace=replace)


def load(path: str | os.PathLike[str]) -> Activation:
    """The definition in a file that `save` or `softknee design --save` wrote.

    Nothing in the file is run: it holds a text of the formula language. The same file gives the same definition as long
    as it does not change, and its path can stand wherever a name can.
    """
    from . import kernels  # noqa: F401 - a definition computes itself only once the kernels are there
    from .design.texts.files import load

    return load(path)


def save(activation: Activation, path: str | os.PathLike[str]) -> Path:
    """Write a definition to a file (.json) that `load` makes it from again: what the zoo, an engine or a formula made.

    >>> import softknee as sk, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = sk.save(sk.design.mollify("relu", "box", width=0.5, name="knee"), folder.name + "/knee.json")
    >>> sk.nn.make(str(path))
    Pointwise('knee')
    >>> folder.cleanup()
    """
    from .design.texts.files import save

    return save(activation, path)


def explain(what: Any, x: Tensor) -> Choice:
    """Say which path a module or a definition takes on this tensor, and why."""
    from .nn import explain

    return explain(what, x)


# -- what rooms above do for those below ------------------------------------------------------------------


def _load_engines() -> None:
    from . import kernels  # noqa: F401 - they tell definitions how they are computed


def _remake(recipe: str, name: str, params: tuple[Any, ...]) -> Activation:
    from .design.texts.language import remake

    return remake(recipe, name, params)


def _read_text(text: str, *, params: Sequence[Param]) -> Activation:
    from .design.texts.language import read

    return read(text, params=params)


def _engines() -> Collection[str]:
    from .design.texts.language import ENGINES

    return ENGINES


def _read_expression(expression: Any) -> Activation:
    from .design.evaluate import from_expression

    return from_expression(expression)


def _make_module(activation: str, **arguments: Any) -> Any:
    from .nn import make

    return make(activation, **arguments)


def _find_baseline(name: str) -> Any:
    from .nn.baselines import baseline_named

    return baseline_named(name)


def _prove_shape(activation: Activation, values: dict[str, float], minimum: float | None) -> str:
    from .design.proof.certify import prove_shape

    return prove_shape(activation, values, minimum)


registry.set_services(
    load_file=load,
    remake=_remake,
    read_text=_read_text,
    engines=_engines,
    read_expression=_read_expression,
    load_engines=_load_engines,
    make_module=_make_module,
    find_baseline=_find_baseline,
    prove_shape=_prove_shape,
)
