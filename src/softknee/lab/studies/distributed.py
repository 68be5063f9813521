"""A study in the processes that torchrun started: the main one runs it and keeps its store, the others follow.

    torchrun --nproc-per-node 2 -m softknee study my.yaml        with  training: {engine: loop, strategy: ddp}

The main process is a study like any other; its trials are run by all of them. It alone has the lock, writes, shows
progress and hears Ctrl-C. What it decides on the way, the others are told: to begin a trial, to save, to stop.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from ...errors import ParameterError, SoftkneeError
from ...train import parallel
from .engine import SIGNALS, StudyStopped, plain_path
from .examples import Examples, recipe_examples
from .recipe import Recipe
from .runner import run_study
from .running import Interrupted, run_trial
from .running.training import QUIET, Save, Watch
from .trial import Trial
from .trials import Finished, Outcome

_GO, _SAVE, _STOP, _END = "go on", "save", "stop", "end"


def run_distributed(
    recipe: Recipe,
    *,
    out: str | os.PathLike[str],
    data_folder: str | os.PathLike[str] | None = None,
    base: str | os.PathLike[str] | None = None,
    **options: Any,
) -> list[Outcome] | None:
    """`run_study` with its arguments, by all processes together; the outcomes in the main one, None in the others.

    In a process that was started alone it is `run_study` itself.
    """
    where: dict[str, Any] = {"data_folder": data_folder, "base": base}
    if parallel.world() == 1 and recipe.training.strategy == "none":
        return run_study(recipe, out=out, **where, **options)
    if recipe.training.strategy == "none":
        raise ParameterError(
            f"{parallel.world()} processes were started, and the recipe trains in one: set training.engine to loop and "
            "training.strategy to ddp or fsdp2, or start softknee without torchrun."
        )
    if options.get("engine", "local") != "local":
        raise ParameterError("Under torchrun the engine is 'local': the processes are there already.")
    fabric = parallel.join(recipe.training.strategy, recipe.device)
    if not fabric.is_global_zero:
        _follow(fabric, recipe_examples(recipe, folder=data_folder, base=plain_path(base)), where)
        return None
    if options.get("command", "").startswith("softknee "):  # what a record says, and how to go on
        processes = os.environ.get("LOCAL_WORLD_SIZE", parallel.world())
        options["command"] = f"torchrun --nproc-per-node {processes} -m {options['command']}"
    try:
        outcomes = run_study(recipe, out=out, **where, **options, run_trial=partial(_lead, fabric))
    except (SoftkneeError, StudyStopped):
        fabric.broadcast(_END)
        raise
    fabric.broadcast(_END)
    return outcomes


# -- the main process -------------------------------------------------------------------------------------


def _lead(fabric: Any, trial: Trial, *, saved: bytes | None = None, watch: Watch = QUIET, **others: Any) -> Finished:
    """`run_trial`, after telling the others to run it, too. Times are measured by the main process alone."""
    if trial.kind == "cost":
        return run_trial(trial, saved=saved, watch=watch, **others)
    fabric.broadcast({"trial": trial.plain(), "saved": saved, "threads": torch.get_num_threads()})
    return run_trial(trial, saved=saved, watch=_Leading(fabric, watch), **others)


class _Leading:
    """Tells the others what the watch of the main process does."""

    def __init__(self, fabric: Any, watch: Watch) -> None:
        self._fabric, self._watch = fabric, watch

    def step(self) -> None:
        try:
            self._watch.step()
        except BaseException:
            _any(self._fabric, True)
            raise
        _any(self._fabric, False)

    def epoch(self, done: int, total: int, save: Save) -> None:
        def save_together() -> bytes:
            self._fabric.broadcast(_SAVE)
            return save()

        try:
            self._watch.epoch(done, total, save_together)
        except BaseException:
            self._fabric.broadcast(_STOP)
            raise
        self._fabric.broadcast(_GO)


def _any(fabric: Any, flag: bool) -> bool:
    """Whether the flag is true in any process; quicker than a broadcast, for every step asks."""
    return bool(fabric.all_reduce(torch.tensor(int(flag), device=fabric.device), reduce_op="sum"))


# -- the others -------------------------------------------------------------------------------------------


def _follow(fabric: Any, examples: Examples, where: Mapping[str, Any]) -> None:
    """Run every trial that the main process begins, until it is done."""
    with _deaf_to_interrupts():
        while (order := fabric.broadcast(None)) != _END:
            torch.set_num_threads(order["threads"])
            trial = Trial.read(order["trial"])
            try:
                run_trial(trial, examples=examples, saved=order["saved"], watch=_Following(fabric), **where)
            except SoftkneeError:
                continue  # the main process has the same and says so, or it was told to stop


class _Following:
    """Does what the main process's watch does, and shows nothing."""

    def __init__(self, fabric: Any) -> None:
        self._fabric = fabric

    def step(self) -> None:
        if _any(self._fabric, False):
            raise Interrupted("The main process stopped after this step.")

    def epoch(self, done: int, total: int, save: Save) -> None:
        while (word := self._fabric.broadcast(None)) == _SAVE:
            save()  # all processes gather the state together
        if word == _STOP:
            raise Interrupted("The main process stopped after this epoch.")


@contextmanager
def _deaf_to_interrupts() -> Any:
    """Ctrl-C and SIGHUP reach every process of a terminal; the main one decides when all of them stop."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # Not SIGTERM: it comes to one process, and is how a launcher ends those that are left.
    numbers = [number for number in SIGNALS if number != signal.SIGTERM]
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
