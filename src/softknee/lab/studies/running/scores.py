"""How good the models of a trial are on some examples: one number for every seed, None for one that diverged."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor

from ....measure import Score, accuracy, auc, expected_calibration_error, log_loss, mse, psnr, r2, ssim
from ....train.streamed import Streamed
from ..outcome import Each

REGRESSION = "regression"
_AT_ONCE = 16_384  # examples on a disk whose outputs are held at once: 1,000 classes and 3 models take 200 MB


def spread_out(values: Sequence[float], rows: Sequence[int], count: int) -> Each:
    """The values of some seeds in the places of all; None elsewhere, and for what is no finite number."""
    found: list[float | None] = [None] * count
    for row, value in zip(rows, values, strict=True):
        found[row] = float(value) if abs(value) < float("inf") else None
    return tuple(found)


def finite_rows(outputs: Tensor) -> Tensor:
    """Which models have finite numbers alone in a tensor [M, ...]; [M] on the CPU."""
    return outputs.reshape(len(outputs), -1).isfinite().all(dim=1).cpu()


def logits_of(outputs: Tensor) -> Tensor:
    """[M, N, L]; one output is the log-odds of label 1 of two."""
    outputs = outputs.unsqueeze(2) if outputs.dim() == 2 else outputs
    return torch.cat([torch.zeros_like(outputs), outputs], dim=2) if outputs.shape[2] == 1 else outputs


def probabilities_of(outputs: Tensor) -> Tensor:
    """[M, N, L] in float32: softmax in float64, rounded once."""
    return logits_of(outputs).double().softmax(dim=2).float()


def judge(
    outputs: Tensor,
    truth: Tensor,
    *,
    task: str,
    rows: Sequence[int],
    calibration: bool = False,
    picture: tuple[int, int] | None = None,
) -> dict[str, Each]:
    """The scores of outputs [M, N, ...] against N labels or targets, for the models in `rows`.

    picture: height and width, where the targets are the pixels of one, row by row: then its likeness is judged too.
    """
    count, chosen = len(outputs), list(rows)
    quantities = ["mse", "r2", *(["psnr", "ssim"] if picture else [])]
    names = quantities if task == REGRESSION else ["accuracy", "log_loss"]
    if not chosen:
        return dict.fromkeys(names, (None,) * count)
    if task == REGRESSION:
        found = _of_quantities(outputs[chosen], truth, picture)
    else:
        found = _of_classes(logits_of(outputs[chosen]), truth.to(outputs.device).long().flatten(), calibration)
    return {name: spread_out(score.each, chosen, count) for name, score in found.items()}


def judge_on_disk(
    predict: Callable[[Tensor], Tensor], x: Streamed, labels: Tensor, *, rows: Sequence[int]
) -> tuple[dict[str, Each], list[int]]:
    """Accuracy and log loss on all examples of a disk, and which of the models in `rows` gave a number that is not
    finite.

    A part of the examples after the other, whose means are weighed by their numbers: what the models say of all of
    ImageNet would not fit into a memory. AUC is no mean of parts, and is left out.
    """
    alive, sums, count = list(rows), {}, 0
    for first in range(0, len(x), _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        outputs = predict(cast(Tensor, x.part(part)))
        count, fine = len(outputs), finite_rows(outputs)
        alive = [row for row in alive if fine[row]]
        found = judge(outputs, labels[part], task="classification", rows=alive)
        for name in ("accuracy", "log_loss"):
            sums.setdefault(name, []).append((len(labels[part]), found[name]))
    means = {name: _joined(parts, alive, count) for name, parts in sums.items()}
    return means, [row for row in rows if row not in alive]


def _joined(parts: Sequence[tuple[int, Each]], rows: Sequence[int], count: int) -> Each:
    """Means of parts of so many examples as the mean of all; None where a part has none."""
    if len(parts) == 1:
        return parts[0][1]
    total = sum(many for many, _ in parts)
    each = [math.fsum(many * _number(values[row]) for many, values in parts) / total for row in rows]
    return spread_out(each, rows, count)


def _number(value: float | None) -> float:
    return math.inf if value is None else value


def _of_classes(logits: Tensor, labels: Tensor, calibration: bool) -> dict[str, Score]:
    found = {"accuracy": accuracy(logits, labels, logits=True), "log_loss": log_loss(logits, labels, logits=True)}
    if logits.shape[2] == 2 and len(labels.unique()) == 2:  # of one label alone there is no order
        found["auc"] = auc(logits, labels, logits=True)
    if calibration:
        found["calibration_error"] = expected_calibration_error(logits, labels, logits=True)
    return found


def _of_quantities(outputs: Tensor, truth: Tensor, picture: tuple[int, int] | None) -> dict[str, Score]:
    outputs = outputs.reshape(len(outputs), *truth.shape)
    found = {"mse": mse(outputs, truth), "r2": r2(outputs, truth)}
    if picture is not None:
        drawn, wanted = outputs.reshape(-1, *picture), truth.reshape(picture)
        found |= {"psnr": psnr(drawn, wanted), "ssim": ssim(drawn, wanted)}
    return found
