"""Statements of the SmeLU paper about MNIST and about clicks: accuracy against reproducibility."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product

from ..runs import Study
from ..statement import (
    ADDED,
    CHANGED,
    LEFT_OPEN,
    NOT_SHOWN,
    REVERSED,
    SHOWN,
    Evidence,
    Part,
    Statement,
    agrees_more,
    better,
    bound,
    corrected,
    difference,
    exceeds,
    labels_of,
    percent,
    ranges,
    statements_of,
    wins,
)

statement = statements_of("smelu")
KERAS = "-keras"  # the same study with Keras' start: Glorot-uniform weights, zero biases, Adam with eps 1e-7
_TORCH = "weights and biases begin as torch draws them"
_OTHER_START = f"{_TORCH}, and not as Keras does"


_AT_END = "the best value lies at an end of our grid"
_ENDS = "a comparison is left open where a side that did not win it has its best value of beta at an end of our grid"


def open_at_ends(
    study: Study,
    parts: Sequence[Part],
    sides: Sequence[tuple[str, str]],
    numbers: Mapping[str, float] | None = None,
) -> Evidence:
    """Comparisons of the best value of beta of each family with another label; `sides` are the two labels of each.

    Where a side that did not win has its best value at an end of our grid, a better one may lie beyond it: the
    comparison is left open. The correction is over all comparisons, those that are left open too.
    """
    judged = corrected(parts)
    ends = [
        [label for label in _behind(part, pair) if _at_end(study, label)]
        for part, pair in zip(judged, sides, strict=True)
    ]
    left = [
        replace(part, says=f"{part.says} ({_AT_END})", direction=LEFT_OPEN) if at_end else part
        for part, at_end in zip(judged, ends, strict=True)
    ]
    words = with_left_open(left, _AT_END, [label for at_end in ends for label in at_end])
    return Evidence(left, words, numbers or {})


def _behind(part: Part, sides: tuple[str, str]) -> Sequence[str]:
    """The sides of a comparison that did not win it; none where it was not run."""
    winner, other = sides
    return {SHOWN: [other], REVERSED: [winner], NOT_SHOWN: [winner, other]}.get(part.direction, [])


def _at_end(study: Study, label: str) -> bool:
    """Whether a label has the least or the largest beta of its family; one value alone is no grid."""
    betas = {
        other: float(study.outcomes[other].trial.activation.values["beta"])
        for other in labels_of(study, study.outcomes[label].trial.activation.name)
        if "beta" in study.outcomes[other].trial.activation.values
    }
    return len(betas) > 1 and betas[label] in (min(betas.values()), max(betas.values()))


def with_left_open(parts: Sequence[Part], why: str, labels: Iterable[str]) -> str:
    """The differences that count, and the labels that do not with the reason; empty where all of them count."""
    families = _by_family(labels)
    return "; ".join(filter(None, (ranges(parts), f"left open, since {why}: {families}"))) if families else ""


def _by_family(labels: Iterable[str]) -> str:
    """Labels in one line, each family named once: "smelu beta=2.5, 3, 4; swish beta=0.25"."""
    families: dict[str, list[str]] = {}
    for label in dict.fromkeys(labels):
        family, _, value = label.partition("=")
        families.setdefault(family, []).append(value)
    return "; ".join(f"{family}={', '.join(values)}".rstrip("=") for family, values in families.items())


# -- MNIST, with each of the paper's two optimizers -------------------------------------------------------

SGD, ADAGRAD = "smelu-figure-4", "smelu-figure-13"
FAMILIES = ("smelu", "swish", "gelu", "mish", "tanhexp", "softplus")
OTHER_MEASURES = ("delta_2", "true_label", "hamming")
_SETTING = (
    "whether the paper normalises weights with SGD is not known, and here they are not; 1,200 training images are kept "
    "for validation; with SGD products are of TF32; the paper's values of beta are not printed, and of each family the "
    f"best of ours is taken; {CHANGED}"
)
_DIFFERENT = f"{_SETTING}; {_ENDS}"
_SMALL = "two layers of 128 and 6 epochs, and not two of 1200 and 150"
_LEGEND = "the one legend that is legible, that of figure 14, names ReLU, SmeLU and Swish alone"
_FAMILIES = f"{_DIFFERENT}; {_LEGEND}"


def with_each_optimizer(
    name: str, *, place: str, says: str, different: str
) -> Callable[[Callable[[Study], Evidence]], tuple[Statement, ...]]:
    """One statement for SGD, one for it with Keras' start, and one for Adagrad."""
    cases = (
        ("sgd", "SGD and torch's start", "right", SGD, {"stand_in": _OTHER_START}),
        ("sgd_and_keras_start", "SGD and Keras' start", "right", SGD + KERAS, {}),
        ("adagrad", "Adagrad", "left", ADAGRAD, {"stand_in": _SMALL, "instead": {ADAGRAD: f"{ADAGRAD}-small"}}),
    )

    def made(decide: Callable[[Study], Evidence]) -> tuple[Statement, ...]:
        return tuple(
            statement(
                name=f"{name}_with_{case}",
                place=place.format(side=side),
                says=f"With {optimizer}{says}".format(share=10 if study == ADAGRAD else 30),
                needs=[study],
                different=f"{_TORCH}; {different}" if study == ADAGRAD else different,
                **setting,
            )(decide)
            for case, optimizer, side, study, setting in cases
        )

    return made


