"""What a report is made of, as plain values: page, Markdown, CSV and LaTeX are all written from these."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...measure.estimate import Estimate, Score
from ...measure.machine import Hardware, Versions
from ...measure.record import Quantity, Record, without_paths
from ...measure.significance import Comparison
from ..studies.reading import to_yaml
from ..studies.recipe import Recipe, Value
from ..studies.trials import Outcome

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

    variant:     what of it is learned, whether it is hardened, which epoch is reported, and what it begins with at the
                 last place: values of a knob are a path within one variant.
    key:         names its record.
    diverged:    (seed, epoch) of each seed that diverged. Then there are no averages: `scores`, `differences` and
                 `verdicts` are empty, because a mean of the survivors would be of another, luckier study.
    best:        the measures by which it is the best, or not shown to be worse than the best.
    trained:     how many numbers of one model are trained; None where that is not known.
    """

    label: str
    name: str
    values: Mapping[str, Value]
    variant: tuple[bool | str | tuple[str, ...], bool, str | None, tuple[tuple[str, float], ...]]
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

    def result(self, measure: Measure) -> Score | Estimate | None:
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
    """Measures inside the networks of one row, averaged over sites: by title, as fractions or nats."""

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
class PaperRow:
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
class PaperTable:
    """One measure of a paper, its numbers and ours.

    average:      "mean" or "geometric mean", over seeds; "all models together" of a prediction difference.
    paper_places: decimals of the paper's numbers; None for powers of ten.
    places:       decimals of ours.
    best:         who is best there and here, in a sentence; empty of what has no best.
    """

    measure: Measure
    average: str
    rows: tuple[PaperRow, ...]
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
    paper_tables: the numbers of a paper and ours, a measure each; empty where the recipe names none.
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
    paper_tables: tuple[PaperTable, ...] = ()

    @property
    def judged(self) -> tuple[Row, ...]:
        """The rows that have averages: no seed of them diverged."""
        return tuple(row for row in self.rows if not row.diverged)


DASH = "–"
_DECADES = 100.0  # the ratio from which on no number of decimals suits all of a column


def minus(text: str) -> str:
    return text.replace("-", "−")


def plain(value: float) -> str:
    """A parameter's value: 0.5, 2, 1e−05."""
    return minus(f"{value:.4g}")


def reach(result: Score | Estimate) -> float | None:
    """How far the interval goes from the value, to the side where nothing bounds it."""
    return (
        None if result.interval is None else max(result.value - result.interval[0], result.interval[1] - result.value)
    )


