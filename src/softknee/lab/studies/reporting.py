"""The report of a run store, written into it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import RecipeError, need_package
from ...measure.record import Quantity
from ...surgery import param_groups
from ...train.optimizers import Own, make_optimizer, read_options
from ..bench.clock import Clock, Samples
from .building import model_maker
from .examples import Examples
from .reading import dump, read_recipe
from .recipe import Recipe
from .store import REPORT, STUDY, RunStore, StoreError
from .trial import Chosen, Trial
from .trials import Finished, Outcome

_REPEATS = 21
_SECONDS_EACH = 0.4  # that the samples of one call may take at most; never fewer than three of them
_CPU_STEPS = 3  # in one sample: a step of a small network is less than a processor's clock tells apart reliably
_TINY_RATE = 1e-8  # so that the weights, and with them the work, stay what they are


def measure_cost(trial: Trial, examples: Examples) -> Finished:
    """The times and, on a GPU, the peak memory of every activation of the trial."""
    begin, device = time.perf_counter(), torch.device(trial.device)
    chosen = list(trial.activations)
    place = next(
        (i for i, candidate in enumerate(chosen) if trial.cost_baseline in (candidate.label, candidate.name)),
        len(chosen),
    )
    if place == len(chosen):
        chosen.append(Chosen(name=trial.cost_baseline, label=trial.cost_baseline))
    # A model, its training step and its inference for each.
    models, steps, calls = zip(*(_timed(trial, candidate, examples, device) for candidate in chosen), strict=True)
    often = 1 if device.type == "cuda" else _CPU_STEPS
    clock = Clock(device=device, repeats=_REPEATS, seconds_per_call=_SECONDS_EACH)
    memory = [_peak_memory(model, step, device) for model, step in zip(models, steps, strict=True)]
    train = _race(clock, steps, often)
    for model in models:
        model.eval()
    infer = _race(clock, calls, often)
    rows = [
        {
            "label": candidate.label,
            "train": _milliseconds(train[index]),
            "infer": _milliseconds(infer[index]),
            "train_ratio": _ratio(train[index], train[place]),
            "infer_ratio": _ratio(infer[index], infer[place]),
            "peak_memory": memory[index],
        }
        for index, candidate in enumerate(trial.activations)
    ]
    return Finished(outcome=Outcome(trial=trial, seconds=time.perf_counter() - begin, cost=tuple(rows)))


def _timed(
    trial: Trial, chosen: Chosen, examples: Examples, device: torch.device
) -> tuple[nn.Module, Callable[[], object], Callable[[], object]]:
    make = model_maker(trial.model, chosen, examples, init=trial.init, loss=trial.training.loss)
    model = make(trial.seeds.first).to(device)
    training = trial.training
    x, y = (tensor[: training.batch].to(device) for tensor in (examples.train_x, examples.train_y))
    options = read_options(training.optimizer, training.optimizer_options)
    groups = param_groups(model, lr=_TINY_RATE, weight_decay=options["weight_decay"], lr_scale=training.activation_rate)
    own = training.activation_optimizer
    optimizer = make_optimizer(groups, training.optimizer, options, None if own is None else Own(own, _TINY_RATE))
    loss = _loss(training.loss, examples.task)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(model(x), y).backward()
        optimizer.step()

    @torch.no_grad()
    def infer() -> Tensor:
        return model(x)

    return model.train(), step, infer


def _loss(name: str, task: str) -> Callable[[Tensor, Tensor], Tensor]:
    if name == "mse" or (name == "auto" and task == "regression"):
        return lambda output, target: F.mse_loss(output, target.reshape(output.shape).to(output.dtype))
    if name == "bce_with_logits":
        return lambda output, target: F.binary_cross_entropy_with_logits(
            output, target.reshape(output.shape).to(output.dtype)
        )
    return F.cross_entropy


def _race(clock: Clock, calls: Sequence[Callable[[], object]], often: int) -> list[tuple[float, ...]]:
    """The seconds of one call, sample by sample, where a sample is several calls in a row."""

    def many(call: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(often):
                call()

        return run

    samples: list[tuple[float, ...]] = []
    for result in clock.race([many(call) for call in calls]):
        if not isinstance(result, Samples):
            raise result
        samples.append(tuple(seconds / often for seconds in result.device))
    return samples


def _milliseconds(samples: Sequence[float]) -> Quantity:
    return Quantity.median([1e3 * sample for sample in samples], unit="ms")


def _ratio(samples: Sequence[float], baseline: Sequence[float]) -> Quantity:
    """Turn by turn; a slow call has fewer turns than a quick one."""
    return Quantity.median([own / other for own, other in zip(samples, baseline, strict=False)], unit="x")


def _peak_memory(model: nn.Module, step: Callable[[], object], device: torch.device) -> int | None:
    """The bytes of a training step beyond what lies on the device before it; None on a CPU, which keeps no count."""
    if device.type != "cuda":
        return None
    step()  # the optimiser's state is there from now on
    model.zero_grad(set_to_none=True)
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    resting = torch.cuda.memory_allocated(device)
    step()
    torch.cuda.synchronize(device)
    own = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
    return torch.cuda.max_memory_allocated(device) - resting + own


PAGE = "index.html"


def check_tools() -> None:
    """Raise where a report could not be drawn: to be asked before the training, and not after it."""
    otherwise = "; or leave the report out with --no-report."
    need_package("vl_convert", "The report needs the package 'vl-convert-python'", "lab", otherwise)


def recipe_of(store: RunStore) -> Recipe:
    """The recipe of the study that a store holds."""
    description = store.description()
    if description is None:
        raise StoreError(f"'{store.url}' holds no study: it has no study.json. Name the folder that --out named.")
    try:
        return read_recipe(dump(description.recipe))
    except RecipeError as error:
        raise StoreError(f"'{store.folder.place(STUDY)}' holds a recipe that cannot be used here. {error}") from error


def write_report_into(store: RunStore, *, command: str) -> str:
    """Make the report of what is finished and write it beside the records; the place of its page."""
    from ..report import report_files

    recipe = recipe_of(store)
    records = store.records(with_files=False)  # of predictions and models, which may be left behind, it shows nothing
    outcomes = [Outcome.read(record) for record in records]
    if not any(outcome.trial.kind == "train" for outcome in outcomes):
        raise StoreError(f"'{store.url}' has no finished training yet, so there is nothing to report. Use --resume.")
    for name, content in report_files(recipe, outcomes, command=command, records=records).items():
        store.folder.write(f"{REPORT}/{name}", content, what="report")
    return store.folder.place(f"{REPORT}/{PAGE}")