def families_of(study: Study) -> list[str]:
    """The families of smooth activations that a study has."""
    return [family for family in FAMILIES if labels_of(study, family)]


def _lowest(study: Study, labels: Iterable[str], measure: str = "delta_1") -> str:
    """The label with the lowest prediction difference."""
    differences = {label: difference(study, label, measure) for label in labels}
    return min(differences, key=lambda label: (math.isnan(differences[label]), differences[label]))


def _lowest_of_each(study: Study) -> list[str]:
    """Of each family the label with the lowest prediction difference."""
    return [_lowest(study, labels_of(study, family)) for family in families_of(study)]


def _agree_with_relu(study: Study, labels: Sequence[str], numbers: Mapping[str, float] | None = None) -> Evidence:
    """Each label, the best of its family, against ReLU by delta 1."""
    parts = [part for label in labels for part in agrees_more(study, label, ["relu"])]
    return open_at_ends(study, parts, [(label, "relu") for label in labels], numbers)


def _most_accurate(study: Study, labels: Iterable[str]) -> str:
    """The label with the lowest mean error."""
    means = {label: study.mean(label, "accuracy") for label in labels}
    return max(means, key=lambda label: (not math.isnan(means[label]), means[label]))


@with_each_optimizer(
    "smooth_models_agree_more",
    place="Figure 4 ({side}) and section 5, MNIST",
    says=", ReLU's models differ from each other much more than those of smooth activations can.",
    different=_FAMILIES,
)
def smooth_models_agree_more(study: Study) -> Evidence:
    """Of each family the value of beta whose models agree most, against ReLU, by the jackknife of delta 1."""
    best = _lowest_of_each(study)
    return _agree_with_relu(study, best, {label: difference(study, label) for label in study.outcomes})


@with_each_optimizer(
    "difference_depends_on_the_activation",
    place="Section 5, MNIST",
    says=", prediction difference changes from activation to activation by over {share} % of its lowest value.",
    different=f"{_SETTING}; {_LEGEND}; without SELU, which does not train well here",
)
def difference_depends_on_the_activation(study: Study) -> Evidence:
    """Of each family the value of beta with the lowest delta 1, and ReLU: the lowest of them against the highest, by
    the interval of the jackknife against that share of the lowest."""
    labels = ["relu", *_lowest_of_each(study)]
    low = _lowest(study, labels)
    high = max(labels, key=lambda label: (not math.isnan(difference(study, label)), difference(study, label)))
    share = (0.1 if study.name.startswith(ADAGRAD) else 0.3) * difference(study, low)
    (part,) = agrees_more(study, low, [high])
    if part.interval is None:
        return Evidence([part])
    direction = SHOWN if part.interval[0] > share else REVERSED if part.interval[1] < share else NOT_SHOWN
    words = f"{part.ours()} from {low} to {high}, where {share:.5f} is asked for"
    return Evidence([replace(part, direction=direction, p=None)], words)


