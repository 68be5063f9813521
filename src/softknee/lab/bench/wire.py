"""Activations on the wire: what a cut model sends, how quickly each coder works, and which link each is for.

    time of a form = bytes / bandwidth + encoding + decoding                       (one after the other)
    crossover of a shorter, slower form A and a longer, quicker form B:
        bandwidth* = (bytes_B - bytes_A) / (coding time_A - coding time_B);   on slower links A is quicker

On a GPU the times of "rans" and "huffman" include copies of the symbols to the host and back; "packed" and "bfloat16"
stay on the device.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from torch.nn import functional as F

from ...errors import MissingToolError, ParameterError
from ...measure.record import Quantity, Record, without_paths
from ...nn import SQUAFP, RatePenalty
from ...train import fit
from ...wire import Boundary, Traffic, decode, encode, packed, sizes
from ..data.images import Split, load_split
from ..table import Table
from .clock import Clock, Samples, check_names, check_settings, chosen_settings, cpu_threads, failures

LEVELS = 33
FORMS = ("rans", "huffman", "packed", "bfloat16")  # from the shortest to the longest
PAIRS = (("rans", "packed"), ("huffman", "packed"), ("packed", "bfloat16"), ("rans", "bfloat16"))
_SECONDS = 10.0  # for the samples of one call; a slow one gets fewer
_CHANNELS = 16
_LR = 0.003
_TIMEOUT = 120.0  # seconds that one process waits for the other


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is trained, with which weights of the rate penalty, and how many activations are coded how often."""

    device: torch.device
    rates: tuple[float, ...] = (0.0, 0.1, 0.3)
    epochs: int = 15
    batch: int = 64
    seed: int = 0
    elements: int = 4_000_000
    repeats: int = 9
    forms: tuple[str, ...] = FORMS
    threads: int = field(default_factory=torch.get_num_threads)

    def __post_init__(self) -> None:
        check_settings(self, "epochs", "batch", "elements", "repeats", "threads")
        check_names(self.forms, FORMS, "form")
        if not self.rates or min(self.rates) < 0 or len(set(self.rates)) < len(self.rates):
            raise ParameterError(
                f"The benchmark needs different weights of the rate penalty, none below 0, and {self.rates} were given."
            )


# -- a small CNN trained over two processes with a Boundary at the cut, and the same in one process --------


def _network(settings: Settings) -> tuple[nn.Module, SQUAFP, nn.Module]:
    """The network before the cut, the layer at it, and the network behind it."""
    torch.manual_seed(settings.seed)
    first = nn.Conv2d(1, _CHANNELS, 3, padding=1)
    layer = SQUAFP(k=16, q=0.25, learn=True)
    rest = nn.Sequential(nn.Conv2d(_CHANNELS, 32, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 9, 10))
    torch.manual_seed(settings.seed)
    return first.to(settings.device), layer.to(settings.device), rest.to(settings.device)


