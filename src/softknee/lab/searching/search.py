"""search: candidates are drawn, proved, trained and halved; the best are judged beside the baselines as a study.

    NAME/search.json                the recipe, and the fingerprint of the examples
    NAME/density.json               the density of the pre-activations, where EAFO's corrections are to have it
    NAME/generations/0007.json      a record: every candidate of a generation with its certificate and losses
    NAME/optuna.log                 the storage of the sampler
    NAME/judgement/                 an ordinary study of the finalists and the baselines
    NAME/report/                    the page, its figures and the definition files

A generation is written as a whole, before the sampler is told of it. What was drawn for a generation that a kill cut
short is given up, and drawn again.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from ...devices import need_device
from ...errors import ParameterError, RecipeError, did_you_mean, need_package
from ...files import write_whole
from ...measure.record import Record
from ..report import summarise
from ..report.summary import Summary
from ..studies.engine import Stopping, StudyStopped
from ..studies.examples import Examples
from ..studies.reading import check, dump, find_file, find_recipe, read_recipe
from ..studies.recipe import FIRST_SEARCH_SEED, Language, Recipe, Search
from ..studies.runner import ENGINES, recipe_mapping, run_study, study_examples
from ..studies.store import Description, Folder, RunStore, StoreError, StudyLock, git_state
from ..studies.trials import Outcome, every_chosen
from .grammar import Candidate, draw
from .proving import Examined
from .workers import Job, JobContext, Losses, Pool, RayPool

KIND, SEARCH, GENERATIONS, STORAGE, JUDGEMENT = "search", "search.json", "generations", "optuna.log", "judgement"
DENSITY = "density.json"
MOST_AT_ONCE = 32  # candidates of one program: what they take of the memory is bounded
MOST_PROVED = 8  # of one process in a row, so that none has to wait for the last
STARTUP = 100  # candidates that are drawn at random before the sampler begins to learn


@dataclass(frozen=True)
class Tried:
    """A candidate and what came of it.

    number:      of the sampler's trial; below 0 for a baseline.
    reason:      why it was dropped before training; None where it was trained.
    losses:      the validation losses of its seeds, by the epochs, or steps, that it was trained for.
    """

    number: int
    candidate: Candidate
    reason: str | None = None
    cost: int | None = None
    certificate: Mapping[str, Any] | None = None
    losses: Mapping[int, Losses] | None = None

    @property
    def is_baseline(self) -> bool:
        return self.candidate.form == "baseline"

    def loss(self, length: int) -> float:
        """The mean over the seeds after a training of that length; infinite where one diverged or it was halved."""
        return _mean((self.losses or {}).get(length))

    def row(self) -> dict[str, Any]:
        """As a record holds it."""
        candidate = self.candidate
        drawn = {"text": candidate.text} | {name: getattr(candidate, name) for name in _DRAWN}
        losses = {str(length): losses for length, losses in (self.losses or {}).items()}
        rest = {"reason": self.reason, "cost": self.cost, "certificate": self.certificate, "losses": losses}
        return {"number": self.number, **drawn, **rest}

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Tried:
        candidate = Candidate(*(row[name] for name in _DRAWN))
        losses = {int(length): tuple(losses) for length, losses in row["losses"].items()}
        return cls(row["number"], candidate, row["reason"], row["cost"], row["certificate"], losses)


_DRAWN = tuple(item.name for item in fields(Candidate))


@dataclass(frozen=True)
class SearchResult:
    """What a search came to.

    recipe:    what was asked for.
    tried:     every candidate, the baselines first.
    finalists: the best of each formula by validation loss, the best first, by the label that the judgement has.
    outcomes:  of the judgement, with the study's seeds on the test data.
    seconds:   of all generations together.
    folder:    where it is kept.
    """

    recipe: Recipe
    tried: tuple[Tried, ...]
    finalists: Mapping[str, Tried]
    outcomes: tuple[Outcome, ...]
    seconds: float
    folder: str

    @cached_property
    def summary(self) -> Summary:
        """Of the judgement."""
        return summarise(judgement_recipe(self.recipe, self.finalists), self.outcomes)


def search(
    recipe: Recipe | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    engine: Literal["local", "ray"] = "local",
    processes: int | None = None,
    data_folder: str | os.PathLike[str] | None = None,
    base: str | os.PathLike[str] | None = None,
    settings: Sequence[str] = (),
    command: str = "",
    report: Callable[[str], object] = lambda text: None,
) -> SearchResult:
    """Find activations for the model and the data of a recipe with a section `search`.

    Args:
        recipe: as `softknee study` takes one, or a `Recipe`.
        out: the folder of the search; default studies/NAME.
        resume: go on with a search that is there.
        engine: "local", or "ray" for a Ray cluster.
        processes: that prove and train here; by default as many as there are processors for this program.
        data_folder: where the data sets by name lie; default $SOFTKNEE_DATA.
        base: the folder that files of the recipe are looked for in; default that of the recipe.
        settings: changes of the recipe, such as "search.candidates=50".
        command: the command line, for the records.
        report: called with a line about what is done now.

    Candidates compete on validation data. The finalists and the baselines are trained again with the study's own seeds,
    which the search never used, and judged once on the test data.
    """
    if not isinstance(recipe, Recipe):
        file = find_file(recipe)
        base = base if base is not None or file is None else file.parent
        recipe = find_recipe(recipe, settings=settings)
    elif settings:
        raise ParameterError("settings change a recipe that is read from a file; replace the fields of this one.")
    read_engine(engine)
    _refuse(recipe)
    _optuna()  # what is missing is said now
    need_device(recipe.device)
    examples = study_examples(recipe, data_folder=data_folder, base=base)
    if isinstance(examples, Examples) and not len(examples.validation_x):
        raise RecipeError("Candidates compete on validation examples, and there are none: give data.validation some.")
    folder = Folder(out if out is not None else Path("studies", recipe.name))
    if folder.local is None:
        raise ParameterError(f"A search is kept on a disk, and '{folder.url}' is elsewhere; copy it there afterwards.")
    with StudyLock(folder), Stopping() as stopping:
        _begin(folder, Description(recipe=recipe_mapping(recipe), fingerprint=examples.fingerprint, threads=1), resume)
        shared = JobContext(recipe, examples)
        pool = RayPool(shared) if engine == "ray" else Pool(shared, processes or _processors())
        try:
            run = _Search(recipe, folder, pool, stopping, command, report)
            tried, seconds = run.run()
        finally:
            pool.close()
    finalists = choose_finalists(recipe, tried)
    report("judging the finalists")
    outcomes = run_study(
        judgement_recipe(recipe, finalists),
        out=Path(folder.url, JUDGEMENT),
        resume=True,
        engine=engine,
        data_folder=data_folder,
        base=base,
        command=command,
    )
    return SearchResult(recipe, tuple(tried), finalists, tuple(outcomes), seconds, folder.url)


def _processors() -> int:
    """How many this program may use; Python knows of fewer than there are on Linux alone."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def read_engine(name: str) -> Literal["local", "ray"]:
    """The engine of that name."""
    if name == "local" or name == "ray":
        return name
    raise ParameterError(f"There is no engine {name!r}, only 'local' and 'ray'.{did_you_mean(name, ENGINES)}")


