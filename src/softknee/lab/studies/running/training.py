"""The epochs of a trial: from its beginning, or from where it was saved."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ....errors import ParameterError, SoftkneeError
from ....train.augment import Augment
from ..recipe import Hardening
from ..trial import Trial
from .hardening import StackedHardening
from .progress import Progress
from .saving import SavedError, pack, unpack
from .sites import Followed
from .trainer import Trainer, fit_settings, products_of
from .watch import Watch


class _AllDiverged(Exception):
    """Nothing is left to train."""


def train(
    trial: Trial,
    trainer: Trainer,
    *,
    task: str,
    train_examples: tuple[Tensor, Tensor],
    validation: tuple[Tensor, Tensor] | None,
    saved: Mapping[str, bytes] | None,
    watch: Watch,
    augment: Augment | None = None,
) -> Progress:
    """Train to the end; what came of every epoch. Afterwards the trainer has the weights of the selected epochs."""
    chosen, total = trial.activation, trial.training.epochs
    hardening = None
    if chosen.harden:
        hardening = StackedHardening(trainer, total=total, settings=trial.hardening or Hardening())
    keep_best = trial.select == "best_val" and hardening is None
    if keep_best and validation is None:
        raise ParameterError(
            "select: best_val chooses epochs by validation examples, and there are none; give data a share of "
            "validation, or select: last."
        )
    gradients = "gradients" in trial.measures
    followed = Followed(trainer.model(0), hardening.names if hardening else ())
    progress = Progress(
        count=trainer.count,
        task=task,
        keep_best=keep_best,
        followed=followed,
        gradients=gradients,
        start=followed.now(trainer),
    )
    if saved is not None:
        _go_on(trial, trainer, progress, hardening, saved)
    x, y = train_examples
    settings = fit_settings(trial.training, task=task, gradients=gradients) | {"augment": augment}
    steps = math.ceil(len(x) / trial.training.batch)

    def save() -> dict[str, bytes]:
        state: dict[str, Any] = {"trainer": trainer.state_dict(), "progress": progress.state()}
        return pack(state | ({"hardening": hardening.state()} if hardening else {}), of=trial.key)

    def prepare_next() -> None:
        if hardening is not None:
            hardening.prepare(trainer, trainer.epoch + 1, progress.alive)

    # What is frozen is left alone from the next `fit` on, so that the two parts of a hardening are two of them.
    ends = [end for end in (hardening.last_free if hardening else 0, total) if end]
    for end in ends:

        def after_epoch(_: Any, end: int = end) -> None:
            progress.passed(trainer)
            if trainer.epoch % trial.training.every == 0 or trainer.epoch == total:
                progress.note(trainer, steps=steps, validation=validation)
            elif trainer.epoch == end:
                progress.look(trainer, steps=steps)  # who has diverged is not frozen
            watch.epoch(trainer.epoch, total, save)
            if not progress.alive:
                raise _AllDiverged
            if trainer.epoch < end:
                prepare_next()

        if trainer.epoch < end and progress.alive:
            prepare_next()
            try:
                with products_of(trial.training):
                    trainer.fit(
                        x,
                        y,
                        epochs=end - trainer.epoch,
                        on_step=lambda _: watch.step(),
                        on_epoch=after_epoch,
                        **settings,
                    )
            except _AllDiverged:
                break
    if keep_best and progress.alive:
        trainer.load_weights(progress.best_weights)
    return progress


def _go_on(
    trial: Trial,
    trainer: Trainer,
    progress: Progress,
    hardening: StackedHardening | None,
    saved: Mapping[str, bytes],
) -> None:
    state = unpack(saved, of=trial.key)
    try:
        trainer.load_state_dict(state["trainer"])
        progress.load(state["progress"], device=trainer.device)
        if hardening is not None:
            hardening.load(state["hardening"])
    except (SoftkneeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise SavedError(
            f"The saved state of the trial does not fit it ({error}); it is of another version. Leave it out, and the "
            "trial begins anew."
        ) from error


def selected_epochs(progress: Progress, trainer: Trainer) -> tuple[int | None, ...]:
    """The epoch that each seed's numbers are of; None of one that diverged."""
    last = trainer.epoch
    return tuple(
        None if gone is not None else int(rank[2]) if progress.keep_best else last
        for gone, rank in zip(progress.diverged, progress.best, strict=True)
    )
