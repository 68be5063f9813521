"""What a report is made of, as plain values: page, Markdown, CSV and LaTeX are all written from these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...measure.estimate import Estimate, Score
from ...measure.record import Quantity
from ...measure.significance import Comparison
from ..studies.recipe import Recipe, Value

BETTER, WORSE = "better", "worse"
SLIGHTLY = "slightly "  # before the two above: shown, and shown to be too small to matter
EQUIVALENT, UNDECIDED = "equivalent", "no difference shown"


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A number that activations are compared by.

    name:    as in an outcome: "accuracy", "log_loss", "delta_1", ...
    title:   as in the head of a column.
    scale:   what values are multiplied by when they are shown: 100 for percent.
    unit:    what stands behind them then.
    logarithmic: it is seen by its order, and shown in powers of ten where a column has several.
    of_sets: it belongs to a set of models (a prediction difference), not to each model.
    margin:  the largest difference that does not matter, unscaled; None where equivalence is not tested.
    """

    name: str
    title: str
    larger_is_better: bool
    scale: float = 1.0
    unit: str = ""
    logarithmic: bool = False
    of_sets: bool = False
    margin: float | None = None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A row against the baseline by one measure: row minus baseline.

    adjusted:    Holm's adjusted p over all rows of this measure.
    equivalence: Holm's adjusted p of the equivalence tests of this measure.
    words:       "better" or "worse", with "slightly" before it where the difference is shown to be within the margin;
                 "equivalent" where only that is shown; or "no difference shown".
    """

    comparison: Comparison
    adjusted: float | None
    equivalence: float | None
    words: str


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The time of one step, and relative to the cost baseline; `key` names the record it is from."""

    key: str
    train: Quantity
    infer: Quantity
    train_ratio: Quantity
    infer_ratio: Quantity
    peak_memory: float | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """One activation with one set of values.

    variant:     what of it is learned, whether it is hardened, and what it begins with at the last place: values of a
                 knob are a path within one variant.
    key:         names its record.
    diverged:    (seed, epoch) of each seed that diverged. Then there are no averages: `scores`, `differences` and
                 `verdicts` are empty, because a mean of the survivors would be of another, luckier study.
    best:        the measures by which it is the best, or not shown to be worse than the best.
    trained:     how many numbers of one model are trained; None where that is not known.
    """

    label: str
    name: str
    values: Mapping[str, Value]
    variant: tuple[bool | str | tuple[str, ...], bool, tuple[tuple[str, float], ...]]
    key: str
    seeds: tuple[int, ...]
    baseline: bool
    diverged: tuple[tuple[int, int], ...] = ()
    scores: Mapping[str, Score] = field(default_factory=dict)
    differences: Mapping[str, Estimate] = field(default_factory=dict)
    cost: Cost | None = None
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    best: frozenset[str] = frozenset()
    learning_rate: float = 0.0
    weight_decay: float = 0.0
    seconds: float = 0.0
    trained: int | None = None

    def number(self, parameter: str) -> float:
        """The value of a parameter that is a number."""
        return float(self.values[parameter])

    def found(self, measure: Measure) -> Score | Estimate | None:
        return self.differences.get(measure.name) if measure.of_sets else self.scores.get(measure.name)


@dataclass(frozen=True, kw_only=True)
class Knob:
    """Rows of one activation that differ in one parameter, in its order: the path through the plane."""

    name: str
    parameter: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True)
class Band:
    """A training curve of one row: the mean over seeds with its interval; or, where seeds diverged, each of them.

    epochs: the epoch of each point.
    cut:    the interval would have reached below 0, where no loss is, and goes down to the lowest seed instead.
    each:   [seed][epoch] of a row with diverged seeds, None from where a seed diverged; empty for all others.
    """

    label: str
    curve: str
    epochs: tuple[int, ...]
    middle: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    cut: bool = False
    each: tuple[tuple[float | None, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Shape:
    """An activation at one site as it started and as each seed left it: parameters by name."""

    label: str
    name: str
    path: str
    start: Mapping[str, float]
    ends: tuple[Mapping[str, float], ...]


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """A parameter at one site after some epochs, epoch 0 being the start: mean, lowest and highest over seeds."""

    label: str
    path: str
    parameter: str
    epochs: tuple[int, ...]
    middle: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The knob of one row over depth; each of start, end and distance is [site][seed]."""

    label: str
    knob: str
    paths: tuple[str, ...]
    start: tuple[tuple[float, ...], ...]
    end: tuple[tuple[float, ...], ...]
    distance: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """A hardened row before and after the limit took its activations' place; the change is after minus before."""

    label: str
    key: str
    limit: str
    measure: Measure
    before: Score
    after: Score
    change: Comparison
    changed: Score | None


@dataclass(frozen=True, kw_only=True)
class Inside:
    """What was seen inside the networks of one row, averaged over sites: by title, as fractions or nats."""

    label: str
    key: str
    scores: Mapping[str, Score]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One of the questions of every study, the row that answers it, and the rest of the sentence (from a comma on)."""

    question: str
    label: str
    words: str

    def __str__(self) -> str:
        return f"{self.question}: {self.label}{self.words}"


@dataclass(frozen=True, kw_only=True)
class Beside:
    """A number of a paper and ours, in the unit that is shown.

    value, interval: the mean over seeds, the geometric mean, or the difference of all models, and where it lies; None
             where seeds diverged, or where the activation was not run.
    verdict: "better", "worse", "as in the paper (inside our interval)", or why there is none.
    """

    label: str
    key: str | None
    paper: float
    value: float | None
    interval: tuple[float, float] | None
    seeds: int
    diverged: int
    verdict: str


@dataclass(frozen=True, kw_only=True)
class BesidePaper:
    """One measure of a paper beside ours.

    average:      "mean" or "geometric mean", over seeds; "all models together" of a prediction difference.
    paper_places: decimals of the paper's numbers; None for powers of ten.
    places:       decimals of ours.
    best:         who is best there and here, in a sentence; empty of what has no best.
    """

    measure: Measure
    average: str
    rows: tuple[Beside, ...]
    paper_places: int | None
    places: int | None
    best: str


@dataclass(frozen=True, kw_only=True)
class Summary:
    """All that a report shows.

    metric:    the measure of how good a model is: accuracy, or the mean squared error of a regression.
    spread:    the measure of how reproducible: the prediction difference Delta_1; None where it was not measured.
    measures:  all measures, these two among them.
    sentences: the most accurate, the most reproducible and the cheapest.
    notes:     what a reader must know: diverged trials, a baseline that is not there.
    beside:    the numbers of a paper beside ours, a measure each; empty where the recipe names none.
    """

    recipe: Recipe
    metric: Measure
    spread: Measure | None
    measures: tuple[Measure, ...]
    rows: tuple[Row, ...]
    baseline: Row | None
    knobs: tuple[Knob, ...]
    bands: tuple[Band, ...]
    shapes: tuple[Shape, ...]
    trajectories: tuple[Trajectory, ...]
    profiles: tuple[Profile, ...]
    replacements: tuple[Replacement, ...]
    inside: tuple[Inside, ...]
    sentences: tuple[Answer, ...]
    notes: tuple[str, ...]
    seconds: float
    level: float = 0.95
    beside: tuple[BesidePaper, ...] = ()

    @property
    def judged(self) -> tuple[Row, ...]:
        """The rows that have averages: no seed of them diverged."""
        return tuple(row for row in self.rows if not row.diverged)
