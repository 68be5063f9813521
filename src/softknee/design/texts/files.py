"""Definitions in files: a text, its parameters and a name, as JSON. Nothing in it is ever run.

    {"format": "softknee activation", "version": 1, "name": "knee", "text": "mollify(relu, epanechnikov, width=delta)",
     "parameters": [{"name": "delta", "default": 0.1, "constraint": "positive", "learned_default": null, "about": ""}],
     "about": "..."}

The text is read by `language`, so a file can say what a text can say and no more. Claims are not kept: they are proved
again by the engine that makes the definition, or by `certify`. Any place that takes a name takes the path of such a
file (it ends in .json); asking twice gives the same definition unless the file has changed.

>>> import softknee as sk, tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> knee = sk.design.definition("x * sigmoid(beta * x)", params={"beta": 2.0}, name="knee")
>>> path = sk.save(knee, folder.name + "/knee.json")
>>> sk.load(path), sk.get(str(path)) is sk.load(path)
(<activation knee(beta=2)>, True)
>>> folder.cleanup()
"""

from __future__ import annotations

import json
import os
import weakref
from pathlib import Path
from typing import Any

from ...errors import DefinitionError, FormulaError, ParameterError
from ...files import read_small, write_whole
from ...spec import Activation, Param
from ...spec.reference import evaluate
from .given import check_param_name, checked, read_constraint, text_of, write_constraint
from .language import check_name, read

FORMAT, VERSION = "softknee activation", 1
MOST_BYTES, MOST_PARAMETERS, LONGEST_NOTE = 1_000_000, 64, 1000
_KEYS = {"format": str, "version": int, "name": str, "text": str, "parameters": list, "about": str}
_PARAMETER_KEYS = {
    "name": str,
    "default": (int, float),
    "constraint": str,
    "learned_default": (int, float, type(None)),
    "about": str,
}
_POINTS = (-7.3, -1.9, -0.85, -0.31, 0.0, 0.27, 0.9, 1.7, 6.1)  # where two formulas that look different are compared

# By resolved path and content: the definition made from it, as long as anybody has it.
_loaded: weakref.WeakValueDictionary[tuple[Path, str], Activation] = weakref.WeakValueDictionary()


# -- saving -----------------------------------------------------------------------------------------------


def save(act: Activation, path: str | os.PathLike[str]) -> Path:
    """Write a definition to a file (.json) that `load` makes it from again; returns where it is."""
    target = Path(path)
    if target.suffix.lower() != ".json":
        raise ParameterError(f"A definition is saved to a file that ends in .json, and '{path}' does not.")
    return write_whole(target, to_text(act), what="definition")


