"""The curves of a study for TensorBoard: one run for each trial and seed, written when the trial is finished.

folder/
  smelu beta=0.5 1f0c9a3d5b7e2468/     the activation's label and the key of the trial
    seed 0/                            loss/train, loss/validation, accuracy/validation, gradient norm,
    seed 1/                            parameters/..., test/... at the end
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...errors import need_package
from ...files import WriteError
from .trials import Outcome

_TAGS = {
    "train_loss": "loss/train",
    "validation_loss": "loss/validation",
    "validation_accuracy": "accuracy/validation",
    "gradient_norm": "gradient norm",
}
_MOST_LETTERS = 80  # of a label in the name of a folder


class TensorBoardLog:
    """Writes finished outcomes into a folder that `tensorboard --logdir` shows.

    It needs nothing but the outcome, so that it does not matter where the trial ran. A trial that is in the folder
    already is not written again: a study that goes on has each curve once.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        need_package("tensorboard", "--tensorboard needs the package 'tensorboard'", "tensorboard")
        from torch.utils.tensorboard.writer import SummaryWriter

        self._writer: Any = SummaryWriter
        self.folder = Path(folder)

    def outcome(self, outcome: Outcome) -> Path | None:
        """Write all curves and final scores of a trial; where they are, or None of one that has no curves."""
        trial = outcome.trial
        if trial.kind == "cost":
            return None
        place = self.folder / f"{_as_name(trial.activation.label)} {trial.key}"
        if place.exists():
            return place
        fresh = self.folder / f".{secrets.token_hex(4)}.tmp"
        try:
            for index, seed in enumerate(trial.seeds.numbers):
                writer = self._writer(log_dir=str(fresh / f"seed {seed}"))
                try:
                    for tag, value, epoch in _scalars(outcome, index):
                        writer.add_scalar(tag, value, global_step=epoch)
                finally:
                    writer.close()
            fresh.rename(place)  # as a whole: whoever is stopped half-way leaves no half of a curve
        except OSError as error:
            raise WriteError(
                f"The curves of {trial.activation.label!r} could not be written to '{self.folder}' "
                f"({error.strerror or error}). Choose a folder that can be written to and has space."
            ) from error
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        return place


def _scalars(outcome: Outcome, index: int) -> Iterator[tuple[str, float, int]]:
    """Every number of one seed: its tag, its value and its epoch. What a diverged seed does not have is left out."""
    for name, curve in outcome.curves.items():
        for epoch, each in zip(outcome.noted, curve, strict=False):
            if (value := each[index]) is not None:
                yield _TAGS.get(name, name), value, epoch
    for name, way in outcome.parameters.items():
        if isinstance(way["start"], int | float):
            yield f"parameters/{name}", way["start"], 0
        for epoch, each in zip(outcome.noted, way["curve"], strict=False):
            if (value := each[index]) is not None:
                yield f"parameters/{name}", value, epoch
    last = outcome.selected[index] if index < len(outcome.selected) else None
    for part in ("test", "validation", "train"):
        for name, each in getattr(outcome, part).items():
            if (value := each[index]) is not None:
                yield f"{part}/{name}", value, last or outcome.trial.training.epochs


def _as_name(label: str) -> str:
    """A label as the name of a folder: what a file system may not take becomes an underscore."""
    return re.sub(r"[^\w .,=+()-]", "_", label)[:_MOST_LETTERS].strip(" .") or "trial"
