r"""How good models are: accuracy, AUC, ranking loss and log loss, each with its spread over the models.

All take predictions of shape (M, N, L), for M models, or (N, L), for one, and N true labels; a list with one tensor or
array for each model is as good. Predictions are probabilities, or logits with `logits=True`: then nothing is lost to
saturation, because softmax is never rounded.

    accuracy      share of examples whose most probable label is the true one
    auc           chance that a random example with the label has the higher score of two, equal scores counting half;
                  of label 1 with two labels, with more the mean over the labels (each against the rest)
    ranking_loss  chance of the wrong order: 1 - auc over examples; or, over labels, the mean share of the other labels
                  that are ranked above the true one
    log_loss      - mean log P(true label)
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from ..errors import InputError, require_choice
from .estimate import Score, score
from .inputs import check_flag, read_labels


def accuracy(probs: Any, labels: Any, *, logits: bool = False, level: float = 0.95) -> Score:
    """The share of examples whose most probable label is the true one; of equally probable ones the first counts.

    >>> import softknee as sk, torch
    >>> sk.measure.accuracy(torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]]), [0, 1, 0]).value  # doctest: +ELLIPSIS
    0.666...
    """
    predictions, truth = read(probs, labels, logits=logits)
    right = (predictions.argmax(dim=2) == truth).double().mean(dim=1)
    return score(right, larger_is_better=True, level=level, bounds=(0.0, 1.0))


def auc(probs: Any, labels: Any, *, logits: bool = False, level: float = 0.95) -> Score:
    """The area under the ROC curve, equal scores counting half; the mean over labels where there are more than two.

    >>> import softknee as sk, torch
    >>> sk.measure.auc(torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.6, 0.4], [0.2, 0.8]]), [0, 0, 1, 1]).value
    0.875
    """
    predictions, truth = read(probs, labels, logits=logits)
    return score(_areas(predictions, truth, logits=logits), larger_is_better=True, level=level, bounds=(0.0, 1.0))


def ranking_loss(
    probs: Any,
    labels: Any,
    *,
    over: Literal["examples", "labels"] = "examples",
    logits: bool = False,
    level: float = 0.95,
) -> Score:
    """The share of pairs in the wrong order, equal scores counting half.

    over="examples": pairs of an example with the label and one without, so 1 - AUC, as rankings of clicks are judged.
    over="labels":   for each example, pairs of its true label and another one.

    >>> import softknee as sk, torch
    >>> three = torch.tensor([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]])
    >>> sk.measure.ranking_loss(three, [0, 2], over="labels").value
    0.5
    """
    require_choice("ranking_loss", "over", over, ("examples", "labels"))
    predictions, truth = read(probs, labels, logits=logits)
    if over == "examples":
        wrong = 1 - _areas(predictions, truth, logits=logits)
        return score(wrong, larger_is_better=False, level=level, bounds=(0.0, 1.0))
    own = predictions.gather(2, truth.expand(predictions.shape[:2])[:, :, None])
    # The true label is equal to itself: that half is taken away again.
    above = (predictions > own).sum(dim=2) + ((predictions == own).sum(dim=2) - 1) / 2
    wrong = (above.double() / (predictions.shape[2] - 1)).mean(dim=1)
    return score(wrong, larger_is_better=False, level=level, bounds=(0.0, 1.0))


def log_loss(probs: Any, labels: Any, *, logits: bool = False, level: float = 0.95) -> Score:
    """The mean of -log P(true label), in nats; from logits it is exact however sure a model is.

    A probability of 0 counts as the smallest normal number of its type, so that one example does not make everything
    infinite: give logits where that matters.

    >>> import softknee as sk, torch
    >>> result = sk.measure.log_loss(torch.tensor([[[0.0, 2000.0]]]), [0], logits=True)
    >>> result.value
    2000.0
    """
    predictions, truth = read(probs, labels, logits=logits)
    chosen = truth.expand(predictions.shape[:2])[:, :, None]
    if logits:
        losses = -torch.log_softmax(predictions, dim=2).gather(2, chosen)
    else:
        refuse_sums(predictions)
        original = _tensor(probs).dtype
        dtype = original if original.is_floating_point else torch.float64
        losses = -predictions.gather(2, chosen).clamp(min=torch.finfo(dtype).tiny).log()
    return score(losses.squeeze(2).mean(dim=1), larger_is_better=False, level=level, bounds=(0.0, math.inf))


def generalisation_gap(train: Score, test: Score, *, level: float = 0.95) -> Score:
    """How much worse each model is on data it was not trained on: above 0 where accuracy falls or a loss rises.

    >>> import softknee as sk, torch
    >>> sure, unsure = torch.tensor([[0.9, 0.1]]), torch.tensor([[0.4, 0.6]])
    >>> sk.measure.generalisation_gap(sk.measure.accuracy(sure, [0]), sk.measure.accuracy(unsure, [0])).value
    1.0
    """
    if not isinstance(train, Score) or not isinstance(test, Score):
        raise InputError(
            "A gap is between two scores of sk.measure, as sk.measure.accuracy(probs, labels) gives them, and "
            f"{type(train).__name__} and {type(test).__name__} were given."
        )
    if train.larger_is_better != test.larger_is_better or len(train.each) != len(test.each):
        raise InputError(
            f"A gap is between the same score of the same models, and these are of {len(train.each)} and "
            f"{len(test.each)} models"
            f"{', one a loss and one not' if train.larger_is_better != test.larger_is_better else ''}."
        )
    sign = 1 if train.larger_is_better else -1
    each = [sign * (seen - unseen) for seen, unseen in zip(train.each, test.each, strict=True)]
    return score(each, larger_is_better=False, level=level)


def _areas(predictions: Tensor, truth: Tensor, *, logits: bool) -> Tensor:
    """The AUC of each model."""
    names = [1] if predictions.shape[2] == 2 else range(predictions.shape[2])
    areas = []
    for label in names:
        positive = truth == label
        if not bool(positive.any()) or bool(positive.all()):
            raise InputError(
                f"An AUC compares examples with label {label} and without, and here "
                f"{'all' if bool(positive.any()) else 'none'} of {len(truth)} have it; give more examples."
            )
        ranked = _log_odds(predictions, label) if logits else predictions[:, :, label]
        areas.append(torch.stack([_area(scores, positive) for scores in ranked]))
    return torch.stack(areas).mean(dim=0)


def _log_odds(predictions: Tensor, label: int) -> Tensor:
    """log P(name) - log(1 - P(name)): in the order of P, and never rounded to one and the same 1."""
    others = [other for other in range(predictions.shape[2]) if other != label]
    return predictions[:, :, label] - predictions[:, :, others].logsumexp(dim=2)


def _area(scores: Tensor, positive: Tensor) -> Tensor:
    """By ranks (Mann and Whitney): equal scores share the mean of their ranks."""
    _, index, counts = torch.unique(scores, return_inverse=True, return_counts=True)
    last = counts.cumsum(0)
    ranks = (last - (counts - 1) / 2).double()[index]
    positives, negatives = int(positive.sum()), int((~positive).sum())
    return (ranks[positive].sum() - positives * (positives + 1) / 2) / positives / negatives


# -- what may come in -------------------------------------------------------------------------------------


def read(probs: Any, labels: Any, *, logits: bool) -> tuple[Tensor, Tensor]:
    """Predictions as float64 of shape (M, N, L), and labels of shape (N,), on the same device."""
    check_flag("logits", logits)
    try:
        values = _tensor(probs).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"Predictions must be a tensor or an array of numbers: {error}.") from error
    values = values.cpu() if values.device.type == "mps" else values  # Apple's devices have no float64
    values = values.unsqueeze(0) if values.dim() == 2 else values
    if values.dim() != 3 or 0 in values.shape or values.shape[-1] < 2 or values.is_complex():
        raise InputError(
            f"Predictions have shape (models, examples, labels) or (examples, labels), with two labels or more, and "
            f"{tuple(values.shape)} was given."
        )
    values, truth = values.double(), read_labels(labels, values.shape[1], values.shape[2]).to(values.device)
    if bool(values.isnan().any()) or (logits and not bool(values.isfinite().all())):
        raise InputError("The predictions hold NaN or infinity; a model that diverged has no score: leave it out.")
    if not logits and (float(values.min()) < -1e-2 or float(values.max()) > 1 + 1e-2):
        raise InputError(
            f"Probabilities lie between 0 and 1, and the predictions go from {float(values.min()):.4g} to "
            f"{float(values.max()):.4g}; pass logits=True if that is what they are."
        )
    return values, truth


def refuse_sums(predictions: Tensor) -> None:
    """Refuse probabilities (M, N, L) of which those of an example do not sum to 1: their size would mean nothing."""
    miss = float((predictions.sum(dim=2) - 1).abs().max())
    if miss > 2e-2:
        raise InputError(
            f"The probabilities of an example sum to 1, and here a sum is off by {miss:.3g}; pass logits=True if these "
            "are logits, or take softmax over the labels first."
        )


def _tensor(probs: Any) -> Tensor:
    """One tensor; of a list of tensors or arrays, one for each model, their stack."""
    if isinstance(probs, list | tuple) and probs and hasattr(probs[0], "shape"):
        return torch.stack([torch.as_tensor(item) for item in probs])
    return torch.as_tensor(probs)
