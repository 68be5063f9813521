"""What swaps cost a whole model before any training: step time, memory, parameters, change of the output.

The model as it is built and the same model after each `sk.swap_` take turns in one run (see `clock`), first on
inference and then on training steps: forward, backward, and a step of AdamW with the groups of `sk.param_groups`. The
weights are random and the same in all.
"""

from __future__ import annotations

import copy
import gc
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InputError, ParameterError, did_you_mean
from ...measure.record import Quantity, Record, without_paths
from ...registry import resolve
from ...surgery import param_groups, swap_
from .candidates import Shape, build
from .clock import Clock, Samples, bytes_held, why_not
from .speed import DTYPES

BEFORE, AFTER = "before", "after"
_PEAK = "peak memory is what CUDA's allocator had in use at most during a step; a CPU's keeps no such count"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What to measure: a model by name, the text of the activation to put in (and of others, beside it), and how."""

    model: str
    swap: str
    device: torch.device
    shape: Shape
    others: tuple[str, ...] = ()
    replacing: str | None = None
    where: str | None = None
    learn: tuple[str, ...] = ()
    dtype: str = "f32"
    compile: bool = False
    config: Mapping[str, Any] = field(default_factory=dict)
    repeats: int = 15
    seconds_per_call: float = 5.0
    threads: int = field(default_factory=torch.get_num_threads)

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            hint = did_you_mean(self.dtype, DTYPES) or f" Known are {', '.join(DTYPES)}."
            raise ParameterError(f"There is no dtype called {self.dtype!r} to measure in.{hint}")
        counts = {"batch": self.shape.batch, "image": self.shape.image or 1, "length": self.shape.length}
        for name, value in (counts | {"repeats": self.repeats, "threads": self.threads}).items():
            if value < 1:
                raise ParameterError(f"The benchmark needs {name} of at least 1, not {value}.")
        for text in self.swaps:
            if self.swaps.count(text) > 1:
                raise ParameterError(f"The benchmark was given the swap {text!r} twice; once is enough.")

    @property
    def swaps(self) -> tuple[str, ...]:
        return (self.swap, *self.others)


def measure(settings: Settings, *, command: str, report: Callable[[str], None] = lambda _: None) -> Record:
    """Build, swap, and measure both; `report` is told what is being done."""
    threads = torch.get_num_threads()
    torch.set_num_threads(settings.threads)
    try:
        report("building the model")
        model, inputs = build(settings.model, settings.shape, settings.config)
        kind = DTYPES[settings.dtype]
        model = model.to(device=settings.device, dtype=kind)
        inputs = {
            name: one.to(settings.device, kind if one.is_floating_point() else None) for name, one in inputs.items()
        }
        report("swapping")
        models, surgeries = {BEFORE: model}, {}
        for text in settings.swaps:
            name = text if settings.others else AFTER
            models[name] = copy.deepcopy(model)
            surgeries[name] = _swap(models[name], text, settings, inputs)
        rows = compare(models, inputs, settings=settings, report=report)
    finally:
        torch.set_num_threads(threads)
    for row, surgery in zip(rows[1:], surgeries.values(), strict=True):
        row |= {
            "changed": [{"path": one.path, "was": one.was, "now": one.now} for one in surgery.changed],
            "skipped": [
                {"path": one.path, "activation": one.activation, "reason": without_paths(one.reason)}
                for one in surgery.skipped
            ],
            "notes": [without_paths(note) for note in surgery.notes],
        }
    return Record.now(
        "bench model",
        command=command,
        rows=rows,
        seeds=(0,),
        baseline="the same model without the swap, measured in turns in the same run",
        settings={
            "model": settings.model,
            "config": dict(settings.config),
            "swap": without_paths(settings.swap),
            "others": [without_paths(text) for text in settings.others],
            "replacing": settings.replacing,
            "where": settings.where,
            "learn": list(settings.learn),
            "inputs": {name: list(one.shape) for name, one in inputs.items()},
            "device": settings.device.type,
            "dtype": settings.dtype,
            "compile": settings.compile,
            "optimizer": "AdamW, with the groups of param_groups",
            "repeats": settings.repeats,
            "seconds_per_call": settings.seconds_per_call,
            "threads": settings.threads,
        },
        notes=(
            "forward runs in eval mode without autograd; step is forward, backward and the optimiser in train mode",
            "held counts the bytes that autograd keeps for the backward pass, parameters not included",
            _PEAK,
            "relative_change is the largest change of any output, as a share of the largest output; random weights",
        ),
    )


def _swap(model: nn.Module, text: str, settings: Settings, inputs: Mapping[str, Tensor]) -> Any:
    """The surgery that the text asks for."""
    learn = None
    if settings.learn:
        if resolve(text).learn:
            raise ParameterError(f"{text!r} says what is learned; leave out --learn, or the words in the text.")
        learn = True if settings.learn == ("all",) else settings.learn
    return swap_(model, text, where=settings.where, replacing=settings.replacing, learn=learn, example=dict(inputs))


def compare(
    models: Mapping[str, nn.Module],
    inputs: Mapping[str, Tensor],
    *,
    settings: Settings,
    report: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """One row for each model: parameters, times in ms, memory, and how its output differs from that of the first."""
    rows: dict[str, dict[str, Any]] = {
        name: {"variant": name, "parameters": sum(p.numel() for p in model.parameters())}
        for name, model in models.items()
    }
    first, *others = models
    for name in others:
        rows[name] |= _change(models[first], models[name], inputs)
    called: dict[str, Any] = dict(models)
    if settings.compile:
        torch.compiler.reset()  # the caches of one code object are limited, and other models may have filled them
        called = {name: torch.compile(model) for name, model in models.items()}
    clock = Clock(device=settings.device, repeats=settings.repeats, seconds_per_call=settings.seconds_per_call)
    report("timing inference")
    for model in models.values():
        model.eval()
    _note(rows, "forward", clock.race([_inference(model, inputs) for model in called.values()]))
    report("timing training steps")
    steps = {}
    for name, model in models.items():
        model.train()
        steps[name] = _step(called[name], model, inputs)
    report("counting memory")
    for name, step in steps.items():
        try:
            rows[name] |= _memory(called[name], models[name], step, inputs, settings.device)
        except Exception as error:
            rows[name]["not_run"] = why_not(error)
    report("timing training steps")
    _note(rows, "step", clock.race(list(steps.values())))
    gc.collect()
    return list(rows.values())


def main_output(output: Any) -> Tensor:
    """The tensor that a loss would be made from: a model's logits, or its first output of real numbers."""
    if isinstance(output, Tensor):
        return output
    found = output.values() if isinstance(output, Mapping) else output
    for one in found if isinstance(found, list | tuple) or isinstance(output, Mapping) else ():
        if isinstance(one, Tensor) and one.is_floating_point():
            return one
    raise InputError(f"The model returns {type(output).__name__}, in which there is no tensor to make a loss from.")


