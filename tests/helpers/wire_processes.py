"""What the two processes of the boundary's tests do: each scenario is a function of the rank, told by its result."""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import signal
import socket
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

import softknee as sk
from softknee.errors import PeerError, SoftkneeError
from softknee.wire import boundary as module
from softknee.wire.channel import Frame, body_of, bytes_of
from softknee.wire.packed import from_bytes
from softknee.wire.sockets import Connection

WORLD, STEPS, BATCH, MICRO = 2, 8, 32, 4
PATIENCE = 300  # seconds that an end waits for the other, which a busy machine may hold up
LAYERS: dict[str, dict[str, Any]] = {
    "auto": {"coder": "auto"},
    "huffman": {"coder": "huffman", "layer": {"per": "channel", "size": 6}},
    "packed": {"coder": "packed", "layer": {"per": "neuron", "size": (6, 8, 8), "k": 4, "q": 0.5}},
    "plain": {"coder": None},
    "half": {"coder": "auto", "gradients": torch.bfloat16},
    "rate": {"coder": "auto", "rate": 0.5},
    "step": {"coder": "packed", "step": True},
    "compiled": {"coder": "auto", "compiled": True},
}


def network(**layer: Any) -> nn.Sequential:
    """A small CNN for images of 8 x 8; the cut is behind its first activation."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        sk.nn.SQUAFP(**({"k": 16, "q": 0.25, "learn": True} | layer)),
        nn.Conv2d(6, 12, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(12 * 9, 10),
    )


def built(case: dict[str, Any]) -> tuple[nn.Module, nn.Module, nn.Module]:
    """What stands before the cut, at it and behind it."""
    whole = network(**case.get("layer", {}))
    return whole[0], whole[1].as_step() if case.get("step") else whole[1], whole[2:]


def digits(folder: str) -> tuple[Tensor, Tensor]:
    return tuple(torch.load(f"{folder}/digits.pt", weights_only=True))


def batches(folder: str) -> list[tuple[Tensor, Tensor]]:
    images, labels = digits(folder)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1))
    return [(images[chosen], labels[chosen]) for chosen in order[: STEPS * BATCH].split(BATCH)]


def optimiser(*parts: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam([p for part in parts for p in part.parameters()], lr=0.01)


def state(**parts: nn.Module) -> dict[str, Tensor]:
    return {f"{name}.{key}": t.clone() for name, part in parts.items() for key, t in part.state_dict().items()}


def alone(name: str, folder: str) -> dict[str, Any]:
    """The same in one process."""
    case = LAYERS[name]
    first, layer, rest = built(case)
    step = optimiser(first, layer, rest)
    penalty = sk.nn.RatePenalty(layer, weight=case["rate"]) if "rate" in case else None
    torch.manual_seed(2)
    losses = []
    for images, labels in batches(folder):
        step.zero_grad()
        loss = F.cross_entropy(rest(layer(first(images))), labels)
        (loss if penalty is None else loss + penalty()).backward()
        step.step()
        losses.append(loss.item())
    return {"losses": losses, "state": state(first=first, layer=layer, rest=rest)}


def counted_sends(cut: sk.wire.Boundary) -> list[int]:
    """The bytes of everything that this end gives to its connection from now on."""
    result: list[int] = []
    connection = cut._channel._connection
    own = connection.send

    def send(tensor: Tensor) -> None:
        result.append(tensor.numel() * tensor.element_size())
        own(tensor)

    connection.send = send
    return result


def train(rank: int, folder: str, name: str) -> dict[str, Any]:
    case = LAYERS[name]
    first, layer, rest = built(case)
    options = {"coder": case["coder"], "gradients": case.get("gradients", torch.float32)}
    losses: list[float] = []
    if rank == 0:
        cut, own = sk.wire.Boundary(layer, to=1, timeout=PATIENCE, **options), {"first": first, "layer": layer}
        penalty = sk.nn.RatePenalty(layer, weight=case["rate"]) if "rate" in case else None
    else:
        cut, own, penalty = sk.wire.Boundary(frm=0, timeout=PATIENCE), {"rest": rest}, None
    step = optimiser(*own.values())
    torch.manual_seed(2)
    sent = counted_sends(cut)
    run: Callable[..., Tensor] = (lambda x: cut(first(x))) if rank == 0 else (lambda: rest(cut.receive()))
    if case.get("compiled"):
        run = torch.compile(run, backend="eager")
    for images, labels in batches(folder):
        step.zero_grad()
        if rank == 0:
            loss = run(images)
            (loss if penalty is None else loss + penalty()).backward()
        else:
            loss = F.cross_entropy(run(), labels)
            loss.backward()
            losses.append(loss.item())
        step.step()
    results = {"losses": losses, "state": state(**own), "traffic": vars(cut.report()), "text": str(cut.report())}
    results["sent"] = sum(sent)
    cut.close()
    return results


SCHEDULES = {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B}


def micro_alone(folder: str, *, trial: bool = False) -> dict[str, Any]:
    """Microbatches one after the other in one process: their gradients are averaged, as a schedule does.

    trial: after a forward pass for the shapes, which draws from the layer's noise.
    """
    first, layer, rest = built(LAYERS["auto"])
    step = optimiser(first, layer, rest)
    torch.manual_seed(2)
    if trial:
        layer(first(torch.zeros(BATCH // MICRO, 1, 8, 8)))
    losses = []
    for images, labels in batches(folder):
        step.zero_grad()
        for x, y in zip(images.chunk(MICRO), labels.chunk(MICRO), strict=True):
            loss = F.cross_entropy(rest(layer(first(x))), y)
            (loss / MICRO).backward()
            losses.append(loss.item())
        step.step()
    return {"losses": losses, "state": state(first=first, layer=layer, rest=rest)}


def pipeline(rank: int, folder: str, name: str, *, told: bool) -> dict[str, Any]:
    """The cut inside a schedule of torch.distributed.pipelining; shapes told to its stages, or found by a trial run."""
    first, layer, rest = built(LAYERS["auto"])
    if rank == 0:
        own = {"first": first, "layer": layer}
        stage_module = nn.Sequential(first, sk.wire.Boundary(layer, to=1, timeout=PATIENCE))
        shapes = {"input_args": torch.zeros(BATCH // MICRO, 1, 8, 8), "output_args": sk.wire.Boundary.ticket()}
    else:
        own = {"rest": rest}
        stage_module = nn.Sequential(sk.wire.Boundary(frm=0, timeout=PATIENCE), rest)
        shapes = {"input_args": sk.wire.Boundary.ticket(), "output_args": torch.zeros(BATCH // MICRO, 10)}
    stage = PipelineStage(stage_module, rank, WORLD, torch.device("cpu"), **(shapes if told else {}))
    schedule = SCHEDULES[name](stage, n_microbatches=MICRO, loss_fn=F.cross_entropy)
    step = optimiser(*own.values())
    torch.manual_seed(2)
    losses: list[float] = []
    for images, labels in batches(folder):
        step.zero_grad()
        if rank == 0:
            schedule.step(images)
        else:
            seen: list[Tensor] = []
            schedule.step(target=labels, losses=seen)
            losses += [loss.item() for loss in seen]
        step.step()
    cut = stage_module[1 if rank == 0 else 0]
    results = {"losses": losses, "state": state(**own), "traffic": vars(cut.report())}
    cut.close()
    return results


def said(do: Callable[[], Any]) -> tuple[str, str, float]:
    """What an error says, its kinds, and after how many seconds."""
    start = time.monotonic()
    try:
        do()
    except SoftkneeError as error:
        kinds = " ".join(kind.__name__ for kind in type(error).__mro__)
        return str(error), kinds, time.monotonic() - start
    return "", "", time.monotonic() - start


def still(rank: int, folder: str) -> dict[str, Any]:
    """Without gradients: the table goes along once, and again when it has changed; then several kinds of misuse."""
    x = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    layer = sk.nn.SQUAFS(k=16, q=0.25, learn=True)
    actual: dict[str, Any] = {
        "ranks": [said(lambda to=to: sk.wire.Boundary(layer, to=to))[0] for to in (rank, WORLD, -1, True)],
        "timeout": said(lambda: sk.wire.Boundary(layer, to=1 - rank, timeout=0))[0],
    }
    if rank == 0:
        cut = sk.wire.Boundary(layer, to=1, timeout=PATIENCE)
        with torch.no_grad():
            for factor in (1.0, 1.0, 2.0):
                layer.z.mul_(factor)
                actual["needs"] = cut(x).requires_grad
            cut(x.double()[:0])
        bad = x.clone()
        bad[0, :2] = torch.nan
        actual["nan"] = [said(lambda: cut(bad))[0]]
        cut.coder = "packed"
        actual["nan"].append(said(lambda: cut(bad))[0])
        actual["sending"] = said(cut.receive)[0]
        twice = cut(x)
        twice.backward(retain_graph=True)
        actual["twice"] = said(twice.backward)[0]
    else:
        cut = sk.wire.Boundary(frm=0, timeout=PATIENCE)
        expected = [layer(x), layer(x), 2 * layer(x)]
        got = [cut.receive() for _ in range(3)]
        actual["equal"] = [torch.equal(a, b) for a, b in zip(got, expected, strict=True)]
        actual["needs"] = any(item.requires_grad for item in got)
        empty = cut.receive()
        actual["empty"] = [list(empty.shape), str(empty.dtype)]
        cut.receive().sum().backward()
    actual["tables"] = cut.report().tables
    cut.close()
    actual["closed"] = said(lambda: cut(x))[0]
    return actual


def altered(rank: int, folder: str) -> list[tuple[str, str, float]]:
    """Bodies with one byte changed, and one that is a gradient, arrive over the real wire."""
    layer = sk.nn.SQUAFS(k=16, q=0.25)
    results = []
    for coder in ("auto", "packed", None):
        for place in (0, -20, -1):
            if rank == 1:
                cut = sk.wire.Boundary(frm=0, timeout=PATIENCE)
                results.append(said(cut.receive))
            else:
                cut = sk.wire.Boundary(layer, to=1, coder=coder, timeout=PATIENCE)
                own = module.body_of

                def changed(*parts: Tensor, device: torch.device, own=own, place=place) -> Tensor:
                    body = own(*parts, device=device)
                    body[place] ^= 64
                    return body

                module.body_of = changed
                cut(torch.randn(50, generator=torch.Generator().manual_seed(0)))
                module.body_of = own
            cut.close()
    if rank == 1:
        cut = sk.wire.Boundary(frm=0, timeout=PATIENCE)
        results.append(said(cut.receive))
    else:
        cut = sk.wire.Boundary(layer, to=1, timeout=PATIENCE)
        body = body_of(torch.zeros(12, dtype=torch.uint8), device=torch.device("cpu"))
        cut._channel.send(Frame("gradient", 0, torch.float32, (3,), len(body)), body)
    with contextlib.suppress(PeerError):  # the other end has left the connection
        cut.close()
    return results


def hostile(rank: int, folder: str) -> dict[str, Any]:
    """One end keeps to no agreement; the other must end with an error, and take memory for nothing but what is due."""
    result: dict[str, Any] = {}
    x = torch.randn(50, generator=torch.Generator().manual_seed(0), requires_grad=True)
    noise = torch.randint(256, (100_000_000,), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    table = Frame("coded", 0, torch.float32, (2**13, 2**13), 2**41 + 50, None, torch.float32, (2**13, 2**13, 2**13))
    table = replace(table, body=table.table_bytes + 50)
    good = Frame("plain", 0, torch.float32, (50,), 208)
    body = body_of(bytes_of(x), device=torch.device("cpu"))

    def asked(cut: sk.wire.Boundary) -> list[int]:
        """The bytes that this end takes memory for, from now on."""
        counts: list[int] = []
        connection, own = cut._channel._connection, cut._channel._connection.receive

        def receive(count: int, timeout: float) -> Tensor:
            counts.append(count)
            return own(count, timeout)

        connection.receive = receive
        return counts

    def raw(frame: Frame) -> Tensor:
        return from_bytes(frame.to_bytes(), "cpu")

    def leave(cut: sk.wire.Boundary) -> None:
        """As a process that is gone, once the other end had its time."""
        with contextlib.suppress(OSError):
            cut._channel._connection.wait_for_sent(0, PATIENCE)
        dist.barrier()
        cut._channel._connection.close()

    forward = {
        "noise": [noise],
        "header": [raw(table)],
        "longer body": [raw(good), body, noise[:1000]],
        "shorter body": [raw(good), body[:100]],
    }
    for name, sent in forward.items():
        if rank == 0:
            cut = sk.wire.Boundary(sk.nn.SQUAFP(k=16, q=0.25), to=1, timeout=PATIENCE)
            for tensor in sent:
                cut._channel._connection.send(tensor)
            if name == "shorter body":
                cut._channel._connection.wait_for_sent(0, PATIENCE)
                cut._channel._connection.close()
                dist.barrier()
            else:
                leave(cut)
        else:
            cut = sk.wire.Boundary(frm=0, timeout=PATIENCE)
            counts = asked(cut)
            if name == "longer body":
                result["whole"] = torch.equal(cut.receive(), x.detach())
            result[name] = [*said(cut.receive), counts]
            cut.close()
            dist.barrier()
    backward = {
        "large gradient": Frame("gradient", 0, torch.float32, (2**26,), 2**28 + 8),
        "strange gradient": Frame("gradient", 7, torch.float32, (50,), 208),
        "wide gradient": Frame("gradient", 0, torch.float64, (50,), 408),
    }
    for name, frame in backward.items():
        if rank == 0:
            cut = sk.wire.Boundary(sk.nn.SQUAFP(k=16, q=0.25), to=1, timeout=PATIENCE)
            loss = cut(x)
            cut._channel.most = 2**26
            counts = asked(cut)
            result[name] = [*said(loss.backward), counts]
            cut.close()
            dist.barrier()
        else:
            cut = sk.wire.Boundary(frm=0, timeout=PATIENCE)
            with torch.no_grad():
                cut.receive()
            cut._channel._connection.send(raw(frame))
            leave(cut)
    return result


def strangers(rank: int, folder: str) -> dict[str, Any]:
    """Others come to the door before the right end does: one says nothing, and one says 1 MB."""
    name = "softknee/boundary/0-1/stranger"
    store = dist.PrefixStore(name, dist.distributed_c10d._get_default_store())
    if rank == 0:
        connection = Connection(store, listens=True, timeout=PATIENCE)
        connection.send(torch.arange(5, dtype=torch.uint8))
    else:
        store.wait(["card"], timedelta(seconds=PATIENCE))
        port = json.loads(store.get("card"))["port"]
        others = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) for _ in range(2)]
        with contextlib.suppress(OSError):
            others[1].sendall(bytes(1_000_000))
        connection = Connection(store, listens=False, timeout=PATIENCE)
        for other in others:
            other.close()
    result = {} if rank == 0 else {"got": connection.receive(5, PATIENCE).tolist()}
    dist.barrier()
    connection.close()
    return result


def silent(rank: int, folder: str) -> dict[str, Any]:
    """Rank 1 takes the activations and sends no gradient."""
    result: dict[str, Any] = {}

    def hurried(cut: sk.wire.Boundary) -> None:
        """A limit of one second, from now on: until the ends have met, a busy machine may hold one up for longer."""
        assert cut._channel.timeout == PATIENCE
        cut._channel.timeout = 1

    if rank == 0:
        layer = sk.nn.SQUAFP(k=16, q=0.25, learn=True)
        cut = sk.wire.Boundary(layer, to=1, timeout=PATIENCE)
        loss = cut(torch.randn(50))
        hurried(cut)
        result["gradient"] = said(loss.backward)
        result["again"] = said(lambda: cut(torch.randn(50)))
    else:
        cut = sk.wire.Boundary(frm=0, timeout=PATIENCE)
        with torch.no_grad():
            cut.receive()
        hurried(cut)
        result["activations"] = said(cut.receive)
    dist.barrier()
    return result


def closing(rank: int, folder: str) -> dict[str, Any]:
    """Ends that close with messages on their way, and ends that close because of an error of their own."""
    result: dict[str, Any] = {}
    x = torch.randn(50, requires_grad=True)

    def cut(**options: Any) -> sk.wire.Boundary:
        layer = sk.nn.SQUAFP(k=16, q=0.25)
        return sk.wire.Boundary(**({"layer": layer, "to": 1} if rank == 0 else {"frm": 0} | options), timeout=PATIENCE)

    own = cut()
    if rank == 0:
        own(x)  # whose gradient nobody asks for
        own(x)  # which nobody takes
    else:
        own.receive().sum().backward()
    result["on their way"] = said(own.close)
    for which in (0, 1):
        own = cut()
        if rank == 0:
            number = own(x)
        else:
            own.receive()
        if rank == which:
            result["own error"] = said(own.close)
        else:
            result["waits"] = said(number.backward if rank == 0 else own.receive)
            own.close()
    own = cut(most=10)
    result["most"] = said(own(x).backward if rank == 0 else own.receive)
    result["after most"] = said(own.receive if rank else lambda: own(x))
    own.close()
    return result


def killed(rank: int, folder: str) -> dict[str, Any]:
    """Rank 1 is killed while rank 0 waits for it; the last thing of all."""
    if rank == 1:
        cut = sk.wire.Boundary(frm=0, timeout=PATIENCE)
        cut.receive()
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    layer = sk.nn.SQUAFP(k=16, q=0.25, learn=True)
    cut = sk.wire.Boundary(layer, to=1, timeout=PATIENCE)
    loss = cut(torch.randn(50))
    return {"gradient": said(loss.backward), "send": said(lambda: cut(torch.randn(50)))}


def example(rank: int, folder: str) -> str:
    """What the example of docs/wire.md prints; it makes and ends its own process group."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(f"{folder}/example.py")["run"](rank, folder)
    return printed.getvalue()


def process(rank: int, folder: str) -> None:
    """Everything in one start, because importing torch takes longest."""
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    # torch's compiler looks at .grad of what comes over a break of its graph.
    warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf", UserWarning)
    result: dict[str, Any] = {"example": example(rank, folder)}
    store = dist.FileStore(f"{folder}/ranks", WORLD)  # a port that was free a while ago may be another's by now
    dist.init_process_group("gloo", rank=rank, world_size=WORLD, store=store, timeout=timedelta(seconds=PATIENCE))
    for name in LAYERS:
        result[f"train {name}"] = train(rank, folder, name)
    for name in SCHEDULES:
        result[f"pipeline {name}"] = pipeline(rank, folder, name, told=True)
    result["pipeline trial"] = pipeline(rank, folder, "GPipe", told=False)
    for scenario in (still, altered, hostile, strangers, closing, silent):
        result[scenario.__name__] = scenario(rank, folder)
    torch.save(result, f"{folder}/{rank}.pt")
    dist.barrier()
    end = killed(rank, folder)
    torch.save(end, f"{folder}/end.pt")