def holds_search(place: str | os.PathLike[str]) -> bool:
    """Whether a folder is that of a search."""
    return Folder(place).read(SEARCH) is not None


def read_search(place: str | os.PathLike[str]) -> SearchResult:
    """What a finished search in a folder came to."""
    folder = Folder(place)
    content = folder.read(SEARCH)
    if content is None:
        raise StoreError(f"'{place}' holds no search: it has no {SEARCH}. Name the folder that --out named.")
    recipe = read_recipe(dump(Description.from_json(content, source=folder.place(SEARCH)).recipe))
    tried, seconds = _read_generations(folder)
    store = RunStore(Path(folder.url, JUDGEMENT))
    if store.description() is None:
        raise StoreError(f"The search in '{place}' has not come to its judgement yet; go on with --resume.")
    outcomes = tuple(store.outcomes(with_files=False))
    return SearchResult(recipe, tuple(tried), choose_finalists(recipe, tried), outcomes, seconds, folder.url)


def choose_finalists(recipe: Recipe, tried: Sequence[Tried]) -> dict[str, Tried]:
    """The best candidate of each formula, the best first; as many as the recipe asks for. No baseline is one again."""
    assert recipe.search is not None
    baselines = {chosen.name for chosen in every_chosen(recipe) if not chosen.values and not chosen.learn}
    longest = recipe.search.lengths(recipe.length)[-1]
    ordered = sorted((each for each in tried if not each.is_baseline), key=lambda each: each.loss(longest))
    best: dict[str, Tried] = {}
    for each in ordered:
        if each.loss(longest) < math.inf and each.candidate.text not in baselines:
            best.setdefault(each.candidate.formula, each)
    chosen = list(best.values())[: recipe.search.finalists]
    return {f"{each.candidate.form} {each.number}": each for each in chosen}


