"""The hardener as a callback: for the Trainer of transformers and for the Trainer of Lightning.

Both keep the hardener's state in their checkpoints and go on from it when training is resumed. The state is applied
when training begins, after the optimiser was made: a knob that is frozen earlier would be missing from its groups.
"""

from __future__ import annotations

import importlib
import math
import sys
import zlib
from typing import TYPE_CHECKING, Any

from ...errors import MissingToolError, ParameterError
from .sites import refuse_strict_ddp

if TYPE_CHECKING:
    from .hardener import Hardener

_EVERY = ("epoch", "step")


def transformers_callback(hardener: Hardener, *, every: str = "epoch", metric: str | None = None) -> Any:
    """A `transformers.TrainerCallback` that steps the hardener before each epoch, or before each optimiser step.

    metric: which entry of the evaluation's metrics a hardener with start="plateau" looks at, such as "eval_loss".
    """
    _check(hardener, every, metric)
    trainer_callback = _imported("transformers.trainer_callback", "transformers", "pip install 'softknee[text]'")
    seen: dict[str, float] = {}

    exportable: Any = getattr(trainer_callback, "ExportableState", object)  # transformers 4.42 and later

    class HardenerCallback(trainer_callback.TrainerCallback, exportable):
        """Made for one hardener: when a Trainer restores callbacks it makes them anew, without arguments."""

        saved: Any = None

        def state(self) -> dict[str, Any]:
            return {"args": {}, "attributes": {"saved": {"hardener": hardener.state_dict(), "metric": dict(seen)}}}

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            # The checkpoint's own record of its callbacks is there whether the Trainer restores them or not.
            record = state.stateful_callbacks.get(type(self).__name__, {})
            saved = self.saved or record.get("attributes", {}).get("saved")
            if saved and state.global_step:
                hardener.load_state_dict(saved["hardener"])
                seen.update(saved["metric"])
            self.saved = None
            _refuse_short(hardener, state.max_steps if every == "step" else math.ceil(state.num_train_epochs), every)

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if every == "epoch":
                # A resumed epoch has a part of itself behind it.
                hardener.step(math.floor((state.epoch or 0) + 1e-6) + 1, metric=seen.pop("metric", None))

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if every == "step":
                hardener.step(state.global_step + 1, metric=seen.pop("metric", None))

        def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:
            if metric is not None:
                seen["metric"] = _entry(metrics or {}, metric)

    HardenerCallback.__name__ = _key(hardener)
    return HardenerCallback()


def lightning_callback(hardener: Hardener, *, every: str = "epoch", metric: str | None = None) -> Any:
    """A `lightning.pytorch.Callback` that steps the hardener before each epoch, or before each optimiser step.

    metric: which metric logged in validation a hardener with start="plateau" looks at, such as "val_loss".
    """
    _check(hardener, every, metric)
    # Who works with the package under its older name has a Trainer of that package.
    older = "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules
    lightning = _imported("pytorch_lightning" if older else "lightning.pytorch", "lightning", "pip install lightning")

    seen: dict[str, float] = {}

    class HardenerCallback(lightning.Callback):
        saved: Any = None

        @property
        def state_key(self) -> str:
            return _key(hardener)

        def state_dict(self) -> dict[str, Any]:
            return {"hardener": hardener.state_dict(), "metric": dict(seen)}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            self.saved = state_dict

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            refuse_strict_ddp(trainer.strategy.model, hardener.sites)
            if self.saved is not None:
                hardener.load_state_dict(self.saved["hardener"])
                seen.update(self.saved["metric"])
            self.saved = None
            total = trainer.max_epochs if every == "epoch" else trainer.estimated_stepping_batches
            if total is not None and 0 <= total < math.inf:
                _refuse_short(hardener, total, every)

        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            if every == "epoch":
                hardener.step(trainer.current_epoch + 1, metric=seen.pop("metric", None))

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            # global_step counts the optimiser's steps: the batches that are accumulated into one share its number.
            if every == "step" and trainer.global_step + 1 > hardener.position:
                hardener.step(trainer.global_step + 1, metric=seen.pop("metric", None))

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            if metric is not None and not trainer.sanity_checking:
                seen["metric"] = _entry(trainer.callback_metrics, metric)

    return HardenerCallback()


def _key(hardener: Hardener) -> str:
    """A name that tells two hardeners of one model apart, the same when training is resumed."""
    return f"Hardener_{zlib.crc32(' '.join(site.path for site in hardener.sites).encode()):08x}"


def _check(hardener: Hardener, every: str, metric: str | None) -> None:
    if every not in _EVERY:
        raise ParameterError(f"A hardener's callback steps every 'epoch' or every 'step', and {every!r} was given.")
    if hardener.plateau is not None and metric is None:
        raise ParameterError(
            "The hardener waits for a metric to flatten (start='plateau'); name it, for instance metric='eval_loss'."
        )


def _refuse_short(hardener: Hardener, trained: float, every: str) -> None:
    if trained < hardener.total:
        raise ParameterError(
            f"The hardener needs {hardener.total} {every}s to bring its knobs to their targets, and the Trainer trains "
            f"for {trained:g}. Give both the same total, or choose every='{'step' if every == 'epoch' else 'epoch'}'."
        )


def _entry(metrics: Any, name: str) -> float:
    if name not in metrics:
        raise ParameterError(
            f"The hardener waits for the metric {name!r} to flatten, and there are "
            f"{', '.join(sorted(metrics)) or 'none'}."
        )
    return float(metrics[name])


def _imported(module: str, package: str, pip: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingToolError(
            f"This callback is for the Trainer of {package!r}, which is not installed. Install it with: {pip}"
        ) from error
