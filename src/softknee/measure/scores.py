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

from typing import Any, Literal

import torch
from torch import Tensor

from ..errors import InputError
from .estimate import Score, check_level, score
from .inputs import check_flag, check_word


def accuracy(probs: Any, labels: Any, *, logits: bool = False, level: float = 0.95) -> Score:
    """The share of examples whose most probable label is the true one; of equally probable ones the first counts.

    >>> import softknee as sk, torch
    >>> sk.measure.accuracy(torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]]), [0, 1, 0]).value  # doctest: +ELLIPSIS
    0.666...
    """
    given, truth = read(probs, labels, logits=logits)
    right = (given.argmax(dim=2) == truth).double().mean(dim=1)
    return _score(right, level, larger_is_better=True)


def auc(probs: Any, labels: Any, *, logits: bool = False, level: float = 0.95) -> Score:
    """The area under the ROC curve, equal scores counting half; the mean over labels where there are more than two.

    >>> import softknee as sk, torch
    >>> sk.measure.auc(torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.6, 0.4], [0.2, 0.8]]), [0, 0, 1, 1]).value
    0.875
    """
    given, truth = read(probs, labels, logits=logits)
    return _score(_areas(given, truth, logits=logits), level, larger_is_better=True)


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
    check_word("over", over, ("examples", "labels"))
    given, truth = read(probs, labels, logits=logits)
    if over == "examples":
        return _score(1 - _areas(given, truth, logits=logits), level, larger_is_better=False)
    own = given.gather(2, truth.expand(given.shape[:2])[:, :, None])
    # The true label is equal to itself: that half is taken away again.
    above = (given > own).sum(dim=2) + ((given == own).sum(dim=2) - 1) / 2
    return _score((above.double() / (given.shape[2] - 1)).mean(dim=1), level, larger_is_better=False)


def log_loss(probs: Any, labels: Any, *, logits: bool = False, level: float = 0.95) -> Score:
    """The mean of -log P(true label), in nats; from logits it is exact however sure a model is.

    A probability of 0 counts as the smallest normal number of its type, so that one example does not make everything
    infinite: give logits where that matters.

    >>> import softknee as sk, torch
    >>> found = sk.measure.log_loss(torch.tensor([[[0.0, 2000.0]]]), [0], logits=True)
    >>> found.value
    2000.0
    """
    given, truth = read(probs, labels, logits=logits)
    chosen = truth.expand(given.shape[:2])[:, :, None]
    if logits:
        losses = -torch.log_softmax(given, dim=2).gather(2, chosen)
    else:
        refuse_sums(given)
        came = _tensor(probs).dtype
        dtype = came if came.is_floating_point else torch.float64
        losses = -given.gather(2, chosen).clamp(min=torch.finfo(dtype).tiny).log()
    return _score(losses.squeeze(2).mean(dim=1), level, larger_is_better=False, most=float("inf"))


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
    check_level(level)
    sign = 1 if train.larger_is_better else -1
    each = [sign * (seen - unseen) for seen, unseen in zip(train.each, test.each, strict=True)]
    return score(each, larger_is_better=False, level=level)


def _score(each: Tensor, level: float, *, larger_is_better: bool, most: float = 1.0) -> Score:
    check_level(level)
    return score(each.cpu(), larger_is_better=larger_is_better, level=level, bounds=(0.0, most))


def _areas(given: Tensor, truth: Tensor, *, logits: bool) -> Tensor:
    """The AUC of each model."""
    names = [1] if given.shape[2] == 2 else range(given.shape[2])
    found = []
    for name in names:
        positive = truth == name
        if not bool(positive.any()) or bool(positive.all()):
            raise InputError(
                f"An AUC compares examples with label {name} and without, and here "
                f"{'all' if bool(positive.any()) else 'none'} of {len(truth)} have it; give more examples."
            )
        ranked = _log_odds(given, name) if logits else given[:, :, name]
        found.append(torch.stack([_area(one, positive) for one in ranked]))
    return torch.stack(found).mean(dim=0)


def _log_odds(given: Tensor, name: int) -> Tensor:
    """log P(name) - log(1 - P(name)): in the order of P, and never rounded to one and the same 1."""
    others = [other for other in range(given.shape[2]) if other != name]
    return given[:, :, name] - given[:, :, others].logsumexp(dim=2)


def _area(scores: Tensor, positive: Tensor) -> Tensor:
    """By ranks (Mann and Whitney): equal scores share the mean of their ranks."""
    _, place, counts = torch.unique(scores, return_inverse=True, return_counts=True)
    last = counts.cumsum(0)
    ranks = (last - (counts - 1) / 2).double()[place]
    above, below = int(positive.sum()), int((~positive).sum())
    return (ranks[positive].sum() - above * (above + 1) / 2) / above / below


# -- what may come in -------------------------------------------------------------------------------------


def read(probs: Any, labels: Any, *, logits: bool) -> tuple[Tensor, Tensor]:
    """Predictions as float64 of shape (M, N, L), and labels of shape (N,), on the same device."""
    check_flag("logits", logits)
    try:
        given = _tensor(probs).detach()
        truth = torch.as_tensor(labels).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"Predictions and labels must be tensors or arrays of numbers: {error}.") from error
    given = given.cpu() if given.device.type == "mps" else given  # Apple's devices have no float64
    given = given.unsqueeze(0) if given.dim() == 2 else given
    if given.dim() != 3 or 0 in given.shape or given.shape[-1] < 2 or given.is_complex():
        raise InputError(
            f"Predictions have shape (models, examples, labels) or (examples, labels), with two labels or more, and "
            f"{tuple(given.shape)} was given."
        )
    if truth.is_floating_point() or truth.is_complex() or tuple(truth.shape) != (given.shape[1],):
        raise InputError(
            f"Labels are {given.shape[1]} whole numbers, one for each example, and {tuple(truth.shape)} of "
            f"{truth.dtype} were given."
        )
    given, truth = given.double(), truth.to(given.device).long()
    if int(truth.min()) < 0 or int(truth.max()) >= given.shape[2]:
        raise InputError(
            f"Labels lie between 0 and {given.shape[2] - 1}, and they go from {int(truth.min())} to {int(truth.max())}."
        )
    if bool(given.isnan().any()) or (logits and not bool(given.isfinite().all())):
        raise InputError(
            "The predictions hold NaN or infinity; a model that diverged has no score. Leave it out and say so."
        )
    if not logits and (float(given.min()) < -1e-2 or float(given.max()) > 1 + 1e-2):
        raise InputError(
            f"Probabilities lie between 0 and 1, and the predictions go from {float(given.min()):.4g} to "
            f"{float(given.max()):.4g}; pass logits=True if that is what they are."
        )
    return given, truth


def refuse_sums(given: Tensor) -> None:
    """Refuse probabilities (M, N, L) of which those of an example do not sum to 1: their size would mean nothing."""
    miss = float((given.sum(dim=2) - 1).abs().max())
    if miss > 2e-2:
        raise InputError(
            f"The probabilities of an example sum to 1, and here a sum is off by {miss:.3g}; pass logits=True if these "
            "are logits, or take softmax over the labels first."
        )


def _tensor(probs: Any) -> Tensor:
    """One tensor; of a list of tensors or arrays, one for each model, their stack."""
    if isinstance(probs, list | tuple) and probs and hasattr(probs[0], "shape"):
        return torch.stack([torch.as_tensor(one) for one in probs])
    return torch.as_tensor(probs)