@torch.no_grad()
def _change(before: nn.Module, after: nn.Module, inputs: Mapping[str, Tensor]) -> dict[str, float | str]:
    """The largest change of any output, and the same as a share of the largest output."""
    first, second = (main_output(model.eval()(**inputs)).double() for model in (before, after))
    change, scale = float((first - second).abs().max()), float(first.abs().max())
    if not math.isfinite(change):
        return {"not_run": "An output is NaN or infinite, so that no change can be given."}
    return {"output_change": change, "relative_change": change / scale if scale else float(change > 0)}


def _inference(model: Any, inputs: Mapping[str, Tensor]) -> Callable[[], object]:
    def run() -> Tensor:
        with torch.no_grad():
            return main_output(model(**inputs))

    return run


def _step(called: Any, model: nn.Module, inputs: Mapping[str, Tensor]) -> Callable[[], object]:
    # A rate so small that the weights, and with them the work, stay what they are.
    optimizer = torch.optim.AdamW(param_groups(model, lr=1e-8, weight_decay=0.05))

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        main_output(called(**inputs)).float().square().mean().backward()
        optimizer.step()

    return run


def _memory(
    called: Any, model: nn.Module, step: Callable[[], object], inputs: Mapping[str, Tensor], device: torch.device
) -> dict[str, int]:
    """Bytes held for the backward pass; on a GPU also the peak of a step, with the model, gradients and optimiser."""
    own = [*model.parameters(), *model.buffers()]
    step()  # the optimiser's state is there from now on
    found = {"held": bytes_held(lambda: main_output(called(**inputs)), besides=own)}
    if device.type == "cuda":
        model.zero_grad(set_to_none=True)
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        resting = torch.cuda.memory_allocated(device)
        step()
        torch.cuda.synchronize(device)
        # The other model is on the device too: what this one has at rest is counted, and added to the rise of the step.
        state = sum(p.nbytes * 3 for p in model.parameters()) + sum(b.nbytes for b in model.buffers())
        found["peak"] = torch.cuda.max_memory_allocated(device) - resting + state
    return found


def _note(rows: Mapping[str, dict[str, Any]], what: str, results: list[Samples | Exception]) -> None:
    for row, samples in zip(rows.values(), results, strict=True):
        if isinstance(samples, Samples):
            row[what] = Quantity.median([1e3 * one for one in samples.device], unit="ms")
        else:
            row["not_run"] = why_not(samples)
