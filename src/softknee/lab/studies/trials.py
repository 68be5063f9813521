"""The trials of a recipe, in an order that never changes: what is trained, what is tuned, what is timed."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NoReturn

from ...errors import ParameterError, RecipeError, SoftkneeError, did_you_mean
from ...measure.record import Record, RecordError
from ..builders import BUILDERS
from ..data.images import OWN_PARTS
from ..language.loading import HUB
from .examples import Examples
from .own_functions import source_fingerprint
from .reading import TIMM, combinations
from .recipe import (
    FIRST_SEARCH_SEED,
    FIRST_TUNING_SEED,
    GPT2,
    PRETRAINED,
    Code,
    Data,
    Distil,
    LanguageTask,
    Model,
    Recipe,
    Seeds,
    Task,
)
from .texts import Texts
from .trial import Chosen, Trial

Tuned = Mapping[str, tuple[float, float]]  # learning rate and weight decay by the label of an activation


def train_trials(recipe: Recipe, examples: Examples | Texts, tuned: Tuned | None = None) -> list[Trial]:
    """One trial for each activation and combination of its values, with the seeds of the study.

    tuned:  what `choose_tuned` found; an activation that is not in it has the recipe's own values.
    """
    usual = recipe.training.learning_rate, recipe.training.weight_decay
    settings = {
        "kind": "train",
        "seeds": recipe.seeds,
        "measures": tuple(measure for measure in recipe.measures if measure != "cost"),
        "keep": recipe.keep,
    }
    trials = _trials(recipe, examples)
    return [trials(chosen, *(tuned or {}).get(chosen.label, usual), **settings) for chosen in every_chosen(recipe)]


def tuning_trials(recipe: Recipe, examples: Examples | Texts) -> list[Trial]:
    """For each activation every learning rate with every weight decay of `tuning`, on seeds that the study has not."""
    if recipe.tuning is None:
        return []
    rates = recipe.tuning.learning_rate or (recipe.training.learning_rate,)
    decays = recipe.tuning.weight_decay or (recipe.training.weight_decay,)
    seeds, trials = Seeds(count=recipe.tuning.seeds, first=FIRST_TUNING_SEED), _trials(recipe, examples)
    every = itertools.product(every_chosen(recipe), rates, decays)
    return [trials(chosen, rate, decay, kind="tune", seeds=seeds) for chosen, rate, decay in every]


def search_trial(recipe: Recipe, examples: Examples | Texts, chosen: Chosen, *, seeds: int) -> Trial:
    """The training of a candidate of a search: judged on validation data, with seeds that no study has."""
    rate, decay = recipe.training.learning_rate, recipe.training.weight_decay
    own = Seeds(count=seeds, first=FIRST_SEARCH_SEED)
    return _trials(recipe, examples)(chosen, rate, decay, kind="tune", seeds=own)


def _trials(recipe: Recipe, examples: Examples | Texts) -> Callable[..., Trial]:
    """Makes the trial of an activation with a learning rate and a weight decay, and with other settings of `Trial`."""
    teacher = teacher_trial(recipe, examples)
    common = _common(recipe, examples) | {"teacher": "" if teacher is None else teacher.key}
    task = _anywhere_task(recipe.task)

    def trial(chosen: Chosen, rate: float, decay: float, **settings: Any) -> Trial:
        own = {} if chosen.rate is None else {"activation_rate": chosen.rate}
        # What sends no symbols is trained and judged as in a plain classification, and is the same trial.
        codes = not isinstance(task, Code) or chosen.mode not in (None, "soft")
        return Trial(
            activations=(chosen,),
            task=task if codes else None,
            training=replace(recipe.training, learning_rate=rate, weight_decay=decay, **own),
            select=recipe.select,
            hardening=recipe.hardening if chosen.harden else None,
            augment=recipe.augment,
            **common,
            **settings,
        )

    return trial


def teacher_trial(recipe: Recipe, examples: Examples | Texts) -> Trial | None:
    """The trial of the network that students learn from, which runs before theirs; None without one."""
    task = recipe.task
    if not isinstance(task, Distil):
        return None
    network = replace(recipe, model=Model(build=task.teacher, arguments=task.arguments))
    return Trial(
        kind="teacher",
        activations=(Chosen(name=task.activation, label="teacher"),),
        training=recipe.training,
        seeds=replace(recipe.seeds, count=1),
        select=recipe.select,
        keep=("models",),
        augment=recipe.augment,
        **_common(network, examples),
    )


def choose_tuned(outcomes: Iterable[Outcome]) -> dict[str, tuple[float, float]]:
    """For each activation the learning rate and weight decay with the lowest mean validation loss; of equals the first.

    A setting with which fewer seeds diverged comes before one with more, however well the others did. An activation
    that diverged with every seed of every setting is left out.
    """
    best: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {}
    for outcome in outcomes:
        trial = outcome.trial
        losses = outcome.validation.get("log_loss", outcome.validation.get("mse", ()))
        finite = [loss for loss in losses if loss is not None and math.isfinite(loss)]
        if not finite:
            continue
        rank = (float(len(trial.seeds.numbers) - len(finite)), sum(finite) / len(finite))
        label = trial.activation.label
        if label not in best or rank < best[label][0]:
            best[label] = rank, (trial.training.learning_rate, trial.training.weight_decay)
    return {label: settings for label, (_, settings) in best.items()}


def cost_trial(recipe: Recipe, examples: Examples | Texts) -> Trial | None:
    """The trial that times every activation in turns, and the baseline of the costs; None where it is not asked for."""
    if "cost" not in recipe.measures:
        return None
    every = list(every_chosen(recipe))
    if recipe.cost_baseline not in [chosen.label for chosen in every]:
        every.append(Chosen(name=recipe.cost_baseline, label=recipe.cost_baseline))
    # Hardening changes what the parameters are, and not what a step costs; images are timed as they are.
    return Trial(
        kind="cost",
        activations=tuple(replace(chosen, harden=False, select=None) for chosen in every),
        training=recipe.training,
        seeds=recipe.seeds,
        measures=("cost",),
        cost_baseline=recipe.cost_baseline,
        **{**_common(recipe, examples), "init": "default"},
    )


def every_chosen(recipe: Recipe) -> Iterator[Chosen]:
    """The activations of a study with each combination of their values, in the order of the recipe."""
    for choice in recipe.activations:
        yield from combinations(choice)


def matches_label(wanted: str, chosen: Chosen) -> bool:
    """Whether a label that was asked for means this activation: "smelu" means every value of it, "smelu beta=1" one."""
    return chosen.label == wanted or chosen.label.startswith(f"{wanted} ")


def refuse_unknown(only: Sequence[str], recipe: Recipe) -> None:
    """Raise where a label was asked for that means none of the study's activations."""
    every = list(every_chosen(recipe))
    for wanted in only:
        if not any(matches_label(wanted, chosen) for chosen in every):
            labels = [chosen.label for chosen in every]
            near = did_you_mean(wanted, labels) or f" It has {', '.join(labels)}."
            raise ParameterError(f"The study {recipe.name!r} has no activation {wanted!r}.{near}")


