"""Whether what a recipe names exists and its parts fit together: asked when it is read, before any training."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import softknee as sk

from ...errors import ParameterError, RecipeError, SoftkneeError, UnknownActivationError, did_you_mean
from ...kernels import find
from ...measure.record import without_paths
from ...nn import make
from ...nn.baselines import baseline_named
from ...registry import FILE_ENDING
from ...spec import Activation, SoftTable
from ...surgery.hardening import distance_bound, hard_module
from ...surgery.hardening.limits import is_hard
from ..networks import BUILDERS, CLICKS
from ..splits import IMAGE_SETS
from .recipe import FIRST_TUNING_SEED, Choice, Data, Model, Recipe, Value
from .trial import Chosen

TIMM = "timm:"
_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
# What follows from the study itself.
_SET_BY_STUDY = ("activation", "seed")
_RATE = "rate"  # no parameter of any activation is called so: it is a key of Choice
_NETWORK_ARGUMENTS = {"mlp": ("hidden", "widths", "dropout"), "cnn": ("channels", "classes", "image"), "alone": ()}


def check(recipe: Recipe, *, baseline_given: bool = True, prune_paper: bool = False) -> Recipe:
    """The recipe with its baselines as labels of trials; a RecipeError with the place where something is wrong.

    baseline_given: False takes the first activation where the usual baseline is not in the study.
    prune_paper:    leave out the paper's numbers of activations that are not in the study, which else are refused.
    """
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
    for index, choice in enumerate(recipe.activations):
        _refuse_places(choice.label, f"activations[{index}].label")
        _check_choice(choice, f"activations[{index}]", recipe)
    labels = [one.label for choice in recipe.activations for one in combinations(choice)]
    for label in labels:
        if labels.count(label) > 1:
            raise RecipeError(
                f"Two of the activations are called {label!r}; give one of them a label of its own: "
                f"{{name: ..., label: ...}}."
            )
    _check_tuning(recipe)
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


def combinations(choice: Choice) -> Iterator[Chosen]:
    """The activation with each combination of its values, the last parameter changing fastest.

    Only a parameter with several values is named in the label.

    >>> [one.label for one in combinations(Choice(name="smelu", values={"beta": (0.5, 1)}))]
    ['smelu beta=0.5', 'smelu beta=1']
    """
    each: dict[str, tuple[Any, ...]] = {
        name: value if isinstance(value, tuple) else (value,) for name, value in choice.values.items()
    }
    each[_RATE] = choice.rate if isinstance(choice.rate, tuple) else (choice.rate,)
    several = [name for name, values in each.items() if len(values) > 1]
    for numbers in itertools.product(*each.values()):
        values = dict(zip(each, numbers, strict=True))
        marks = [f"{name}={_short(values[name])}" for name in several]
        rate = values.pop(_RATE)
        yield Chosen(
            name=choice.name,
            label=" ".join([choice.title, *marks]),
            values=_settled(choice.name, values),
            learn=choice.learn,
            per=choice.per,
            harden=choice.harden,
            replace=choice.replace,
            last=choice.last,
            rate=rate,
            fitted=choice.fitted,
            trained=choice.trained,
        )


def is_baseline(name: str) -> bool:
    """Whether a name is of a module of `softknee.nn.baselines`, which has no definition: KAF, DiTAC and others."""
    return baseline_named(name) is not None


def module_of(chosen: Chosen, **more: Any) -> Any:
    """The module of an activation; `more` as in `sk.nn.make`."""
    if is_baseline(chosen.name):
        more.pop("inplace", None)  # they compute in a place of their own, which a model may always ask for
    return make(chosen.name, learn=chosen.learn, **{"per": chosen.per, **chosen.values, **more})


def _settled(name: str, values: Mapping[str, Value]) -> dict[str, Value]:
    """Numbers of parameters as floats, so that 1 and 1.0 are one trial; options such as a table's size as they are."""
    params = set() if is_baseline(name) else {p.name for p in find(name).params}
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
    elif not str(data.file).lower().endswith((".csv", ".npz")):
        raise RecipeError(f"data.file must be a .csv or .npz file, and {data.file!r} was given.")
    elif not str(data.file).lower().endswith(".csv") and data.ignore:
        raise RecipeError("data.ignore names columns of a .csv, and a .npz has none.")