@with_each_optimizer(
    "smelu_has_the_better_trade_off",
    place="Figure 4 ({side}), sections 5 and 6",
    says=" a SmeLU is both more reproducible than ReLU and as accurate: it has the better trade-off.",
    different=_DIFFERENT,
)
def smelu_has_the_better_trade_off(study: Study) -> Evidence:
    """Of the SmeLUs that are not shown to be less accurate than ReLU, the one whose models agree most, against ReLU."""
    smelus = labels_of(study, "smelu")
    behind = corrected(wins(study, "relu", smelus, "accuracy"))
    accurate = [label for label, part in zip(smelus, behind, strict=True) if part.direction != SHOWN]
    if not accurate:
        none = Part(f"{study.name}: a SmeLU as accurate as ReLU", REVERSED)
        return open_at_ends(study, [none], [(_most_accurate(study, smelus), "relu")])
    return _agree_with_relu(study, [_lowest(study, accurate)])


@with_each_optimizer(
    "smooth_activations_can_be_more_accurate",
    place="Abstract and section 3",
    says=", activations smoother than ReLU can also be more accurate.",
    different=f"{_FAMILIES}; {ADDED}",
)
def smooth_activations_can_be_more_accurate(study: Study) -> Evidence:
    """Of each family the value of beta with the lowest mean error against ReLU, corrected over the families; since the
    paper says that they can, the most accurate of them decides."""
    means = {label: study.mean(label, "accuracy") for label in study.outcomes}
    best = [_most_accurate(study, labels_of(study, family)) for family in families_of(study)]
    parts = corrected([part for label in best for part in wins(study, label, ["relu"], "accuracy")])
    first = _most_accurate(study, best)
    return open_at_ends(study, [parts[best.index(first)]], [(first, "relu")], means)


@with_each_optimizer(
    "wider_knees_agree_more",
    place="Sections 3 and 4",
    says=", SmeLU's models mostly differ less from each other the wider its knee.",
    different=f"{_SETTING}; the paper adds that the best may lie between; {ADDED}",
)
def wider_knees_agree_more(study: Study) -> Evidence:
    """The SmeLU with the narrowest knee against that of the wider ones with the lowest delta 1, by the jackknife; and
    of the steps from one beta to the next more have to lower delta 1 than not, each taken as it is."""
    labels = sorted(
        labels_of(study, "smelu"), key=lambda label: float(study.outcomes[label].trial.activation.values["beta"])
    )
    numbers = {label: difference(study, label) for label in labels}
    steps = [numbers[wider] < numbers[narrower] for narrower, wider in pairwise(labels)]
    says = f"{study.name}: {sum(steps)} of {len(steps)} steps to a wider knee lower delta_1"
    (part,) = agrees_more(study, _lowest(study, labels[1:]), [labels[0]])
    words = f"{part.ours()}; {sum(steps)} of {len(steps)} steps to a wider knee lower it"
    return Evidence([part, bound(says, 2 * sum(steps) > len(steps))], words, numbers)


@with_each_optimizer(
    "other_measures_say_the_same",
    place="Figures 13 to 15 ({side}), appendix F",
    says=" the other measures of prediction difference (delta 2, of the true label, Hamming) behave like delta 1.",
    different=_DIFFERENT,
)
def other_measures_say_the_same(study: Study) -> Evidence:
    """The SmeLU with the lowest delta 1 against ReLU, by each of the other measures."""
    best = _lowest(study, labels_of(study, "smelu"))
    parts = [part for measure in OTHER_MEASURES for part in agrees_more(study, best, ["relu"], measure)]
    return open_at_ends(study, parts, [(best, "relu")] * len(parts))


_ROOM = 0.1  # points of accuracy: a quarter of the axis of the error in the figure for Adagrad, 0.8 to 1.2 %


@with_each_optimizer(
    "smelu_is_comparable_or_superior",
    place="Section 5, MNIST, and section 6, last paragraph",
    says=", SmeLU can be comparable or superior to other smooth activations, in prediction difference and in accuracy.",
    different=f"{_FAMILIES}; {ADDED}",
)
def smelu_is_comparable_or_superior(study: Study) -> Evidence:
    """Of each family the value of beta with the lowest delta 1: SmeLU's against each other, by delta 1 and by accuracy.
    It is comparable where the 95 % interval has it behind by less than a tenth of the lowest delta 1 (the least change
    that the paper calls substantial) and by less than 0.1 points (a quarter of its axis of the error with Adagrad);
    all of these have to hold, which needs no correction."""
    smelu, *others = _lowest_of_each(study)
    room = 0.1 * difference(study, _lowest(study, [smelu, *others]))
    parts = [_no_worse(part, room) for part in agrees_more(study, smelu, others)]
    parts += [_no_worse(part, _ROOM) for part in wins(study, smelu, others, "accuracy")]
    return open_at_ends(study, parts, [(smelu, other) for other in others] * 2)


