"""Recipes as YAML: read, changed by `--set`, written, and found by name among those that come with the package.

>>> recipe = read_recipe('''
... name: small
... data: {set: digits}
... activations: [relu, {name: smelu, beta: [0.5, 1.0]}]
... seeds: 4
... ''', settings=["training.epochs=3"])
>>> recipe.seeds.count, recipe.training.epochs, recipe.activations[1].values
(4, 3, {'beta': (0.5, 1.0)})
>>> read_recipe(to_yaml(recipe)) == recipe
True
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from ...errors import RecipeError, SoftkneeError, did_you_mean
from ...files import read_small
from .checking import check
from .fitting import fit, is_unsaid, shown
from .recipe import Choice, Recipe
from .yaml_text import dump, load

_MOST_BYTES = 64 * 1024  # the longest recipe that comes with the package has 3 kB
_ENDINGS = (".yaml", ".yml")
_CHOICE_KEYS = tuple(one.name for one in fields(Choice))


def read_recipe(text_or_path: str | os.PathLike[str], *, settings: Sequence[str] = ()) -> Recipe:
    """The recipe in a YAML text or file, checked; a RecipeError says where something is wrong, and what is allowed.

    A path object, and a text of one line that ends in .yaml or .yml, is a file. A recipe in a file that has no `name`
    is called like the file.

    settings: changes as `with_settings` takes them.
    """
    text = os.fspath(text_or_path)
    if isinstance(text_or_path, os.PathLike) or ("\n" not in text and text.endswith(_ENDINGS)):
        return _of_text(
            read_small(text, what="recipe", most_bytes=_MOST_BYTES), settings, source=text, name=Path(text).stem
        )
    if len(text.encode(errors="replace")) > _MOST_BYTES:
        raise RecipeError(f"The text is larger than {_MOST_BYTES:,} bytes, which no recipe is.")
    return _of_text(text, settings, source="The recipe", name=None)


def with_settings(mapping: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """The mapping of a recipe with some values replaced: "training.epochs=3", "activations=[relu, gelu]".

    A key is a dotted path, a number in it a place in a list (from 0); the value is YAML. The mapping stays as it is.

    >>> with_settings({"seeds": 12, "activations": ["relu"]}, ["seeds.first=5", "activations.0=gelu"])
    {'seeds': {'count': 12, 'first': 5}, 'activations': [{'name': 'gelu'}]}
    """
    found = _long_form(mapping)
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not all(part.strip() for part in key.split(".")):
            raise RecipeError(f"--set takes key=value, such as training.epochs=3, and {setting!r} was given.")
        try:
            value = load(text)
        except RecipeError as error:
            raise RecipeError(f"--set {setting}: {error}") from error
        # Long forms before and after: `seeds: 12` has to be a section before seeds.first can be set.
        found = _long_form(_replaced(found, key.strip().split("."), value, f"--set {setting}"))
    return found


def to_yaml(recipe: Recipe) -> str:
    """The whole recipe, with what was left out; reading it gives an equal one."""
    data = _plain(recipe.data)
    if recipe.data.set is not None:
        # These are for files of one's own, and refused beside a data set by name.
        data = {
            key: value for key, value in data.items() if key not in ("target", "ignore", "task", "test", "standardise")
        }
    parts = {
        "data": data,
        "activations": [_flat(choice) for choice in recipe.activations],
    }
    return dump({key: parts.get(key, value) for key, value in _plain(recipe).items()})


def shipped() -> list[tuple[str, str]]:
    """The recipes that come with the package: their names and titles, in the order of the alphabet."""
    return [(name, str(load(_shipped_text(name)).get("title", ""))) for name in _shipped_names()]


def recipe_text(name_or_file: str | os.PathLike[str]) -> str:
    """The YAML of a recipe as it was written, with its comments."""
    path = find_file(name_or_file)
    return _shipped_text(str(name_or_file)) if path is None else read_small(path, what="recipe", most_bytes=_MOST_BYTES)


def find_recipe(name_or_file: str | os.PathLike[str], *, settings: Sequence[str] = ()) -> Recipe:
    """The recipe of that name among those that come with the package, or in that file."""
    path = find_file(name_or_file)
    if path is not None:
        return read_recipe(path, settings=settings)
    name = str(name_or_file)
    return _of_text(_shipped_text(name), settings, source=f"The recipe {name!r}", name=name)


def find_file(name_or_file: str | os.PathLike[str]) -> Path | None:
    """The file of a recipe, beside which its data and its model are looked for; None for one of the package."""
    given = os.fspath(name_or_file)
    names = _shipped_names()
    if given in names and not isinstance(name_or_file, os.PathLike):
        return None
    if given.endswith(_ENDINGS) or isinstance(name_or_file, os.PathLike) or Path(given).is_file():
        return Path(given)
    raise RecipeError(
        f"There is no recipe {given!r}.{did_you_mean(given, names)} There are {', '.join(names)}; a recipe of your own "
        "is a file that ends in .yaml."
    )


# -- the ways a recipe may be written -----------------------------------------------------------------------


def _of_text(text: str, settings: Sequence[str], *, source: str, name: str | None) -> Recipe:
    try:
        given = load(text)
        if not isinstance(given, Mapping):
            raise RecipeError(
                f"A recipe is a list of keys and values, such as 'name: mine', and this is {shown(given)}."
            )
        mapping = with_settings(given, settings)
        data = mapping.get("data")
        if isinstance(data, Mapping) and data.get("set") is not None and "test" in data:
            raise RecipeError(
                f"data.test is for a file of your own; data.set {shown(data['set'])} has its own test part."
            )
        if name is not None:
            mapping.setdefault("name", name)
        recipe = fit(_nested(mapping), Recipe, "")
        # Who asks for other activations than the recipe's own means no numbers of the paper for those that are gone.
        others = any(setting.strip().startswith("activations") for setting in settings)
        return check(recipe, baseline_given="baseline" in mapping, prune_paper=others)
    except RecipeError as error:
        raise RecipeError(f"{source}: {error}") from error


def _long_form(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping with `seeds: 12` and `- relu` written out as sections."""
    found = dict(mapping)
    seeds = found.get("seeds")
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        found["seeds"] = {"count": seeds}
    if isinstance(found.get("activations"), list | tuple):
        found["activations"] = [{"name": one} if isinstance(one, str) else one for one in found["activations"]]
    return found


