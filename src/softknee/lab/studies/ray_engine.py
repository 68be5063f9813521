"""Trials on a Ray cluster: the same trials, the same results, wherever they run.

The cluster is the one that Ray's own settings name (RAY_ADDRESS, or one that was started on this machine with `ray
start`); where there is none, Ray is started here for the time of the study. The trials of a stage are all handed to
Ray, which runs as many at once as there are resources for: a trial takes as many CPUs as the study has threads, and one
GPU where its device is one. A trial whose worker or node is lost runs again. Only the process that the study was
started in writes to the store, once for each trial, so that nothing is lost or doubled.

Plain mappings and bytes travel, the examples among them, and nothing else. Each node needs softknee, and a model of
your own at the same path, as on a shared disk. What a worker has done of an unfinished trial is not saved.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from ...errors import InputError, MissingToolError, SoftkneeError
from ...measure.record import Record
from .engine import Done, Surroundings
from .examples import Examples
from .progress import Progress
from .running import Interrupted, SavedError
from .running.saving import read_tensors, write_tensors
from .stopping import Stopping
from .store import RunStore
from .trial import Trial

_RETRIES = 5  # times that a trial whose worker or node was lost is run again
_SECONDS_BETWEEN_LOOKS = 0.5  # at Ctrl-C
_SECONDS_TO_ANSWER = 10.0
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported to anybody
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # what Ray will do by default soon, and warns about until then
}


class ClusterError(SoftkneeError, RuntimeError):
    """The Ray cluster cannot be reached, or a trial failed on it."""


class RayEngine:
    """Runs trials as Ray tasks."""

    def __init__(
        self, around: Surroundings, *, examples: Examples, store: RunStore, progress: Progress, stopping: Stopping
    ) -> None:
        self._ray = _ray()
        self._around, self._store, self._progress, self._stopping = around, store, progress, stopping
        self._connected_here = not self._ray.is_initialized()
        if self._connected_here:
            try:
                _reach(os.environ.get("RAY_ADDRESS", ""))
                self._ray.init(log_to_driver=False, logging_level="ERROR")
            except Exception as error:  # Ray has many kinds of its own for what may be wrong here
                raise ClusterError(
                    f"No Ray cluster could be used ({str(error).strip()}). Check RAY_ADDRESS and that the cluster "
                    "runs; without RAY_ADDRESS, Ray is started on this machine."
                ) from error
        self._examples = self._ray.put(pack_examples(examples))

    def run(self, trials: Sequence[Trial]) -> Iterator[Done]:
        pending = {self._send(trial): trial for trial in trials}
        self._say_if_it_waits(trials)
        try:
            while pending:
                if self._stopping.asked:
                    raise Interrupted("The study was stopped; what ran on the cluster is given up.")
                self._progress.begin(next(iter(pending.values())))
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
        around = self._around
        order = {
            "trial": trial.plain(),
            "run": f"{around.run_trial.__module__}:{around.run_trial.__qualname__}",
            "data_folder": around.data_folder,
            "base": around.base,
            "command": around.command,
            "git": None if around.git is None else dict(around.git),
            "threads": around.threads,
            "saved": self._store.state(trial.key),
        }
        cpus, gpus = self._needs(trial)
        task = self._ray.remote(max_retries=_RETRIES, num_cpus=cpus, num_gpus=gpus)(run_order)
        return task.options(name=f"softknee {trial.key}").remote(order, self._examples)

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
        return Done(trial=trial, record=record, files=answer["files"])

    def _needs(self, trial: Trial) -> tuple[int, int]:
        return self._around.threads, int(trial.device.startswith("cuda"))

    def _say_if_it_waits(self, trials: Sequence[Trial]) -> None:
        """A trial that no node has room for waits for one: that may be meant, and should be known."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        for cpus, gpus in {self._needs(trial) for trial in trials}:
            if not any(node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= gpus for node in nodes):
                self._progress.note(f"No node of the Ray cluster has {cpus} CPUs and {gpus} GPUs; trials wait for one.")


def run_order(order: Mapping[str, Any], packed: Mapping[str, bytes]) -> dict[str, Any]:
    """What a worker does: it runs the trial and returns its record and files, or the sentence of what was wrong."""
    torch.set_num_threads(order["threads"])
    module, _, name = order["run"].partition(":")
    run_trial = getattr(importlib.import_module(module), name)
    given = {"examples": unpack_examples(packed), "data_folder": order["data_folder"], "base": order["base"]}
    try:
        trial = Trial.read(order["trial"])
        try:
            finished = run_trial(trial, **given, saved=order["saved"])
        except SavedError:
            finished = run_trial(trial, **given, saved=None)
        record = finished.outcome.record(command=order["command"], git=order["git"])
    except SoftkneeError as error:
        return {"error": str(error)}
    return {"record": record.to_json(), "files": {name: bytes(one) for name, one in finished.files.items()}}


def pack_examples(examples: Examples) -> dict[str, bytes]:
    """Examples as bytes: their tensors, and the rest as JSON."""
    if examples.on_disk:
        raise InputError(
            f"--engine ray sends the examples to its workers, and those of {examples.name} are read from a disk. Leave "
            "--engine ray out; or take a part of them, which is in memory: --set data.limit=N."
        )
    every = {one.name: getattr(examples, one.name) for one in fields(examples)}
    tensors = {name: one for name, one in every.items() if isinstance(one, Tensor)}
    rest = {name: one for name, one in every.items() if name not in tensors}
    return {"tensors": write_tensors(tensors), "rest": json.dumps(rest).encode()}


def unpack_examples(packed: Mapping[str, bytes]) -> Examples:
    """What `pack_examples` was given."""
    rest = json.loads(packed["rest"])
    settled: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in rest.items()}
    return Examples(**read_tensors(packed["tensors"]), **settled)


def _reach(address: str) -> None:
    """Raise an OSError at once where nobody answers at an address; Ray itself would go on trying for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS_TO_ANSWER).close()


def _ray() -> Any:
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.exceptions
    except ModuleNotFoundError as error:
        raise MissingToolError(
            "--engine ray needs the package 'ray', which is not installed. Install it with: "
            "pip install 'softknee[cluster]'"
        ) from error
    return ray