def _no_worse(part: Part, room: float) -> Part:
    """The same comparison with room for being behind, by its 95 % interval, which is stricter than `alike`: shown where
    that lies above -room, and reversed where it lies below."""
    if part.difference is None:  # too few seeds on a side
        return part
    low, high = part.interval or (part.difference, part.difference)
    direction = SHOWN if low > -room else REVERSED if high < -room else NOT_SHOWN
    return replace(part, says=f"{part.says}, or behind by less than {room:.2g}", direction=direction, p=None)


def swish_agrees_less(study: Study) -> Evidence:
    """The best of every other family against the best Swish, by the jackknife of delta 1."""
    swish = _lowest(study, labels_of(study, "swish"))
    others = [label for label in _lowest_of_each(study) if label != swish]
    parts = [part for label in others for part in agrees_more(study, label, [swish])]
    return open_at_ends(study, parts, [(label, swish) for label in others])


SWISH = [
    statement(
        name=f"swish_agrees_less_with_sgd{suffix}",
        place="Figure 4 (right) and section 5, MNIST",
        says=f"With SGD and {start} start, Swish appears inferior in prediction difference to the other smooth "
        "activations.",
        needs=[study],
        different=_FAMILIES,
        stand_in=stand_in,
    )(swish_agrees_less)
    for study, suffix, start, stand_in in (
        (SGD, "", "torch's", _OTHER_START),
        (SGD + KERAS, "_and_keras_start", "Keras'", ""),
    )
]


# -- models of clicks: those that learned nothing agree with each other, and neither win nor lose ---------

RELATIVE = "binary"  # the paper's relative difference of two labels
_NOTHING = 0.02  # an AUC so near to one half is of a model that gives all examples the same, or nearly
_FEW = 0.1  # of the models may have learned nothing where a row counts
_BLIND = (
    "an activation with which more than a tenth of the models learned nothing (an AUC within 0.02 of one half) can "
    f"neither win nor lose; {CHANGED}"
)


def blind(study: Study, label: str) -> int:
    """How many of its models learned nothing."""
    return sum(auc is not None and abs(auc - 0.5) < _NOTHING for auc in study.values(label, "auc"))


def _learned(study: Study, label: str) -> bool:
    """Whether enough of its models learned something for it to count."""
    return blind(study, label) <= _FEW * len(study.values(label, "auc"))


def _counting(study: Study, labels: Sequence[str]) -> list[str]:
    """Those that count, or all where none does: what is compared then counts for nothing."""
    return [label for label in labels if _learned(study, label)] or list(labels)


def _agree(study: Study, winner: str, others: Sequence[str], measure: str = "delta_1") -> list[Part]:
    """`agrees_more`, which counts for nothing where too many models learned nothing."""
    return _where_both_learned(study, winner, others, agrees_more(study, winner, others, measure))


def _beat(study: Study, winner: str, others: Sequence[str], measure: str) -> list[Part]:
    """`wins`, which counts for nothing where too many models learned nothing."""
    return _where_both_learned(study, winner, others, wins(study, winner, others, measure))


def _where_both_learned(study: Study, winner: str, others: Sequence[str], parts: Sequence[Part]) -> list[Part]:
    judged = []
    for other, part in zip(others, parts, strict=True):
        lost = [f"{blind(study, label)} models of {label}" for label in (winner, other) if not _learned(study, label)]
        says = f"{part.says} ({', '.join(lost)} learned nothing)"
        judged.append(Part(says, LEFT_OPEN, printed=part.printed, unit=part.unit) if lost else part)
    return judged


def _of_those_that_learned(parts: Sequence[Part], studies: Sequence[Study], family: str) -> Evidence:
    """The evidence, with a sentence on the labels of this family that count for nothing in one of the studies or
    more."""
    labels = [(study, label) for study in studies for name in ("relu", family) for label in labels_of(study, name)]
    left = [label for study, label in labels if not _learned(study, label)]
    return Evidence(parts, with_left_open(parts, "models learned nothing", left))


