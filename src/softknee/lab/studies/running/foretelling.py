"""With progressive validation a trial is judged by what its models said of examples before they were trained on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from ..examples import Examples
from ..trial import Trial
from .trainer import Trainer


def foretold(trial: Trial, trainer: Trainer, examples: Examples) -> tuple[Examples, Tensor | None]:
    """The examples with those in the place of the test that are judged, and the outputs [M, n, ...] that each of them
    had before its step; without progressive validation the examples as they are, and None.

    The last `training.progressive` of the training examples in their order are judged: the same ones in every model.
    """
    share = trial.training.progressive
    if share is None:
        return examples, None
    said: Any = getattr(trainer, "foretold", None)
    assert said is not None, "a progressive trial is trained by Replicas, which kept them"
    first = judged_from(len(examples.train_x), share)
    return replace(examples, test_x=examples.train_x[first:], test_y=examples.train_y[first:]), said[:, first:]


def judged_from(count: int, share: float) -> int:
    """The place of the first example that is judged, of so many.

    >>> judged_from(7200, 0.5), judged_from(3, 0.01)
    (3600, 2)
    """
    return min(count - round(count * share), count - 1)