def _check_model(model: Model) -> None:
    if model.build in BUILDERS:
        known = _NETWORK_ARGUMENTS[model.build] if model.build in _NETWORK_ARGUMENTS else _arguments_of(model.build)
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
                raise RecipeError(
                    f"model.{name} is for surgery on other models; {model.build!r} is built as it should."
                )
    elif model.build.startswith(TIMM):
        if find_spec("timm") is not None:
            import timm

            name = model.build.removeprefix(TIMM)
            if not timm.is_model(name):
                raise RecipeError(f"model.build: timm has no model {name!r}.{did_you_mean(name, timm.list_models())}")
    elif not _PATH.fullmatch(model.build):
        known = [*BUILDERS, f"{TIMM}NAME"]
        raise RecipeError(
            f"model.build must be {', '.join(map(repr, known))} or your own function as 'package.module:function', and "
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


def _arguments_of(network: str) -> tuple[str, ...]:
    if network == CLICKS:
        from ..clicks.by_name import ARGUMENTS

        return ARGUMENTS
    from ..vision_networks.by_name import arguments_of

    return arguments_of(network)


def _check_choice(choice: Choice, where: str, recipe: Recipe) -> None:
    if choice.name.endswith(FILE_ENDING):
        raise RecipeError(
            f"{where}.name is a file, {choice.name!r}, and a study takes activations by name: register yours with "
            "sk.register, or as an entry point 'softknee.activations' of a package."
        )
    definition = None  # a baseline of a paper is a module without one
    if not is_baseline(choice.name):
        try:
            definition = find(choice.name)
        except UnknownActivationError as error:
            raise RecipeError(f"{where}.name: {error}") from error
    size = {} if choice.per == "layer" else {"size": 1}
    for chosen in combinations(choice):
        try:
            module = module_of(chosen, **size)
        except (SoftkneeError, TypeError) as error:  # TypeError: an argument that the module does not have
            raise RecipeError(f"{where}: {error}") from error
        if choice.harden:
            _check_limit(module, where)
        if choice.replace:
            _check_replaced(module, where)
        _check_last(chosen, where)
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
        raise RecipeError(
            f"init 'matched' needs functions of single numbers, and {where}.name {choice.name!r} is none."
        )


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
        try:
            module_of(replace(chosen, values={**chosen.values, name: value}), per="layer")
        except (SoftkneeError, TypeError) as error:
            raise RecipeError(f"{where}.last: {error}") from error


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


def _label_of(given: str, recipe: Recipe, where: str, *, first: bool = False) -> str:
    """The label of the one trial that a label or a name stands for."""
    every = [one for choice in recipe.activations for one in combinations(choice)]
    labels = [one.label for one in every]
    titles = [choice.title for choice in recipe.activations for _ in combinations(choice)]
    if given in labels:
        return given
    found = [one.label for one, title in zip(every, titles, strict=True) if given in (title, one.name)]
    if len(found) == 1 or (found and first):
        return found[0]
    if found:
        raise RecipeError(f"{where} {given!r} stands for {len(found)} trials; name one: {', '.join(map(repr, found))}.")
    near = did_you_mean(given, labels)
    raise RecipeError(f"{where} must be one of the activations ({', '.join(labels)}), and {given!r} was given.{near}")


def _cost_baseline(recipe: Recipe) -> str:
    """A trial's label, or the name of a function that is measured for its cost alone."""
    given = recipe.cost_baseline
    titles = {name for choice in recipe.activations for name in (choice.title, choice.name)}
    labels = {one.label for choice in recipe.activations for one in combinations(choice)}
    if given in titles | labels:
        return _label_of(given, recipe, "cost_baseline", first=True)  # values do not change the cost
    if given not in sk.names() and not is_baseline(given):
        raise RecipeError(
            f"cost_baseline must be one of the activations or the name of another function, and {given!r} was given."
            f"{did_you_mean(given, [*sorted(labels), *sk.names()])}"
        )
    return given