def _agreeing(study: Study, labels: Sequence[str], measure: str) -> str:
    """The label with the lowest prediction difference, of those that count."""
    return _lowest(study, _counting(study, labels), measure)


def _best_loss(study: Study, family: str) -> str:
    """Of a family the label with the lowest mean log loss, of those that count."""
    return min(_counting(study, labels_of(study, family)), key=lambda label: study.mean(label, "log_loss"))


# -- clicks of Criteo: tables 1 to 3 ----------------------------------------------------------------------

TABLES = APART, IN_ORDER, SAME_START = "smelu-table-1", "smelu-table-2", "smelu-table-3"
# The standard deviation of the AUC over the models, in the order of the recipes' rows.
_CLICK_ROWS = (
    "relu",
    *(f"smelu beta={beta:g}" for beta in (1, 1.5, 2, 2.5, 3, 4)),
    *(f"swish beta={beta:g}" for beta in (0.25, 0.5, 1, 2, 4)),
)
_AUC_SPREADS = (
    (0.0144, 0.0116, 0.0095, 0.0068, 0.0012, 0.0012, 0.0012, 0.0208, 0.0197, 0.0211, 0.0208, 0.0170),
    (0.0068, 0.0008, 0.0007, 0.0011, 0.0011, 0.0011, 0.0007, 0.0203, 0.0216, 0.0215, 0.0180, 0.0180),
    (0.0023, 0.0004, 0.0004, 0.0003, 0.0005, 0.0004, 0.0003, 0.0210, 0.0207, 0.0204, 0.0204, 0.0181),
)
AUC_SPREADS: Mapping[str, Mapping[str, float]] = {
    name + start: dict(zip(_CLICK_ROWS, spreads, strict=True))
    for name, spreads in zip(TABLES, _AUC_SPREADS, strict=True)
    for start in ("", KERAS)
}
_SAMPLE = f"batches of 32, and not 1024; rate and transform of the integers are ours; {_BLIND}"
_FEWER = "a sample of Criteo with 7,200 rows (225 updates), and not 37 million"


def of_clicks(
    *, place: str, says: str, needs: Sequence[str], different: str = ""
) -> Callable[[Callable[..., Evidence]], tuple[Statement, ...]]:
    """One statement for torch's start and one for Keras', of the tables of clicks."""

    def made(decide: Callable[..., Evidence]) -> tuple[Statement, ...]:
        return tuple(
            statement(
                name=f"{decide.__name__}{suffix}",
                place=f"{place}, {drawn} start",
                says=says,
                needs=[f"{name}{start}" for name in needs],
                different="; ".join(filter(None, (_SAMPLE, different))),
                stand_in=_FEWER,
            )(decide)
            for start, suffix, drawn in (("", "", "torch's"), (KERAS, "_with_keras_start", "Keras'"))
        )

    return made


def _smelu_agrees_more(study: Study) -> list[Part]:
    """Each SmeLU against ReLU, by both prediction differences."""
    compared = product(labels_of(study, "smelu"), ("delta_1", RELATIVE))
    return [part for label, measure in compared for part in _agree(study, label, ["relu"], measure)]


@of_clicks(
    place="Table 1 and section 5, Criteo",
    says="With starts and orders of their own, SmeLU's models differ less than ReLU's by both prediction differences.",
    needs=[APART],
)
def smelu_models_of_clicks_agree_more(study: Study) -> Evidence:
    """Each SmeLU of the table against ReLU, by the jackknife of delta 1 and of the relative delta 1."""
    return _of_those_that_learned(_smelu_agrees_more(study), [study], "smelu")


@of_clicks(
    place="Tables 2 and 3, appendix E",
    says="Less, but still: SmeLU's models differ less than ReLU's when the examples are not shuffled, and when all "
    "models have the same start.",
    needs=[IN_ORDER, SAME_START],
)
def smelu_models_of_clicks_agree_more_when_they_share(*studies: Study) -> Evidence:
    """As in table 1, in both settings."""
    return _of_those_that_learned([part for study in studies for part in _smelu_agrees_more(study)], studies, "smelu")


@of_clicks(place="Table 1 and section 5, Criteo", says="SmeLU slightly improves AUC over ReLU.", needs=[APART])
def smelu_predicts_clicks_better(study: Study) -> Evidence:
    """The AUC of each SmeLU of the table against ReLU's."""
    parts = [part for label in labels_of(study, "smelu") for part in _beat(study, label, ["relu"], "auc")]
    return _of_those_that_learned(parts, [study], "smelu")