def judgement_recipe(recipe: Recipe, finalists: Mapping[str, Tried]) -> Recipe:
    """The study that judges the finalists beside the baselines."""
    assert recipe.search is not None
    choices = [each.candidate.choice(label, learn=recipe.search.learn) for label, each in finalists.items()]
    title = f"Judgement: {recipe.title or recipe.name}"
    return check(replace(recipe, title=title, activations=(*recipe.activations, *choices), search=None, paper=None))


def _refuse(recipe: Recipe) -> None:
    """A sentence where a recipe cannot be searched."""
    if recipe.search is None:
        raise RecipeError(
            f"The recipe {recipe.name!r} has no section 'search', which says what to try; 'search: {{}}' takes the "
            "usual grammar without constraints."
        )
    if not isinstance(recipe.task, Language | None) or recipe.training.progressive is not None:
        raise RecipeError(
            "A search trains classifiers, regressions and language models from scratch: leave training.progressive "
            "out, and every 'task' but 'language'."
        )
    if recipe.task is not None and not recipe.task.validation:
        raise RecipeError("Candidates compete on a text of their own: keep one apart with 'task.validation: 0.1'.")
    if recipe.task is not None and "data" in recipe.search.densities:
        raise RecipeError("search.densities 'data' looks into classifiers and regressions: leave it out here.")
    if recipe.training.engine == "loop" or recipe.init == "matched":
        raise RecipeError(
            "A search trains many functions as one program: it needs training.engine 'replicas' or 'compiled', and "
            "init 'default' or 'keras'."
        )
    seeds, own = recipe.seeds, recipe.search.seeds
    if seeds.first < FIRST_SEARCH_SEED + own and seeds.first + seeds.count > FIRST_SEARCH_SEED:
        raise RecipeError(
            f"seeds reach from {seeds.first} on, and a search takes those from {FIRST_SEARCH_SEED:,} on; the finalists "
            "are judged with others: choose a smaller seeds.first."
        )


def _begin(folder: Folder, wanted: Description, resume: bool) -> None:
    content = folder.read(SEARCH)
    if content is None:
        if [name for name in folder.entries() if not name.startswith(".")]:
            raise StoreError(f"'{folder.url}' holds something else than a search; choose another place with --out.")
        folder.write(SEARCH, wanted.to_json(), what="description of the search")
        return
    Description.from_json(content, source=folder.place(SEARCH)).refuse_other(wanted, folder.url)
    if not resume:
        raise StoreError(f"'{folder.url}' holds this search already. Use --resume, or another place with --out.")
    folder.clean(GENERATIONS)


def _read_generations(folder: Folder) -> tuple[list[Tried], float]:
    tried, seconds = [], 0.0
    for name in folder.names(GENERATIONS):
        content = folder.read(f"{GENERATIONS}/{name}") or b""
        record = Record.from_json(content.decode(), source=folder.place(f"{GENERATIONS}/{name}"))
        tried += [Tried.read(row) for row in record.rows]
        seconds += float(record.settings["seconds"])
    return tried, seconds