def _common(recipe: Recipe, examples: Examples | Texts) -> dict[str, Any]:
    if isinstance(examples, Examples):
        _check_loss(recipe, examples)
    build = recipe.model.build
    own = build not in (*BUILDERS, GPT2) and not build.startswith((TIMM, PRETRAINED))
    return {
        "data": _anywhere(recipe.data),
        "fingerprint": examples.fingerprint,
        "model": _anywhere_model(recipe.model),
        "init": recipe.init,
        "device": recipe.device,
        "source": source_fingerprint(build, folder=examples.base) if own else "",
    }


def _anywhere(data: Data) -> Data:
    """The data without the place of the file, which says nothing of what is in it."""
    if data.file is None:
        # A data set by name has its own test part; one that comes in its three parts also one for validation.
        own = {"validation": Data.validation} if data.set in OWN_PARTS else {}
        return replace(data, test=Data.test, **own)
    return replace(data, file=_name(data.file))


def _name(place: str) -> str:
    """The last part of a path, written for any system."""
    return Path(place.replace("\\", "/")).name


def _anywhere_model(model: Model) -> Model:
    """The model without the folder that it lies in: what is in it is part of the fingerprint."""
    place = model.build.removeprefix(PRETRAINED)
    if place == model.build or place.startswith(HUB):
        return model
    return replace(model, build=f"{PRETRAINED}{_name(place)}")