@of_clicks(
    place="Table 1 and section 5, Criteo",
    says="Swish has neither an AUC nor a prediction difference comparable to the others on this data set: ReLU's are "
    "better.",
    needs=[APART],
    different="of the two prediction differences delta 1 alone",
)
def swish_predicts_clicks_worse(study: Study) -> Evidence:
    """ReLU against each Swish of the table, by AUC and by delta 1."""
    labels = labels_of(study, "swish")
    parts = [*_beat(study, "relu", labels, "auc"), *_agree(study, "relu", labels)]
    return _of_those_that_learned(parts, [study], "swish")


@of_clicks(
    place="Tables 1 to 3",
    says="With SmeLU the standard deviation of the AUC over the models is smaller, by an order of magnitude at best.",
    needs=TABLES,
    different="compared are the logarithms of how far each model's AUC is from the median; the printed effect is that "
    f"of the paper's standard deviations; {CHANGED}",
)
def smelu_lessens_the_spread_of_auc(*studies: Study) -> Evidence:
    """Each SmeLU against ReLU by the decimal logarithm of the distance of each AUC from the median."""
    parts = []
    for study in studies:
        for label in labels_of(study, "smelu"):
            says = f"{study.name}: {label} has less spread of the AUC than relu"
            printed = AUC_SPREADS[study.name]
            effect = math.log10(printed["relu"] / printed[label]) if label in printed else None
            sides = (_distances(study, label), _distances(study, "relu"))
            part = better(says, *sides, larger=False, printed=effect, unit="decades")
            parts += _where_both_learned(study, label, ["relu"], [part])
    return _of_those_that_learned(parts, studies, "smelu")


def _distances(study: Study, label: str) -> list[float]:
    """Logarithms of how far the AUC of each seed is from the median."""
    aucs = [auc for auc in study.values(label, "auc") if auc is not None]
    middle = statistics.median(aucs) if aucs else 0.0
    return [math.log10(max(abs(auc - middle), 1e-6)) for auc in aucs]


@of_clicks(
    place="Tables 1 to 3 and section 5, Criteo",
    says="ReLU's models have a relative prediction difference of over 36 %, and still of over 20 % where they share "
    "the order of the examples or their start.",
    needs=TABLES,
)
def relu_models_of_clicks_differ(*studies: Study) -> Evidence:
    """The relative delta 1 of the ReLU models in each setting against the paper's shares."""
    bounds = zip(studies, (0.36, 0.2, 0.2), strict=True)
    return Evidence([exceeds(study, "relu", RELATIVE, least) for study, least in bounds])


# -- clicks online: figure 3 ------------------------------------------------------------------------------

ONLINE, PAIR = "smelu-figure-3-twelve", "smelu-figure-3"
_ONLINE = (
    f"five columns, rate, batch and values of beta are ours, and of each family the best of ours is taken; {_TORCH}; "
    f"{_BLIND}"
)
_SEARCHED = f"{_ONLINE}; {_ENDS}; {CHANGED}"
_ONE_PASS = "7,200 rows of Criteo, of which the second half is judged, and not hundreds of billions of the paper's own"
_FIGURE_3 = "Figure 3 and section 5, real data"


@statement(
    place="Section 5, real data",
    says="Two ReLU models of clicks with the same start differ by over 10 % of the predicted share of clicks.",
    needs=[ONLINE, PAIR],
    different=f"{_ONLINE}; two models have no interval, so that twelve are judged; {CHANGED}",
    stand_in=_ONE_PASS,
)
def two_online_relu_models_differ(study: Study, pair: Study) -> Evidence:
    """The relative delta 1 of twelve models against 13.5 %: twelve differ from their mean sqrt(11/6) times as much as
    two do, where what sets them apart is normal, and the paper has 10 % of two. Two models of ours stand beside."""
    part = exceeds(study, "relu", RELATIVE, 0.1 * math.sqrt(11 / 6))
    twelve, two = (difference(each, "relu", RELATIVE) for each in (study, pair))
    low, high = part.interval or (math.nan, math.nan)
    words = (
        f"twelve models {percent(twelve)}, {100 * (part.difference or 0.0):.1f} [{100 * low:.1f}, {100 * high:.1f}] "
        f"points above 13.5 %; two models {percent(two)}"
    )
    return Evidence([part], words, {"twelve models": twelve, "two models": two})