def _train(
    settings: Settings, split: Split, modules: Sequence[nn.Module], loss: Callable[[Tensor, Tensor], tuple[Tensor, Any]]
) -> list[float]:
    """The losses of training by Adam; `loss` gives, of images and labels, the loss and a penalty to add, or None."""
    generator = torch.Generator().manual_seed(settings.seed)  # the examples come in one order in every process
    batches = (
        (split.train_images[batch], split.train_labels[batch])
        for _ in range(settings.epochs)
        for batch in torch.randperm(len(split.train_labels), generator=generator)
        .to(settings.device)
        .split(settings.batch)
    )
    model = nn.ModuleList(modules)
    losses: list[float] = []

    def with_penalty(_: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        value, penalty = loss(*batch)
        losses.append(value.item())
        return (value if penalty is None else value + penalty()).squeeze()

    fit(model, batches, with_penalty, optimizer=torch.optim.Adam(model.parameters(), lr=_LR))
    return losses


def _accuracy(output: Tensor, split: Split) -> float:
    return (output.argmax(1) == split.test_labels).double().mean().item()


def train_alone(settings: Settings, split: Split, rate: float) -> dict[str, Any]:
    """Losses and accuracy in one process."""
    with _deterministic(settings), ExitStack() as stack:
        split = split.to(settings.device)
        first, layer, rest = _network(settings)
        penalty = stack.enter_context(RatePenalty(layer, weight=rate)) if rate else None
        losses = _train(
            settings,
            split,
            (first, layer, rest),
            lambda images, labels: (F.cross_entropy(rest(layer(first(images))), labels), penalty),
        )
        with torch.no_grad():
            return {"losses": losses, "accuracy": _accuracy(rest(layer(first(split.test_images))), split)}


def train_cut(settings: Settings, split: Split, rate: float) -> dict[str, Any]:
    """Losses and accuracy in two processes, which meet through a file; the traffic of training; the test symbols."""
    if not (dist.is_available() and dist.is_gloo_available()):
        raise MissingToolError("Two processes need gloo, which this torch was built without.")
    with tempfile.TemporaryDirectory() as folder:
        spawn(_run_rank, args=(settings, split.to("cpu"), rate, folder), nprocs=2)
        sender, receiver = (torch.load(Path(folder) / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    return receiver | sender | {"traffic": Traffic(**sender["traffic"])}


def _run_rank(rank: int, settings: Settings, split: Split, rate: float, folder: str) -> None:
    if "lo" in {name for _, name in socket.if_nameindex()}:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.FileStore(f"{folder}/store", 2)  # pyright: ignore[reportPrivateImportUsage]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=_TIMEOUT))
    with _deterministic(settings):
        split = split.to(settings.device)
        result = _send(settings, split, rate) if rank == 0 else _receive(settings, split)
    torch.save(result, f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def _send(settings: Settings, split: Split, rate: float) -> dict[str, Any]:
    first, layer, _ = _network(settings)
    penalty = RatePenalty(layer, weight=rate) if rate else None
    boundary = Boundary(layer, to=1, timeout=_TIMEOUT)
    _train(settings, split, (first, layer), lambda images, _: (boundary(first(images)), penalty))
    traffic = boundary.report()
    with torch.no_grad():
        boundary(first(split.test_images))
        symbols = layer.symbols(first(split.test_images)).to(torch.uint8).cpu()
    boundary.close()
    return {"traffic": vars(traffic), "symbols": symbols}


def _receive(settings: Settings, split: Split) -> dict[str, Any]:
    *_, rest = _network(settings)
    boundary = Boundary(frm=0, device=settings.device, timeout=_TIMEOUT)
    losses = _train(
        settings, split, (rest,), lambda _, labels: (F.cross_entropy(rest(boundary.receive()), labels), None)
    )
    with torch.no_grad():
        accuracy = _accuracy(rest(boundary.receive()), split)
    boundary.close()
    return {"losses": losses, "accuracy": accuracy}


@contextmanager
def _deterministic(settings: Settings) -> Iterator[None]:
    """The threads of the settings, and convolutions whose sums have a fixed order; afterwards as it was."""
    with torch.backends.cudnn.flags(enabled=True, deterministic=True), cpu_threads(settings.threads):
        yield


# -- the record -------------------------------------------------------------------------------------------


def measure(
    settings: Settings, *, split: Split | None = None, command: str, report: Callable[[str], None] = lambda _: None
) -> Record:
    """Train, code and time; `report` is called with what is being done. The digits are trained on by default."""
    split = load_split("digits") if split is None else split
    rows: list[dict[str, Any]] = []
    for rate in settings.rates:
        report(f"training in one process, rate penalty {rate:g}")
        alone = train_alone(settings, split, rate)
        report(f"training in two processes, rate penalty {rate:g}")
        cut = train_cut(settings, split, rate)
        rows.append(_training_row(rate, alone, cut))
        report(f"coding, rate penalty {rate:g}")
        rows += _speed_rows(settings, cut["symbols"], rate)
    return Record.now(
        "bench wire",
        command=command,
        rows=rows,
        seeds=(settings.seed,),
        baseline="the same network with the same seeds in one process; activations as float32 and bfloat16",
        settings=chosen_settings(settings, "rates", "epochs", "batch", "elements", "repeats", "forms", "threads")
        | {
            "levels": LEVELS,
            "network": "conv 1-16, SQUAF-P (k=16, q=0.25, all trained), cut, conv 16-32, ReLU, linear; Adam",
        },
        notes=(
            "sent: bytes given to torch.distributed while training, forward (symbols, tables, headers) and gradients",
            "bits: whole messages of the test images' symbols, per activation, by each coder, after training",
            "speed: those symbols, repeated, as int32 on the device to bytes ready to send, and back to symbols; on a "
            "GPU with the copies to the host for rans and huffman, without any for packed and bfloat16",
            "crossover: (bytes_B - bytes_A) / (coding time_A - coding time_B), nothing overlapped",
        ),
    )


def _training_row(rate: float, alone: dict[str, Any], cut: dict[str, Any]) -> dict[str, Any]:
    traffic: Traffic = cut["traffic"]
    losses = zip(alone["losses"], cut["losses"], strict=True)
    bits = sizes(cut["symbols"], LEVELS)
    return {
        "part": "training",
        "rate_weight": rate,
        "steps": len(cut["losses"]),
        "accuracy_one_process": alone["accuracy"],
        "accuracy_two_processes": cut["accuracy"],
        "last_loss_one_process": alone["losses"][-1],
        "largest_difference_of_losses": max(abs(first - second) for first, second in losses),
        "sent": {
            "activations": traffic.activations,
            "symbols": traffic.payload,
            "tables": traffic.tables,
            "headers": traffic.headers,
            "bits_per_activation": traffic.bits,
            "entropy": traffic.entropy,
            "float32": traffic.float32,
            "bfloat16": traffic.bfloat16,
            "less_than_float32": traffic.reduction,
            "less_than_bfloat16": traffic.reduction / 2,
            "gradients": traffic.backward,
        },
        "bits": {name: getattr(bits, name) for name in ("entropy", "rans", "huffman", "packed")},
    }


def _speed_rows(settings: Settings, symbols: Tensor, rate: float) -> list[dict[str, Any]]:
    """Times of encoding and decoding in each form, and the links below which the shorter of two forms is quicker."""
    row = symbols.reshape(-1).to(settings.device, torch.int32)
    row = row.repeat(-(-settings.elements // len(row)))[: settings.elements].contiguous()
    table = torch.linspace(-1, 4, LEVELS, device=settings.device)
    values = table[row.long()]
    short = values.bfloat16()
    coders = [name for name in ("rans", "huffman") if name in settings.forms]
    data = {name: encode(row.to(torch.uint8), levels=LEVELS, coder=name) for name in coders}
    payload = packed.pack(row, LEVELS)
    size = {name: len(message) for name, message in data.items()} | {"packed": len(payload), "bfloat16": 2 * len(row)}
    calls: dict[tuple[str, str], Callable[[], object]] = {
        ("packed", "encode"): lambda: packed.pack_checked(row, LEVELS),
        ("packed", "decode"): lambda: packed.unpack(payload, len(row), LEVELS, torch.int32),
        ("bfloat16", "encode"): lambda: values.to(torch.bfloat16),
        ("bfloat16", "decode"): lambda: short.to(torch.float32),
    }
    for name in data:
        # One byte for each symbol on the way to the host, as a Boundary sends them.
        calls[name, "encode"] = lambda name=name: encode(row.to(torch.uint8), levels=LEVELS, coder=name)
        calls[name, "decode"] = lambda name=name: decode(data[name], device=settings.device)
    calls = {key: call for key, call in calls.items() if key[0] in settings.forms}
    with cpu_threads(settings.threads):
        on_gpu = settings.device.type == "cuda"
        clock = Clock(device=settings.device, repeats=settings.repeats, seconds_per_call=_SECONDS, flush=on_gpu)
        results = dict(zip(calls, clock.race(list(calls.values())), strict=True))
    rows: list[dict[str, Any]] = []
    times: dict[str, Sequence[float]] = {}
    for name in [form for form in FORMS if form in settings.forms]:
        written: dict[str, Any] = {"part": "speed", "rate_weight": rate, "form": name, "bytes": size[name]}
        written["bits_per_activation"] = 8 * size[name] / len(row)
        timed: list[Sequence[float]] = []
        for way in ("encode", "decode"):
            result = results[name, way]
            if isinstance(result, Samples):
                timed.append(result.device)
                written[way] = Quantity.median([1e3 * s for s in result.device], unit="ms")
                rates = [len(row) / s / 1e6 for s in result.device]
                written[f"{way}_speed"] = Quantity.median(rates, unit="million activations/s")
                if name not in data:  # one pass over memory: 4 bytes on one side, the coded ones on the other
                    moved = [(4 * len(row) + size[name]) / s / 1e9 for s in result.device]
                    written[f"{way}_memory"] = Quantity.median(moved, unit="GB/s")
            elif isinstance(result, MissingToolError | RuntimeError | MemoryError):
                written["not_run"] = without_paths(str(result)).splitlines()[0][:200]
            else:
                raise result
        if len(timed) == 2:
            # Samples with the same index come from the same turn; a slow call has fewer.
            times[name] = [encoding + decoding for encoding, decoding in zip(*timed, strict=False)]
        rows.append(written)
    for shorter, longer in PAIRS:
        if shorter in times and longer in times:
            rows.append(_crossover(rate, shorter, longer, size, times))
    return rows


def _crossover(
    rate: float, shorter: str, longer: str, size: dict[str, int], times: dict[str, Sequence[float]]
) -> dict[str, Any]:
    """Samples are paired turn by turn, because the forms were timed in turns."""
    written: dict[str, Any] = {"part": "crossover", "rate_weight": rate, "shorter": shorter, "longer": longer}
    saved = size[longer] - size[shorter]
    slower = [a - b for a, b in zip(times[shorter], times[longer], strict=False)]
    if saved <= 0:
        return written | {"verdict": f"{shorter} is not shorter than {longer} here"}
    cost = Quantity.median([1e3 * seconds for seconds in slower], unit="ms")
    if cost.high <= 0:
        return written | {"verdict": f"every link: {shorter} is no slower to code"}
    if cost.low <= 0:
        return written | {"slower": cost, "verdict": "too close to say: coding takes as long"}
    below = {name: 8e-3 * saved / ms for name, ms in (("value", cost.value), ("low", cost.high), ("high", cost.low))}
    speed = Quantity(**below, repeats=cost.repeats, unit="Mbit/s", statistic="from the median, quartiles of the times")
    return written | {"slower": cost, "below": speed}


def tables(record: Record) -> list[Table]:
    """What was sent, how long symbols are, how quick each form is, and for which links: in the order of the work."""
    settings = record.settings
    training, speed, crossover = (
        [row for row in record.rows if row["part"] == part] for part in ("training", "speed", "crossover")
    )
    where = record.hardware.gpu if settings["device"] == "cuda" else f"CPU, {settings['threads']} thread(s)"
    largest = max(row["largest_difference_of_losses"] for row in training)
    coders = ("entropy", "rans", "huffman", "packed")
    heads = ("bits sent", "entropy", "less than bf16", "than float32")
    sent = []
    for row in training:
        accuracies = [f"{row[f'accuracy_{processes}']:.1%}" for processes in ("two_processes", "one_process")]
        bits = [f"{row['sent'][name]:.2f}" for name in ("bits_per_activation", "entropy")]
        less = [f"{row['sent'][f'less_than_{dtype}']:.1f}x" for dtype in ("bfloat16", "float32")]
        sent.append((f"{row['rate_weight']:g}", *accuracies, *bits, *less))
    coded = []
    for row in speed:
        speeds = [row[f"{way}_speed"].value if f"{way}_speed" in row else None for way in ("encode", "decode")]
        texts = ["not run" if v is None else f"{v:,.3g}" if v < 1000 else f"{v:,.0f}" for v in speeds]
        coded.append((row["form"], f"{row['rate_weight']:g}", f"{row['bits_per_activation']:.2f}", *texts))
    links = []
    for row in crossover:
        link = row["below"].value if "below" in row else 0.0
        below = f"{link / 1000:.3g} Gbit/s" if link >= 1000 else f"{link:.3g} Mbit/s"
        links.append((f"{row['shorter']} or {row['longer']}", f"{row['rate_weight']:g}", row.get("verdict") or below))
    return [
        Table(
            title=f"The digits over two processes, SQUAF-P at the cut, {training[0]['steps']} steps",
            head=("rate penalty", "accuracy", "in one process", *heads),
            rows=sent,
            remarks=(
                "bits sent per activation, with tables and headers, by the coder that is shortest; mean over training",
                f"largest difference of a loss from that in one process: {largest:.1g}",
            ),
            markup=True,
        ),
        Table(
            title="Bits per activation after training (test images, whole messages)",
            head=("rate penalty", *coders),
            rows=[(f"{row['rate_weight']:g}", *(f"{row['bits'][name]:.2f}" for name in coders)) for row in training],
            markup=True,
        ),
        Table(
            title=f"Coding {settings['elements']:,} activations on {where or settings['device']}, million per second",
            head=("form", "rate penalty", "bits", "encode", "decode"),
            rows=coded,
            remarks=failures(replace(record, rows=tuple(speed)), "form"),
            markup=True,
        ),
        Table(
            title="The quicker form by the speed of the link (bytes / bandwidth + coding, nothing overlapped)",
            head=("forms", "rate penalty", "the first is quicker on links below"),
            rows=links,
            markup=True,
        ),
    ]
