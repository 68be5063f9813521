r"""How much the predictions of models differ that should be the same.

M models predict distributions P_{n,m} over labels for N examples; P_n is their mean over the models.

    Delta_p    = mean over n and m of ( sum_l |P_{n,m}(l) - P_n(l)|^p )^(1/p)
    relative   = mean over n and m of sum_l |P_{n,m}(l) - P_n(l)| / P_n(l)          (0 where P_n(l) = 0)
    binary     = the same with P_n(1) under every summand, for two labels
    true_label = mean over n and m of |P_{n,m}(t) - P_n(t)| / P_n(t),  t the true label of n
    hamming    = mean over pairs of models of the share of examples whose most probable labels differ

With two models and two labels Delta_1 is the mean of |P_{n,1}(1) - P_{n,2}(1)|; where every model is certain of one
label it is 2(M - 1)/M times the Hamming difference. (Shamir and Coviello 2020; Shamir, Lin and Coviello.)

Each comes with an interval from the delete-one jackknife over the models (see `estimate`): where the same number lies
on average for M models trained like these, on these examples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from .estimate import FEWEST, Estimate, check_level, jackknife
from .inputs import as_number, read_labels, whole_numbers

_CHUNK = 1_000_000  # float64 numbers worked on at a time: they stay in the cache of a processor


@dataclass(frozen=True)
class PredictionDifference:
    """The prediction differences of a set of models; what was not asked for, or makes no sense, is None.

    models, examples, labels: how many there were.
    delta_1, delta_2: the L1 and L2 prediction differences.
    p, delta_p:       the order that was asked for, and its difference.
    relative:         the L1 difference relative to the mean prediction of each label.
    binary:           relative to the mean prediction of label 1, the positive one; with two labels only.
    true_label:       the relative difference in the probability of the true label; with labels only.
    hamming:          the mean share of examples on which two models predict different labels.
    standard_error:   of each of them, over the examples: how far another draw of examples would move it.

    Each difference has a `.value`, and from four models on a `.stdev` and an `.interval`: how far another draw of
    models would move it.
    """

    models: int
    examples: int
    labels: int
    delta_1: Estimate
    delta_2: Estimate
    relative: Estimate
    hamming: Estimate
    standard_error: Mapping[str, float | None]
    binary: Estimate | None = None
    true_label: Estimate | None = None
    p: float | None = None
    delta_p: Estimate | None = None

    def to_dict(self) -> dict[str, Any]:
        """Everything as numbers and mappings, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{self.models} models, {self.examples} examples, {self.labels} labels"]
        for name in _NAMES:
            if (estimate := getattr(self, name)) is not None:
                title = f"delta_{self.p:g}" if name == "delta_p" else name
                lines.append(f"  {title:<12}{estimate}")
        return "\n".join(lines)


_NAMES = ("delta_1", "delta_2", "delta_p", "relative", "binary", "true_label", "hamming")


def prediction_difference(
    probs: Any,
    labels: Any = None,
    *,
    p: float | None = None,
    level: float = 0.95,
    tolerance: float | None = None,
) -> PredictionDifference:
    """The prediction differences of M models on N examples, each with its spread over the models.

    probs:     probabilities of shape (M, N, L); or (M, N), the probability of label 1 of two. A tensor, an array, or a
               sequence of them, one for each model. Or an iterator over batches of examples, each of that kind: then
               no more than one batch is held.
    labels:    the true labels, N whole numbers; they add `true_label`. Beside an iterator they may be one, too.
    p:         one more order of Delta beside 1 and 2; math.inf is the largest difference over the labels.
    level:     how often an interval should hold the truth.
    tolerance: how far probabilities may stray from [0, 1] and their sums from 1: 1e-4, or 2e-2 for half types. What
               strays below 0 within it counts as 0.

    Of labels that are equally probable the first is the predicted one. Sums are in float64, whatever came in. The
    intervals take M times as long as the values.

    >>> import softknee as sk, torch
    >>> result = sk.measure.prediction_difference(torch.tensor([[0.9, 0.2], [0.7, 0.6]], dtype=torch.float64))
    >>> round(result.delta_1.value, 12), result.hamming.value, result.hamming.interval
    (0.3, 0.5, None)
    >>> drawn = torch.softmax(torch.randn(12, 500, 3, generator=torch.Generator().manual_seed(0)), dim=2)
    >>> result = sk.measure.prediction_difference(batch for batch in drawn.split(100, dim=1))
    >>> result.delta_1.interval[0] < result.delta_1.value < result.delta_1.interval[1]
    True
    """
    check_level(level)
    p = math.inf if p is not None and as_number(p) == math.inf else p  # also of a whole number beyond every float
    if p is not None and (isinstance(p, bool) or not (isinstance(p, int | float) and p >= 1)):
        raise InputError(f"p must be a number of at least 1 (math.inf for the largest difference), not {p!r}.")
    if tolerance is not None and (
        isinstance(tolerance, bool) or not (isinstance(tolerance, int | float) and 0 <= tolerance < math.inf)
    ):
        raise InputError(f"tolerance must be a finite number of at least 0, and {tolerance!r} was given.")
    sums = _Sums(p)
    models = classes = 0
    for batch, truth in _batches(probs, labels):
        size = batch.shape[0], batch.shape[2] if batch.dim() == 3 else 2
        if sums.examples and size != (models, classes):
            raise InputError(
                f"Every batch has the same models and labels, and one with {size[0]} models and {size[1]} labels came "
                f"after {models} and {classes}."
            )
        models, classes = size
        half = batch.dtype in (torch.bfloat16, torch.float16)
        allowed = (2e-2 if half else 1e-4) if tolerance is None else tolerance
        for start, part in _chunks(batch):
            _refuse_unfit(part, allowed)
            part = (part if part.dim() == 3 else torch.stack([1 - part, part], dim=2)).clamp(min=0.0)
            sums.add(part, None if truth is None else truth[start : start + part.shape[1]])
    if not sums.examples:
        raise InputError("The iterator of predictions was empty; if it was used before, make a new one.")
    return PredictionDifference(
        models=models,
        examples=sums.examples,
        labels=classes,
        p=None if p is None else float(p),
        standard_error={name: sums.over_examples(name) for name in sums.total},
        **{name: sums.estimate(name, level) for name in sums.total},
    )


