r"""How much the predictions of two models differ, on the same examples: an old model and the one that takes its place.

    churn        share of the examples whose predicted label changed
    spoiled      examples that were right and are wrong;  mended: wrong and are right
    mcnemar      P(as uneven or more | either way is as likely):  min(1, 2 P(B <= min(spoiled, mended))),
                 B binomial with n = spoiled + mended and 1/2
    delta_1      mean over the examples of  1/2 sum over labels of |p - p'|: the prediction difference of the two
    gain         accuracy of the new one less that of the old one

Intervals say what other examples of the same kind would give: Wilson's of a share; of `delta_1` the t interval over
examples; of the gain that of Agresti and Min, which adds half an example to each of the four cases, so that it is never
of no width. With several models on each side the m-th old one is compared with the m-th new one; an example
counts with the mean over these pairs, the intervals are t intervals over examples (but those of above where no example
differs from the others), and there is no McNemar test.

Reference: Milani Fard et al., "Launch and iterate: reducing prediction churn" (2016); see `shares` for the intervals.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..measure import Quantity, Record
from ..measure.estimate import check_level
from ..measure.scores import read
from .shares import Rate, gain_interval, mcnemar, over_examples, wilson
from .table import Table


@dataclass(frozen=True, kw_only=True)
class Churn:
    """What changed from an old model to a new one.

    examples, pairs: how many there were; with several models on each side the counts are means over the pairs.
    left_out:        pairs in which a model had diverged (its predictions are no numbers).
    changed:         the share of examples whose predicted label changed.
    spoiled, mended: how many examples went from right to wrong, and from wrong to right.
    mcnemar:         how likely a table as uneven is if neither model is the better one; None with several pairs.
    delta_1:         the mean over examples of half the sum over labels of |p - p'|.
    old_accuracy, new_accuracy, gain: of the two models, and new less old.
    old, new, data:  what was compared on what, in words.
    """

    examples: int
    pairs: int
    left_out: int
    level: float
    changed: Rate
    spoiled: float
    mended: float
    mcnemar: float | None
    delta_1: Rate
    old_accuracy: Rate
    new_accuracy: Rate
    gain: Rate
    old: str = "old"
    new: str = "new"
    data: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Everything as numbers and mappings, for JSON."""
        return asdict(self)

    def record(self, *, command: str) -> Record:
        """The record of a comparison: a row for each number with an interval, and one for the table of changes."""
        rates = {
            "changed": (self.changed, "share"),
            "delta_1": (self.delta_1, "probability"),
            "old_accuracy": (self.old_accuracy, "share"),
            "new_accuracy": (self.new_accuracy, "share"),
            "gain": (self.gain, "share"),
        }
        statistic = f"mean over examples, {100 * self.level:g} % interval"
        rows: list[dict[str, Any]] = [
            {
                "measure": name,
                "value": Quantity(
                    value=rate.value,
                    low=rate.interval[0],
                    high=rate.interval[1],
                    repeats=self.examples,
                    unit=unit,
                    statistic=statistic,
                ),
            }
            for name, (rate, unit) in rates.items()
        ]
        rows.append({"measure": "changes", "spoiled": self.spoiled, "mended": self.mended, "mcnemar": self.mcnemar})
        settings = {
            "old": self.old,
            "new": self.new,
            "data": self.data,
            "examples": self.examples,
            "pairs": self.pairs,
            "left_out": self.left_out,
            "level": self.level,
        }
        return Record.now("compare", command=command, rows=rows, settings=settings, baseline=self.old)

    def table(self) -> Table:
        """As a table: one line for each number, with its interval."""
        level = f"{100 * self.level:g} %"
        count = f"{self.examples:,}"
        lines = [
            ("predicted label changed", _percent(self.changed.value), _between(self.changed)),
            ("right before, wrong now", f"{_count(self.spoiled)} of {count}", ""),
            ("wrong before, right now", f"{_count(self.mended)} of {count}", ""),
            ("Delta_1 between the two", f"{self.delta_1.value:.4f}", _between(self.delta_1, percent=False)),
            ("accuracy of the old one", _percent(self.old_accuracy.value), _between(self.old_accuracy)),
            ("accuracy of the new one", _percent(self.new_accuracy.value), _between(self.new_accuracy)),
            ("new less old, in points", f"{100 * self.gain.value:+.2f}", _between(self.gain, sign="+", unit="")),
        ]
        remarks = [f"Intervals ({level}) are over the examples: what others of the same kind would give."]
        if self.mcnemar is not None:
            remarks.append(f"McNemar's exact test, that neither is the better one: p = {self.mcnemar:.3g}.")
        if self.pairs > 1:
            remarks.append(f"Means over {self.pairs} pairs of models, the old and the new one of each seed.")
        if self.left_out:
            remarks.append(f"{self.left_out} pairs were left out, because a model in them had diverged.")
        title = f"From {self.old} to {self.new}" + (f", on {self.data}" if self.data else "")
        return Table(title=title, head=("", "value", f"{level} interval"), rows=lines, remarks=remarks, markup=True)