class _Search:
    """One run: generation after generation, from where the records end."""

    def __init__(
        self,
        recipe: Recipe,
        folder: Folder,
        pool: Pool | RayPool,
        stopping: Stopping,
        command: str,
        report: Callable[[str], object],
    ) -> None:
        assert recipe.search is not None
        self.recipe, self.options, self.folder, self.pool = recipe, recipe.search, folder, pool
        self.stopping, self.command, self.report = stopping, command, report
        self.lengths = self.options.lengths(recipe.length)
        self._most_at_once = 1 if isinstance(recipe.task, Language) else MOST_AT_ONCE
        self.unit = "step" if isinstance(recipe.task, Language) else "epoch"
        self.tried, self.seconds = _read_generations(folder)
        self.density = ""
        self.git = git_state()

    def run(self) -> tuple[list[Tried], float]:
        if not self.tried:
            self.report("training the baselines")
            self._keep(0, self._baselines)
        if "data" in self.options.densities:
            self.density = self._density()
        while (done := sum(not each.is_baseline for each in self.tried)) < self.options.candidates:
            number = 1 + math.ceil(done / self.options.generation)
            study = open_study(self.folder, self.options, generation=number, tried=self.tried, lengths=self.lengths)
            trials = [study.ask() for _ in range(min(self.options.generation, self.options.candidates - done))]
            drawn = {trial.number: draw(trial, self.options, density=self.density) for trial in trials}
            head = f"candidates {done + 1} to {done + len(drawn)} of {self.options.candidates}"
            new = self._keep(number, lambda drawn=drawn, head=head: self._generation(drawn, head))
            for trial, each in zip(trials, new, strict=True):
                for length in each.losses or {}:
                    if each.loss(length) < math.inf:
                        trial.report(each.loss(length), length)
                _tell(study, each, self.lengths[-1])
        return self.tried, self.seconds

    def _keep(self, generation: int, make: Callable[[], list[Tried]]) -> list[Tried]:
        """Make a generation and write it down as a whole."""
        begun = time.perf_counter()
        new = make()
        seconds = time.perf_counter() - begun
        record = Record.now(
            KIND,
            command=self.command,
            rows=[each.row() for each in new],
            seeds=range(FIRST_SEARCH_SEED, FIRST_SEARCH_SEED + self.options.seeds),
            settings={
                "generation": generation,
                "seconds": round(seconds, 3),
                f"{self.unit}s": self.lengths,
                "git": self.git,
            },
        )
        self.folder.write(f"{GENERATIONS}/{generation:04d}.json", record.to_json().encode(), what="record")
        self.tried += new
        self.seconds += seconds
        return new

    def _density(self) -> str:
        """What "data" stands for; kept, since another machine could round it otherwise."""
        content = self.folder.read(DENSITY)
        if content is None:
            self.report("looking at the pre-activations of the baseline")
            content = json.dumps({"density": self.pool.shared.density()}).encode()
            self.folder.write(DENSITY, content, what="density of the data")
        return json.loads(content)["density"]

    def _baselines(self) -> list[Tried]:
        longest = self.lengths[-1]
        jobs = [Job(chosen, ({},), longest) for chosen in every_chosen(self.recipe)]
        losses = {job.chosen.label: results[0] for job, results in self._run(jobs)}
        for label, result in losses.items():
            if isinstance(result, str):
                raise RecipeError(f"The baseline {label!r} is {result}")
        labels = [job.chosen.label for job in jobs]
        return [
            Tried(-1 - place, Candidate("baseline", label), losses={longest: losses[label]})
            for place, label in enumerate(labels)
        ]

    def _generation(self, drawn: Mapping[int, Candidate], head: str) -> list[Tried]:
        """Prove what is new, and train what is proved, rung after rung."""
        known = {each.candidate.text: each for each in self.tried if not each.is_baseline}
        new = {candidate.text: candidate for candidate in drawn.values() if candidate.text not in known}
        examined: dict[str, Examined] = self._each(list(new.values()), 0, f"{head}: proving")
        losses: dict[str, dict[int, Losses]] = {text: {} for text in new}
        reasons = {text: each.reason for text, each in examined.items()}
        alive = [candidate for text, candidate in new.items() if reasons[text] is None]
        for length in self.lengths:
            results = self._each(alive, length, f"{head}: {len(alive)} trained for {length} {self.unit}s")
            for text, result in results.items():
                if isinstance(result, str):
                    reasons[text] = result
                else:
                    losses[text][length] = result
            alive.sort(key=lambda candidate: _mean(losses[candidate.text].get(length)))
            best = alive[: max(1, round(len(alive) * self.options.keep))]
            alive = [each for each in best if _mean(losses[each.text].get(length)) < math.inf]
        made = known | {
            text: Tried(0, candidate, reasons[text], examined[text].cost, examined[text].certificate, losses[text])
            for text, candidate in new.items()
        }
        return [replace(made[candidate.text], number=number) for number, candidate in drawn.items()]

    def _each(self, candidates: Sequence[Candidate], length: int, what: str) -> dict[str, Any]:
        """What came of each candidate, by its text; those of one formula are one job."""
        groups: dict[tuple[str, ...], list[Candidate]] = {}
        for candidate in candidates:  # a function at its defaults has no numbers, and is a program of its own
            groups.setdefault((candidate.formula, *candidate.values), []).append(candidate)
        jobs, most = {}, self._most_at_once if length else MOST_PROVED
        for group in sorted(groups.values(), key=len, reverse=True):  # the longest first: the last are short
            for first in range(0, len(group), most):
                part = group[first : first + most]
                chosen = part[0].chosen(learn=self.options.learn)
                jobs[chosen.label] = Job(chosen, tuple(each.values for each in part), length), part
        self.report(what)
        results: dict[str, Any] = {}
        for job, answers in self._run([job for job, _ in jobs.values()]):
            part = jobs[job.chosen.label][1]
            results |= {each.text: answer for each, answer in zip(part, answers, strict=True)}
        return results

    def _run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, list[Any]]]:
        for job, results in self.pool.run(jobs):
            if self.stopping.asked:
                done = sum(not each.is_baseline for each in self.tried)
                raise StudyStopped(
                    f"Stopped; {done} candidates are kept in '{self.folder.url}'. Go on with --resume.",
                    self.stopping.number,
                )
            yield job, results


