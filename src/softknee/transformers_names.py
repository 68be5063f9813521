"""The names of softknee as `hidden_act` or `activation_function` of transformers' configurations.

`import softknee` watches for the import of transformers' table of activations and teaches it our texts, whichever of
the two packages is imported first; it never imports transformers itself. A configuration that surgery wrote says
"softknee:srelu(delta=0.5)", so that where softknee was not imported transformers' KeyError names it.

Names that transformers has itself (gelu, relu, silu, ...) keep its meaning when they stand alone, which is the same
function at our default values (its prelu is learned); with the prefix "softknee:", or with parentheses, a name is ours.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

from .errors import SoftkneeError, UnknownActivationError, did_you_mean
from .registry import PREFIX, names, resolve, service

TABLES = "transformers.activations"


def watch() -> None:
    """Teach transformers our texts as soon as its tables are there, which may be now."""
    if TABLES in sys.modules:
        _teach_if_whole(sys.modules[TABLES])
    elif not any(type(finder) is _Watcher for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watcher())


def teach(activations: Any) -> None:
    """Make every text of ours an entry of the tables in this module; again does no harm."""
    table = activations.ACT2FN
    if not isinstance(table, _Answers):
        # The table is one object that every model's file has imported, so it is this object that must learn to answer.
        table.__class__ = type(type(table).__name__, (_Answers, type(table)), {})
    for name in names():
        activations.ACT2CLS.setdefault(name, functools.partial(make_module, PREFIX + name))


def make_module(text: str) -> Any:
    """A new module from its text."""
    return service("make_module")(text)


def _teach_if_whole(activations: Any) -> None:
    # Another version may have other tables: to import it works all the same, and register_transformers() says why not.
    with contextlib.suppress(AttributeError, TypeError):
        teach(activations)


class _Watcher(MetaPathFinder):
    """Finds the module of the tables as the other finders do, and teaches it when it has been executed."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != TABLES:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:
            execute = loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                _teach_if_whole(module)

            loader.exec_module = exec_module
        return spec


class _Answers:
    """What transformers' table learns: to answer to our texts."""

    def __contains__(self, key: object) -> bool:
        if super().__contains__(key):  # pyright: ignore[reportAttributeAccessIssue] - the table's own, which follows
            return True
        try:
            return isinstance(key, str) and resolve(key) is not None
        except SoftkneeError:
            return False

    def __missing__(self, key: object) -> Any:
        """What the table holds for a key of ours: it is called, with the keywords beside it, at every lookup."""
        if not isinstance(key, str):
            raise KeyError(key)
        try:
            resolve(key)
        except UnknownActivationError as error:
            raise UnknownActivationError(_unknown(key, self)) from error
        return make_module, {"text": key}


def _unknown(key: str, table: Any) -> str:
    bare = key.strip().removeprefix(PREFIX).partition("(")[0].strip()
    known = [*table, *names()]
    return (
        f"Neither transformers nor softknee has an activation {bare!r}.{did_you_mean(bare, known)} softknee.names() "
        f"lists ours, and softknee.register() adds your own."
    )