def _nested(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping with the parameters of each activation gathered under `values`."""
    found = dict(mapping)
    if isinstance(found.get("activations"), list | tuple):
        found["activations"] = [_gathered(one, index) for index, one in enumerate(found["activations"])]
    return found


def _gathered(choice: Any, index: int) -> Any:
    if not isinstance(choice, Mapping):
        return choice
    if isinstance(choice.get("name"), str):
        mistaken = [key for key in choice if key not in _CHOICE_KEYS and did_you_mean(key, _CHOICE_KEYS)]
        for key in mistaken:
            if not _is_parameter(choice["name"], key):
                raise RecipeError(
                    f"activations[{index}].{key} is no key of an activation, and no parameter of "
                    f"{choice['name']}.{did_you_mean(key, _CHOICE_KEYS)}"
                )
    values = {key: value for key, value in choice.items() if key not in _CHOICE_KEYS}
    own = {key: value for key, value in choice.items() if key in _CHOICE_KEYS}
    given = own.get("values", {})
    return own if not values else {**own, "values": {**given, **values} if isinstance(given, Mapping) else given}


def _is_parameter(name: str, key: str) -> bool:
    from ...kernels import find

    try:
        return any(p.name == key for p in find(name).params)
    except SoftkneeError:
        return False


def _flat(choice: Choice) -> dict[str, Any]:
    """An activation as a recipe writes it: its parameters beside its name, and nothing that it need not say."""
    usual = Choice(name=choice.name)
    said = {
        key: getattr(choice, key)
        for key in _CHOICE_KEYS
        if key != "values" and (key == "name" or getattr(choice, key) != getattr(usual, key))
    }
    return {"name": said.pop("name"), **choice.values, **said}


def _plain(part: Any) -> Any:
    """A part of a recipe as mappings; what is None is left out, as it may be."""
    if not hasattr(part, "__dataclass_fields__"):
        return part
    said = [one.name for one in fields(part) if not is_unsaid(one, getattr(part, one.name))]
    found = {name: _plain(getattr(part, name)) for name in said}
    return {key: value for key, value in found.items() if value is not None}


def _replaced(inside: Any, path: Sequence[str], value: Any, setting: str) -> Any:
    """A copy with the value at the end of the path; sections that are not there are made."""
    if not path:
        # `seeds=3` means their number, and not that they share nothing any more.
        shorthand = isinstance(inside, Mapping) and "count" in inside and type(value) is int
        return {**inside, "count": value} if shorthand else value
    here, rest = path[0], path[1:]
    if isinstance(inside, list | tuple):
        if not here.isdecimal() or int(here) >= len(inside):
            raise RecipeError(
                f"{setting}: {here!r} is no place in a list of {len(inside)}, which are 0 to {len(inside) - 1}."
            )
        return [_replaced(one, rest, value, setting) if at == int(here) else one for at, one in enumerate(inside)]
    if inside is not None and not isinstance(inside, Mapping):
        raise RecipeError(f"{setting}: there is no {here!r} inside of {shown(inside)}.")
    return {**(inside or {}), here: _replaced((inside or {}).get(here), rest, value, setting)}


def _shipped_names() -> list[str]:
    folder = files("softknee.lab") / "recipes"
    return sorted(one.name.removesuffix(".yaml") for one in folder.iterdir() if one.name.endswith(".yaml"))


def _shipped_text(name: str) -> str:
    return (files("softknee.lab") / "recipes" / f"{name}.yaml").read_text(encoding="utf-8")