def _anywhere_task(task: Task | None) -> Task | None:
    """The task without the places of its files."""
    if not isinstance(task, LanguageTask):
        return task
    named = {name: getattr(task, name, None) for name in ("tokenizer", "evaluate", "train")}
    return replace(
        task,
        **{
            name: tuple(map(_name, place)) if isinstance(place, tuple) else _name(place)
            for name, place in named.items()
            if place is not None
        },
    )


def _check_loss(recipe: Recipe, examples: Examples) -> None:
    loss, classes = recipe.training.loss, examples.classes
    kinds = ("mse",) if classes == 0 else ("cross_entropy", *(["bce_with_logits"] if classes == 2 else []))
    if loss in ("auto", *kinds):
        return
    raise RecipeError(
        f"training.loss {loss!r} does not fit {examples.name}, which is a {examples.task}"
        f"{f' with {classes} classes' if classes else ''}: leave it out, or take {' or '.join(kinds)}."
    )


KIND = "trial"

Each = tuple[float | None, ...]  # one number for every seed, in the order of the seeds
Curve = tuple[Each, ...]  # [epoch][seed]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of one trial.

    seconds:     how long the trial took, all its parts together where it was stopped and gone on with.
    diverged:    for each seed the epoch (from 1) in which its loss or its weights were no longer finite; None where
                 they always were.
    selected:    the epoch that each seed's numbers are of; None of one that diverged.
    test, validation, train: "accuracy", "log_loss", with two classes "auc", and "calibration_error" (test), as
                 fractions and nats; for a regression "mse" and "r2", of a picture also "psnr" and "ssim" (test). A
                 tuning trial has no test.
    curves:      "train_loss" (mean of the epoch), "validation_loss", "validation_accuracy" after each epoch, and
                 "gradient_norm" (mean of the epoch). They end early where every seed has diverged.
    epochs:      which epochs the rows of `curves` and of the parameters' curves are of; empty where it is every one.
                 `noted` is them in either case.
    difference:  for each prediction difference its {"value", "stdev", "interval", "without"} over the seeds that did
                 not diverge ("delta_1", "delta_2", "relative", "hamming", "true_label", "binary"); "without" is what it
                 is without each of them, which two activations are compared by.
    parameters:  by "path.name" of each activation parameter that moved: {"start": number, "end": Each, "curve": Curve}
                 (mean over channels where there are several; a vector entry by entry, as "path.z[0]"). Where the seeds
                 start with different values, "starts": Each has them, and "start" is their mean.
    activity:    a mapping for each activation site in order of depth: {"path", "activation", "zero_fraction": Each,
                 "dead_fraction": Each, "entropy": Each}, on validation examples.
    hardness:    a mapping for each site in order of depth: {"path", "knob", "start": Each, "end": Each, "distance":
                 Each}: the proved distance to the hard limit at the end, None where none is proved or it is infinite.
    gradients:   {"mean": Each, "variance": Each} of the gradient norm over the steps.
    entropy:     a mapping for each site in order of depth: {"path", "activation", "start", "end"}, the last two being
                 {"input": Each, "output": Each, "spread": Each} before and after training, on validation examples: the
                 entropies of `measure.entropies` in nats, and the standard deviation of the outputs.
    replacement: of a trial with `harden` or `replace`: {"limit": name, "test": {"accuracy": Each, ...} with the limit
                 in its place, "changed": Each: the share of test predictions that changed} (a regression has no
                 "changed"); also "not_run": why, where no plain module can stand for what some seeds have learned.
    cost:        of a cost trial, for each activation: {"label", "train": Quantity in ms, "infer": Quantity in ms,
                 "train_ratio": Quantity, "infer_ratio": Quantity against the cost baseline, "peak_memory": bytes or
                 None}.
    trained:     how many numbers of one model are trained; None in a record that was written before this was counted.
    """

    trial: Trial
    seconds: float
    diverged: tuple[int | None, ...] = ()
    selected: tuple[int | None, ...] = ()
    test: Mapping[str, Each] = field(default_factory=dict)
    validation: Mapping[str, Each] = field(default_factory=dict)
    train: Mapping[str, Each] = field(default_factory=dict)
    curves: Mapping[str, Curve] = field(default_factory=dict)
    difference: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    activity: tuple[Mapping[str, Any], ...] = ()
    hardness: tuple[Mapping[str, Any], ...] = ()
    gradients: Mapping[str, Each] = field(default_factory=dict)
    replacement: Mapping[str, Any] | None = None
    cost: tuple[Mapping[str, Any], ...] = ()
    epochs: tuple[int, ...] = ()
    trained: int | None = None
    entropy: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        # Lists become tuples, so that an outcome that was read equals the one that was written.
        for name in _NUMBERS:
            object.__setattr__(self, name, _tuples(getattr(self, name)))

    @property
    def noted(self) -> tuple[int, ...]:
        """The epoch of each row of the curves."""
        rows = max((len(curve) for curve in self.curves.values()), default=0)
        return self.epochs or tuple(range(1, rows + 1))

    def record(self, *, command: str, git: Mapping[str, Any] | None) -> Record:
        """The record that the run store keeps: the trial in its settings, the numbers in its one row."""
        return Record.now(
            KIND,
            command=command,
            rows=[{name: getattr(self, name) for name in _NUMBERS}],
            seeds=() if self.trial.kind == "cost" else self.trial.seeds.numbers,
            settings={"key": self.trial.key, "trial": self.trial.plain(), "git": None if git is None else dict(git)},
        )

    @classmethod
    def read(cls, record: Record) -> Outcome:
        """The outcome of a record of the run store; RecordError where it is none, or was altered."""
        settings = record.settings
        if record.kind != KIND or not {"key", "trial"} <= settings.keys():
            _refuse(f"it is of the kind {record.kind!r}, and that of a trial is {KIND!r}")
        try:
            trial = Trial.read(json.loads(json.dumps(settings["trial"])))
        except (SoftkneeError, TypeError) as error:
            raise RecordError(f"The record holds no outcome of a trial: its trial cannot be read. {error}") from error
        if trial.key != settings["key"]:
            _refuse(f"it says to be {settings['key']!r}, and its trial has the key {trial.key!r}: it was altered")
        if len(record.rows) != 1 or not set(_NUMBERS) - set(_LATER) <= record.rows[0].keys() <= set(_NUMBERS):
            _refuse("its numbers are not those that an outcome has; it was altered, or is of another version")
        outcome = cls(trial=trial, **record.rows[0])
        counts = () if trial.kind == "cost" else (len(outcome.diverged), len(outcome.selected), len(record.seeds))
        if any(count != trial.seeds.count for count in counts):
            _refuse(f"its trial has {trial.seeds.count} seeds, and there are numbers for others: it was altered")
        if outcome.epochs and any(len(curve) != len(outcome.epochs) for curve in outcome.curves.values()):
            _refuse("its curves are not of the epochs that it names: it was altered")
        return outcome


_NUMBERS = tuple(item.name for item in fields(Outcome) if item.name != "trial")
_LATER = ("epochs", "trained", "entropy")  # what records that were written before do not have


def _tuples(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list | tuple) else value


def _refuse(why: str) -> NoReturn:
    raise RecordError(f"The record holds no outcome of a trial: {why}. Run the trial again.")


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A trial that came to its end: the outcome, and the files that go with it by their names."""

    outcome: Outcome
    files: Mapping[str, bytes] = field(default_factory=dict)
