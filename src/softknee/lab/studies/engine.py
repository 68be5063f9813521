"""Runs trials: what an engine is given and gives back, and the engine of this machine."""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from types import FrameType
from typing import Any, Protocol, TextIO

import torch
from torch import Tensor

from ...errors import InputError, SoftkneeError, need_package
from ...measure.record import Record
from ..table import duration
from .examples import Examples
from .fitting import fit, to_plain
from .recipe import Data, LanguageTask, Model
from .running import Interrupted, SavedError
from .running.training import Save, read_tensors, write_tensors
from .store import RunStore
from .texts import Texts, load_texts
from .trial import Trial
from .trials import Finished

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
    overhead = _BESIDE_SEEDS if trial.training.engine == "replicas" else 0
    return trial.training.epochs * (trial.seeds.count + overhead)


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
    """Where a study stands. `left` is in seconds, None as long as it is not known; `share` of the work is in [0, 1].

    unit: what `epoch` and `epochs` count: a language model is trained by steps.
    """

    number: int
    count: int
    label: str
    epoch: int | None
    epochs: int
    unit: str
    elapsed: float
    left: float | None
    share: float

    def text(self, result: str = "") -> str:
        """The status as one line, with what else there is to say."""
        epochs = "" if self.epoch is None else f", {self.unit} {self.epoch} of {self.epochs}"
        return f"[{self.number}/{self.count}] {self.label}{epochs}{f': {result}' if result else ''}; {self.times()}"

    def times(self) -> str:
        left = "" if self.left is None else f", about {duration(self.left)} left"
        return f"{duration(self.elapsed)} so far{left}"


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
        self._display.status(self._status(trial, key, done, total))

    def end(self, trial: Trial, *, result: str = "") -> None:
        """A trial has come to its end."""
        key = trial.key
        self._done[key] = self._work.get(key, 0.0)
        self._display.line(self._status(trial, key, None).text(result))

    def note(self, text: str) -> None:
        self._display.line(text)

    def close(self) -> None:
        self._display.close()

    def left(self) -> float | None:
        """The seconds left for the whole study; None before the first epoch, and after the last."""
        done = sum(self._done.values())
        total = sum(work for key, work in self._work.items() if key not in self._before)
        return (self._now() - self._start) / done * (total - done) if 0 < done < total else None

    def _status(self, trial: Trial, key: str, epoch: int | None, epochs: int = 0) -> Status:
        total = sum(work for other, work in self._work.items() if other not in self._before)
        return Status(
            number=self._order.index(key) + 1 if key in self._order else len(self._order),
            count=len(self._order),
            label=label_of(trial),
            epoch=epoch,
            epochs=epochs,
            unit="step" if isinstance(trial.task, LanguageTask) else "epoch",
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
        epochs = "" if status.epoch is None else f", {status.unit} {status.epoch}/{status.epochs}"
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


RunTrial = Callable[..., Finished]
_SAVING_SHARE = 0.02  # of the time may go into snapshots that are only for the case of a Ctrl-C


Done = tuple[Trial, Record, Mapping[str, bytes]]  # a trial that came to its end, with what the store keeps of it


@dataclass(kw_only=True)
class Engine(ABC):
    """Runs trials in any order and gives each back when it is done.

    run_trial: called as `running.run_trial` is.
    threads:   of torch on a CPU.
    teachers:  the weights of networks that others learn from, by the key of their trial; they come as trials end.
    """

    store: RunStore
    examples: Examples | Texts
    progress: Progress
    stopping: Stopping
    run_trial: RunTrial
    data_folder: str | None
    base: str | None
    command: str
    git: Mapping[str, Any] | None
    threads: int
    save_every: float
    teachers: dict[str, bytes] = field(default_factory=dict)

    @abstractmethod
    def run(self, trials: Sequence[Trial]) -> Iterator[Done]: ...

    def close(self) -> None:  # noqa: B027 - there may be nothing
        """Give back what the engine has taken."""

    def arguments(self, trial: Trial) -> dict[str, Any]:
        """What `run_trial` is given, beside the examples and the state to go on from."""
        teacher = {"teacher": self.teachers[trial.teacher]} if trial.teacher else {}
        return {"data_folder": self.data_folder, "base": self.base, **teacher}


class LocalEngine(Engine):
    """One trial after the other in this process; its state is kept at the ends of epochs, and gone on from."""

    def run(self, trials: Sequence[Trial]) -> Iterator[Done]:
        for trial in trials:
            self.progress.begin(trial)
            try:
                finished = self._run(trial, self.store.state(trial.key))
            except SavedError as error:
                self.progress.note(f"{error} ({trial.key})")
                self.store.drop_state(trial.key)
                finished = self._run(trial, None)
            record = finished.outcome.record(command=self.command, git=self.git)
            yield trial, record, finished.files
            if self.stopping.asked:
                raise Interrupted("The study was stopped between two trials.")

    def _run(self, trial: Trial, saved: bytes | None) -> Finished:
        keeper = StateKeeper(
            trial, store=self.store, progress=self.progress, stopping=self.stopping, every=self.save_every
        )
        try:
            return self.run_trial(trial, examples=self.examples, saved=saved, watch=keeper, **self.arguments(trial))
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
        now: Any = time.monotonic,
    ) -> None:
        self._trial, self._store, self._progress, self._stopping = trial, store, progress, stopping
        self._every, self._now = every, now
        self._written = self._taken = now()
        self._cost = 0.0
        self._snapshot: bytes | None = None
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