class _Sums:
    """Sums over examples: of each difference, of its square, and of what it is without each of the models."""

    def __init__(self, p: float | None) -> None:
        self.p, self.examples = p, 0
        self.total: dict[str, float] = {}
        self.squares: dict[str, float] = {}  # of the distance to the mean of what was seen
        self.without: dict[str, Tensor] = {}

    def add(self, part: Tensor, truth: Tensor | None) -> None:
        models, count = part.shape[:2]
        for name, column in _per_example(part, truth, self.p).items():
            total, mean = float(column.sum()), float(column.mean())
            apart = mean - self.total[name] / self.examples if self.examples else 0.0
            joined = self.examples * count / (self.examples + count) * apart**2
            squares = float((column - mean).square().sum())
            self.squares[name] = self.squares.get(name, 0.0) + squares + joined
            self.total[name] = self.total.get(name, 0.0) + total
        self.examples += count
        for left_out in range(models if models >= FEWEST else 0):
            rest = torch.cat([part[:left_out], part[left_out + 1 :]])
            for name, column in _per_example(rest, truth, self.p).items():
                sums = self.without.setdefault(name, torch.zeros(models, dtype=torch.float64))
                sums[left_out] += column.sum()

    def estimate(self, name: str, level: float) -> Estimate:
        value = self.total[name] / self.examples
        bounds = (0.0, 1.0 if name == "hamming" else math.inf)
        without = self.without.get(name, torch.zeros(0)) / self.examples
        return jackknife(value, without, level=level, bounds=bounds)

    def over_examples(self, name: str) -> float | None:
        count = self.examples
        return math.sqrt(self.squares[name] / (count - 1) / count) if count > 1 else None


def _per_example(part: Tensor, truth: Tensor | None, p: float | None) -> dict[str, Tensor]:
    """Each difference for each example, averaged over the models; `part` is (M, n, L)."""
    # Seen from the first model: the mean of equal numbers may else be another one, and equal models would differ.
    apart = part - part[0]
    shift = apart.mean(dim=0)
    mean, off = part[0] + shift, (apart - shift).abs()
    size = off.mean(dim=0)
    differences = {
        "delta_1": size.sum(dim=1),
        "delta_2": torch.linalg.vector_norm(off, dim=2).mean(dim=0),
        # Where the mean is 0 all predictions are, and so is the difference above it.
        "relative": _share(size, mean).sum(dim=1),
        "hamming": _hamming(part),
    }
    if p is not None:
        differences["delta_p"] = torch.linalg.vector_norm(off, ord=p, dim=2).mean(dim=0)
    if part.shape[2] == 2:
        differences["binary"] = _share(size.sum(dim=1), mean[:, 1])
    if truth is not None:
        differences["true_label"] = _share(size, mean).gather(1, truth[:, None]).squeeze(1)
    return differences


def _share(part: Tensor, whole: Tensor) -> Tensor:
    return torch.where(whole > 0, part / torch.where(whole > 0, whole, 1.0), 0.0)