def decimals(results: Iterable[Score | Estimate], *, scale: float = 1.0) -> int:
    """Digits behind the point for a column: two that count in its typical interval; of none, three in the values."""
    shown = [result for result in results if result is not None]
    widths = sorted(scale * wide for result in shown if (wide := reach(result)))
    if widths:
        return place_of(widths[len(widths) // 2])
    sizes = sorted(abs(scale * result.value) for result in shown if result.value)
    return place_of(sizes[len(sizes) // 2], digits=3) if sizes else 2


def column_places(results: Iterable[Score | Estimate], *, scale: float = 1.0, logarithmic: bool = False) -> int | None:
    """`decimals`, or None for powers of ten: of a quantity that is seen by its order where a column has several."""
    shown = list(results)
    sizes = [abs(result.value) for result in shown if result.value]
    if logarithmic and sizes and (max(sizes) > _DECADES * min(sizes) or max(sizes) < 1 / _DECADES):
        return None
    return decimals(shown, scale=scale)


def place_of(size: float, *, digits: int = 2) -> int:
    """How many decimals show this size with that many digits: 0.034 with two has three."""
    return min(8, max(0, digits - 1 - math.floor(math.log10(size))))


def fixed(value: float, places: int | None, *, signed: bool = False) -> str:
    """A number with that many decimals; what rounds to zero has no sign. None: as a power of ten, 1.0e−02."""
    if places is None:
        return minus(f"{value:+.1e}" if signed else f"{value:.1e}")
    text = f"{value:.{places}f}"
    if float(text) == 0:
        return text.lstrip("-")
    return minus(f"{value:+.{places}f}" if signed else text)


def with_reach(result: Score | Estimate | None, places: int | None, *, scale: float = 1.0) -> str:
    """`97.31 ± 0.22`, the 95 % interval being 0.22 to either side; a dash for None."""
    if result is None:
        return DASH
    wide = reach(result)
    value = fixed(scale * result.value, places)
    return value if wide is None else f"{value} ± {fixed(scale * wide, places)}"


def interval_words(interval: tuple[float, float] | None, places: int | None, *, scale: float = 1.0) -> str:
    """`[97.09, 97.53]`, or a dash."""
    if interval is None:
        return DASH
    return f"[{fixed(scale * interval[0], places)}, {fixed(scale * interval[1], places)}]"


def probability(p: float | None) -> str:
    """A p value: 0.032, < 0.0001, or a dash."""
    if p is None:
        return DASH
    if p < 1e-4:
        return "< 0.0001"
    return f"{p:.4f}" if p < 0.01 else f"{p:.3f}"


def duration(seconds: float) -> str:
    """`48 s`, `3 min 5 s`, `2 h 4 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def listed(words: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    every = list(words)
    return every[0] if len(every) == 1 else f"{', '.join(every[:-1])} and {every[-1]}" if every else ""


FAR = 2.0
"""Further from the rest than this many times the width of the rest, which would have a third of the picture."""
_MOST = 0.2  # of the points may be left out
_FEWEST = 5  # have to stay


def outside(values: Sequence[float]) -> set[int]:
    """The places of the values that are too far from the rest, at one end or at both: a fifth of them at most.

    >>> outside([1.0, 2.0, 3.0, 4.0, 5.0, 60.0])
    {5}
    >>> outside([1.0, 2.0, 3.0, 4.0, 5.0, 12.0])
    set()
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    most = min(int(_MOST * len(order)), len(order) - _FEWEST)
    for gone in range(most, 0, -1):
        for below in range(gone, -1, -1):
            first, last = below, len(order) - (gone - below) - 1
            low, high = values[order[first]], values[order[last]]
            under = low - values[order[first - 1]] if below else math.inf
            over = values[order[last + 1]] - high if below < gone else math.inf
            if 0 < FAR * (high - low) < min(under, over):
                return {*order[:first], *order[last + 1 :]}
    return set()


# What does not matter: half a point of accuracy, 0.1 dB; of losses and differences a share of the baseline's.
MARGINS: Mapping[str, float] = {
    **dict.fromkeys(("accuracy", "auc", "calibration_error", "hamming", "r2", "ssim"), 0.005),
    "psnr": 0.1,
}
RELATIVE_MARGINS: Mapping[str, float] = {"log_loss": 0.05, "mse": 0.05}
SHARE_OF_DIFFERENCE = 0.10

_PERCENT = {"scale": 100.0, "unit": "%"}
_CODERS = {"entropy": "entropy", "huffman": "Huffman", "rans": "range coder", "packed": "packed"}
# What was done to a language model before its loss was measured.
_AFTER = {
    "": "",
    "_replaced": " with ReLU",
    "_recovered": " with ReLU, recovered",
    "_layerwise": " with ReLU, layer by layer",
    "_continued": " after as many more steps",
}
_SCORES = (
    Measure(name="accuracy", title="test accuracy", larger_is_better=True, **_PERCENT),
    Measure(name="psnr", title="PSNR", larger_is_better=True, unit="dB"),
    Measure(name="mse", title="mean squared error", larger_is_better=False, logarithmic=True),
    Measure(name="r2", title="R²", larger_is_better=True, **_PERCENT),
    Measure(name="ssim", title="SSIM", larger_is_better=True),
    Measure(name="log_loss", title="log loss", larger_is_better=False, unit="nats"),
    Measure(name="auc", title="AUC", larger_is_better=True, **_PERCENT),
    Measure(name="calibration_error", title="calibration error", larger_is_better=False, **_PERCENT),
    Measure(name="accuracy_sampled", title="accuracy as SQUAF-P", larger_is_better=True, **_PERCENT),
    Measure(name="accuracy_soft", title="accuracy as SQUAF", larger_is_better=True, **_PERCENT),
    Measure(name="accuracy_step", title="accuracy as SQUAF-S", larger_is_better=True, **_PERCENT),
    Measure(name="bits", title="bits per activation (rate)", larger_is_better=False, unit="bits"),
    *(
        Measure(name=f"{mode}bits_{coder}", title=f"{title}{words}", larger_is_better=False, unit="bits")
        for mode, words in (("", ""), ("step_", ", SQUAF-S"))
        for coder, title in _CODERS.items()
    ),
    Measure(name="outside", title="inputs beyond the grid", larger_is_better=False, **_PERCENT),
    *(
        Measure(name=f"{name}{after}", title=f"{title}{words}", larger_is_better=False, unit=unit)
        for name, title, unit in (
            ("loss", "loss", "nats"),
            ("perplexity", "perplexity", ""),
            ("word_perplexity", "perplexity per word", ""),
        )
        for after, words in _AFTER.items()
    ),
    Measure(name="reward_accuracy", title="reward accuracy", larger_is_better=True, **_PERCENT),
    Measure(name="reward_margin", title="reward margin", larger_is_better=True, unit="nats"),
    Measure(name="evaluation_loss", title="evaluation loss", larger_is_better=False, unit="nats"),
    Measure(name="chosen_reward", title="chosen reward", larger_is_better=True, unit="nats"),
    Measure(name="rejected_reward", title="rejected reward", larger_is_better=False, unit="nats"),
    Measure(name="perplexity_sft", title="perplexity of replies after SFT", larger_is_better=False),
    Measure(name="perplexity_dpo", title="perplexity of replies after DPO", larger_is_better=False),
)
_DIFFERENCES = (
    Measure(name="delta_1", title="prediction difference Δ₁", larger_is_better=False, of_sets=True),
    Measure(name="delta_2", title="Δ₂", larger_is_better=False, of_sets=True),
    Measure(name="relative", title="relative Δ₁", larger_is_better=False, of_sets=True),
    Measure(name="binary", title="Δ₁ relative to the positive label", larger_is_better=False, of_sets=True),
    Measure(name="true_label", title="Δ₁ of the true label", larger_is_better=False, of_sets=True),
    Measure(name="hamming", title="labels that differ", larger_is_better=False, of_sets=True, **_PERCENT),
)
# How many numbers of one model are trained: no score of a seed, but what a paper reports beside its scores.
PARAMETERS = Measure(name="parameters", title="trained parameters", larger_is_better=False)


_BETA = " beta="  # with several betas of DPO, each number has its own


def score_called(name: str) -> Measure:
    """The score or the prediction difference of that name, as an outcome has it."""
    base, _, beta = name.partition(_BETA)
    measure = next(measure for measure in (*_SCORES, *_DIFFERENCES) if measure.name == base)
    return replace(measure, name=name, title=f"{measure.title}, β = {beta}") if beta else measure


def measured(outcomes: Iterable[Outcome]) -> tuple[Measure, ...]:
    """The measures that any of the outcomes has, in the order they are shown; unknown ones come last."""
    scores: dict[str, None] = {}
    differences: dict[str, None] = {}
    for outcome in outcomes:
        scores |= dict.fromkeys(outcome.test)
        differences |= dict.fromkeys(outcome.difference)
    return (*_named(_SCORES, scores, False), *_named(_DIFFERENCES, differences, True))


def _named(known: Sequence[Measure], names: Mapping[str, None], of_sets: bool) -> list[Measure]:
    order = {measure.name: place for place, measure in enumerate(known)}
    bases = {name: name.partition(_BETA)[0] for name in names}
    measures = [
        score_called(name) for name in sorted(names, key=lambda name: order.get(bases[name], 0)) if bases[name] in order
    ]
    others = [name for name in names if bases[name] not in order]
    return measures + [
        Measure(name=name, title=name.replace("_", " "), larger_is_better=False, of_sets=of_sets) for name in others
    ]


def with_margin(measure: Measure, baseline: float) -> Measure:
    """The measure with what does not matter in it, given what the baseline has."""
    share = RELATIVE_MARGINS.get(measure.name, SHARE_OF_DIFFERENCE if measure.of_sets else None)
    margin = MARGINS.get(measure.name, None if share is None else share * abs(baseline))
    return replace(measure, margin=margin) if margin else measure


def margin_words(measure: Measure) -> str:
    """The margin in words, for a caption."""
    if measure.name in MARGINS:
        unit = "points" if measure.unit in ("%", "") else measure.unit
        return f"{measure.scale * MARGINS[measure.name]:g} {unit}"
    share = RELATIVE_MARGINS.get(measure.name, SHARE_OF_DIFFERENCE if measure.of_sets else None)
    return "" if share is None else f"{100 * share:g} % of the baseline's"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a report comes from, as text; several machines or versions are several lines."""

    command: str
    recipe: str
    seeds: str
    hardware: tuple[str, ...]
    versions: tuple[str, ...]
    created: str

    def facts(self) -> list[tuple[str, str]]:
        """(name, words) of each fact."""
        facts = [("Seeds", self.seeds)]
        facts += [("Hardware", words) for words in self.hardware]
        facts += [("Versions", words) for words in self.versions]
        return facts + ([("Measured", self.created)] if self.created else [])


def origin_of(recipe: Recipe, *, command: str, records: Sequence[Record] = ()) -> Origin:
    """From the records of the trials; without any, of the machine that this runs on."""
    machines = [record.hardware for record in records] or [Hardware.here()]
    versions = [record.versions for record in records] or [Versions.here()]
    days = sorted(record.created for record in records)
    words = [day.replace("T", " ").replace("Z", " UTC") for day in dict.fromkeys((days[0], days[-1]))] if days else []
    return Origin(
        command=without_paths(command),
        recipe=to_yaml(recipe),
        seeds=", ".join(str(seed) for seed in recipe.seeds.numbers),
        hardware=tuple(dict.fromkeys(machine.sentence() for machine in machines)),
        versions=tuple(dict.fromkeys(version.sentence() for version in versions)),
        created=" to ".join(words),
    )
