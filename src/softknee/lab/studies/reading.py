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

import functools
import inspect
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import softknee as sk

from ...errors import ParameterError, RecipeError, SoftkneeError, did_you_mean, need_package
from ...files import read_small
from ...kernels import find
from ...measure.record import without_paths
from ...nn import make
from ...nn.baselines import baseline_named
from ...registry import FILE_ENDING, resolve_call, with_preset
from ...spec import Activation, SoftTable
from ...surgery.hardening import distance_bound, hard_module
from ...surgery.hardening.sites import is_hard
from .. import language_models
from ..builders import BUILDERS, PAPERS
from ..data.images import IMAGE_SETS
from ..networks import arguments_of
from .fitting import fit, is_omitted, located, shown
from .recipe import (
    FIRST_TUNING_SEED,
    GPT2,
    MEASURES,
    OWN,
    PAIR_SETS,
    PRETRAINED,
    TEXT_SETS,
    Choice,
    Code,
    Data,
    Distil,
    Language,
    LanguageTask,
    Model,
    Perplexity,
    Preference,
    Recipe,
    Search,
    Training,
    Value,
)
from .trial import Chosen

_DEEPEST = 20
_PLAIN = (
    ("null", re.compile(r"^(?:null|~|)$"), ["n", "~", ""]),
    ("bool", re.compile(r"^(?:true|false)$"), list("tf")),
    ("int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789")),
    (
        "float",
        re.compile(r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$"),
        list("-+.0123456789"),
    ),
)


def load(text: str) -> Any:
    """What the text says, as Python's own values."""
    yaml, loader, _ = _tools()
    try:
        return yaml.load(text, Loader=loader)
    except RecipeError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = " ".join(part for part in (error.context, error.problem) if part)
        raise RecipeError(f"The text is no YAML{place}: {problem}. Look at the line and the one before it.") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a whole number of thousands of digits
        raise RecipeError(f"The text is no YAML: {' '.join(str(error).split())}.") from error


def dump(value: Any) -> str:
    """The text that `load` reads as that value."""
    yaml, _, dumper = _tools()
    return yaml.dump(value, Dumper=dumper, sort_keys=False, default_flow_style=None, allow_unicode=True, width=110)


@functools.cache
def _tools() -> tuple[Any, Any, Any]:
    """PyYAML with a loader and a dumper of ours."""
    yaml = need_package("yaml", "Recipes are read with PyYAML", "lab")

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers: Any = {}  # noqa: RUF012 - PyYAML keeps its table as an attribute of the class
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                mark = self.peek_event().start_mark
                raise RecipeError(f"Line {mark.line + 1} has an alias (*name); a recipe has none: write the value out.")
            self.depth += 1
            if self.depth > _DEEPEST:
                raise RecipeError(f"The text is nested more than {_DEEPEST} levels deep, which no recipe is.")
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen: dict[Any, int] = {}
            for key, _ in node.value:
                line = key.start_mark.line + 1
                if not isinstance(key, yaml.ScalarNode):
                    raise RecipeError(f"Line {line} has a list or a section as a key; a key is a word.")
                if key.value in seen:
                    raise RecipeError(f"The key {key.value!r} stands at lines {seen[key.value]} and {line}; keep one.")
                seen[key.value] = line
            return super().construct_mapping(node, deep)

    class Dumper(yaml.SafeDumper):
        yaml_implicit_resolvers: Any = {}  # noqa: RUF012

        def ignore_aliases(self, data: Any) -> bool:
            return True

    for kind in (Loader, Dumper):
        for tag, pattern, first in _PLAIN:
            kind.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", pattern, first)
    Dumper.add_representer(tuple, lambda dumper, data: dumper.represent_list(data))
    return yaml, Loader, Dumper


_MOST_BYTES = 64 * 1024  # the longest recipe that comes with the package has 3 kB
_ENDINGS = (".yaml", ".yml")
_CHOICE_KEYS = tuple(item.name for item in fields(Choice))


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
    changed = _long_form(mapping)
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not all(part.strip() for part in key.split(".")):
            raise RecipeError(f"--set takes key=value, such as training.epochs=3, and {setting!r} was given.")
        with located(f"--set {setting}"):
            value = load(text)
        # Long forms before and after: `seeds: 12` has to be a section before seeds.first can be set.
        changed = _long_form(_replaced(changed, key.strip().split("."), value, f"--set {setting}"))
    return changed