def _hamming(part: Tensor) -> Tensor:
    """The share of model pairs that predict different labels: from how many models predict each, not from the pairs."""
    models, examples, labels = part.shape
    votes = torch.zeros(examples, labels, dtype=torch.float64)
    votes.scatter_add_(1, part.argmax(dim=2).T, torch.ones(examples, models, dtype=torch.float64))
    return (models**2 - (votes**2).sum(dim=1)) / (models * (models - 1))


def _chunks(predictions: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Runs of examples in float64 on the CPU, each with the number of its first."""
    models, examples, *rest = predictions.shape
    size = max(1, _CHUNK // (models * (rest[0] if rest else 2)))
    for start in range(0, examples, size):
        yield start, predictions[:, start : start + size].cpu().double()


# -- what may come in -------------------------------------------------------------------------------------


def _batches(probs: Any, labels: Any) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Batches of examples, each with its labels; a whole table is one batch."""
    if not _is_stream(probs):
        predictions = _read(probs)
        yield predictions, None if labels is None else _labels(labels, predictions)
        return
    stream = iter(labels) if _is_stream(labels) else None
    whole = None if labels is None or stream is not None else whole_numbers(labels)
    seen, ended = 0, object()
    for batch in probs:
        predictions = _read(batch)
        batch_labels = None if whole is None else whole[seen : seen + predictions.shape[1]]
        if stream is not None and (batch_labels := next(stream, ended)) is ended:
            raise InputError(f"The labels ended after {seen} examples, and there are predictions of more.")
        seen += predictions.shape[1]
        yield predictions, None if batch_labels is None else _labels(batch_labels, predictions)
    more = len(whole) > seen if whole is not None else stream is not None and next(stream, ended) is not ended
    if more:
        raise InputError(f"There are labels of more examples than the {seen} that were predicted.")


def _labels(labels: Any, predictions: Tensor) -> Tensor:
    return read_labels(labels, predictions.shape[1], 2 if predictions.dim() == 2 else predictions.shape[2])


def _is_stream(data: Any) -> bool:
    """Whether this is an iterator of batches: not a tensor, an array, or a sequence of them."""
    table = isinstance(data, Tensor | Sequence | Mapping) or hasattr(data, "__array__")
    return isinstance(data, Iterable) and not table


def _read(predictions: Any) -> Tensor:
    try:
        if isinstance(predictions, Sequence):
            values = torch.stack([torch.as_tensor(model).detach() for model in predictions])
        else:
            values = torch.as_tensor(predictions).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"The predictions cannot be read as one array of numbers: {error}. Give a tensor or an array of shape "
            f"(models, examples, labels), or a sequence with one of shape (examples, labels) for each model."
        ) from error
    shape = tuple(values.shape)
    if values.is_complex():
        raise InputError("Predictions are probabilities, and complex numbers were given.")
    if values.dim() not in (2, 3):
        raise InputError(
            f"Predictions have shape (models, examples, labels), or (models, examples) for the probability of label "
            f"1 of two; {shape} was given."
        )
    if shape[0] < 2:
        raise InputError(
            f"A prediction difference needs at least 2 models, and there is {shape[0]} (shape {shape}): the first "
            f"dimension counts the models."
        )
    if 0 in shape or (len(shape) == 3 and shape[2] < 2):
        raise InputError(f"Predictions for at least 1 example and 2 labels are needed, and the shape is {shape}.")
    return values


def _refuse_unfit(part: Tensor, allowed: float) -> None:
    """Refuse what is no distribution over labels, and say what it may be instead."""
    if bool(part.isnan().any()):
        raise InputError("The predictions hold NaN; a model that diverged has none. Leave it out and say so.")
    low, high = float(part.min()), float(part.max())
    if high <= allowed and low < -allowed:
        raise InputError(
            f"No prediction is above 0 (they go from {low:.4g} to {high:.4g}), so these look like logarithms of "
            f"probabilities; take exp first."
        )
    if low < -allowed or high > 1 + allowed:
        raise InputError(
            f"Probabilities lie between 0 and 1, and the predictions go from {low:.4g} to {high:.4g}. If they are "
            f"logits, take softmax over the labels first (sigmoid, for shape (models, examples))."
        )
    miss = float((part.sum(dim=2) - 1).abs().max()) if part.dim() == 3 else 0.0
    if miss > allowed:
        raise InputError(
            f"The probabilities of an example sum to 1, and here a sum is off by {miss:.3g}. If these are logits or "
            f"independent scores, take softmax over the labels first; if they are rounded, raise `tolerance`."
        )
