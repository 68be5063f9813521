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
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
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
from .clock import Clock, Samples

# -- a small CNN trained over two processes with a Boundary at the cut, and the same in one process --------


CHANNELS = 16
_LR = 0.003


@dataclass(frozen=True, kw_only=True)
class Data:
    """Images of 8 x 8 with one channel, and their labels 0 to 9."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    def to(self, device: torch.device) -> Data:
        return Data(**{name: value.to(device) for name, value in vars(self).items()})


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training: how long, with which weight of the rate penalty, coded how."""

    device: str
    epochs: int
    batch: int
    seed: int
    rate: float
    coder: str = "auto"
    threads: int = 1
    timeout: float = 120.0


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What came of it; `traffic` is that of training alone, `symbols` are those of the test images."""

    losses: list[float]
    accuracy: float
    traffic: Traffic | None = None
    symbols: Tensor | None = None


def parts(seed: int) -> tuple[nn.Module, SQUAFP, nn.Module]:
    """The network before the cut, the layer at it, and the network behind it."""
    torch.manual_seed(seed)
    return (
        nn.Conv2d(1, CHANNELS, 3, padding=1),
        SQUAFP(k=16, q=0.25, learn=True),
        nn.Sequential(nn.Conv2d(CHANNELS, 32, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 9, 10)),
    )


def train_alone(job: Job, data: Data) -> Trained:
    """In one process."""
    with _steady(job), ExitStack() as stack:
        data = data.to(torch.device(job.device))
        first, layer, rest = (part.to(job.device) for part in parts(job.seed))
        penalty = stack.enter_context(RatePenalty(layer, weight=job.rate)) if job.rate else None
        model = nn.Sequential(first, layer, rest)
        losses: list[float] = []

        def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
            loss = F.cross_entropy(model(batch[0]), batch[1])
            losses.append(loss.item())
            return loss if penalty is None else loss + penalty()

        torch.manual_seed(job.seed)
        fit(model, _batches(job, data), loss_of, optimizer=_adam(model))
        with torch.no_grad():
            right = model(data.test_images).argmax(1) == data.test_labels
    return Trained(losses=losses, accuracy=right.double().mean().item())


def train_cut(job: Job, data: Data) -> Trained:
    """In two processes, which are started for it and meet through a file."""
    if not (dist.is_available() and dist.is_gloo_available()):
        raise MissingToolError("Two processes need gloo, which this torch was built without.")
    with tempfile.TemporaryDirectory() as folder:
        torch.save({name: value.cpu() for name, value in vars(data).items()}, f"{folder}/data.pt")
        spawn(_end, args=(job, folder), nprocs=2)
        sender, receiver = (torch.load(Path(folder) / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    traffic = Traffic(**sender["traffic"])
    return Trained(losses=receiver["losses"], accuracy=receiver["accuracy"], traffic=traffic, symbols=sender["symbols"])


def _end(rank: int, job: Job, folder: str) -> None:
    """One of the two processes."""
    if "lo" in {name for _, name in socket.if_nameindex()}:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.FileStore(f"{folder}/store", 2)  # pyright: ignore[reportPrivateImportUsage]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=job.timeout))
    data = Data(**torch.load(f"{folder}/data.pt", weights_only=True)).to(torch.device(job.device))
    with _steady(job):
        found = (_sender if rank == 0 else _receiver)(job, data)
    torch.save(found, f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def _sender(job: Job, data: Data) -> dict[str, Any]:
    first, layer, _ = parts(job.seed)
    first.to(job.device)
    layer.to(job.device)
    penalty = RatePenalty(layer, weight=job.rate) if job.rate else None
    boundary = Boundary(layer, to=1, coder=job.coder, timeout=job.timeout)
    sending = nn.Sequential(first, layer)

    def loss_of(_: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        loss = boundary(first(batch[0])).squeeze()
        return loss if penalty is None else loss + penalty()

    torch.manual_seed(job.seed)
    fit(sending, _batches(job, data), loss_of, optimizer=_adam(sending))
    traffic = boundary.report()
    with torch.no_grad():
        boundary(first(data.test_images))
        symbols = layer.symbols(first(data.test_images)).to(torch.uint8).cpu()
    boundary.close()
    return {"traffic": vars(traffic), "symbols": symbols}


def _receiver(job: Job, data: Data) -> dict[str, Any]:
    *_, rest = parts(job.seed)
    rest.to(job.device)
    boundary = Boundary(frm=0, device=job.device, timeout=job.timeout)

    def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(model(boundary.receive()), batch[1])

    losses = fit(rest, _batches(job, data), loss_of, optimizer=_adam(rest)).tolist()
    with torch.no_grad():
        right = rest(boundary.receive()).argmax(1) == data.test_labels
    boundary.close()
    return {"losses": losses, "accuracy": right.double().mean().item()}


def _adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=_LR)


def _batches(job: Job, data: Data) -> list[tuple[Tensor, Tensor]]:
    """All batches of all epochs, the same in every process."""
    draw = torch.Generator().manual_seed(job.seed)
    orders = [torch.randperm(len(data.train_labels), generator=draw) for _ in range(job.epochs)]
    chosen = [one.to(data.train_labels.device) for order in orders for one in order.split(job.batch)]
    return [(data.train_images[one], data.train_labels[one]) for one in chosen]


class _steady:
    """The threads of the job, and convolutions whose sums have a fixed order; afterwards as it was."""

    def __init__(self, job: Job) -> None:
        self.threads = job.threads

    def __enter__(self) -> None:
        cudnn: Any = torch.backends.cudnn
        self.before = torch.get_num_threads(), cudnn.deterministic, cudnn.benchmark
        torch.set_num_threads(self.threads)
        cudnn.deterministic, cudnn.benchmark = True, False

    def __exit__(self, *_: object) -> None:
        cudnn: Any = torch.backends.cudnn
        threads, cudnn.deterministic, cudnn.benchmark = self.before
        torch.set_num_threads(threads)


# -- activations on the wire ------------------------------------------------------------------------------
#
# What a cut model sends, how quickly each coder works, and which link each is for.


LEVELS = 33
_SECONDS = 10.0  # for the samples of one call; a slow one gets fewer
FORMS = ("rans", "huffman", "packed", "bfloat16")  # from the shortest to the longest
PAIRS = (("rans", "packed"), ("huffman", "packed"), ("packed", "bfloat16"), ("rans", "bfloat16"))


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
        values = {"epochs": self.epochs, "batch": self.batch, "elements": self.elements, "repeats": self.repeats}
        for name, value in (values | {"threads": self.threads}).items():
            if value < 1:
                raise ParameterError(f"The benchmark needs {name} of at least 1, not {value}.")
        for name in self.forms:
            if name not in FORMS:
                raise ParameterError(f"There is no form {name!r} to time, only {', '.join(FORMS)}.")
        if not self.rates or min(self.rates) < 0 or len(set(self.rates)) < len(self.rates):
            raise ParameterError(
                f"The benchmark needs different weights of the rate penalty, none below 0, and {self.rates} were given."
            )


def measure(settings: Settings, data: Data, *, command: str, report: Callable[[str], None] = lambda _: None) -> Record:
    """Train, code and time; `report` is told what is being done."""
    rows: list[dict[str, Any]] = []
    for rate in settings.rates:
        job = Job(
            device=settings.device.type,
            epochs=settings.epochs,
            batch=settings.batch,
            seed=settings.seed,
            rate=rate,
            threads=settings.threads,
        )
        report(f"training in one process, rate penalty {rate:g}")
        alone = train_alone(job, data)
        report(f"training in two processes, rate penalty {rate:g}")
        cut = train_cut(job, data)
        rows.append(_training_row(rate, alone, cut))
        assert cut.symbols is not None
        report(f"coding, rate penalty {rate:g}")
        rows += _speed_rows(settings, cut.symbols, rate)
    return Record.now(
        "bench wire",
        command=command,
        rows=rows,
        seeds=(settings.seed,),
        baseline="the same network with the same seeds in one process; activations as float32 and bfloat16",
        settings={
            "device": settings.device.type,
            "rates": settings.rates,
            "epochs": settings.epochs,
            "batch": settings.batch,
            "elements": settings.elements,
            "repeats": settings.repeats,
            "forms": settings.forms,
            "threads": settings.threads,
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


def _training_row(rate: float, alone: Trained, cut: Trained) -> dict[str, Any]:
    traffic, symbols = cut.traffic, cut.symbols
    assert traffic is not None
    assert symbols is not None
    found = sizes(symbols, LEVELS)
    return {
        "part": "training",
        "rate_weight": rate,
        "steps": len(cut.losses),
        "accuracy_one_process": alone.accuracy,
        "accuracy_two_processes": cut.accuracy,
        "last_loss_one_process": alone.losses[-1],
        "largest_difference_of_losses": max(abs(a - b) for a, b in zip(alone.losses, cut.losses, strict=True)),
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
        "bits": {name: getattr(found, name) for name in ("entropy", "rans", "huffman", "packed")},
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
    size = {name: len(one) for name, one in data.items()} | {"packed": len(payload), "bfloat16": 2 * len(row)}
    calls: dict[tuple[str, str], Callable[[], object]] = {}
    for name in data:
        # One byte for each symbol on the way to the host, as a Boundary sends them.
        calls[name, "encode"] = lambda name=name: encode(row.to(torch.uint8), levels=LEVELS, coder=name)
        calls[name, "decode"] = lambda name=name: decode(data[name], device=settings.device)
    calls["packed", "encode"] = lambda: packed.pack_checked(row, LEVELS)
    calls["packed", "decode"] = lambda: packed.unpack(payload, len(row), LEVELS, torch.int32)
    calls["bfloat16", "encode"] = lambda: values.to(torch.bfloat16)
    calls["bfloat16", "decode"] = lambda: short.to(torch.float32)
    calls = {key: call for key, call in calls.items() if key[0] in settings.forms}
    threads = torch.get_num_threads()
    torch.set_num_threads(settings.threads)
    try:
        on_gpu = settings.device.type == "cuda"
        clock = Clock(device=settings.device, repeats=settings.repeats, seconds_per_call=_SECONDS, flush=on_gpu)
        taken = dict(zip(calls, clock.race(list(calls.values())), strict=True))
    finally:
        torch.set_num_threads(threads)
    rows: list[dict[str, Any]] = []
    times: dict[str, Sequence[float]] = {}
    for name in [one for one in FORMS if one in settings.forms]:
        found = [taken[name, way] for way in ("encode", "decode")]
        written: dict[str, Any] = {"part": "speed", "rate_weight": rate, "form": name, "bytes": size[name]}
        written["bits_per_activation"] = 8 * size[name] / len(row)
        for way, one in zip(("encode", "decode"), found, strict=True):
            if isinstance(one, MissingToolError | RuntimeError | MemoryError):
                written["not_run"] = without_paths(str(one)).splitlines()[0][:200]
            elif isinstance(one, Exception):
                raise one
            else:
                written[way] = Quantity.median([1e3 * s for s in one.device], unit="ms")
                rates = [len(row) / s / 1e6 for s in one.device]
                written[f"{way}_speed"] = Quantity.median(rates, unit="million activations/s")
                if name not in data:  # one pass over memory: 4 bytes on one side, the coded ones on the other
                    moved = [(4 * len(row) + size[name]) / s / 1e9 for s in one.device]
                    written[f"{way}_memory"] = Quantity.median(moved, unit="GB/s")
        if all(isinstance(one, Samples) for one in found):
            # Samples with the same place were taken in the same turn; a slow call has fewer.
            times[name] = [a + b for a, b in zip(found[0].device, found[1].device, strict=False)]  # pyright: ignore
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
