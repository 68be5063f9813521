"""What swaps cost a whole model before any training: step time, memory, parameters, change of the output.

The model as it is built and the same model after each `sk.swap_` take turns in one run (see `clock`), first on
inference and then on training steps: forward, backward, and a step of AdamW with the groups of `sk.param_groups`. The
weights are random and the same in all.
"""

from __future__ import annotations

import copy
import gc
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InputError, ParameterError, did_you_mean
from ...measure.record import Quantity, Record, without_paths
from ...registry import resolve
from ...surgery import param_groups, swap_
from ..data.files import need_package
from .clock import Clock, Samples, bytes_held, check_settings, chosen_settings, cpu_threads, why_not
from .speed import DTYPES

# The kinds of transformers' models, with the class that builds each and what differs from the default configuration:
# a Llama of the default size has 6.7 billion parameters.
_SMALL = {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8, "num_attention_heads": 8}
TRANSFORMERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "bert": ("AutoModelForMaskedLM", {}),
    "distilbert": ("AutoModelForMaskedLM", {}),
    "gpt2": ("AutoModelForCausalLM", {"use_cache": False}),
    "llama": ("AutoModelForCausalLM", {**_SMALL, "num_key_value_heads": 8, "use_cache": False}),
    "vit": ("AutoModelForImageClassification", {}),
}
_EXTRAS = {"timm": "vision", "transformers": "text"}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How large the inputs are; None for the model's own image size."""

    batch: int
    image: int | None = None
    length: int = 128


def read_config(texts: Sequence[str]) -> dict[str, int | float]:
    """What to build with, from texts such as "depth=2"."""
    config: dict[str, int | float] = {}
    for text in texts:
        key, _, value = text.partition("=")
        number = re.fullmatch(r"\s*[+-]?[0-9]*(\.[0-9]*)?([eE][+-]?[0-9]+)?\s*", value)
        if not key.strip().isidentifier() or number is None or not re.search("[0-9]", value):
            raise ParameterError(f"{text!r} does not say what to build with: write KEY=NUMBER, such as depth=2.")
        config[key.strip()] = float(value) if any(number.groups()) else int(value)
    return config


def build(
    name: str, shape: Shape, config: Mapping[str, Any] | None = None, *, seed: int = 0
) -> tuple[nn.Module, dict[str, Tensor]]:
    """The model of that name, and an input of that shape as keyword arguments; the weights are drawn from the seed."""
    library, _, kind = name.partition(":")
    if library not in _EXTRAS or not kind:
        raise ParameterError(
            f"There is no model {name!r} to measure: write timm:NAME, such as timm:vit_tiny_patch16_224, or "
            f"transformers:KIND with one of {', '.join(TRANSFORMERS)}."
        )
    make = _timm if library == "timm" else _transformers
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return make(kind, shape, dict(config or {}))
        except (TypeError, ValueError, AssertionError) as error:
            if isinstance(error, ParameterError):
                raise
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InputError(f"{name} could not be built with these settings: {reason}") from error


def _timm(kind: str, shape: Shape, config: dict[str, Any]) -> tuple[nn.Module, dict[str, Tensor]]:
    timm: Any = _library("timm")
    if not timm.is_model(kind):
        raise ParameterError(f"timm has no model {kind!r}.{did_you_mean(kind, timm.list_models())}")
    if shape.image is None:
        model = timm.create_model(kind, pretrained=False, **config)
    else:
        try:
            model = timm.create_model(kind, pretrained=False, img_size=shape.image, **config)
        except TypeError:  # a convolutional network takes any size, and knows no such argument
            model = timm.create_model(kind, pretrained=False, **config)
    channels, *size = import_module("timm.data").resolve_model_data_config(model)["input_size"]
    size = [shape.image, shape.image] if shape.image else size
    return model, {"x": torch.randn(shape.batch, channels, *size)}


def _transformers(kind: str, shape: Shape, config: dict[str, Any]) -> tuple[nn.Module, dict[str, Tensor]]:
    transformers: Any = _library("transformers")
    if kind not in TRANSFORMERS:
        raise ParameterError(
            f"transformers:{kind} is not among the kinds that can be built here, {', '.join(TRANSFORMERS)}."
            f"{did_you_mean(kind, TRANSFORMERS)}"
        )
    builder, changes = TRANSFORMERS[kind]
    size = {"image_size": shape.image} if kind == "vit" and shape.image else {}
    settings = transformers.AutoConfig.for_model(kind, **{**changes, **config, **size})
    if unknown := [key for key in config if not hasattr(type(settings)(), key)]:
        raise ParameterError(f"The configuration of transformers:{kind} has no {unknown[0]!r}.")
    if kind == "vit":
        size = settings.image_size
        inputs = {"pixel_values": torch.randn(shape.batch, settings.num_channels, size, size)}
    else:
        longest = settings.max_position_embeddings
        if shape.length > longest:
            raise ParameterError(
                f"transformers:{kind} reads at most {longest} tokens, and length={shape.length} was given."
            )
        inputs = {"input_ids": torch.randint(settings.vocab_size, (shape.batch, shape.length))}
    return getattr(transformers, builder).from_config(settings), inputs


