"""A function of one's own by its import path, "package.module:function": beside the recipe, or in the current folder.

This runs code: whoever gives a recipe with such a path gives a program.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from ...errors import RecipeError, did_you_mean

# No model is made there, and some functions of these would do what a recipe must not ask for.
_REFUSED = {*sys.stdlib_module_names, "torch", "softknee"}


def find_function(path: str, *, folder: str | os.PathLike[str] | None = None) -> Callable[..., Any]:
    """The function, or a RecipeError that says what was not found."""
    module_name, _, name = path.partition(":")
    if module_name.split(".")[0] in _REFUSED:
        raise RecipeError(f"model.build {path!r}: {module_name!r} makes no models; name a function of your own.")
    with _importable(folder) as places:
        _forget_another(module_name, places)
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not (module_name + ".").startswith(f"{error.name}."):
                raise RecipeError(
                    f"model.build {path!r}: {module_name!r} needs the package {error.name!r}, which is not installed."
                ) from error
            raise RecipeError(_not_found(path, error.name, folder)) from error
        except Exception as error:
            raise RecipeError(
                f"model.build {path!r}: importing {module_name!r} failed ({type(error).__name__}: {error})."
            ) from error
    function = getattr(module, name, None)
    if not callable(function):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        own = [key for key in known if getattr(vars(module)[key], "__module__", None) == module.__name__] or known
        raise RecipeError(
            f"model.build {path!r}: {module_name!r} has no function {name!r}.{did_you_mean(name, own)} It has "
            f"{', '.join(own) or 'none'}."
        )
    return function


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has an argument of that name (not only **anything)."""
    try:
        parameter = inspect.signature(function).parameters.get(name)
    except (TypeError, ValueError):  # some functions of C do not say
        return False
    return parameter is not None and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)


def source_fingerprint(path: str, *, folder: str | os.PathLike[str] | None = None) -> str:
    """SHA-256 of the file that a function is written in, so that a changed model is another trial."""
    function = inspect.unwrap(find_function(path, folder=folder))
    try:
        file = inspect.getsourcefile(function)
        return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""
    except (OSError, TypeError):  # made without a file
        return ""


@contextmanager
def _importable(folder: str | os.PathLike[str] | None) -> Iterator[list[str]]:
    """The recipe's folder and the current one can be imported from, before what is installed, while this lasts."""
    before = list(sys.path)
    places = [str(Path(place).resolve()) for place in (folder, ".") if place is not None]
    sys.path[:0] = places
    importlib.invalidate_caches()
    try:
        yield places
    finally:
        sys.path[:] = before


def _forget_another(module_name: str, places: list[str]) -> None:
    """A module of the same name that was imported from beside another recipe would be taken for this one's."""
    top = module_name.split(".")[0]
    here, known = PathFinder.find_spec(top, places), sys.modules.get(top)
    if here is not None and known is not None and getattr(known, "__file__", None) != here.origin:
        for name in [loaded for loaded in sys.modules if loaded == top or loaded.startswith(f"{top}.")]:
            del sys.modules[name]


def _not_found(path: str, missing: str, folder: str | os.PathLike[str] | None) -> str:
    places = [Path(place) for place in (folder, ".") if place is not None]
    files = sorted({file.stem for place in places if place.is_dir() for file in place.glob("*.py")})
    where = "the folder of the recipe, the current folder" if folder is not None else "the current folder"
    return (
        f"model.build {path!r}: there is no module {missing!r} in {where} or among the installed packages."
        f"{did_you_mean(missing, files)}"
    )
