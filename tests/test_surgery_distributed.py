"""Models after surgery in two real processes: DDP and FSDP2 train them as one process does, and harden them."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import processes
import softknee as sk
from softknee.errors import InputError
from softknee.surgery.modules import activation_modules

WORLD, STEPS, BATCH = 2, 3, 4
SHARDS = hasattr(torch.cpu.Stream, "record_event")
sharding = pytest.mark.skipif(not SHARDS, reason="torch 2.6 runs fully_shard on GPUs only.")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (dist.is_available() and dist.is_gloo_available()), reason="This torch was built without gloo."
    ),
]


class Calls(nn.Module):
    """Activations that are called in forward; widths that two processes divide and widths that they do not."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 7, 3, padding=1)
        self.hidden = nn.Linear(7, 12)
        self.last = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.convolution(x)).mean((2, 3))
        return self.last(torch.relu(self.hidden(x)))


class Blocks(nn.Module):
    """A residual net of blocks with GELU, in the manner of a transformer of timm (which takes long to import)."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 24, 4, stride=4)
        self.position = nn.Parameter(0.1 * torch.randn(1, 24, 4, 4))
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 24)) for _ in range(2)
        )
        self.head = nn.Linear(24, 5)

    def no_weight_decay(self) -> set[str]:
        """timm's convention; its names are the model's own, whatever is wrapped around it."""
        return {"position"}

    def forward(self, x: Tensor) -> Tensor:
        x = (self.patches(x) + self.position).flatten(2).mT
        for block in self.blocks:
            x = x + block(x)
        return self.head(x.mean(1))


def blocks() -> nn.Module:
    """One learned number for each block: a tensor of one element, which two processes cannot halve."""
    torch.manual_seed(0)
    model = Blocks()
    sk.swap_(model, "srelu", replacing="gelu", learn="delta", delta=0.5)
    return model


def calls() -> nn.Module:
    """A width for each channel, at sites that were calls of functions."""
    torch.manual_seed(0)
    model = Calls()
    sk.swap_(model, "smelu", learn=True, per="channel", beta=0.5, example=torch.zeros(1, 3, 16, 16))
    return model


MODELS: dict[str, Callable[[], nn.Module]] = {"blocks": blocks, "calls": calls}


def data(step: int) -> tuple[Tensor, Tensor]:
    """The joint batch of a step."""
    draw = torch.Generator().manual_seed(step)
    images = torch.randn(WORLD * BATCH, 3, 16, 16, generator=draw)
    return images, torch.randint(5, (WORLD * BATCH,), generator=draw)


def train(model: nn.Module, part: slice) -> None:
    optimiser = torch.optim.SGD(sk.param_groups(model, lr=0.05, weight_decay=0.01), momentum=0.9)
    for step in range(STEPS):
        images, labels = (tensor[part] for tensor in data(step))
        optimiser.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimiser.step()


def sharded(name: str) -> nn.Module:
    model = MODELS[name]()
    mesh = init_device_mesh("cpu", (WORLD,))
    for block in getattr(model, "blocks", ()):
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def refusal(model: nn.Module) -> str:
    try:
        sk.swap_(model, "smelu")
    except InputError as error:
        return str(error)
    return ""


def hardened(rank: int) -> str:
    """Each sees its own data, and the targets of the first hold for both; a sharded knob is refused."""

    def net(**settings: Any) -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), sk.nn.LambdaGELU(**settings), nn.Linear(8, 1))

    wrapped = DistributedDataParallel(net(learn=True), find_unused_parameters=True)
    own = [torch.randn(64, 4, generator=torch.Generator().manual_seed(rank)) for _ in range(2)]
    hardener = sk.Hardener(wrapped, total=4, start=2, data=own)
    optimiser = torch.optim.AdamW(sk.param_groups(wrapped, lr=0.05))
    for e in range(1, 5):
        hardener.step(e)
        for x in own:
            optimiser.zero_grad()
            wrapped(x).square().mean().backward()
            optimiser.step()
    for value in [p.detach().clone() for p in wrapped.parameters()]:
        both = [torch.empty_like(value) for _ in range(WORLD)]
        dist.all_gather(both, value)
        assert torch.equal(*both), value
    assert hardener.sites[0].module.lam.item() > 2
    if not SHARDS:
        return "hardened"
    with pytest.raises(sk.ParameterError, match="learn=False"):
        sk.Hardener(fully_shard(net(learn=True)), total=4)
    fixed: Any = fully_shard(net())
    hardener = sk.Hardener(fixed, total=2, start=1)
    hardener.step(1)
    hardener.step(2)
    assert abs(fixed[1].lam.item() - 159.576912161) < 1e-4
    fixed(own[0]).mean().backward()
    return "hardened"


def process(rank: int, folder: str) -> None:
    """What each of the two processes does; everything in one start, because importing torch takes longest."""
    store = dist.FileStore(f"{folder}/store", WORLD)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD, timeout=timedelta(seconds=900))
    part = slice(rank * BATCH, (rank + 1) * BATCH)
    result: dict[str, Any] = {}
    try:
        for name, make in MODELS.items():
            replicated = DistributedDataParallel(make())
            train(replicated, part)
            result[f"ddp {name}"] = dict(replicated.module.state_dict())
            result[f"ddp {name} refuses"] = refusal(replicated)
            if not SHARDS:
                continue
            model = sharded(name)
            own = [p for module in activation_modules(model).values() for p in module.parameters()]
            result[f"fsdp {name} held"] = [p.to_local().numel() for p in own if isinstance(p, DTensor)]
            train(model, part)
            result[f"fsdp {name}"] = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
            result[f"fsdp {name} refuses"] = refusal(model)
        try:
            result["hardener"] = hardened(rank)
        except BaseException:  # a failed `pytest.raises` is no Exception; the test below shows what went wrong
            result["hardener"] = traceback.format_exc()
        torch.save(result, f"{folder}/{rank}.pt")
        # torch 2.6 may never end where its own thread still holds the last tensor that was sent as the group goes.
        dist.barrier()
        time.sleep(0.2)
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the processes found, one dict each."""
    folder: Path = tmp_path_factory.mktemp("processes")
    processes.run(process, str(folder))
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(WORLD)]


