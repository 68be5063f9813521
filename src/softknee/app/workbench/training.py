"""The process behind 'Try it': the digits study of the quickstart with the functions of a page, epoch by epoch."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import signal
import threading
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ...design.texts.files import save
from ...errors import FormulaError, ParameterError, RecipeError, SoftkneeError
from ...registry import get, register
from ...spec import SoftTable
from ...spec.notation import plain_text
from .export import MOST, with_values
from .reading import ChosenFunction, read
from .workers import context

RECIPE = "quickstart"
MOST_SEEDS, MOST_EPOCHS = 24, 200
_BASELINE = "relu"
_OWN = "own_"  # how the names of functions begin that were texts


def recipe_for(query: dict[str, Any], *, name: str) -> Any:
    """The recipe of `make study` with the functions of a page, ReLU as the baseline, and so many seeds and epochs.

    Functions that are texts are registered in this process under names made from their texts, so that a record is never
    taken for another function's; `keep_functions` writes them down.
    """
    from ...lab.studies.reading import check, find_recipe

    recipe = find_recipe(RECIPE)
    functions = query.get("functions")
    if not isinstance(functions, list) or not 1 <= len(functions) <= MOST:
        raise RecipeError(f"The page trains 1 to {MOST} functions.")
    seeds, epochs = _whole(query, "seeds", MOST_SEEDS), _whole(query, "epochs", MOST_EPOCHS)
    choices = [_choice(read(function), learn=bool(query.get("learn"))) for function in functions]
    if not any(choice.name == _BASELINE for choice in choices):
        from ...lab.studies.recipe import Choice

        choices.insert(0, Choice(name=_BASELINE))
    different = {choice.title: choice for choice in choices}
    made = replace(
        recipe,
        name=name,
        title="From the workbench: " + ", ".join(different),
        activations=tuple(different.values()),
        seeds=replace(recipe.seeds, count=seeds or recipe.seeds.count),
        training=replace(recipe.training, epochs=epochs or recipe.training.epochs),
        hardening=None,
        baseline=_BASELINE,
    )
    return check(made)


def _whole(query: dict[str, Any], name: str, most: int) -> int | None:
    value = query.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise RecipeError(f"The number of {name} is a whole number from 1 to {most}.")
    if name == "seeds" and value < 2:
        raise RecipeError("At least two seeds are trained, because the report compares how models differ.")
    return value


def keep_functions(recipe: Any, folder: Path) -> None:
    """Write the functions that were texts as definition files, once the folder is that of the study.

    Not earlier: a study refuses a folder in which something else is already.
    """
    place = folder / "functions"
    for choice in recipe.activations:
        if choice.name.startswith(_OWN) and not (place / f"{choice.name}.json").exists():
            place.mkdir(exist_ok=True)
            save(get(choice.name), place / f"{choice.name}.json")


def _choice(function: ChosenFunction, *, learn: bool) -> Any:
    from ...lab.studies.recipe import Choice

    act = function.act
    numbers = ", ".join(f"{name}={value:.4g}" for name, value in function.values.items())
    label = f"{function.text} {numbers}".strip() if function.is_named else f"{function.text}, {numbers}".rstrip(", ")
    learned = learn and bool(function.values)
    if function.is_named:
        options = {name: value for name, value in function.options.items() if value is not None}
        values = {**options, **function.values}
        return Choice(name=act.name, label=label, values=values, learn=learned)
    if isinstance(act, SoftTable):
        raise FormulaError("A table is trained by its name.")
    digest = hashlib.sha256(repr((function.text, function.declared, function.values)).encode()).hexdigest()[:10]
    own = with_values(function).with_(name=f"{_OWN}{digest}", recipe=plain_text(function.text))
    register(own, replace=True)
    return Choice(name=own.name, label=label, learn=learned)


class ReportingWatch:
    """Watches a trial for the page: sends the curves of each epoch, and passes a wish to stop on."""

    def __init__(self, inner: Any, trial: Any, pipe: Connection) -> None:
        self._inner, self._trial, self._pipe = inner, trial, pipe

    def step(self) -> None:
        from ...lab.studies.running import Interrupted

        if self._pipe.poll():
            raise Interrupted("The trial was stopped from the page.")
        self._inner.step()

    def epoch(self, done: int, total: int, save: Any) -> None:
        from ...lab.studies.running.training import unpack

        curves = unpack(save(), of=self._trial.key)["progress"]["curves"]
        last = {}
        for name, rows in curves.items():
            there = [value for value in rows[-1] if value is not None] if rows else []
            last |= {name: sum(there) / len(there) if there else None} if rows else {}
        self._pipe.send({"kind": "epoch", "label": self._trial.activation.label, "epoch": done, "of": total, **last})
        self._inner.epoch(done, total, save)


class _Display:
    """Sends the progress of a study as events."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def line(self, text: str) -> None:
        self._pipe.send({"kind": "line", "text": text})

    def status(self, status: Any) -> None:
        self._pipe.send({"kind": "status", "text": status.text(), "share": status.share, "label": status.label})

    def close(self) -> None:
        pass


