"""What swaps cost a whole model before any training: step time, memory, parameters, change of the output.

The model as it is built and the same model after each `sk.swap_`, eager and compiled, take turns in one run (see
`clock`), first on inference and then on training steps: forward, backward, and a step of AdamW with the groups of
`sk.param_groups`. The weights are random and the same in all. On a GPU a profile of a step says which share of the
time the device computes: where it is small, the model waits for its host, and a faster kernel changes nothing. What a
swap costs a host at least is that of torch's own GELU called through Python, which `floor` puts in beside the others.
"""

from __future__ import annotations

import copy
import dataclasses
import gc
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InputError, ParameterError, did_you_mean, need_package
from ...measure.record import Quantity, Record, without_paths
from ...nn import make
from ...registry import resolve
from ...surgery import param_groups, swap_
from ..table import Table
from .calls import FLOOR, GELUFromPython
from .clock import (
    Clock,
    Samples,
    bytes_held,
    check_names,
    check_settings,
    chosen_settings,
    cpu_threads,
    failures,
    put_time,
    why_not,
)
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
    if library not in ("timm", "transformers") or not kind:
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
    timm: Any = need_package("timm", "Models of timm need the package 'timm'", "vision")
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
    what = "Models of transformers need the package 'transformers'"
    transformers: Any = need_package("transformers", what, "text")
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


# -- the measurement --------------------------------------------------------------------------------------

BEFORE, AFTER = "before", "after"
EAGER, COMPILED = "eager", "compiled"
# In a record the times and bytes of an eager model stand under their own names, those of a compiled one under these.
PREFIX = {EAGER: "", COMPILED: "compiled_"}
_CLOCK = ("repeats", "seconds_per_call", "threads")
_STEPS = 4  # training steps in a row: the host prepares one while the device does the one before


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
    ways: tuple[str, ...] = (EAGER, COMPILED)
    autocast: bool = False
    saves: tuple[str, ...] = ("input",)
    floor: bool = False
    config: Mapping[str, Any] = field(default_factory=dict)
    repeats: int = 15
    seconds_per_call: float = 5.0
    threads: int = field(default_factory=torch.get_num_threads)

    def __post_init__(self) -> None:
        check_names([self.dtype], DTYPES, "dtype")
        if not self.ways or not set(self.ways) <= set(PREFIX):
            raise ParameterError(f"A model runs {' or '.join(PREFIX)}; {', '.join(self.ways)!r} was given.")
        check_names(self.saves, ("input", "output"), "saved tensor")
        if self.autocast and self.dtype != "f32":
            raise ParameterError(f"Autocast computes in bf16 from weights in f32, and dtype={self.dtype} was given.")
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
        how = {"learn": settings.learn, "where": settings.where, "replacing": settings.replacing}
        for text, save in itertools.product(settings.swaps, settings.saves):
            name = text if settings.others or len(settings.saves) > 1 else AFTER
            name = name if save == "input" else f"{name}, save=output"
            models[name] = copy.deepcopy(model)
            surgeries[name] = swap_text(models[name], text, example=dict(inputs), save=save, **how)
        if settings.floor:
            models[FLOOR], surgeries[FLOOR] = _with_floor(model, inputs, how)
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
            settings, "model", "replacing", "where", "dtype", "autocast", "ways", "saves", "floor", *_CLOCK
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
            "forward runs in eval mode without autograd; step is forward, backward and the optimiser in train mode, "
            f"the mean of {_STEPS} in a row, with what the device waits for its host",
            "a ratio is the median of those to the model as it is built, round by round",
            "busy is the time that the kernels of a step take by torch's profiler, as a share of the step",
            "held counts the bytes that autograd keeps for the backward pass, parameters not included",
            "peak memory is what CUDA's allocator had in use at most during a step; a CPU's keeps no such count",
            "relative_change is the largest change of any output, as a share of the largest output; random weights",
        ),
    )


def swap_text(model: nn.Module, text: str, *, learn: tuple[str, ...] = (), **options: Any) -> Any:
    """The surgery that a text such as "srelu(delta=0.05, learn=delta)", or the path of a definition, asks for."""
    if learn and resolve(text).learn:
        raise ParameterError(f"{text!r} says what is learned; leave out --learn, or the words in the text.")
    return swap_(model, text, learn=(True if learn == ("all",) else learn) if learn else None, **options)