@pytest.fixture(scope="module")
def alone() -> dict[str, dict[str, Tensor]]:
    """One process on the joint batch."""
    results = {}
    for name, make in MODELS.items():
        model = make()
        start = {key: value.clone() for key, value in model.state_dict().items()}
        train(model, slice(None))
        results[name] = dict(model.state_dict())
        moved = [key for key, value in results[name].items() if not torch.equal(value, start[key])]
        assert len(moved) == len(list(model.parameters()))  # everything was trained, the activations too
    return results


every_model = pytest.mark.parametrize("name", MODELS)
both_ways = pytest.mark.parametrize("way", ["ddp", pytest.param("fsdp", marks=sharding)])


@every_model
@both_ways
def test_two_processes_train_as_one_does(name: str, way: str, results: list, alone: dict):
    """The mean of two means is the mean over the joint batch, up to the rounding of float32."""
    for rank in range(WORLD if way == "ddp" else 1):
        state = results[rank][f"{way} {name}"]
        assert state.keys() == alone[name].keys()
        for key, expected in alone[name].items():
            assert state[key].shape == expected.shape
            torch.testing.assert_close(
                state[key], expected, rtol=1e-5, atol=1e-6, msg=lambda text, k=key: f"{k}: {text}"
            )


@every_model
def test_both_processes_have_the_same_bits(name: str, results: list):
    first, second = (result[f"ddp {name}"] for result in results)
    assert sum("raw_" in key for key in first) == 2
    assert all(torch.equal(first[key], second[key]) for key in first)


@sharding
def test_shards_hold_every_element_once(results: list):
    """A single number lies whole in one process, and the other holds nothing of it."""
    assert [result["fsdp blocks held"] for result in results] == [[1, 1], [0, 0]]
    assert [match["fsdp calls held"] for match in results] == [[4, 6], [3, 6]]


@sharding
@every_model
def test_gathered_weights_load_into_a_model_of_one_process(name: str, results: list):
    model = MODELS[name]()
    model.load_state_dict(results[0][f"fsdp {name}"], strict=True)
    images, _ = data(0)
    assert model(images).isfinite().all()


@every_model
@both_ways
def test_a_wrapped_model_is_not_operated_on(name: str, way: str, results: list):
    for result in results:
        assert "swap first, then wrap" in result[f"{way} {name} refuses"]


def test_both_harden_to_the_same_numbers(results: list):
    for result in results:
        assert result["hardener"] == "hardened", result["hardener"]