def train(pipe: Connection, query: dict[str, Any], name: str, place: str, threads: int) -> None:
    """The life of the process: train, write the report, send how it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends this process itself
    if hasattr(os, "nice"):
        os.nice(8)  # the page comes first
    import torch

    from ...lab.studies.engine import StudyStopped
    from ...lab.studies.reporting import check_tools, write_report_into
    from ...lab.studies.runner import run_study
    from ...lab.studies.running import run_trial
    from ...lab.studies.store import RunStore

    torch.set_num_threads(threads)

    def run_and_report(trial: Any, *, watch: Any, **rest: Any) -> Any:
        keep_functions(recipe, Path(place))
        return run_trial(trial, watch=ReportingWatch(watch, trial, pipe), **rest)

    stopped, command = False, "softknee workbench"
    try:
        check_tools()
        recipe = recipe_for(query, name=name)
        labels = [choice.title for choice in recipe.activations]
        settings = {"seeds": recipe.seeds.count, "epochs": recipe.training.epochs}
        pipe.send({"kind": "plan", "labels": labels, **settings})
        try:
            run_study(recipe, out=place, resume=True, command=command, display=_Display(pipe), run_trial=run_and_report)
        except StudyStopped:
            stopped = True
        pipe.send({"kind": "status", "text": "Writing the report …", "share": 1.0, "label": ""})
        write_report_into(RunStore(place), command=command)
    except SoftkneeError as error:
        message = "Stopped before the first function was trained." if stopped else str(error)
        pipe.send({"kind": "stopped" if stopped else "failed", "text": message, "report": False})
        return
    except OSError as error:  # a disk that is full, say
        message = f"{place} could not be written: {error.strerror or error}."
        pipe.send({"kind": "failed", "text": message, "report": False})
        return
    pipe.send({"kind": "stopped" if stopped else "finished", "text": "", "report": True})


MOST_AT_ONCE = 2
MOST_KEPT = 40
_PATIENCE = 8.0  # seconds from the wish to stop until the process is ended
_ID = re.compile(r"[0-9a-f]{12}")


class Run:
    """One training: its process, and its events so far."""

    def __init__(self, name: str, place: Path, query: dict[str, Any], threads: int) -> None:
        self.place = place
        self.events: list[dict[str, Any]] = []
        self._wanted_to_stop = False
        started = context()
        self._pipe, theirs = started.Pipe()
        arguments = (theirs, query, f"workbench-{name}", str(place), threads)
        self._process = started.Process(target=train, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        try:
            while True:
                self.events.append(self._pipe.recv())
        except (EOFError, OSError):
            pass
        self._process.join(10)
        if self.ended is None:
            kind = "stopped" if self._wanted_to_stop else "failed"
            message = "" if self._wanted_to_stop else "The training ended early, perhaps for want of memory."
            self.events.append({"kind": kind, "text": message, "report": False})

    @property
    def ended(self) -> str | None:
        """How it ended: "finished", "stopped" or "failed"; None while it runs."""
        last = self.events[-1]["kind"] if self.events else None
        return last if last in ("finished", "stopped", "failed") else None

    def stop(self) -> None:
        """Ask it to stop after the current step; end it if it does not."""
        if self.ended is not None or self._wanted_to_stop:
            return
        self._wanted_to_stop = True
        try:
            self._pipe.send("stop")
        except OSError:
            return
        threading.Thread(target=self._insist, daemon=True).start()

    def _insist(self) -> None:
        self._listener.join(_PATIENCE)
        if self.ended is None:
            self._process.kill()

    def kill(self) -> None:
        """End it now."""
        self._wanted_to_stop = True
        self._process.kill()
        self._process.join(5)


class Runs:
    """All runs of this server, by their names; the folders stay when it ends."""

    def __init__(self, folder: Path, *, threads: int) -> None:
        self._folder, self._threads = folder, threads
        self._runs: dict[str, Run] = {}

    def begin(self, query: dict[str, Any]) -> str:
        """Start a run; its name."""
        if sum(run.ended is None for run in self._runs.values()) >= MOST_AT_ONCE:
            raise ParameterError(
                f"{MOST_AT_ONCE} trainings are running here already; stop one, or wait until one has ended."
            )
        self._check_folder()
        name = secrets.token_hex(6)
        for old in [name for name, run in self._runs.items() if run.ended is not None][: -MOST_KEPT or None]:
            del self._runs[old]
        self._runs[name] = Run(name, self.place(name), query, self._threads)
        return name

    def _check_folder(self) -> None:
        """Raise where no training could be kept; it would train first and fail afterwards."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            reason = "" if os.access(self._folder, os.W_OK) else "it may not be written to"
        except OSError as error:
            reason = error.strerror or str(error)
        if reason:
            raise ParameterError(
                f"Trainings are kept in {str(self._folder)!r}, which cannot be used: {reason}. Start the workbench "
                "with another folder: softknee workbench --out FOLDER"
            )

    def place(self, name: str) -> Path:
        """The folder of a run, which need not exist; a malformed name is refused."""
        if not _ID.fullmatch(name):
            raise ParameterError("There is no such training.")
        return self._folder / f"workbench-{name}"

    def state(self, name: str, *, after: int) -> dict[str, Any]:
        """The events since that number; of a run of an earlier server only how it ended."""
        run, place = self._runs.get(name), self.place(name)
        if run is not None:
            events = run.events[max(after, 0) :]
            return {"events": events, "next": max(after, 0) + len(events), "ended": run.ended}
        if (place / "report" / "index.html").is_file():
            events = [{"kind": "finished", "text": "", "report": True}] if after < 1 else []
            return {"events": events, "next": 1, "ended": "finished"}
        raise ParameterError("There is no such training here; it may have been on another machine.")

    def stop(self, name: str) -> None:
        run = self._runs.get(name)
        if run is None:
            raise ParameterError("There is no such training here; it may have been on another machine.")
        run.stop()

    def close(self) -> None:
        """End every run; what was finished is in its folder."""
        for run in self._runs.values():
            if run.ended is None:
                run.kill()