@statement(
    place=_FIGURE_3,
    says="Online, smooth activations are substantially better than ReLU in prediction difference.",
    needs=[ONLINE],
    different=_SEARCHED,
    stand_in=_ONE_PASS,
)
def smooth_online_models_agree_more(study: Study) -> Evidence:
    """Of each family the value of beta whose models agree most, against ReLU, by the relative delta 1."""
    best = [_agreeing(study, labels_of(study, family), RELATIVE) for family in FAMILIES]
    parts = [part for label in best for part in _agree(study, label, ["relu"], RELATIVE)]
    return open_at_ends(study, parts, [(label, "relu") for label in best])


def _acceptable(study: Study, family: str) -> str | None:
    """Of the values of a family whose mean progressive log loss is no higher than ReLU's, the one whose models agree
    most; None where there is none."""
    most = study.mean("relu", "log_loss")
    labels = _counting(study, labels_of(study, family))
    acceptable = [label for label in labels if study.mean(label, "log_loss") <= most]
    return _agreeing(study, acceptable, RELATIVE) if acceptable else None


def _trades_better(study: Study, pairs: Iterable[tuple[str, str]]) -> tuple[list[Part], list[tuple[str, str]]]:
    """A family's acceptable value against that of another family, or against ReLU: for each pair the comparison, and
    the labels of its sides; that of a family without such a value is the one with the lowest loss."""
    parts, sides = [], []
    for family, other in pairs:
        mine, theirs = (name if name == "relu" else _acceptable(study, name) for name in (family, other))
        if mine is None:
            parts.append(Part(f"{study.name}: a {family} with a loss as low as ReLU's", REVERSED))
        elif theirs is None:
            parts.append(Part(f"{study.name}: {mine} has a loss as low as ReLU's, and no {other}", SHOWN))
        else:
            parts += _agree(study, mine, [theirs], RELATIVE)
        sides.append((mine or _best_loss(study, family), theirs or _best_loss(study, other)))
    return parts, sides


@statement(
    place=_FIGURE_3,
    says="Online, smooth activations have better trade-offs than ReLU: they agree more without a higher loss.",
    needs=[ONLINE],
    different=f"{_SEARCHED}; without SoftPlus, of which the paper says that it pays in accuracy",
    stand_in=_ONE_PASS,
)
def smooth_online_models_have_better_trade_offs(study: Study) -> Evidence:
    """Of each family but SoftPlus, and of its values whose mean progressive log loss is no higher than ReLU's, the one
    whose models agree most, against ReLU."""
    return open_at_ends(study, *_trades_better(study, product(FAMILIES[:-1], ["relu"])))


@statement(
    place=_FIGURE_3,
    says="SoftPlus pushes towards a better prediction difference at the expense of accuracy.",
    needs=[ONLINE],
    different=_ONLINE,
    stand_in=_ONE_PASS,
)
def softplus_agrees_at_the_expense_of_accuracy(study: Study) -> Evidence:
    """The SoftPlus whose models agree most: it agrees more than ReLU, and ReLU's log loss is lower."""
    best = _agreeing(study, labels_of(study, "softplus"), RELATIVE)
    return Evidence([*_agree(study, best, ["relu"], RELATIVE), *_beat(study, "relu", [best], "log_loss")])


@statement(
    place=_FIGURE_3,
    says="Online, a continuously differentiable SELU is inferior in accuracy and in prediction difference.",
    needs=[ONLINE],
    different=f"{_SEARCHED}; the paper does not say to which it is inferior: every other smooth family is taken",
    stand_in=_ONE_PASS,
)
def selu_is_inferior_online(study: Study) -> Evidence:
    """Of each family the value of beta with the lowest mean log loss against SELU with beta = 1, by log loss and by the
    relative delta 1."""
    best = [_best_loss(study, family) for family in families_of(study)]
    parts = [part for label in best for part in _beat(study, label, ["selu"], "log_loss")]
    parts += [part for label in best for part in _agree(study, label, ["selu"], RELATIVE)]
    return open_at_ends(study, parts, [(label, "selu") for label in best] * 2)