def to_text(act: Activation) -> str:
    """What the file of a definition holds."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "name": act.name if isinstance(act, Activation) else "",
        "text": text_of(act),
        "parameters": [_param_fields(param) for param in act.params],
        "about": act.about,
    }
    text = json.dumps(content, indent=2, ensure_ascii=True) + "\n"
    if not _same(from_text(text, "(not yet written)"), act):
        raise DefinitionError(
            f"{act.name!r} cannot be saved: its recipe {act.recipe!r} makes another function. Was it changed by hand, "
            f"or is a definition that it names not the one it was made from?"
        )
    return text


def _same(first: Activation, second: Activation) -> bool:
    """Whether two definitions agree: as formulas, or to many digits at some points."""
    if first.formula == second.formula:
        return True
    values = {p.name: p.default for p in second.params}
    pairs = [(evaluate(first, at, **values), evaluate(second, at, **values)) for at in _POINTS]
    return all(abs(a - b) <= 1e-14 * (1 + abs(b)) for a, b in pairs)


def _param_fields(param: Param) -> dict[str, Any]:
    return {
        "name": param.name,
        "default": param.default,
        "constraint": write_constraint(param.constraint),
        "learned_default": param.learned_default,
        "about": param.about,
    }


# -- loading ----------------------------------------------------------------------------------------------


def load(path: str | os.PathLike[str]) -> Activation:
    """The definition in a file that `save` wrote; the same one again as long as the file stays as it is."""
    content = read_small(path, what="definition", most_bytes=MOST_BYTES)
    key = (Path(path).resolve(), content)
    activation = _loaded.get(key)
    if activation is None:
        activation = _loaded[key] = from_text(content, os.fspath(path))
    return activation


def from_text(content: str, path: str) -> Activation:
    """The definition that such a text holds; `path` is where it comes from, for the sentences."""
    try:
        fields = _checked(_parsed(content), _KEYS, "the file")
        if fields["format"] != FORMAT:
            raise DefinitionError(f"its format is {fields['format'][:40]!a} and not {FORMAT!r}.")
        if fields["version"] != VERSION:
            raise DefinitionError(
                f"it is of version {fields['version']}, and this softknee reads version {VERSION}; upgrade softknee."
            )
        check_name(fields["name"])
        if len(fields["about"]) > LONGEST_NOTE:
            raise DefinitionError(f"its 'about' is longer than {LONGEST_NOTE} characters.")
        params = _params(fields["parameters"])
        made = read(fields["text"], params=params)
        return _as_saved(made, fields["name"], params, fields["about"])
    except FormulaError as error:
        raise FormulaError(f"The file '{path}' holds no definition: {error}") from error
    except (DefinitionError, ParameterError) as error:
        raise DefinitionError(f"The file '{path}' holds no definition: {error}") from error


def _parsed(content: str) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) != len(pairs):
            raise DefinitionError("a key stands in it twice.")
        return dict(pairs)

    def no_constant(word: str) -> Any:
        raise DefinitionError(f"{word} is no number that JSON has.")

    try:
        return json.loads(content, object_pairs_hook=once, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:  # JSONDecodeError, and whole numbers of too many digits
        if isinstance(error, DefinitionError):
            raise
        raise DefinitionError(f"it is not JSON ({type(error).__name__}: {str(error)[:80]}).") from None


def _checked(value: Any, keys: dict[str, Any], what: str) -> dict[str, Any]:
    """A mapping with exactly these keys, each of its kind."""
    if not isinstance(value, dict):
        raise DefinitionError(f"{what} must be a JSON object, and it is {type(value).__name__}.")
    for name in keys:
        if name not in value:
            raise DefinitionError(f"{what} has no {name!r}.")
    for name in value:
        if name not in keys:
            raise DefinitionError(f"{what} has {name[:40]!a}, which means nothing here.")
    for name, kind in keys.items():
        if isinstance(value[name], bool) or not isinstance(value[name], kind):
            raise DefinitionError(f"{name!r} of {what} is {type(value[name]).__name__}, which it cannot be.")
    return value


def _params(values: list[Any]) -> tuple[Param, ...]:
    if len(values) > MOST_PARAMETERS:
        raise DefinitionError(f"it has {len(values)} parameters, and {MOST_PARAMETERS} are allowed.")
    params: dict[str, Param] = {}
    for place, value in enumerate(values, start=1):
        fields = _checked(value, _PARAMETER_KEYS, f"parameter {place}")
        check_param_name(fields["name"])
        if fields["name"] in params:
            raise DefinitionError(f"two parameters are called {fields['name']!r}.")
        if len(fields["about"]) > LONGEST_NOTE:
            raise DefinitionError(f"the 'about' of parameter {place} is longer than {LONGEST_NOTE} characters.")
        learned = fields["learned_default"]
        param = Param(
            fields["name"],
            _float(fields["default"]),
            read_constraint(fields["constraint"]),
            learned_default=None if learned is None else _float(learned),
            about=fields["about"],
        )
        params[param.name] = checked(param)
    return tuple(params.values())


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        raise DefinitionError("a number in it is too large.") from None


def _as_saved(made: Activation, name: str, params: tuple[Param, ...], about: str) -> Activation:
    """What the text makes, with the name, the parameters and the sentence that were saved."""
    own, saved = {p.name: p.symbol for p in made.params}, {p.name: p.symbol for p in params}
    if own != saved:
        raise DefinitionError(
            f"its text has the parameters {', '.join(own) or 'none'} and it declares {', '.join(saved) or 'none'}, or "
            f"with other constraints."
        )
    ordered = tuple({p.name: p for p in params}[name] for name in own)
    if (made.name, made.params, made.about) == (name, ordered, about):
        return made
    return made.with_(name=name, params=ordered, about=about, recipe=made.recipe or made.name)