_RETRIES = 5  # times that a trial whose worker or node was lost is run again
_SECONDS_BETWEEN_LOOKS = 0.5  # at Ctrl-C
_SECONDS_TO_ANSWER = 10.0
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported to anybody
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # what Ray will do by default soon, and warns about until then
}


class ClusterError(SoftkneeError, RuntimeError):
    """The Ray cluster cannot be reached, or a trial failed on it."""


@dataclass(kw_only=True)
class RayEngine(Engine):
    """Runs trials as Ray tasks."""

    def __post_init__(self) -> None:
        self._ray, self._connected_here = self.connect()
        self._packed = self._ray.put(pack_examples(self.examples))

    @staticmethod
    def connect() -> tuple[Any, bool]:
        """Ray, connected to its cluster; and whether that was done here."""
        ray = _ray()
        if ray.is_initialized():
            return ray, False
        try:
            # Where nobody answers that is known at once; Ray itself would go on trying for minutes.
            host, colon, port = os.environ.get("RAY_ADDRESS", "").removeprefix("ray://").rpartition(":")
            if colon and port.isdecimal():
                socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS_TO_ANSWER).close()
            ray.init(log_to_driver=False, logging_level="ERROR")
        except Exception as error:  # Ray has many kinds of its own for what may be wrong here
            raise ClusterError(
                f"No Ray cluster could be used ({str(error).strip()}). Check RAY_ADDRESS and that the cluster "
                "runs; without RAY_ADDRESS, Ray is started on this machine."
            ) from error
        return ray, True

    def run(self, trials: Sequence[Trial]) -> Iterator[Done]:
        pending = {self._send(trial): trial for trial in trials}
        # A trial that no node has room for waits for one: that may be meant, and should be known.
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        for cpus, gpus in {self._needs(trial) for trial in trials}:
            if not any(node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= gpus for node in nodes):
                self.progress.note(f"No node of the Ray cluster has {cpus} CPUs and {gpus} GPUs; trials wait for one.")
        try:
            while pending:
                if self.stopping.asked:
                    raise Interrupted("The study was stopped; what ran on the cluster is given up.")
                self.progress.begin(next(iter(pending.values())))
                ready, _ = self._ray.wait(list(pending), num_returns=1, timeout=_SECONDS_BETWEEN_LOOKS)
                for reference in ready:
                    yield self._received(reference, pending.pop(reference))
        finally:
            for reference in pending:
                self._ray.cancel(reference, force=True)

    def close(self) -> None:
        if self._connected_here:
            self._ray.shutdown()

    def _send(self, trial: Trial) -> Any:
        order = {
            "trial": trial.plain(),
            "run": f"{self.run_trial.__module__}:{self.run_trial.__qualname__}",
            "arguments": self.arguments(trial),
            "command": self.command,
            "git": None if self.git is None else dict(self.git),
            "threads": self.threads,
            "saved": self.store.state(trial.key),
        }
        cpus, gpus = self._needs(trial)
        task = self._ray.remote(max_retries=_RETRIES, num_cpus=cpus, num_gpus=gpus)(run_order)
        return task.options(name=f"softknee {trial.key}").remote(order, self._packed)

    def _received(self, reference: Any, trial: Trial) -> Done:
        try:
            answer: Mapping[str, Any] = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError:
            raise  # an error of ours, with its traceback on the worker
        except self._ray.exceptions.RayError as error:
            raise ClusterError(
                f"The trial {trial.key} was lost on the Ray cluster, also when it ran again ({type(error).__name__}). "
                "Look for nodes that are short of memory; --resume goes on with what is not finished."
            ) from error
        if "error" in answer:
            raise ClusterError(f"The trial {trial.key} failed on the Ray cluster: {answer['error']}")
        record = Record.from_json(answer["record"], source=f"The answer for the trial {trial.key}")
        return trial, record, answer["files"]

    def _needs(self, trial: Trial) -> tuple[int, int]:
        return self.threads, int(trial.device.startswith("cuda"))