@statement(
    place=_FIGURE_3,
    says="Online, the trade-offs of SmeLU, GELU and Swish are slightly better than those of Mish and TanhExp.",
    needs=[ONLINE],
    different=f"{_SEARCHED}; {ADDED}",
    stand_in=_ONE_PASS,
)
def three_families_trade_best_online(study: Study) -> Evidence:
    """Of each family's values whose mean progressive log loss is no higher than ReLU's the one whose models agree most:
    each of the three against each of the two, by the relative delta 1."""
    return open_at_ends(study, *_trades_better(study, product(("smelu", "gelu", "swish"), ("mish", "tanhexp"))))


@statement(
    place=_FIGURE_3,
    says="Online, SmeLU seems to be stronger in prediction difference, and Swish in accuracy.",
    needs=[ONLINE],
    different=f"{_SEARCHED}; {ADDED}",
    stand_in=_ONE_PASS,
)
def smelu_agrees_and_swish_predicts_better_online(study: Study) -> Evidence:
    """Of the values whose mean progressive log loss is no higher than ReLU's the SmeLU and the Swish whose models agree
    most, by the relative delta 1; and the Swish and the SmeLU with the lowest mean log loss, by that."""
    parts, sides = _trades_better(study, [("smelu", "swish")])
    swish, smelu = _best_loss(study, "swish"), _best_loss(study, "smelu")
    return open_at_ends(study, [*parts, *_beat(study, swish, [smelu], "log_loss")], [*sides, (swish, smelu)])


# -- learned with the network: appendix B -----------------------------------------------------------------

_NOT_PUBLIC = "the paper saw it in networks and data that it does not name, and prints no numbers"


def _in_both(
    *, place: str, says: str, fixed: str = "the comparisons were fixed before the study ran"
) -> Callable[[Callable[[Study], Evidence]], tuple[Statement, ...]]:
    """One statement for MNIST, and one for clicks, where the inputs are learned embeddings."""
    cases = (
        ("mnist", "smelu-appendix-b", "MNIST and an MLP with four layers of 256"),
        ("clicks", "smelu-appendix-b-clicks", "7,200 rows of Criteo and layers of 512, 256 and 256"),
    )

    def made(decide: Callable[[Study], Evidence]) -> tuple[Statement, ...]:
        return tuple(
            statement(
                name=f"{decide.__name__}_on_{data}",
                place=place,
                says=says,
                needs=[study],
                different=f"{_NOT_PUBLIC}; {fixed}",
                stand_in=setting,
            )(decide)
            for data, study, setting in cases
        )

    return made


def _left_slopes(study: Study) -> list[list[float | None]]:
    """The learned g_minus of each layer, from the input to the output, by seed."""
    learned = study.outcomes["generalized"].parameters
    return [list(way["end"]) for name, way in learned.items() if name.endswith(".g_minus")]


@_in_both(
    place="Section 4 and appendix B",
    says="Learned for accuracy, the left slope of a generalized SmeLU is negative near the input, and closer to 0 near "
    "the output.",
)
def layers_near_the_input_learn_a_negative_slope(study: Study) -> Evidence:
    """The first layer's g_minus, which begins at 0, against 0; and its size in the last layer against the first, both
    read from one trained model."""
    slopes = _left_slopes(study)
    first, last = ([None if end is None else abs(end) for end in slopes[place]] for place in (0, -1))
    means = [statistics.mean(end for end in ends if end is not None) for ends in slopes]
    parts = [
        better(f"{study.name}: g_minus of the first layer is negative", slopes[0], 0.0, larger=False),
        better(f"{study.name}: g_minus of the last layer is closer to 0", last, first, larger=False, paired=True),
    ]
    words = f"means from the first layer on: {', '.join(f'{mean:+.3f}' for mean in means)}"
    return Evidence(parts, words, {f"layer {place}": mean for place, mean in enumerate(means)})


@_in_both(
    place="Section 1 and appendix B",
    says="A generalized SmeLU that is learned allows further accuracy improvements.",
    fixed=CHANGED,
)
def learning_serves_accuracy(study: Study) -> Evidence:
    """The learned one against the SmeLU that it begins as, by the log loss, which it is learned by."""
    numbers = {f"delta_1 of {label}": difference(study, label) for label in ("generalized", "smelu")}
    return Evidence(wins(study, "generalized", ["smelu"], "log_loss"), numbers=numbers)