def to_yaml(recipe: Recipe) -> str:
    """The whole recipe, with what was left out; reading it gives an equal one."""
    data = _plain(recipe.data)
    if recipe.data.set is not None:
        # These are for files of one's own, and refused beside a data set by name.
        for key in ("target", "ignore", "task", "test", "standardise"):
            data.pop(key, None)
    parts = {"data": data, "activations": [_flat(choice) for choice in recipe.activations]}
    return dump(_plain(recipe) | parts)


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
    with located(source):
        given = load(text)
        if not isinstance(given, Mapping):
            raise RecipeError(f"A recipe is a list of keys and values, such as 'name: mine', not {shown(given)}.")
        mapping = with_settings(given, settings)
        data = mapping.get("data")
        if isinstance(data, Mapping) and data.get("set") is not None and "test" in data:
            raise RecipeError(f"data.test is for your own file; data.set {shown(data['set'])} has its own test part.")
        if name is not None:
            mapping.setdefault("name", name)
        recipe = fit(_nested(mapping), Recipe, "")
        # Who asks for other activations than the recipe's own means no numbers of the paper for those that are gone.
        others = any(setting.strip().startswith("activations") for setting in settings)
        return check(recipe, baseline_given="baseline" in mapping, prune_paper=others)


def _long_form(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping with `seeds: 12` and `- relu` written out as sections."""
    long = dict(mapping)
    seeds = long.get("seeds")
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        long["seeds"] = {"count": seeds}
    if isinstance(long.get("activations"), list | tuple):
        long["activations"] = [
            _section(choice) if isinstance(choice, str) else choice for choice in long["activations"]
        ]
    return long


def _section(text: str) -> dict[str, Any]:
    """An activation that is written as one text, such as srelu(delta=0.05, learn=delta)."""
    with located("activations"):
        call = resolve_call(text.strip())
    if call is None:
        return {"name": text}
    learn = {} if call.learn is None else {"learn": call.learn}
    return {"name": text.partition("(")[0].strip(), **call.values, **learn}


def _nested(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping with the parameters of each activation gathered under `values`."""
    nested = dict(mapping)
    if isinstance(nested.get("activations"), list | tuple):
        nested["activations"] = [_gathered(choice, index) for index, choice in enumerate(nested["activations"])]
    return nested


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
    if (baseline := baseline_named(name)) is not None:
        return key in inspect.signature(baseline.module).parameters
    try:
        return any(p.name == key for p in find(name).params)
    except SoftkneeError:
        return True  # there is no such activation; the error names it


def _flat(choice: Choice) -> dict[str, Any]:
    """An activation as a recipe writes it: its parameters beside its name, and nothing that it need not say."""
    usual = Choice(name=choice.name)
    given = {
        key: getattr(choice, key)
        for key in _CHOICE_KEYS
        if key != "values" and (key == "name" or getattr(choice, key) != getattr(usual, key))
    }
    return {"name": given.pop("name"), **choice.values, **given}


def _plain(part: Any) -> Any:
    """A part of a recipe as mappings; what is None is left out, as it may be."""
    if not hasattr(part, "__dataclass_fields__"):
        return part
    names = [item.name for item in fields(part) if not is_omitted(item, getattr(part, item.name))]
    parts = {name: _plain(getattr(part, name)) for name in names}
    return {key: value for key, value in parts.items() if value is not None}


def _replaced(inside: Any, path: Sequence[str], value: Any, setting: str) -> Any:
    """A copy with the value at the end of the path; sections that are not there are made."""
    if not path:
        # `seeds=3` means their number, and not that they share nothing any more.
        shorthand = isinstance(inside, Mapping) and "count" in inside and type(value) is int
        return {**inside, "count": value} if shorthand else value
    here, rest = path[0], path[1:]
    if isinstance(inside, list | tuple):
        if not here.isdecimal() or int(here) >= len(inside):
            raise RecipeError(f"{setting}: {here!r} is no place in a list, which has 0 to {len(inside) - 1}.")
        return [_replaced(item, rest, value, setting) if at == int(here) else item for at, item in enumerate(inside)]
    if inside is not None and not isinstance(inside, Mapping):
        raise RecipeError(f"{setting}: there is no {here!r} inside of {shown(inside)}.")
    return {**(inside or {}), here: _replaced((inside or {}).get(here), rest, value, setting)}


def _shipped_names() -> list[str]:
    folder = files("softknee.lab") / "recipes"
    return sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml"))


def _shipped_text(name: str) -> str:
    return (files("softknee.lab") / "recipes" / f"{name}.yaml").read_text(encoding="utf-8")


TIMM = "timm:"
_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
# What follows from the study itself.
_SET_BY_STUDY = ("activation", "seed")
_OF_TRAINING = ("rate", "price")  # keys of Choice that may hold several numbers; no activation has such a parameter
_NETWORK_ARGUMENTS = {
    "mlp": ("hidden", "widths", "dropout"),
    "cnn": ("channels", "classes", "image"),
    "alone": (),
    "kan": ("hidden", "widths", "grid", "low", "high", "base"),
}


def check(recipe: Recipe, *, baseline_given: bool = True, prune_paper: bool = False) -> Recipe:
    """The recipe with its baselines as labels of trials; a RecipeError with the place where something is wrong.

    baseline_given: False takes the first activation where the usual baseline is not in the study.
    prune_paper:    leave out the paper's numbers of activations that are not in the study, which else are refused.
    """
    if isinstance(recipe.task, LanguageTask):
        recipe = _check_language(recipe, recipe.task)
    else:
        _check_data(recipe.data)
        _check_model(recipe.model)
    _refuse_places(recipe.model.arguments, "model.arguments")
    if recipe.augment is not None and recipe.data.set not in IMAGE_SETS:
        raise RecipeError(
            f"augment is for data sets of images ({', '.join(IMAGE_SETS)}), and the data are "
            f"{recipe.data.set or recipe.data.file!r}: leave it out."
        )
    if not recipe.activations:
        raise RecipeError("activations must name at least one function, such as '- relu'.")
    choices = [_written_out(choice, f"activations[{index}]") for index, choice in enumerate(recipe.activations)]
    recipe = replace(recipe, activations=tuple(choices))
    for index, choice in enumerate(recipe.activations):
        _refuse_places(choice.label, f"activations[{index}].label")
        _check_choice(choice, f"activations[{index}]", recipe)
    labels = [chosen.label for choice in recipe.activations for chosen in combinations(choice)]
    for label in labels:
        if labels.count(label) > 1:
            raise RecipeError(
                f"Two of the activations are called {label!r}; give one of them a label of its own: "
                f"{{name: ..., label: ...}}."
            )
    _check_tuning(recipe)
    _check_task(recipe)
    _check_search(recipe.search)
    paper = recipe.paper
    if paper is not None and prune_paper:
        paper = paper.of(labels)
    elif paper is not None:
        paper.refuse_others(labels)
    there = any(recipe.baseline in (choice.title, choice.name) for choice in recipe.activations)
    baseline = recipe.baseline if there or baseline_given else labels[0]
    return replace(
        recipe,
        baseline=_label_of(baseline, recipe, "baseline", first=not baseline_given),
        cost_baseline=_cost_baseline(recipe),
        paper=paper,
    )


def _written_out(choice: Choice, where: str) -> Choice:
    """The activation with the values of its preset, and with the defaults that a preset stands beside.

    Such a default is a choice of ours and may change; what is recorded says the number.
    """
    if choice.name == OWN or is_baseline(choice.name):
        return choice
    try:
        definition = find(choice.name)
    except SoftkneeError:
        return choice  # refused with its place below
    with located(f"{where}.preset"):
        values = with_preset(definition, choice.values)
    presets = definition.presets.values() if isinstance(definition, Activation) else ()
    usual = {name: definition.param(name).default for preset in presets for name in preset}
    return replace(choice, values={**usual, **values})


def combinations(choice: Choice) -> Iterator[Chosen]:
    """The activation with each combination of its values, the last parameter changing fastest.

    Only a parameter with several values is named in the label.

    >>> [one.label for one in combinations(Choice(name="smelu", values={"beta": (0.5, 1)}))]
    ['smelu beta=0.5', 'smelu beta=1']
    """
    each: dict[str, tuple[Any, ...]] = {
        name: value if isinstance(value, tuple) else (value,) for name, value in choice.values.items()
    }
    for name in _OF_TRAINING:
        given = getattr(choice, name)
        each[name] = given if isinstance(given, tuple) else (given,)
    several = [name for name, values in each.items() if len(values) > 1]
    shared = {name: getattr(choice, name) for name in _CHOICE_KEYS}
    for numbers in itertools.product(*each.values()):
        values = dict(zip(each, numbers, strict=True))
        marks = [f"{name}={_short(values[name])}" for name in several]
        of_training = {name: values.pop(name) for name in _OF_TRAINING}
        own = {"label": " ".join([choice.title, *marks]), "values": _floats(choice.name, values)}
        yield Chosen(**shared | own | of_training)


def is_baseline(name: str) -> bool:
    """Whether a name is of a module without a definition: KAF, DiTAC, EntropicSpline and others."""
    return baseline_named(name) is not None and name not in sk.names()


def module_of(chosen: Chosen, **more: Any) -> Any:
    """The module of an activation; `more` as in `sk.nn.make`."""
    if is_baseline(chosen.name):
        more.pop("inplace", None)  # they compute in a place of their own, which a model may always ask for
    return make(chosen.name, learn=chosen.learn, **{"per": chosen.per, **chosen.values, **more})


def _floats(name: str, values: Mapping[str, Value]) -> dict[str, Value]:
    """Numbers of parameters as floats, so that 1 and 1.0 are one trial; options such as a table's size as they are."""
    params = set() if is_baseline(name) or name == OWN else {p.name for p in find(name).params}
    return {
        key: float(value) if key in params and isinstance(value, int) and not isinstance(value, bool) else value
        for key, value in values.items()
    }


def _short(value: Value) -> str:
    return f"{value:.12g}" if isinstance(value, int | float) else str(value)


def _check_data(data: Data) -> None:
    if (data.set is None) == (data.file is None):
        given = "both were" if data.set else "neither was"
        raise RecipeError(f"data must name a 'set' (such as digits) or a 'file' of your own, and {given} given.")
    if data.set is not None:
        for name, usual in (("target", None), ("ignore", ()), ("task", "auto"), ("standardise", True)):
            if getattr(data, name) != usual:
                raise RecipeError(f"data.{name} is for a file of your own, and data.set {data.set!r} has its own way.")
        if data.set in (*TEXT_SETS, *PAIR_SETS):
            kinds = ("perplexity", "language") if data.set in TEXT_SETS else ("preference",)
            raise RecipeError(
                f"data.set {data.set!r} is for language models: add 'task: {{kind: {kinds[-1]}}}', and see the recipe "
                "'language'."
            )
    elif not str(data.file).lower().endswith((".csv", ".npz")):
        raise RecipeError(f"data.file must be a .csv or .npz file, and {data.file!r} was given.")
    elif not str(data.file).lower().endswith(".csv") and data.ignore:
        raise RecipeError("data.ignore names columns of a .csv, and a .npz has none.")


def _check_model(model: Model, *, where: str = "model.build") -> None:
    if model.build in BUILDERS:
        known = arguments_of(PAPERS[model.build]) if model.build in PAPERS else _NETWORK_ARGUMENTS[model.build]
        for name in model.arguments:
            if name in _SET_BY_STUDY:
                raise RecipeError(f"model.arguments.{name} is set by the study; leave it out.")
            if name not in known:
                raise RecipeError(
                    f"model.arguments.{name} is nothing that {model.build!r} takes.{did_you_mean(name, known)} It "
                    f"takes {', '.join(known) or 'none'}."
                )
        if "hidden" in model.arguments and "widths" in model.arguments:
            raise RecipeError("model.arguments: give 'hidden' or 'widths', not both.")
        for name in ("replacing", "where"):
            if getattr(model, name) is not None:
                raise RecipeError(f"model.{name} is for surgery on other models; {model.build!r} needs none.")
    elif model.build.startswith(TIMM):
        if find_spec("timm") is not None:
            import timm

            name = model.build.removeprefix(TIMM)
            if not timm.is_model(name):
                raise RecipeError(f"{where}: timm has no model {name!r}.{did_you_mean(name, timm.list_models())}")
    elif not _PATH.fullmatch(model.build):
        known = [*BUILDERS, f"{TIMM}NAME"]
        raise RecipeError(
            f"{where} must be {', '.join(map(repr, known))} or your own function as 'package.module:function', and "
            f"{model.build!r} was given.{did_you_mean(model.build, BUILDERS)}"
        )


def _refuse_places(given: Any, where: str) -> None:
    """Refuse a text that names a place on a disk, anywhere inside: records of trials hold none."""
    if isinstance(given, Mapping):
        for name, value in given.items():
            _refuse_places(value, f"{where}.{name}")
    elif isinstance(given, list | tuple):
        for index, value in enumerate(given):
            _refuse_places(value, f"{where}[{index}]")
    elif isinstance(given, str) and without_paths(given) != given:
        raise RecipeError(
            f"{where} is {given!r}, and records, which are read elsewhere too, name no place on a disk. Give a path "
            f"seen from the folder that softknee is started in, such as {without_paths(given)!r}, or other words."
        )


def _check_choice(choice: Choice, where: str, recipe: Recipe) -> None:
    if choice.name.endswith(FILE_ENDING):
        raise RecipeError(
            f"{where}.name is a file, {choice.name!r}, and a study takes activations by name: register yours with "
            "sk.register, or as an entry point 'softknee.activations' of a package."
        )
    if choice.name == OWN and isinstance(recipe.task, Perplexity | Preference):
        return
    definition = None  # a baseline of a paper is a module without one
    if not is_baseline(choice.name):
        with located(f"{where}.name"):
            definition = find(choice.name)
    size = {} if choice.per == "layer" else {"size": 1}
    for chosen in combinations(choice):
        with located(where, (SoftkneeError, TypeError)):  # TypeError: an argument that the module does not have
            module = module_of(chosen, **size)
        if choice.harden:
            _check_limit(module, where)
        if choice.replace:
            _check_replaced(module, where)
        _check_last(chosen, where)
        alone = recipe.training.engine == "loop" or isinstance(recipe.task, LanguageTask)
        if getattr(module, "refreshing", False) and not alone:
            raise RecipeError(
                f"{where}: {choice.name} takes its steps between two calls of one model, and the engine "
                f"{recipe.training.engine!r} trains many at once; add 'engine: loop' to training, or 'refresh: 0' here."
            )
    if (choice.harden or choice.replace) and recipe.training.progressive is not None:
        raise RecipeError(
            f"{where}: 'harden' and 'replace' are for models that are judged after training, and training.progressive "
            "judges them on the way; leave one of them out."
        )
    if choice.rate is not None and recipe.training.activation_optimizer is not None:
        raise RecipeError(
            f"{where}.rate is a multiple of the weights' rate, and with training.activation_optimizer the rate of "
            "activation parameters is training.activation_learning_rate; leave one of them out."
        )
    if choice.harden and recipe.hardening is None:
        raise RecipeError(
            f"{where}.harden is true, and the recipe has no section 'hardening' that says when and how far; add "
            "'hardening: {start: 0.25, tolerance: 0.005}'."
        )
    if recipe.init == "matched" and not isinstance(definition, Activation | SoftTable):
        raise RecipeError(f"init 'matched' needs functions of single numbers, not {where}.name {choice.name!r}.")


def _check_replaced(module: Any, where: str) -> None:
    try:
        hard_module(module)
    except ParameterError as error:
        raise RecipeError(f"{where}.replace: {str(error).rstrip('.')}. Leave 'replace' out.") from error


def _check_last(chosen: Chosen, where: str) -> None:
    for name, value in (chosen.last or {}).items():
        if name not in chosen.values or isinstance(chosen.values[name], str):
            raise RecipeError(
                f"{where}.last.{name} is where the last place begins, and a number for the first is missing: give "
                f"'{name}' beside 'name'."
            )
        with located(f"{where}.last", (SoftkneeError, TypeError)):
            module_of(replace(chosen, values={**chosen.values, name: value}), per="layer")


def _check_limit(module: Any, where: str) -> None:
    try:
        hard_module(module)
        if is_hard(module.definition):
            raise ParameterError(f"{module.title} is hard already")
        claims = module.definition.claims
        # Of others the distance is found by a proof that takes its time.
        if claims is not None and claims.distance is not None and distance_bound(module) == float("inf"):
            raise ParameterError(f"{module.title} stays infinitely far from its limit")
    except ParameterError as error:
        raise RecipeError(f"{where}.harden: {str(error).rstrip('.')}. Leave 'harden' out.") from error


def _check_tuning(recipe: Recipe) -> None:
    tuning, seeds = recipe.tuning, recipe.seeds
    if tuning is None:
        return
    if not tuning.learning_rate and not tuning.weight_decay:
        raise RecipeError("tuning has nothing to choose from: give learning_rate or weight_decay a list of numbers.")
    last = seeds.first + seeds.count
    if last > FIRST_TUNING_SEED and seeds.first < FIRST_TUNING_SEED + tuning.seeds:
        raise RecipeError(
            f"seeds reach from {seeds.first} to {last - 1}, and tuning takes those from {FIRST_TUNING_SEED:,} on; "
            "choose a smaller seeds.first."
        )


def _check_search(search: Search | None) -> None:
    """Refuse names that no candidate could be made of."""
    for place in ("functions", "hard") if search is not None else ():
        for name in getattr(search, place):
            with located(f"search.{place}"):
                definition = find(name) if name.isidentifier() else None
            if not isinstance(definition, Activation) or definition.implicit is not None:
                raise RecipeError(f"search.{place} takes names of functions with a formula, and {name!r} is none.")


def _check_task(recipe: Recipe) -> None:
    task, engine = recipe.task, recipe.training.engine
    if any(choice.price is not None for choice in recipe.activations) and not isinstance(task, Code):
        raise RecipeError("A price on bits belongs to a study that codes activations: add 'task: {kind: code}'.")
    if not isinstance(task, Distil | Code):
        return
    if recipe.training.progressive is not None or recipe.training.loss not in ("auto", "cross_entropy"):
        raise RecipeError(f"task {task.kind!r} has its own loss: leave training.loss and training.progressive out.")
    if engine == "loop" or (isinstance(task, Code) and engine != "compiled"):
        known = "'compiled'" if isinstance(task, Code) else "'replicas' or 'compiled'"
        raise RecipeError(f"task {task.kind!r} needs training.engine {known}, and it is {engine!r}.")
    if isinstance(task, Distil):
        _check_model(Model(build=task.teacher, arguments=task.arguments), where="task.teacher")
        if not is_baseline(task.activation):
            with located("task.activation"):
                find(task.activation)


# What a language task takes: of `training`, of an activation, and the endings of its files.
_TAKES: dict[type, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    Language: (
        ("learning_rate", "weight_decay", "batch", "activation_rate"),
        ("harden", "replace", "rate"),
        (".txt", ".txt.gz"),
    ),
    Perplexity: (("batch",), (), (".txt", ".txt.gz")),
    Preference: (
        ("learning_rate", "batch", "epochs", "activation_rate"),
        ("rate", "fitted"),
        (".jsonl", ".jsonl.gz", ".json", ".json.gz"),
    ),
}
_SIZES = ("layers", "width", "heads", "dropout")


def _check_language(recipe: Recipe, task: LanguageTask) -> Recipe:
    """Refuse what a language task has no use for; the recipe without the measures and files that it does not have."""
    kind, (of_training, of_choice, endings) = task.kind, _TAKES[type(task)]
    usual = Recipe(name=recipe.name)
    parts = [
        ("training", recipe.training, Training(), of_training),
        ("data", recipe.data, usual.data, ("set", "file", "limit")),
        ("seeds", recipe.seeds, usual.seeds, ("count", "first")),
        *(
            (f"activations[{index}]", choice, Choice(name=choice.name), ("label", "values", "learn", "per", *of_choice))
            for index, choice in enumerate(recipe.activations)
        ),
    ]
    for where, part, default, known in parts:
        for item in fields(part):
            if item.name not in (*known, "name") and getattr(part, item.name) != getattr(default, item.name):
                raise RecipeError(
                    f"{where}.{item.name} is nothing that the task {kind!r} takes, which has a training of its own: "
                    f"leave it out. It takes {', '.join(known)}."
                )
    given = {"measures": (MEASURES, ()), "keep": (usual.keep, ()), "init": ("default",), "select": ("last",)}
    given |= {"tuning": (None,), "hardening": (None, recipe.hardening if isinstance(task, Language) else None)}
    for name, allowed in given.items():
        if getattr(recipe, name) not in allowed:
            raise RecipeError(f"{name} is nothing that the task {kind!r} takes: leave it out.")
    _check_language_data(recipe.data, task, endings)
    _check_language_model(recipe, task)
    return replace(recipe, measures=(), keep=())


def _check_language_data(data: Data, task: LanguageTask, endings: tuple[str, ...]) -> None:
    sets = PAIR_SETS if isinstance(task, Preference) else TEXT_SETS if isinstance(task, Language) else ("wikitext-2",)
    fits = data.set in sets if data.file is None else str(data.file).lower().endswith(endings)
    if not fits or (data.set is not None and data.file is not None):
        raise RecipeError(
            f"data of the task {task.kind!r} must be a 'set' ({', '.join(sets)}) or a 'file' that ends in "
            f"{' or '.join(endings)}, and {data.set or data.file!r} was given."
        )


def _check_language_model(recipe: Recipe, task: LanguageTask) -> None:
    build, arguments = recipe.model.build, recipe.model.arguments
    if not isinstance(task, Language):
        if not build.removeprefix(PRETRAINED) or not build.startswith(PRETRAINED) or arguments:
            raise RecipeError(
                f"model.build of the task {task.kind!r} must be '{PRETRAINED}' and the place of a model (a folder of "
                f"transformers, a llama2.c checkpoint, or hub:OWNER/NAME), without arguments, and {build!r} was given."
            )
        if isinstance(task, Perplexity) and recipe.seeds.count != 1:
            raise RecipeError("The task 'perplexity' trains nothing, so seeds cannot differ: write 'seeds: 1'.")
        return
    if build != GPT2:
        raise RecipeError(f"model.build of the task 'language' must be {GPT2!r}, and {build!r} was given.")
    for name, value in arguments.items():
        if name not in _SIZES:
            raise RecipeError(
                f"model.arguments.{name} is nothing that {GPT2!r} takes.{did_you_mean(name, _SIZES)} It takes "
                f"{', '.join(_SIZES)}."
            )
        sound = (
            type(value) in (int, float) and 0 <= value < 1 if name == "dropout" else type(value) is int and value > 0
        )
        if not sound:
            words = "a share in [0, 1)" if name == "dropout" else "a whole number of at least 1"
            raise RecipeError(f"model.arguments.{name} must be {words}, and {shown(value)} was given.")
    layers = arguments.get("layers", language_models.Recipe.layers)
    if task.layerwise and 0 < task.recover < layers:
        raise RecipeError(
            f"task.recover is {task.recover} steps, and layer by layer it needs one for each of the {layers} layers at "
            "least: give more, 0 for none, or task.layerwise: false."
        )


def _label_of(given: str, recipe: Recipe, where: str, *, first: bool = False) -> str:
    """The label of the one trial that a label or a name stands for."""
    every = [(choice, chosen) for choice in recipe.activations for chosen in combinations(choice)]
    labels = [chosen.label for _, chosen in every]
    if given in labels:
        return given
    matching = [chosen.label for choice, chosen in every if given in (choice.title, chosen.name)]
    if len(matching) == 1 or (matching and first):
        return matching[0]
    if matching:
        raise RecipeError(f"{where} {given!r} is {len(matching)} trials; name one: {', '.join(map(repr, matching))}.")
    near = did_you_mean(given, labels)
    raise RecipeError(f"{where} must be one of the activations ({', '.join(labels)}), and {given!r} was given.{near}")


def _cost_baseline(recipe: Recipe) -> str:
    """A trial's label, or the name of a function that is measured for its cost alone."""
    given = recipe.cost_baseline
    titles = {name for choice in recipe.activations for name in (choice.title, choice.name)}
    labels = {chosen.label for choice in recipe.activations for chosen in combinations(choice)}
    if given in titles | labels:
        return _label_of(given, recipe, "cost_baseline", first=True)  # values do not change the cost
    if given not in sk.names() and not is_baseline(given):
        raise RecipeError(
            f"cost_baseline must be one of the activations or the name of another function, and {given!r} was given."
            f"{did_you_mean(given, [*sorted(labels), *sk.names()])}"
        )
    return given
