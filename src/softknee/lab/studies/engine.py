"""Runs trials: what an engine is given and gives back, and the engine of this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...measure.record import Record
from .examples import Examples
from .outcome import Finished
from .progress import Progress
from .running import Interrupted, SavedError
from .running.watch import Save
from .stopping import Stopping
from .store import RunStore
from .trial import Trial

RunTrial = Callable[..., Finished]
_SAVING_SHARE = 0.02  # of the time may go into snapshots that are only for the case of a Ctrl-C


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What trials are run with, the same for all of them.

    run_trial: called as `running.run_trial` is.
    threads:   of torch on a CPU.
    """

    run_trial: RunTrial
    data_folder: str | None
    base: str | None
    command: str
    git: Mapping[str, Any] | None
    threads: int
    save_every: float = 20.0


@dataclass(frozen=True, kw_only=True)
class Done:
    """A trial that came to its end, as the store keeps it."""

    trial: Trial
    record: Record
    files: Mapping[str, bytes]


class Engine(Protocol):
    """Runs trials in any order and gives each back when it is done."""

    def run(self, trials: Sequence[Trial]) -> Iterator[Done]: ...

    def close(self) -> None: ...


class LocalEngine:
    """One trial after the other in this process; its state is kept at the ends of epochs, and gone on from."""

    def __init__(
        self, around: Surroundings, *, examples: Examples, store: RunStore, progress: Progress, stopping: Stopping
    ) -> None:
        self._around, self._store, self._progress, self._stopping = around, store, progress, stopping
        self._examples = examples

    def run(self, trials: Sequence[Trial]) -> Iterator[Done]:
        for trial in trials:
            self._progress.begin(trial)
            finished = self._one(trial)
            record = finished.outcome.record(command=self._around.command, git=self._around.git)
            yield Done(trial=trial, record=record, files=finished.files)
            if self._stopping.asked:
                raise Interrupted("The study was stopped between two trials.")

    def close(self) -> None:
        pass

    def _one(self, trial: Trial) -> Finished:
        saved = self._store.state(trial.key)
        try:
            return self._from(trial, saved)
        except SavedError as error:
            self._progress.note(f"{error} ({trial.key})")
            self._store.drop_state(trial.key)
            return self._from(trial, None)

    def _from(self, trial: Trial, saved: Mapping[str, bytes] | None) -> Finished:
        keeper = StateKeeper(
            trial, store=self._store, progress=self._progress, stopping=self._stopping, every=self._around.save_every
        )
        try:
            return self._around.run_trial(
                trial,
                examples=self._examples,
                data_folder=self._around.data_folder,
                base=self._around.base,
                saved=saved,
                watch=keeper,
            )
        except Interrupted:
            keeper.keep()
            raise


class StateKeeper:
    """Looks on while a trial runs: tells the progress, keeps the state, and passes Ctrl-C on.

    The state is written to the store at most every so many seconds. Between, snapshots at the ends of epochs stay in
    memory, as often as they cost little time: the last of them is what a stopped trial goes on from.
    """

    def __init__(
        self,
        trial: Trial,
        *,
        store: RunStore,
        progress: Progress,
        stopping: Stopping,
        every: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trial, self._store, self._progress, self._stopping = trial, store, progress, stopping
        self._every, self._now = every, now
        self._written = self._taken = now()
        self._cost = 0.0
        self._snapshot: Mapping[str, bytes] | None = None
        self._first: int | None = None

    def step(self) -> None:
        if self._stopping.asked:
            raise Interrupted("The trial was stopped after a step.")

    def epoch(self, done: int, total: int, save: Save) -> None:
        if self._first is None:
            self._first = done - 1
        self._progress.epoch(self._trial, done, total, first=self._first)
        if done == total:
            return  # what follows is measuring, and then the record
        # The state of a large model takes seconds to write: then it is written as rarely as it takes long.
        due = self._now() - self._written >= max(self._every, self._cost / _SAVING_SHARE)
        start = self._now()
        if due or self._stopping.asked or start - self._taken >= self._cost / _SAVING_SHARE:
            self._snapshot = save()
            self._taken = self._now()
            self._cost = self._taken - start
        if due:
            self.keep()
            self._cost = self._now() - start
        if self._stopping.asked:
            raise Interrupted("The trial was stopped after an epoch.")

    def keep(self) -> None:
        """Write the last snapshot to the store."""
        if self._snapshot is not None:
            self._store.save_state(self._trial.key, self._snapshot)
            self._snapshot, self._written = None, self._now()


def plain_path(path: str | os.PathLike[str] | None) -> str | None:
    """A path as text, absolute, so that it means the same to another process."""
    return None if path is None else os.path.abspath(path)
