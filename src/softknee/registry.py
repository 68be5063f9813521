"""Names to definitions: the zoo's own, the user's, and those of installed packages (entry points).

A definition is built when it is first asked for, because building needs SymPy and `import softknee`
should not wait for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Protocol

from .errors import DefinitionError, UnknownActivationError, did_you_mean

ENTRY_POINTS = "softknee.activations"
FILE_ENDING = ".json"  # a name that ends so is a file that holds a definition


class Definition(Protocol):
    """What everything with a name in softknee has in common."""

    @property
    def name(self) -> str: ...

    def __call__(self, input: Any, **values: Any) -> Any: ...


_loaders: dict[str, Callable[[], Any]] = {}
_aliases: dict[str, str] = {}
_built: dict[str, Any] = {}
# What a registered name stood for before: a loader, or the name it was an alias of.
_beneath: dict[str, tuple[Callable[[], Any] | None, str | None]] = {}
_shipped: dict[str, Callable[[], Any]] = {}
_plugins_read = False

# What rooms above do for those below, which may not import them. The front page sets it, as it is always there.
_services: dict[str, Callable[..., Any]] = {}


def set_services(**services: Callable[..., Any]) -> None:
    """Tell the rooms below how to `load_file`, `remake` a recipe, `load_engines` and `make_module`."""
    _services.update(services)


def service(name: str) -> Callable[..., Any]:
    """The function that a room above does this with."""
    return _services[name]


def provide(name: str, loader: Callable[[], Any], *, also: tuple[str, ...] = ()) -> None:
    """Announce a definition that is built by `loader` when first needed."""
    _loaders[name] = loader
    _shipped[name] = loader
    for alias in also:
        _aliases[alias] = name


def register(activation: Any, *, replace: bool = False) -> Any:
    """Make a definition of your own available everywhere a name is: `sk.get`, `sk.nn.make`, studies.

    Returns the definition, so that it can be used as `swoosh = sk.register(Activation("swoosh", ...))`.
    """
    name = getattr(activation, "name", None)
    if not isinstance(name, str) or not callable(activation):
        raise DefinitionError(
            f"register() takes a definition (an Activation or a Rowwise), and {type(activation).__name__} was given."
        )
    if not name.isidentifier():
        raise DefinitionError(f"The name {name!r} must be a Python identifier, so that it can be a module name too.")
    _read_plugins()
    if (name in _loaders or name in _aliases) and not replace:
        raise DefinitionError(f"There is an activation {name!r} already; pass replace=True to put yours in its place.")
    _beneath.setdefault(name, (_loaders.get(name), _aliases.get(name)))
    _aliases.pop(name, None)
    _loaders[name] = lambda: activation
    _built[name] = activation
    return activation


def unregister(name: str) -> None:
    """Take back what `register` did: a name that was there before stands for what it stood for."""
    loader, alias = _beneath.pop(name, (_shipped.get(name), None))
    _loaders.pop(name, None)
    _built.pop(name, None)
    if loader is not None:
        _loaders[name] = loader
    if alias is not None:
        _aliases[name] = alias


def names() -> tuple[str, ...]:
    """Every name there is, in the order of the alphabet."""
    _read_plugins()
    return tuple(sorted({*_loaders, *_aliases}))


def get(name: str | os.PathLike[str]) -> Any:
    """The definition of that name, or in that file (a name that ends in .json)."""
    if isinstance(name, os.PathLike):
        name = os.fspath(name)
    if not isinstance(name, str):
        raise UnknownActivationError(f"An activation is asked for by name, and {type(name).__name__} was given.")
    if name.endswith(FILE_ENDING):
        return service("load_file")(name)
    if name not in _loaders and name not in _aliases:
        _read_plugins()
    key = _aliases.get(name, name)
    if key not in _built:
        if key not in _loaders:
            known = names()
            raise UnknownActivationError(
                f"There is no activation named {name!r}.{did_you_mean(name, known)} "
                f"softknee.names() lists all {len(known)}, and softknee.register() adds your own."
            )
        _built[key] = _loaders[key]()
    return _built[key]


def holds(definition: Any) -> bool:
    """Whether asking for a definition's name gives that very definition."""
    name: str = definition.name
    return _built.get(_aliases.get(name, name)) is definition


def ships(definition: Any) -> bool:
    """Whether a definition is one that every installation has under its name."""
    loader = _shipped.get(definition.name)
    return loader is not None and holds(definition) and loader() is definition


def restore(name: str, index: tuple[str, ...]) -> Any:
    """The (derivative of the) definition of that name; how a definition is unpickled."""
    activation = get(name)
    return activation.partial(*index) if index else activation


def remake(recipe: str, name: str, params: tuple[Any, ...], index: tuple[str, ...]) -> Any:
    """The (derivative of the) definition that a recipe makes; how one that an engine made is unpickled."""
    activation = service("remake")(recipe, name, params)
    return activation.partial(*index) if index else activation


def _read_plugins() -> None:
    """Entry points are looked up once, the first time a name is not one of ours or all are listed."""
    global _plugins_read
    if not _plugins_read:
        _plugins_read = True
        for point in entry_points(group=ENTRY_POINTS):
            _loaders.setdefault(point.name, point.load)
