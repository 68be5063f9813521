"""Runs a study: tuning, then training, then the cost of every activation. What is in the store is not run again."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from ...devices import need_device
from ...errors import ParameterError, RecipeError, did_you_mean
from ..bench.clock import cpu_threads
from ..table import duration
from .engine import (
    Display,
    Engine,
    LocalEngine,
    Progress,
    RayEngine,
    RunTrial,
    Stopping,
    StudyStopped,
    display_here,
    plain_path,
)
from .examples import Examples, recipe_examples
from .reading import check, combinations, load, to_yaml
from .recipe import Choice, Code, Language, LanguageTask, Perplexity, Preference, Recipe, Task
from .running import Interrupted, run_trial
from .store import DamagedError, Description, RunStore, StoreError, StudyLock, git_state
from .texts import Texts, load_texts
from .trial import Trial
from .trials import (
    Outcome,
    choose_tuned,
    cost_trial,
    matches_label,
    refuse_unknown,
    teacher_trial,
    train_trials,
    tuning_trials,
)

BATCHES = 2  # of an epoch
_MOST_BATCH = 4
_MOST_NAME = 64  # characters of a recipe's name
_MOST_ASKED = 28  # of them for the labels that were asked for
_ENDING = "-smoke"


def smoke_notice(only: Sequence[str] = ()) -> str:
    """What a smoke run is, for whoever starts one."""
    which = "the activations that were asked for" if only else "at most two of the activations"
    return (
        f"Smoke run: two small batches, one epoch, two seeds and {which}, on the CPU, to see that everything runs. Its "
        "numbers mean nothing."
    )


def smoke(recipe: Recipe, *, only: Sequence[str] = ()) -> Recipe:
    """The recipe with two batches an epoch, one epoch, two seeds, at most two activations, no costs, on the CPU.

    Data, model, optimiser and engine stay as they are. The second activation is one that does most: hardened before
    learned before fixed. The paper's numbers are left out: nothing here is to be compared with them.

    only: labels of activations as `run_study` takes them: the study has these, however many, and a name that says so.
    """
    batch, tuning = min(recipe.training.batch, _MOST_BATCH), recipe.tuning
    if tuning is not None:
        few_of_each = {name: getattr(tuning, name)[:2] for name in ("learning_rate", "weight_decay")}
        tuning = replace(tuning, **few_of_each, seeds=1)
    few = _named(recipe, only) if only else _two(recipe)
    words = re.sub(r"[^A-Za-z0-9.]+", "-", " ".join(only)).strip("-.")[:_MOST_ASKED]
    ending = f"{_ENDING}-{words}" if words else _ENDING
    sizes = {"layers": 1, "width": 8, "heads": 1} if isinstance(recipe.task, Language) else {}
    small = replace(
        recipe,
        name=recipe.name[: _MOST_NAME - len(ending)] + ending,
        title=f"Smoke run, its numbers mean nothing: {recipe.title or recipe.name}",
        data=replace(recipe.data, limit=_CHARACTERS if isinstance(recipe.task, TextTask) else BATCHES * batch),
        model=replace(recipe.model, arguments={**recipe.model.arguments, **sizes}),
        activations=few,
        training=replace(
            recipe.training,
            batch=batch,
            # A text is not counted in epochs.
            epochs=recipe.training.epochs if isinstance(recipe.task, TextTask) else 1,
            every=1,
            precision="float32",
        ),
        # With one epoch what begins later would never run.
        augment=None if recipe.augment is None else replace(recipe.augment, from_epoch=1),
        task=_small_task(recipe.task),
        seeds=replace(recipe.seeds, count=min(recipe.seeds.count, 2)),
        tuning=tuning,
        # Times of so little work say nothing, and measuring them takes longer than all the rest.
        measures=tuple(measure for measure in recipe.measures if measure != "cost"),
        baseline=next(combinations(few[0])).label,
        cost_baseline=Recipe.cost_baseline,
        device="cpu",
        paper=None,
    )
    return check(small)


TextTask = Language | Perplexity
_CHARACTERS, _CONTEXT, _PAIRS = 1000, 16, 4
_LENGTH = 48  # tokens of prompt and reply


def _small_task(task: Task | None) -> Task | None:
    if isinstance(task, Code):
        return replace(task, examples=1, draws=2)
    if isinstance(task, Language):
        return replace(task, context=_CONTEXT, steps=4, warmup=1, recover=min(task.recover, 1))
    if isinstance(task, Perplexity):
        return replace(task, context=_CONTEXT, stride=None)
    if isinstance(task, Preference):
        few = {"betas": task.betas[:1], "steps": 2, "warmup": 1, "micro_batch": None, "evaluation_pairs": _PAIRS}
        return replace(task, **few, length=_LENGTH, prompt_length=_LENGTH // 2)
    return task


def _two(recipe: Recipe) -> tuple[Choice, ...]:
    """The first activation and the one of the others that does most, each with the first of its values."""
    first, *others = (_single(choice) for choice in recipe.activations)
    # Of equals the last, which in the recipes of a paper is the paper's own.
    most = max(reversed(others), key=lambda choice: (choice.harden, bool(choice.learn)), default=None)
    return (first,) if most is None else (first, most)


def _named(recipe: Recipe, only: Sequence[str]) -> tuple[Choice, ...]:
    """What the labels mean, in the order of the recipe; of a label that means several values the first."""
    refuse_unknown(only, recipe)
    choices: list[Choice] = []
    for choice in recipe.activations:
        every = list(combinations(choice))
        first = (next((chosen for chosen in every if matches_label(wanted, chosen)), None) for wanted in only)
        labels = {chosen.label for chosen in first if chosen is not None}
        for chosen in every:
            if chosen.label in labels:  # with the values of this trial, and called as it is
                label = choice.label if chosen.label == choice.title else chosen.label
                choices.append(replace(choice, label=label, values=chosen.values, rate=chosen.rate, price=chosen.price))
    return tuple(choices)


def _single(choice: Choice) -> Choice:
    values = {name: value[0] if isinstance(value, tuple) else value for name, value in choice.values.items()}
    of_training = {name: getattr(choice, name) for name in ("rate", "price")}
    first = {name: given[-1] if isinstance(given, tuple) else given for name, given in of_training.items()}
    return replace(choice, values=values, **first)


ENGINES = ("local", "ray")


def run_study(
    recipe: Recipe,
    *,
    out: str | os.PathLike[str],
    resume: bool = False,
    engine: Literal["local", "ray"] = "local",
    data_folder: str | os.PathLike[str] | None = None,
    base: str | os.PathLike[str] | None = None,
    command: str = "",
    threads: int | None = None,
    only: Sequence[str] = (),
    save_every: float = 20.0,
    display: Display | None = None,
    each: Callable[[Outcome], object] | None = None,
    run_trial: RunTrial = run_trial,
) -> list[Outcome]:
    """Run what the store does not have yet; every outcome of the study, in its order.

    Args:
        out: the folder of the study, or a URL that fsspec knows; see `RunStore`.
        resume: go on with a study that is there. Without it, a place that holds an unfinished study is refused.
        engine: "local" runs the trials here, one after the other; "ray" sends them to a Ray cluster.
        data_folder: where the data sets by name lie; default $SOFTKNEE_DATA.
        base: the folder that files of the recipe are looked for in; default the current one.
        command: the command line, for the records.
        threads: of torch on a CPU; by default as many as torch takes here, and one with Ray. Sums of other lengths can
            differ in the last bit, so a study that is resumed keeps to the number it began with.
        only: labels of activations ("smelu" for all of its values, "smelu beta=1" for one): the others are left for
            another time, and the timing of all of them, too.
        save_every: seconds between two savings of a running trial.
        display: where progress is shown; default a bar on a terminal, lines elsewhere.
        each: called with every outcome, those that were found in the store as well.
        run_trial: what runs a trial.

    Ctrl-C, SIGTERM and SIGHUP (a closed terminal) stop it after the current step with `StudyStopped`, which says how to
    go on. SIGKILL at any moment loses nothing that was finished.
    """
    if engine not in ENGINES:
        raise ParameterError(f"There is no engine {engine!r}, only 'local' and 'ray'.{did_you_mean(engine, ENGINES)}")
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise ParameterError(f"threads must be a whole number of at least 1, and {threads!r} was given.")
    refuse_unknown(only, recipe)
    store = RunStore(out)
    store.refuse_foreign_folder()
    # With Ray the trials run on other machines, and a study that is there may be finished.
    local = engine == "local"
    if local and store.description() is None:
        _need_device(recipe)
    examples = study_examples(recipe, data_folder=data_folder, base=base)
    wanted = Description(
        recipe=recipe_mapping(recipe),
        fingerprint=examples.fingerprint,
        threads=threads or (torch.get_num_threads() if local else 1),
    )
    with StudyLock(store.folder) as lock, Stopping() as stopping:
        known = _begin(store, wanted, resume=resume, threads_given=threads is not None)
        progress = Progress(display or display_here())
        if isinstance(examples, Texts):
            progress.note(examples.sentence())
        try:
            chosen = (LocalEngine if local else RayEngine)(
                store=store,
                examples=examples,
                progress=progress,
                stopping=stopping,
                run_trial=run_trial,
                data_folder=plain_path(data_folder),
                base=plain_path(base),
                command=command,
                git=git_state(),
                threads=known.threads,
                save_every=save_every,
            )
            with closing(chosen), cpu_threads(known.threads):
                return _Study(
                    engine=chosen,
                    resume=resume,
                    need=partial(_need_device, recipe) if local else lambda: None,
                    check=lock.check,
                    each=each or (lambda _: None),
                    only=tuple(only),
                ).run(recipe)
        except Interrupted as stopped:
            raise StudyStopped(_how_to_go_on(store, command), stopping.number) from stopped
        finally:
            progress.close()


def study_examples(
    recipe: Recipe, *, data_folder: str | os.PathLike[str] | None, base: str | os.PathLike[str] | None
) -> Examples | Texts:
    """The data of a recipe, whatever its task."""
    if isinstance(recipe.task, LanguageTask):
        return load_texts(recipe.data, recipe.task, recipe.model, folder=data_folder, base=plain_path(base))
    return recipe_examples(recipe, folder=data_folder, base=plain_path(base))


def recipe_mapping(recipe: Recipe) -> dict[str, Any]:
    """The recipe as a store keeps it: the mapping of its YAML, every field written out."""
    return load(to_yaml(recipe))


def _begin(store: RunStore, wanted: Description, *, resume: bool, threads_given: bool) -> Description:
    """The description that the study runs with; that of the store where it has one."""
    description = store.description()
    if description is None:
        if store.finished() and not resume:
            raise StoreError(
                f"'{store.url}' holds records of trials and no study.json. Bring that file back; or use --resume, "
                "which keeps what belongs to this study and sets the rest aside."
            )
        store.describe(wanted)
        return wanted
    description.refuse_other(wanted, store.url)
    if threads_given and wanted.threads != description.threads:
        raise StoreError(
            f"'{store.url}' was begun with {description.threads} threads, and {wanted.threads} were asked for; the "
            "last bits of the results can depend on it. Leave --threads out, or choose another place with --out."
        )
    if description.recipe.get("paper") != wanted.recipe.get("paper"):
        description = replace(description, recipe=wanted.recipe)  # no trial depends on it, and the next report shows it
        store.describe(description)
    return description


@dataclass(kw_only=True)
class _Study:
    """One run of a study."""

    engine: Engine
    resume: bool
    need: Callable[[], None]
    check: Callable[[], None]
    each: Callable[[Outcome], object]
    only: tuple[str, ...]

    def __post_init__(self) -> None:
        self.store, self.progress = self.engine.store, self.engine.progress
        # A store without records is as good as new.
        self.may_run = self.resume or not self.store.finished()
        if self.may_run:
            self.store.tidy()

    def run(self, recipe: Recipe) -> list[Outcome]:
        examples = self.engine.examples
        first = [trial for trial in [teacher_trial(recipe, examples)] if trial is not None]
        tuning = tuning_trials(recipe, examples)
        last = [trial for trial in [cost_trial(recipe, examples)] if trial is not None]
        # Before the tuning is done, training has other settings than it will have, but as many trials and epochs.
        self._plan([*first, *tuning, *train_trials(recipe, examples), *last])
        outcomes = self._stage(first, first=0)
        for teacher in outcomes:
            self.engine.teachers[teacher.trial.key] = self._weights(teacher)
        tuned = self._stage(tuning, first=len(first))
        train = train_trials(recipe, examples, tuned=choose_tuned(tuned))
        self._plan([*first, *tuning, *train, *last])
        if not self.only:  # else what the tuning of the others came to is not known, and their trials are not
            self._refuse_foreign({trial.key for trial in (*first, *tuning, *train, *last)})
        done = len(first) + len(tuning)
        outcomes += tuned + self._stage(train, first=done)
        return outcomes + self._stage(last, first=done + len(train))

    def _weights(self, teacher: Outcome) -> bytes:
        if teacher.diverged[0] is not None:
            raise RecipeError(
                f"The teacher diverged in epoch {teacher.diverged[0]}, and nothing can be learned from it. Choose a "
                "smaller training.learning_rate, and another place with --out."
            )
        return self.store.file(teacher.trial.key, "models.safetensors")

    def _plan(self, trials: Sequence[Trial]) -> None:
        self.progress.plan([trial for trial in trials if self._is_wanted(trial)])

    def _is_wanted(self, trial: Trial) -> bool:
        if not self.only:
            return True
        if trial.kind in ("cost", "teacher"):
            return trial.kind == "teacher"
        return any(matches_label(label, trial.activation) for label in self.only)

    def _stage(self, every: Sequence[Trial], *, first: int) -> list[Outcome]:
        """The outcomes of those of the trials that are asked for, run where the store does not have them."""
        trials = [trial for trial in every if self._is_wanted(trial)]
        finished = set(self.store.finished())
        outcomes: dict[str, Outcome] = {}
        for trial in trials:
            if trial.key in finished and (outcome := self._read(trial)) is not None:
                outcomes[trial.key] = outcome
                self.each(outcome)
                self.progress.found(trial)
        missing = [trial for trial in trials if trial.key not in outcomes]
        if missing and not self.may_run:
            raise StoreError(
                f"'{self.store.url}' holds this study unfinished, with {_count(len(finished))} done. Use --resume to "
                "go on with it, or choose another place with --out."
            )
        if missing:
            self.need()
        places = {trial.key: first + index for index, trial in enumerate(every)}
        for trial, record, files in self.engine.run(missing):
            self.check()
            self.store.add(trial.key, record, files, position=places[trial.key])
            outcomes[trial.key] = outcome = Outcome.read(record)
            diverged = sum(epoch is not None for epoch in outcome.diverged)
            gone = f", {diverged} of {len(outcome.diverged)} seeds diverged" if diverged else ""
            self.progress.end(trial, result=f"{duration(outcome.seconds)}{gone}")
            self.each(outcome)
        return [outcomes[trial.key] for trial in trials]

    def _read(self, trial: Trial) -> Outcome | None:
        try:
            outcome = self.store.outcome(trial.key)
            if self.resume:  # what --resume is to mend has to be found first
                self.store.check_files(trial.key)
            return outcome
        except DamagedError as error:
            if not self.resume:
                raise
            aside = self.store.set_aside(trial.key)
            self.progress.note(
                f"{str(error).partition(' Nothing was changed.')[0]} It is kept as {aside}; the trial runs again."
            )
            return None

    def _refuse_foreign(self, expected: set[str]) -> None:
        """Records of trials that are none of this study's are kept apart, or refused."""
        foreign = [key for key in self.store.finished() if key not in expected]
        for key in foreign:
            place = self.store.folder.place(f"trials/{key}.json")
            if not self.resume:
                raise StoreError(
                    f"'{place}' is the record of a trial that this study does not have. Move it elsewhere; or use "
                    "--resume, which keeps it as .foreign."
                )
            aside = self.store.set_aside(key, suffix="foreign")
            self.progress.note(f"'{place}' is of a trial that this study does not have; it is kept as {aside}.")


def _need_device(recipe: Recipe) -> None:
    """A sentence where the recipe's device is not there, before anything is written or trained."""
    single = "" if recipe.training.precision == "float32" else " --set training.precision=float32"
    cures = (
        f"add --smoke to see in a tiny form that the recipe runs, or --set device=cpu{single} to train on the CPU, "
        "where the larger studies take very long; or run it where there is one"
    )
    need_device(recipe.device, cures=cures)


def _how_to_go_on(store: RunStore, command: str) -> str:
    done = len(store.finished())
    again = command if "--resume" in shlex.split(command) else f"{command} --resume".strip()
    how = f"Go on with: {again}" if command else "Go on with resume=True."
    return f"Stopped; {_count(done)} {'is' if done == 1 else 'are'} finished and kept in '{store.url}'. {how}"


def _count(trials: int) -> str:
    return "1 trial" if trials == 1 else f"{trials} trials"


def default_place(recipe: Recipe) -> Path:
    """Where a study is kept if nothing else is said."""
    return Path("studies", recipe.name)