# -- the sampler ------------------------------------------------------------------------------------------


class _Unlocked:
    """In the place of Optuna's lock file, which a killed process leaves behind: the search itself is locked."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None: ...


def open_study(
    folder: Folder, options: Search, *, generation: int, tried: Sequence[Tried], lengths: Sequence[int]
) -> Any:
    """Optuna's study of the search, which knows of every candidate that is recorded and of no other."""
    optuna = _optuna()
    assert folder.local is not None
    file = folder.local / STORAGE
    _cut_torn_line(file)
    # A seed for each generation: what is drawn next follows from what is recorded, and not from where it was stopped.
    seed = options.seed + 1009 * generation
    samplers: dict[str, Callable[[], Any]] = {
        "tpe": lambda: optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP, constant_liar=True),
        "evolution": lambda: optuna.samplers.NSGAIISampler(seed=seed, population_size=options.generation),
        "random": lambda: optuna.samplers.RandomSampler(seed=seed),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant_liar and the journal call themselves experimental
        journal = optuna.storages.journal.JournalFileBackend(str(file), lock_obj=_Unlocked())
        storage = optuna.storages.journal.JournalStorage(journal)
        study = optuna.create_study(
            storage=storage, study_name=KIND, sampler=samplers[options.sampler](), load_if_exists=True
        )
    recorded = {each.number: each for each in tried if not each.is_baseline}
    stored = study.get_trials(deepcopy=False)
    if recorded and max(recorded) >= len(stored):
        raise StoreError(f"'{folder.place(STORAGE)}' is not that of the records beside it; bring it back from a copy.")
    for frozen in stored:
        if not frozen.state.is_finished():
            if frozen.number in recorded:
                _tell(study, recorded[frozen.number], lengths[-1])
            else:
                study.tell(frozen.number, state=optuna.trial.TrialState.FAIL)
    return study


def _tell(study: Any, each: Tried, longest: int) -> None:
    """A candidate that was dropped or halved is pruned: the sampler learns from it, too."""
    if each.loss(longest) < math.inf:
        study.tell(each.number, each.loss(longest))
    else:
        study.tell(each.number, state=_optuna().trial.TrialState.PRUNED)


def _cut_torn_line(file: Path) -> None:
    """Take away the end of a journal that a kill left in the middle of a line."""
    if file.exists() and not (content := file.read_bytes()).endswith(b"\n") and content:
        write_whole(file, content[: content.rfind(b"\n") + 1], what="journal of the sampler")


def _optuna() -> Any:
    optuna = need_package("optuna", "A search needs the package 'optuna'", "search")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _mean(losses: Losses | None) -> float:
    if not losses or any(loss is None for loss in losses):
        return math.inf
    return sum(loss for loss in losses if loss is not None) / len(losses)