def _with_floor(model: nn.Module, inputs: Mapping[str, Tensor], how: Mapping[str, Any]) -> tuple[nn.Module, Any]:
    """The model with torch's GELU, called through Python, where a swap replaces GELU."""
    model = copy.deepcopy(model)
    surgery = swap_text(model, "gelu", example=dict(inputs), **{**how, "replacing": "gelu", "learn": ()})
    for path, module in list(model.named_modules()):
        if isinstance(module, type(make("gelu"))):
            model.set_submodule(path, GELUFromPython())
    return model, surgery


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
    # All these models share the code of one class, which torch compiles eight times and runs eagerly from then on.
    torch.compiler.reset()
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 4 * len(models))
    called: dict[tuple[str, str], Any] = {
        (name, way): torch.compile(model) if way == COMPILED else model
        for name, model in models.items()
        for way in settings.ways
    }
    clock = Clock(device=settings.device, repeats=settings.repeats, seconds_per_call=settings.seconds_per_call)
    report("timing inference")
    for model in models.values():
        model.eval()
    inferences = [torch.no_grad()(partial(_forward, call, inputs, settings)) for call in called.values()]
    _note(rows, "forward", called, clock.race(inferences))
    for model in models.values():
        model.train()
    # A rate so small that the weights, and with them the work, stay what they are.
    optimizers = {
        name: torch.optim.AdamW(param_groups(model, lr=1e-8, weight_decay=0.05), fused=settings.device.type == "cuda")
        for name, model in models.items()
    }
    steps = {key: _step(call, optimizers[key[0]], inputs, settings) for key, call in called.items()}
    report("counting memory")
    for (name, way), step in steps.items():
        try:
            memory = _memory(called[name, way], models[name], step, inputs, settings)
            rows[name] |= {PREFIX[way] + key: value for key, value in memory.items()}
        except Exception as error:
            rows[name]["not_run"] = why_not(error)
    report("timing training steps")
    times = dataclasses.replace(clock, ahead=0).race([_in_a_row(step) for step in steps.values()])
    _note(rows, "step", called, times, count=_STEPS)
    if settings.device.type == "cuda":
        report("profiling training steps")
        for (name, way), step in steps.items():
            if (time := rows[name].get(PREFIX[way] + "step")) is not None:
                rows[name][PREFIX[way] + "busy"] = 1e3 * _device_seconds(step) / time.value
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


def _forward(call: Any, inputs: Mapping[str, Tensor], settings: Settings) -> Tensor:
    with torch.autocast(settings.device.type, torch.bfloat16, enabled=settings.autocast):
        return main_output(call(**inputs))


def _step(
    call: Any, optimizer: torch.optim.Optimizer, inputs: Mapping[str, Tensor], settings: Settings
) -> Callable[[], object]:
    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        _forward(call, inputs, settings).float().square().mean().backward()
        optimizer.step()

    return run


def _in_a_row(step: Callable[[], object]) -> Callable[[], object]:
    def run() -> None:
        for _ in range(_STEPS):
            step()

    return run