def _library(name: str) -> Any:
    return need_package(name, f"Models of {name} need the package {name!r}", _EXTRAS[name])


# -- the measurement --------------------------------------------------------------------------------------

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
    save_output: bool = False
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
        check_settings(self.shape, "batch", "length", *(["image"] if self.shape.image is not None else []))
        check_settings(self, "repeats", "threads")
        for text in self.swaps:
            if self.swaps.count(text) > 1:
                raise ParameterError(f"The benchmark was given the swap {text!r} twice; once is enough.")

    @property
    def swaps(self) -> tuple[str, ...]:
        return (self.swap, *self.others)


def measure(settings: Settings, *, command: str, report: Callable[[str], None] = lambda _: None) -> Record:
    """Build, swap, and measure both; `report` is called with what is being done."""
    with cpu_threads(settings.threads):
        report("building the model")
        model, inputs = build(settings.model, settings.shape, settings.config)
        dtype = DTYPES[settings.dtype]
        model = model.to(device=settings.device, dtype=dtype)
        inputs = {
            name: value.to(settings.device, dtype if value.is_floating_point() else None)
            for name, value in inputs.items()
        }
        report("swapping")
        models, surgeries = {BEFORE: model}, {}
        for text, save in product(settings.swaps, ("input", "output") if settings.save_output else ("input",)):
            name = text if settings.others else AFTER
            name += f", save={save}" * (save == "output")
            models[name] = copy.deepcopy(model)
            surgeries[name] = swap_text(
                models[name],
                text,
                learn=settings.learn,
                save=save,
                where=settings.where,
                replacing=settings.replacing,
                example=dict(inputs),
            )
        rows = compare(models, inputs, settings=settings, report=report)
    for row, surgery in zip(rows[1:], surgeries.values(), strict=True):
        row |= {
            "changed": [{"path": site.path, "was": site.was, "now": site.now} for site in surgery.changed],
            "skipped": [
                {"path": site.path, "activation": site.activation, "reason": without_paths(site.reason)}
                for site in surgery.skipped
            ],
            "notes": [without_paths(note) for note in surgery.notes],
        }
    return Record.now(
        "bench model",
        command=command,
        rows=rows,
        seeds=(0,),
        baseline="the same model without the swap, measured in turns in the same run",
        settings=chosen_settings(
            settings,
            *(
                "model",
                "replacing",
                "where",
                "save_output",
                "dtype",
                "compile",
                "repeats",
                "seconds_per_call",
                "threads",
            ),
        )
        | {
            "config": dict(settings.config),
            "swap": without_paths(settings.swap),
            "others": [without_paths(text) for text in settings.others],
            "learn": list(settings.learn),
            "inputs": {name: list(value.shape) for name, value in inputs.items()},
            "optimizer": "AdamW, with the groups of param_groups",
        },
        notes=(
            "forward runs in eval mode without autograd; step is forward, backward and the optimiser in train mode",
            "held counts the bytes that autograd keeps for the backward pass, parameters not included",
            _PEAK,
            "relative_change is the largest change of any output, as a share of the largest output; random weights",
        ),
    )


def swap_text(model: nn.Module, text: str, *, learn: tuple[str, ...] = (), **options: Any) -> Any:
    """The surgery that a text such as "srelu(delta=0.05, learn=delta)", or the path of a definition, asks for."""
    if learn and resolve(text).learn:
        raise ParameterError(f"{text!r} says what is learned; leave out --learn, or the words in the text.")
    return swap_(model, text, learn=(True if learn == ("all",) else learn) if learn else None, **options)


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
    values = output.values() if isinstance(output, Mapping) else output if isinstance(output, list | tuple) else ()
    for value in values:
        if isinstance(value, Tensor) and value.is_floating_point():
            return value
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
    memory = {"held": bytes_held(lambda: main_output(called(**inputs)), excluded=own)}
    if device.type == "cuda":
        model.zero_grad(set_to_none=True)
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        resting = torch.cuda.memory_allocated(device)
        step()
        torch.cuda.synchronize(device)
        # The other model is on the device too: what this one has at rest is counted, and added to the rise of the step.
        state = sum(p.nbytes * 3 for p in model.parameters()) + sum(b.nbytes for b in model.buffers())
        memory["peak"] = torch.cuda.max_memory_allocated(device) - resting + state
    return memory


def _note(rows: Mapping[str, dict[str, Any]], what: str, results: list[Samples | Exception]) -> None:
    for row, samples in zip(rows.values(), results, strict=True):
        if isinstance(samples, Samples):
            row[what] = Quantity.median([1e3 * seconds for seconds in samples.device], unit="ms")
        else:
            row["not_run"] = why_not(samples)