def churn(old: Any, new: Any, labels: Any, *, level: float = 0.95) -> Churn:
    """What changed from the probabilities of an old model to those of a new one, [N, L] each, or [M, N, L].

    >>> import torch
    >>> old = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.2, 0.8]])
    >>> new = torch.tensor([[0.8, 0.2], [0.4, 0.6], [0.3, 0.7], [0.6, 0.4]])
    >>> found = churn(old, new, [0, 1, 1, 1])
    >>> found.changed.value, found.mended, found.spoiled, found.mcnemar, round(found.delta_1.value, 6)
    (0.5, 1, 1, 1.0, 0.175)
    """
    check_level(level)
    before, after, left_out = _pairs(old, new)
    before, truth = read(before, labels, logits=False)
    after, _ = read(after, labels, logits=False)
    pairs, examples = before.shape[:2]
    was, now = before.argmax(dim=2), after.argmax(dim=2)
    was_right, is_right = was == truth, now == truth
    apart = (before - after).abs().sum(dim=2) / 2
    each = {
        "changed": (was != now).double(),
        "old_accuracy": was_right.double(),
        "new_accuracy": is_right.double(),
        "gain": is_right.double() - was_right.double(),
        "delta_1": apart,
    }
    rates = {
        name: over_examples(one.mean(dim=0), level=level, low=-1.0 if name == "gain" else 0.0)
        for name, one in each.items()
    }
    spoiled, mended = (float(one.double().mean(dim=0).sum()) for one in (was_right & ~is_right, is_right & ~was_right))
    if pairs == 1:
        spoiled, mended = round(spoiled), round(mended)
    for name in ("changed", "old_accuracy", "new_accuracy"):
        # Also of several pairs where all examples are alike: the t interval of 0 changes would have no width.
        if pairs == 1 or rates[name].value in (0.0, 1.0):
            count = round(rates[name].value * examples)
            rates[name] = Rate(count / examples, wilson(count, examples, level=level))
    if pairs == 1 or spoiled == mended == 0:
        rates["gain"] = Rate((mended - spoiled) / examples, gain_interval(spoiled, mended, examples, level=level))
    return Churn(
        examples=examples,
        pairs=pairs,
        left_out=left_out,
        level=level,
        changed=rates["changed"],
        spoiled=spoiled,
        mended=mended,
        mcnemar=mcnemar(int(spoiled), int(mended)) if pairs == 1 else None,
        delta_1=rates["delta_1"],
        old_accuracy=rates["old_accuracy"],
        new_accuracy=rates["new_accuracy"],
        gain=rates["gain"],
    )


def _pairs(old: Any, new: Any) -> tuple[Tensor, Tensor, int]:
    """Both as [M, N, L], without the pairs in which a model diverged, and how many those were."""
    before, after = (torch.as_tensor(one).detach().double().cpu() for one in (old, new))
    before, after = (one.unsqueeze(0) if one.dim() == 2 else one for one in (before, after))
    if before.shape != after.shape or before.dim() != 3:
        raise InputError(
            f"The two sides must have predictions of as many models for the same examples and labels, and they have "
            f"the shapes {tuple(before.shape)} and {tuple(after.shape)} of (models, examples, labels)."
        )
    whole = before.flatten(1).isfinite().all(dim=1) & after.flatten(1).isfinite().all(dim=1)
    if not bool(whole.any()):
        raise InputError("There is nothing to compare: in every pair a model had diverged.")
    return before[whole], after[whole], int((~whole).sum())


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def _between(rate: Rate, *, percent: bool = True, sign: str = "", unit: str = " %") -> str:
    low, high = rate.interval
    if not percent:
        return f"{low:.4f} to {high:.4f}"
    return f"{100 * low:{sign}.2f} to {100 * high:{sign}.2f}{unit}"


def _count(number: float) -> str:
    """A number of examples; a mean over pairs of models need not be whole."""
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.1f}"