def _device_seconds(step: Callable[[], object]) -> float:
    """What the kernels of a step take on the GPU, by torch's profiler."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        step()
        torch.cuda.synchronize()
    kernels = [e for e in profile.events() or () if e.device_type.name == "CUDA" and not e.is_user_annotation]
    return sum(event.self_device_time_total for event in kernels) / 1e6


def _memory(
    call: Any, model: nn.Module, step: Callable[[], object], inputs: Mapping[str, Tensor], settings: Settings
) -> dict[str, int]:
    """Bytes held for the backward pass; on a GPU also the peak of a step, with the model, gradients and optimiser."""
    own = [*model.parameters(), *model.buffers()]
    step()  # the optimiser's state is there from now on
    memory = {"held": bytes_held(lambda: _forward(call, inputs, settings), excluded=own)}
    device = settings.device
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


def _note(
    rows: Mapping[str, dict[str, Any]],
    what: str,
    called: Mapping[tuple[str, str], Any],
    results: list[Samples | Exception],
    count: int = 1,
) -> None:
    """Times, and to those of the first model the ratio in each round: what slows a host for seconds slows both."""
    by_key, first = dict(zip(called, results, strict=True)), next(iter(rows))
    for (name, way), samples in by_key.items():
        put_time(rows[name], PREFIX[way] + what, samples, count=count)
        own = by_key[first, way]
        if name != first and isinstance(samples, Samples) and isinstance(own, Samples):
            rounds = zip(samples.device, own.device, strict=False)  # the slower of the two has fewer
            ratios = [ours / theirs for ours, theirs in rounds]
            rows[name][f"{PREFIX[way]}{what}_ratio"] = Quantity.median(ratios, unit="x")


_MOST_PATHS = 3  # all of them are in the record


def tables(record: Record) -> list[Table]:
    """Times, memory and parameters of the model as it is built and after each swap, with ratios to the former."""
    before, *others = record.rows
    remarks = failures(record, "variant")
    if "peak" not in before and record.settings["device"] != "cuda":
        remarks.append("Peak memory is counted by CUDA's allocator; a CPU's keeps no such count.")
    *first, last = [_table(record, way) for way in record.settings["ways"]]
    if len(others) > 1:
        return [*first, dataclasses.replace(last, remarks=remarks)]
    (after,) = others
    if "output_change" in after:
        remarks.append(
            f"Largest change of an output before any training: {after['output_change']:.3g}, "
            f"{after['relative_change']:.2%} of the largest output (random weights)."
        )
    changed, skipped = after.get("changed", ()), after.get("skipped", ())
    remarks.append(f"{len(changed)} sites changed, {len(skipped)} left as they were.")
    groups: dict[str, list[str]] = {}
    for site in changed:
        groups.setdefault(f"{site['was']} → {site['now']}", []).append(site["path"])
    for site in skipped:
        groups.setdefault(f"left, because {site['reason']}", []).append(f"{site['path']} ({site['activation']})")
    for change, paths in groups.items():
        more = f" and {len(paths) - _MOST_PATHS} more" if len(paths) > _MOST_PATHS else ""
        remarks.append(f"  {change}: {', '.join(paths[:_MOST_PATHS])}{more}")
    return [*first, dataclasses.replace(last, remarks=[*remarks, *after.get("notes", ())])]


def _table(record: Record, way: str) -> Table:
    before, settings, prefix = record.rows[0], record.settings, PREFIX[way]
    columns = {"inference, ms": "forward", "training step, ms": "step", "held, MiB": "held", "peak, MiB": "peak"}
    lines = []
    for row in record.rows:
        numbers = [_text(before, row, prefix + key) for key in columns.values()]
        busy = row.get(prefix + "busy")
        added = row["parameters"] - before["parameters"]
        counts = ("-" if busy is None else f"{min(busy, 1):.0%}", f"{added:+,}" if added else f"{row['parameters']:,}")
        lines.append((row["variant"], *numbers, *counts))
    shapes = ", ".join("x".join(map(str, shape)) for shape in settings["inputs"].values())
    dtype = "bf16 autocast" if settings["autocast"] else settings["dtype"]
    what = f"{1 + len(settings['others'])} swaps" if settings["others"] else settings["swap"]
    title = f"{settings['model']}, {what}: {shapes} in {dtype} on {settings['device']}, {way}"
    return Table(title=title, head=("", *columns, "GPU busy", "parameters"), rows=lines)


def _text(before: Mapping[str, Any], row: Mapping[str, Any], key: str) -> str:
    """A time, or bytes as MiB, with the ratio to that of the model as it is built."""
    value, unit = row.get(key), before.get(key)
    if value is None:
        return "-"
    text = value.text(2) if isinstance(value, Quantity) else f"{value / 2**20:,.1f}"
    if row is before or not unit:
        return text
    first, second = (number.value if isinstance(number, Quantity) else number for number in (unit, value))
    ratio = row[f"{key}_ratio"].value if f"{key}_ratio" in row else second / first
    return f"{text} ({ratio:.3f})"
