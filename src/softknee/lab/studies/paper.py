"""Numbers of a paper that a study sets its own beside: part of a recipe and of its report, and of no trial."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ...errors import RecipeError, did_you_mean
from .fitting import settle

# The test scores, prediction differences, and "parameters": how many numbers of one model are trained.
PAPER_MEASURES = (
    *("accuracy", "log_loss", "auc", "calibration_error", "mse", "r2", "psnr", "ssim"),
    *("delta_1", "delta_2", "relative", "binary", "true_label", "hamming"),
    "parameters",
)


@dataclass(frozen=True, kw_only=True)
class Paper:
    """What a paper reports.

    source: where, such as "SQUAF, table 3".
    values: by the label of an activation its numbers by measure, in the unit that the report shows: percent for
            accuracy, AUC, calibration error, r2 and hamming, dB for psnr.
    note:   what is done otherwise here than there.

    >>> Paper(source="SQUAF, table 1", values={"relu": {"psnr": 26.75}}).values
    {'relu': {'psnr': 26.75}}
    """

    source: str
    values: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    note: str = ""

    def __post_init__(self) -> None:
        settle(self, where="paper")
        for label, numbers in self.values.items():
            for measure in numbers:
                if measure not in PAPER_MEASURES:
                    raise RecipeError(
                        f"paper.values.{label}.{measure} is nothing that is measured."
                        f"{did_you_mean(measure, PAPER_MEASURES)} There are {', '.join(PAPER_MEASURES)}."
                    )

    def of(self, labels: Iterable[str]) -> Paper:
        """Its numbers for these labels alone."""
        kept = set(labels)
        return replace(self, values={label: one for label, one in self.values.items() if label in kept})

    def refuse_others(self, labels: Iterable[str]) -> None:
        """A sentence where it names a label that none of the activations has."""
        known = list(labels)
        for label in self.values:
            if label not in known:
                raise RecipeError(
                    f"paper.values.{label} is no label of the activations ({', '.join(known)})."
                    f"{did_you_mean(label, known)}"
                )
