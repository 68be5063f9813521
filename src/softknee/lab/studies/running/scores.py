"""How good the models of a trial are on some examples: one number for every seed, None for one that diverged."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ....measure import accuracy, auc, expected_calibration_error, log_loss
from ..outcome import Each

REGRESSION = "regression"


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
    outputs: Tensor, truth: Tensor, *, task: str, rows: Sequence[int], calibration: bool = False
) -> dict[str, Each]:
    """The scores of outputs [M, N, ...] against N labels or targets, for the models in `rows`."""
    count, chosen = len(outputs), list(rows)
    names = ["mse"] if task == REGRESSION else ["accuracy", "log_loss"]
    if not chosen:
        return dict.fromkeys(names, (None,) * count)
    if task == REGRESSION:
        off = outputs[chosen].double().flatten(1) - truth.to(outputs.device).double().reshape(1, -1)
        return {"mse": spread_out(off.square().mean(dim=1).tolist(), chosen, count)}
    logits, labels = logits_of(outputs[chosen]), truth.to(outputs.device).long().flatten()
    found = {"accuracy": accuracy(logits, labels, logits=True), "log_loss": log_loss(logits, labels, logits=True)}
    if logits.shape[2] == 2 and len(labels.unique()) == 2:  # of one label alone there is no order
        found["auc"] = auc(logits, labels, logits=True)
    if calibration:
        found["calibration_error"] = expected_calibration_error(logits, labels, logits=True)
    return {name: spread_out(score.each, chosen, count) for name, score in found.items()}
