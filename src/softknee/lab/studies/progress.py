"""Says how far a study is: which trial, which epoch, and the time left for all of it.

The time left follows from the work done so far in this run. The work of a trial is its epochs times its seeds, where
all seeds trained at once cost as much as one and some more: a step of M replicas takes about as long as M + 4 shares of
itself (measured: 12 take 2.7 times as long as one on a GPU, 3 to 4 times on a CPU). Before the first epoch nothing is
known, and nothing is said.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from .trial import Trial

_BESIDE_SEEDS = 4
_SECONDS_BETWEEN_LINES = 30.0


def work_of(trial: Trial) -> float:
    """How much there is to do, in epochs of one seed; a cost trial has no epochs, and is not counted.

    >>> from softknee.lab.studies.recipe import Data, Model, Seeds, Training
    >>> trial = Trial(kind="train", activations=(), data=Data(), fingerprint="", model=Model(),
    ...               training=Training(epochs=10), seeds=Seeds(count=12))
    >>> work_of(trial)
    160
    """
    if trial.kind == "cost":
        return 0
    beside = _BESIDE_SEEDS if trial.training.engine == "replicas" else 0
    return trial.training.epochs * (trial.seeds.count + beside)


def label_of(trial: Trial) -> str:
    """What a trial is called on the screen.

    >>> from softknee.lab.studies.recipe import Data, Model, Seeds, Training
    >>> label_of(Trial(kind="cost", activations=(), data=Data(), fingerprint="", model=Model(), training=Training(),
    ...                seeds=Seeds()))
    'cost of every activation'
    """
    if trial.kind == "cost":
        return "cost of every activation"
    if trial.kind == "tune":
        training = trial.training
        return f"{trial.activation.label}, tuning: rate {training.learning_rate:g}, decay {training.weight_decay:g}"
    return trial.activation.label


@dataclass(frozen=True, kw_only=True)
class Status:
    """Where a study stands. `left` is in seconds, None as long as it is not known; `share` of the work is in [0, 1]."""

    number: int
    count: int
    label: str
    epoch: int | None
    epochs: int
    elapsed: float
    left: float | None
    share: float

    def text(self, said: str = "") -> str:
        """The status as one line, with what else there is to say."""
        epochs = "" if self.epoch is None else f", epoch {self.epoch} of {self.epochs}"
        return f"[{self.number}/{self.count}] {self.label}{epochs}{f': {said}' if said else ''}; {self.times()}"

    def times(self) -> str:
        return f"{clock(self.elapsed)} so far" + ("" if self.left is None else f", about {clock(self.left)} left")


class Display(Protocol):
    """Where progress is shown: lines that stay, and a status that the next one replaces."""

    def line(self, text: str) -> None: ...

    def status(self, status: Status) -> None: ...

    def close(self) -> None: ...


class Progress:
    """Counts the work of a study and tells the display. Trials may run one after the other or at the same time."""

    def __init__(self, display: Display, *, now: Callable[[], float] = time.monotonic) -> None:
        self._display, self._now = display, now
        self._start = now()
        self._work: dict[str, float] = {}
        self._done: dict[str, float] = {}  # in this run
        self._before: set[str] = set()  # finished in an earlier run
        self._order: list[str] = []

    def plan(self, trials: Sequence[Trial]) -> None:
        """All trials of the study, as far as they are known; may be told again when they are known better."""
        self._work = {trial.key: work_of(trial) for trial in trials}
        self._order = list(self._work)
        self._done = {key: done for key, done in self._done.items() if key in self._work}

    def found(self, trial: Trial) -> None:
        """A trial was finished in an earlier run."""
        self._before.add(trial.key)

    def begin(self, trial: Trial) -> None:
        self._display.status(self._status(trial, trial.key, None))

    def epoch(self, trial: Trial, done: int, total: int, *, first: int = 0) -> None:
        """So many epochs are done, the first ones of them in an earlier run."""
        key = trial.key  # a hash that is computed each time
        work = self._work.get(key, 0.0)
        if first:
            # What an earlier run has done is no work of this one.
            self._work[key] = work = work_of(trial) * (total - first) / total
        self._done[key] = work * (done - first) / max(1, total - first)
        self._display.status(self._status(trial, key, done))

    def end(self, trial: Trial, *, said: str = "") -> None:
        """A trial has come to its end."""
        key = trial.key
        self._done[key] = self._work.get(key, 0.0)
        self._display.line(self._status(trial, key, None).text(said))

    def note(self, text: str) -> None:
        self._display.line(text)

    def close(self) -> None:
        self._display.close()

    def left(self) -> float | None:
        """The seconds left for the whole study; None before the first epoch, and after the last."""
        done = sum(self._done.values())
        total = sum(work for key, work in self._work.items() if key not in self._before)
        return (self._now() - self._start) / done * (total - done) if 0 < done < total else None

    def _status(self, trial: Trial, key: str, epoch: int | None) -> Status:
        total = sum(work for one, work in self._work.items() if one not in self._before)
        return Status(
            number=self._order.index(key) + 1 if key in self._order else len(self._order),
            count=len(self._order),
            label=label_of(trial),
            epoch=epoch,
            epochs=trial.training.epochs,
            elapsed=self._now() - self._start,
            left=self.left(),
            share=sum(self._done.values()) / total if total else 1.0,
        )


class PlainDisplay:
    """Lines of text, for a file or a pipe: one for each finished trial, and one every half minute within a long one."""

    def __init__(self, stream: TextIO | None = None, *, now: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._now = stream or sys.stderr, now
        self._last = now()

    def line(self, text: str) -> None:
        self._last = self._now()
        self._stream.write(text + "\n")
        self._stream.flush()

    def status(self, status: Status) -> None:
        if self._now() - self._last >= _SECONDS_BETWEEN_LINES:
            self.line(status.text())

    def close(self) -> None:
        pass


class RichDisplay:
    """A bar for the whole study on a terminal, with finished trials as lines above it."""

    def __init__(self, console: Any) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
        self._bar = Progress(*columns, TextColumn("{task.fields[times]}"), console=console, transient=True)
        self._task = self._bar.add_task("preparing", total=1.0, times="")
        self._bar.start()

    def line(self, text: str) -> None:
        from rich.text import Text

        self._bar.console.print(Text(text))  # Text: the brackets of [1/7] would be read as markup

    def status(self, status: Status) -> None:
        epochs = "" if status.epoch is None else f", epoch {status.epoch}/{status.epochs}"
        described = f"\\[{status.number}/{status.count}] {status.label}{epochs}"
        self._bar.update(self._task, description=described, completed=status.share, times=status.times())

    def close(self) -> None:
        self._bar.stop()


def display_here() -> Display:
    """A bar where stderr is a terminal and rich is installed, else plain lines."""
    if sys.stderr.isatty():
        try:
            from rich.console import Console
        except ModuleNotFoundError:
            return PlainDisplay()
        return RichDisplay(Console(stderr=True, highlight=False))
    return PlainDisplay()


def clock(seconds: float) -> str:
    """A duration as a person reads it.

    >>> clock(4.2), clock(42), clock(75), clock(7300)
    ('4.2 s', '42 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
