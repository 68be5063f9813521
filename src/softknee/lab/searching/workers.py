"""What workers of a search do: prove candidates of one formula, and train them as one program.

A worker is a process here, or a task of Ray; it is told the recipe and the examples once.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from typing import Any

import torch
from torch import Tensor, nn

from ...design.entropic.densities import nearest_named
from ...errors import RecipeError, SoftkneeError
from ...measure.record import without_paths
from ...surgery import sites
from ...train import Replicas
from ..studies.building import model_maker
from ..studies.engine import RayEngine, pack_examples, unpack_examples
from ..studies.examples import Examples
from ..studies.reading import read_recipe, to_yaml
from ..studies.recipe import Recipe, Search
from ..studies.running.run import run_trial, training_inputs
from ..studies.running.training import finite_rows, fit_settings, judge, products_of
from ..studies.texts import Texts
from ..studies.trial import Chosen, Trial
from ..studies.trials import every_chosen, search_trial
from .proving import Examined, examine

Losses = tuple[float | None, ...]  # of each seed; None where it diverged


@dataclass(frozen=True)
class Job:
    """Candidates with one formula.

    chosen: the first of them, as a trial has it.
    values: the numbers of each.
    length: how long they are trained, in epochs or steps; 0 proves them.
    """

    chosen: Chosen
    values: tuple[Mapping[str, float], ...]
    length: int = 0


@dataclass(frozen=True)
class JobContext:
    """What all jobs of a search share."""

    recipe: Recipe
    examples: Examples | Texts

    @property
    def search(self) -> Search:
        assert self.recipe.search is not None
        return self.recipe.search

    def pack(self) -> dict[str, Any]:
        return {"recipe": to_yaml(self.recipe), "examples": pack_examples(self.examples)}

    @classmethod
    def unpack(cls, packed: Mapping[str, Any]) -> JobContext:
        return cls(read_recipe(packed["recipe"]), unpack_examples(packed["examples"]))

    def do(self, job: Job) -> list[Any]:
        """For each candidate of the job what was proved (`Examined`), or its losses."""
        return self.train(job) if job.length else self.prove(job)

    def prove(self, job: Job) -> list[Examined]:
        search = self.search
        return examine(job.chosen.name, search.constraints, seconds=search.seconds, values=job.values)

    def train(self, job: Job) -> list[Losses | str]:
        """The validation losses of each candidate; a sentence where the model cannot be trained with it."""
        recipe = self.recipe.with_length(job.length)
        trial = search_trial(recipe, self.examples, job.chosen, seeds=self.search.seeds)
        try:
            return [*self._train(trial, job.values)]
        except SoftkneeError as error:
            return [f"not trained: {without_paths(str(error).partition('. ')[0])}"[:200]] * len(job.values)
        except torch.OutOfMemoryError:
            if len(job.values) == 1:
                raise SoftkneeError(
                    f"The memory of {recipe.device} did not hold one training with {job.chosen.name}. Whole "
                    "generations are kept: end other programs, or take fewer --processes, and go on with --resume."
                ) from None
        torch.cuda.empty_cache()  # out of the handler, which holds what was too much
        middle = len(job.values) // 2
        halves = job.values[:middle], job.values[middle:]
        return [losses for values in halves for losses in self.train(replace(job, values=values))]

    def density(self) -> str:
        """The named density that lies nearest to the pre-activations of the baseline after the shortest training."""
        recipe, examples = self.recipe.with_length(self.search.lengths(self.recipe.length)[0]), self.examples
        assert isinstance(examples, Examples)
        chosen = next(each for each in every_chosen(recipe) if each.label == recipe.baseline)
        model = self._trained(search_trial(recipe, examples, chosen, seeds=1), examples, [{}]).model(0)
        return nearest_named(pre_activations(model, examples.train_x[:_WATCHED].to(recipe.device))).name

    def _train(self, trial: Trial, values: Sequence[Mapping[str, float]]) -> list[Losses]:
        examples, count = self.examples, trial.seeds.count
        if isinstance(examples, Texts):
            assert len(values) == 1, "a language model is trained alone"
            return [run_trial(trial, examples=examples).outcome.validation["loss"]]
        outputs = self._trained(trial, examples, values).predict(examples.validation_x)
        rows = finite_rows(outputs).nonzero().flatten().tolist()
        scores = judge(outputs, examples.validation_y, task=examples.task, rows=rows)
        losses = scores["mse" if examples.task == "regression" else "log_loss"]
        return [losses[first : first + count] for first in range(0, len(losses), count)]

    def _trained(self, trial: Trial, examples: Examples, values: Sequence[Mapping[str, float]]) -> Replicas:
        recipe, count = self.recipe, trial.seeds.count
        maker = model_maker(recipe.model, trial.activation, examples, init=recipe.init, loss=trial.training.loss)
        # The same seeds for every candidate: they differ in the function alone.
        replicas = Replicas(
            maker,
            count=count * len(values),
            seeds=trial.seeds.numbers * len(values),
            knobs={name: [each[name] for each in values for _ in range(count)] for name in values[0]},
            device=recipe.device,
        )
        inputs, augment = training_inputs(trial, examples)
        settings = fit_settings(trial.training, task=examples.task, gradients=False)
        with products_of(trial.training):
            replicas.fit(inputs, examples.train_y, epochs=trial.training.epochs, augment=augment, **settings)
        return replicas


@torch.no_grad()
def pre_activations(model: nn.Module, x: Tensor) -> Tensor:
    """What the activation modules of a model are given, all together; some of it where it is very much."""
    seen: list[Tensor] = []
    modules = {id(each): each for site in sites(model) if isinstance(each := site.place.old, nn.Module)}
    hooks = [
        each.register_forward_pre_hook(lambda _, given: seen.append(given[0].flatten())) for each in modules.values()
    ]
    try:
        model.eval()(x)
    finally:
        for hook in hooks:
            hook.remove()
    if not seen:
        raise RecipeError("search.densities 'data' needs activations that are modules, and the model has none.")
    every = torch.cat(seen).double().cpu()
    return every[torch.randperm(len(every), generator=torch.Generator().manual_seed(0))[:_SAMPLES]]


_WATCHED, _SAMPLES = 512, 100_000  # examples, and numbers of them


FEEDERS = 4  # processes that train on one GPU: what they do before the first step takes a processor, and no GPU


class Pool:
    """Runs jobs in processes of this machine, or here where one is enough."""

    def __init__(self, shared: JobContext, processes: int) -> None:
        self.shared = shared
        self._provers = self._trainers = None
        if processes > 1:
            # A fresh interpreter each: torch's threads and a GPU's state do not survive a fork.
            context, packed = multiprocessing.get_context("spawn"), (shared.pack(),)
            self._provers = self._trainers = ProcessPoolExecutor(processes, context, _begin, packed)
            if shared.recipe.device != "cpu":
                self._trainers = ProcessPoolExecutor(min(FEEDERS, processes), context, _begin, packed)

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, list[Any]]]:
        """Each job with its results, as they come."""
        pending = {}
        for job in jobs:
            pool = self._trainers if job.length else self._provers
            if pool is None:
                yield job, self.shared.do(job)
            else:
                pending[pool.submit(_do, job)] = job
        for future in as_completed(pending):
            yield pending[future], future.result()

    def close(self) -> None:
        for pool in (self._provers, self._trainers):
            if pool is not None:
                pool.shutdown(cancel_futures=True)


class RayPool:
    """Runs jobs as tasks of a Ray cluster; a job that trains on a GPU asks for one."""

    def __init__(self, shared: JobContext) -> None:
        self.shared = shared
        self._ray, self._connected_here = RayEngine.connect()
        self._packed = self._ray.put(shared.pack())

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, list[Any]]]:
        pending = {}
        for job in jobs:
            gpus = int(bool(job.length) and self.shared.recipe.device.startswith("cuda"))
            pending[self._ray.remote(num_cpus=1, num_gpus=gpus)(_do_packed).remote(self._packed, job)] = job
        while pending:
            (ready,), _ = self._ray.wait(list(pending), num_returns=1)
            yield pending.pop(ready), self._ray.get(ready)

    def close(self) -> None:
        if self._connected_here:
            self._ray.shutdown()


_shared: list[JobContext] = []  # of this worker


def _begin(packed: Mapping[str, Any]) -> None:
    """A worker begins: it computes in one thread, leaves Ctrl-C to who started it, and ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    _shared[:] = [JobContext.unpack(packed)]
    parent = multiprocessing.parent_process()
    if parent is not None:

        def follow() -> None:
            wait([parent.sentinel])
            os._exit(1)  # who was killed sends no message, and a worker would wait for the next job for ever

        threading.Thread(target=follow, daemon=True).start()


def _do(job: Job) -> list[Any]:
    return _shared[0].do(job)


def _do_packed(packed: Mapping[str, Any], job: Job) -> list[Any]:
    if not _shared:
        torch.set_num_threads(1)
        _shared[:] = [JobContext.unpack(packed)]
    return _do(job)
