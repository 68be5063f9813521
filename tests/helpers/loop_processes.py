"""What each of two processes does in test_loop_processes, and what they train; apart, because they import it anew."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

import softknee as sk
from softknee.lab.studies.distributed import run_distributed
from softknee.lab.studies.engine import StudyStopped
from softknee.lab.studies.recipe import Choice, Data, Hardening, Model, Recipe, Seeds, Training
from softknee.lab.studies.trials import Outcome
from softknee.train import OneByOne, parallel
from softknee.train.augment import Augment

WORLD = 2
# 29 examples in batches of 7 leave a last batch of 1: one process has nothing to do.
X = torch.randn(29, 3, 8, 8, generator=torch.Generator().manual_seed(0))
Y = (X.mean((1, 2, 3)) > 0).long() + (X[:, 0, 0, 0] > 0.5).long()
FIT = {
    "epochs": 2, "batch": 7, "lr": 0.02, "optimizer": "adamw", "weight_decay": 0.05, "clip": 1.0,
    "gradient_norms": True, "schedule": sk.train.cosine(warmup=0.2), "total_epochs": 4,
    # What is drawn depends on the place in the whole batch, of which a process has a part.
    "augment": Augment(crop=1, flip=True, erasing=0.3),
}  # fmt: skip


class Blocks(nn.Module):
    """In the manner of a transformer: blocks with a learned activation, one that is unused, and a norm between.

    Its logits lie in an object that torch does not look into.
    """

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 11, 4, stride=4)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(11), nn.Linear(11, 23), sk.nn.SReLU(delta=0.5, learn=True), nn.Linear(23, 11))
            for _ in range(2)
        )
        self.unused = nn.Linear(3, 2)
        self.head = nn.Linear(11, 3)

    def forward(self, x: Tensor) -> SimpleNamespace:
        x = self.patches(x).flatten(2).mT
        for block in self.blocks:
            x = x + block(x)
        return SimpleNamespace(logits=self.head(x.mean(1)))


class Normed(nn.Module):
    """Batch norm over images and over rows, and a width for each channel."""

    def __init__(self) -> None:
        super().__init__()
        # A bias before a norm has the gradient 0, whose rounding Adam would make large.
        self.first = nn.Conv2d(3, 5, 3, bias=False)
        self.norm = nn.BatchNorm2d(5)
        self.act = sk.nn.make("smelu", learn=True, per="channel", size=5, beta=0.5)
        self.last = nn.Linear(5, 3, bias=False)
        self.last_norm = nn.BatchNorm1d(3, affine=False, momentum=None)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.norm(self.first(x))).mean((2, 3))
        return self.last_norm(self.last(x))


MODELS = {"blocks": Blocks, "normed": Normed}
SEEDS = {"blocks": [4, 9], "normed": [3]}


def data(name: str) -> dict[str, Any]:
    """The norm of a single row would be of nothing, so that one has batches of 9, with a last one of 2.

    Its activations have an optimiser of their own.
    """
    own = {"activation_optimizer": "rmsprop", "activation_lr": 0.002}
    return {**FIT, "batch": 9, **own} if name == "normed" else FIT


def squared(output: Tensor, target: Tensor) -> Tensor:
    """A loss of one's own."""
    return (output - F.one_hot(target, 3)).square().mean()


def train(name: str, strategy: str) -> dict[str, Any]:
    """Train, freeze, go on, and tell everything."""
    loop = OneByOne(MODELS[name], count=len(SEEDS[name]), seeds=SEEDS[name], strategy=strategy)
    epochs: list[Tensor] = []
    loop.fit(X, Y, **data(name), on_epoch=lambda one: epochs.append(one.predict(X[:5])))
    state = loop.state_dict()
    loop.set_knobs({next(iter(loop.knobs())): [0.4, 0.3][: loop.count]}).freeze_knobs()
    loop.fit(X, Y, **{**data(name), "optimizer": "sgd", "loss": squared, "epochs": 1}, momentum=0.9)
    return {
        "losses": loop.losses,
        "norms": loop.gradient_norms,
        "predictions": loop.predict(X, batch=4),
        "epochs": torch.stack(epochs),
        "weights": loop.weights(),
        "knobs": loop.knobs(),
        "model": {key: value.detach() for key, value in loop.model(-1).state_dict().items()},
        "state": state,
        "shards": sum(held(parameter).numel() for parameter in loop._stack.bare[0].parameters()),
    }


def held(parameter: Any) -> Tensor:
    """What this process has of a parameter."""
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter


def resumed(state: dict[str, Any], strategy: str) -> Tensor:
    loop = OneByOne(Blocks, count=2, seeds=SEEDS["blocks"], strategy=strategy).load_state_dict(state)
    return loop.fit(X, Y, **{**FIT, "epochs": 1}).losses


# -- a study ----------------------------------------------------------------------------------------------


def recipe(strategy: str) -> Recipe:
    """Two activations on the digits, one of them learned and hardened, with batches that two processes cannot halve."""
    return Recipe(
        name="together",
        data=Data(set="digits"),
        model=Model(build="mlp", arguments={"hidden": [16]}),
        activations=(Choice(name="smelu", values={"beta": 0.5}, learn=True, harden=True), Choice(name="relu")),
        training=Training(engine="loop", strategy=strategy, epochs=3, batch=95, learning_rate=0.02),
        seeds=Seeds(count=2),
        hardening=Hardening(start=0.4),
        measures=("prediction_difference", "gradients"),
    )


class Silent:
    """Shows nothing; presses Ctrl-C after so many epochs."""

    def __init__(self, *, ctrl_c_after: int | None = None) -> None:
        self.epochs, self.ctrl_c_after = 0, ctrl_c_after

    def line(self, text: str) -> None: ...

    def status(self, status: Any) -> None:
        self.epochs += status.epoch is not None
        if self.epochs == self.ctrl_c_after:
            signal.raise_signal(signal.SIGINT)

    def close(self) -> None: ...


def told(outcomes: list[Outcome] | None) -> Any:
    """What came of a study, in plain numbers."""
    if outcomes is None:
        return None
    return [{"test": outcome.test, "curves": outcome.curves, "parameters": outcome.parameters} for outcome in outcomes]


def study(folder: str) -> dict[str, Any]:
    """Stopped by Ctrl-C in the first trial, and gone on with."""
    given = {"out": f"{folder}/study", "save_every": 0.0}
    stopped = ""
    try:
        run_distributed(recipe("ddp"), **given, command="softknee study x", display=Silent(ctrl_c_after=2))
    except StudyStopped as error:
        stopped = str(error)
    display = Silent()
    outcomes = told(run_distributed(recipe("ddp"), **given, resume=True, display=display))
    return {"stopped": stopped, "outcomes": outcomes, "epochs": display.epochs}


def process(rank: int, folder: str) -> None:
    """Everything in one start, because importing torch takes longest; the environment is torchrun's."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    result: dict[str, Any] = {"world": parallel.world()}
    try:
        for strategy in ("ddp", "fsdp2"):
            for name in MODELS:
                result[f"{strategy} {name}"] = train(name, strategy)
        result["resumed"] = resumed(result["ddp blocks"]["state"], "fsdp2")
        result["study"] = study(folder)
        torch.save(result, f"{folder}/{rank}.pt")
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