def run_order(order: Mapping[str, Any], packed: Mapping[str, bytes]) -> dict[str, Any]:
    """What a worker does: it runs the trial and returns its record and files, or the sentence of what was wrong."""
    torch.set_num_threads(order["threads"])
    module, _, name = order["run"].partition(":")
    run_trial = getattr(importlib.import_module(module), name)
    given = {"examples": unpack_examples(packed), **order["arguments"]}
    try:
        trial = Trial.read(order["trial"])
        try:
            finished = run_trial(trial, **given, saved=order["saved"])
        except SavedError:
            finished = run_trial(trial, **given, saved=None)
        record = finished.outcome.record(command=order["command"], git=order["git"])
    except SoftkneeError as error:
        return {"error": str(error)}
    return {"record": record.to_json(), "files": {name: bytes(content) for name, content in finished.files.items()}}


def pack_examples(examples: Examples | Texts) -> dict[str, bytes]:
    """Examples as bytes: their tensors, and the rest as JSON. Texts are loaded again where they arrive."""
    if isinstance(examples, Texts):
        origin = {name: to_plain(getattr(examples, name)) for name in (*_TEXTS, "folder", "base")}
        return {"texts": json.dumps(origin).encode()}
    if examples.on_disk:
        raise InputError(
            f"--engine ray sends the examples to its workers, and those of {examples.name} are read from a disk. Leave "
            "--engine ray out; or take a part of them, which is in memory: --set data.limit=N."
        )
    every = {item.name: getattr(examples, item.name) for item in fields(examples)}
    tensors = {name: value for name, value in every.items() if isinstance(value, Tensor)}
    rest = {name: value for name, value in every.items() if name not in tensors}
    return {"tensors": write_tensors(tensors), "rest": json.dumps(rest).encode()}


_TEXTS = {"data": Data, "task": LanguageTask, "model": Model}


def unpack_examples(packed: Mapping[str, bytes]) -> Examples | Texts:
    """What `pack_examples` was given."""
    if "texts" in packed:
        origin = json.loads(packed["texts"])
        return load_texts(**origin | {name: fit(origin[name], kind, name) for name, kind in _TEXTS.items()})
    rest = json.loads(packed["rest"])
    plain: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in rest.items()}
    return Examples(**read_tensors(packed["tensors"]), **plain)


def _ray() -> Any:
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    ray = need_package("ray", "--engine ray needs the package 'ray'", "cluster")
    importlib.import_module("ray.exceptions")
    return ray


SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class StudyStopped(KeyboardInterrupt):
    """A study was stopped by a signal; what it had finished is kept, and the message says how to go on.

    number: of the signal.
    """

    def __init__(self, message: str, number: int = signal.SIGINT) -> None:
        super().__init__(message)
        self.number = number


class Stopping:
    """While it is entered, Ctrl-C, SIGTERM and SIGHUP set `asked`, and `number` says which of them it was.

    In a thread other than the main one a signal stays as it is, and so does one that is ignored: SIGINT of a job in the
    background, SIGHUP under nohup.

    >>> import signal
    >>> with Stopping() as stopping:
    ...     signal.raise_signal(signal.SIGTERM)
    ...     stopping.asked, stopping.number == signal.SIGTERM
    (True, True)
    """

    def __init__(self) -> None:
        self.asked = False
        self.number: int = signal.SIGINT
        self._process = os.getpid()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stopping:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                # None: a handler of another language, which could not be put back.
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.asked and self.number != signal.SIGINT:
            _leave_closed_outputs()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a child of a fork, which SIGTERM should end
            signal.signal(number, self._before[number])
            signal.raise_signal(number)
            return
        if self.asked:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return  # a terminal that closes may send SIGHUP twice, and a queue SIGTERM as often as it likes
        self.asked, self.number = True, number
        how = "; press Ctrl-C once more to stop at once" if number == signal.SIGINT else ""
        # Not through Python's streams: the signal may have come in the middle of a write to one of them.
        with suppress(OSError):
            os.write(2, f"\nStopping after this step{how}.\n".encode())
        _leave_closed_outputs()


def _leave_closed_outputs() -> None:
    """Where the terminal is gone, writing to it is an error, which would end the study before its state is kept."""
    if not hasattr(select, "poll"):
        return
    for output in (1, 2):
        poll = select.poll()
        poll.register(output, select.POLLOUT)
        gone = any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
        if gone:
            with suppress(OSError), open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), output)
