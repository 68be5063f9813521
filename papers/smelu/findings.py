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
    NOT_RUN,
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
    statements_of,
    wins,
)

statement = statements_of("smelu")
KERAS = "-keras"  # the same study with Keras' start: Glorot-uniform weights, zero biases, Adam with eps 1e-7
_TORCH = "weights and biases begin as torch draws them"


def searched(study: Study, parts: Sequence[Part], labels: Sequence[str]) -> list[Part]:
    """A family whose best value of beta lies at an end of our grid was not searched: it can win, and not lose."""
    judged = corrected(parts)
    for place, label in enumerate(labels):
        chosen = study.outcomes[label].trial.activation
        grid = sorted(float(study.outcomes[other].trial.activation.values["beta"]) for other in _grid(study, label))
        at_end = len(grid) > 1 and float(chosen.values["beta"]) in (grid[0], grid[-1])
        if at_end and judged[place].direction == REVERSED:
            says = f"{judged[place].says} (the best value lies at an end of our grid)"
            judged[place] = replace(judged[place], says=says, direction=NOT_SHOWN)
    return judged


def _grid(study: Study, label: str) -> list[str]:
    chosen = study.outcomes[label].trial.activation
    same = labels_of(study, chosen.name)
    return [other for other in same if "beta" in study.outcomes[other].trial.activation.values]


# -- MNIST, with each of the paper's two optimizers -------------------------------------------------------

SGD, ADAGRAD = "smelu-figure-4", "smelu-figure-13"
FAMILIES = ("smelu", "swish", "gelu", "mish", "tanhexp", "softplus")
OTHER_MEASURES = ("delta_2", "true_label", "hamming")
_DIFFERENT = (
    "whether the paper normalises weights with SGD is not known, and here they are not; 1,200 training images are kept "
    "for validation; with SGD products are of TF32; the paper's values of beta are not printed, and of each family the "
    f"best of ours is taken, which may win but not lose where it lies at an end of our grid; {CHANGED}"
)
_SMALL = "two layers of 128 and 6 epochs, and not two of 1200 and 150"
_FAMILIES = f"{_DIFFERENT}; the one legend that is legible, that of figure 14, names ReLU, SmeLU and Swish alone"


def with_each_optimizer(
    name: str, *, place: str, says: str, different: str
) -> Callable[[Callable[[Study], Evidence]], tuple[Statement, ...]]:
    """One statement for SGD, one for it with Keras' start, and one for Adagrad."""
    cases = (
        ("sgd", "SGD", "right", SGD, _TORCH),
        ("sgd_and_keras_start", "SGD", "right", SGD + KERAS, ""),
        ("adagrad", "Adagrad", "left", ADAGRAD, _TORCH),
    )

    def made(decide: Callable[[Study], Evidence]) -> tuple[Statement, ...]:
        return tuple(
            statement(
                name=f"{name}_with_{case}",
                place=place.format(side=side),
                says=f"With {optimizer}{says}".format(share=30 if optimizer == "SGD" else 10),
                needs=[study],
                different="; ".join(filter(None, (start, different))),
                stand_in=_SMALL,
                instead={ADAGRAD: f"{ADAGRAD}-small"},
            )(decide)
            for case, optimizer, side, study, start in cases
        )

    return made


def families_of(study: Study) -> list[str]:
    """The families of smooth activations that a study has."""
    return [family for family in FAMILIES if labels_of(study, family)]


def _lowest(study: Study, labels: Iterable[str], measure: str = "delta_1") -> str:
    """The label with the lowest prediction difference."""
    differences = {label: difference(study, label, measure) for label in labels}
    return min(differences, key=lambda label: (math.isnan(differences[label]), differences[label]))


def _agree_with_relu(study: Study, labels: Sequence[str]) -> list[Part]:
    """Each label, the best of its family, against ReLU by delta 1."""
    return searched(study, [part for label in labels for part in agrees_more(study, label, ["relu"])], labels)


@with_each_optimizer(
    "smooth_models_agree_more",
    place="Figure 4 ({side}) and section 5, MNIST",
    says=", ReLU's models differ from each other much more than those of smooth activations can.",
    different=_FAMILIES,
)
def smooth_models_agree_more(study: Study) -> Evidence:
    """Of each family the value of beta whose models agree most, against ReLU, by the jackknife of delta 1."""
    best = [_lowest(study, labels_of(study, family)) for family in families_of(study)]
    numbers = {label: difference(study, label) for label in study.outcomes}
    return Evidence(_agree_with_relu(study, best), numbers=numbers)


@with_each_optimizer(
    "difference_depends_on_the_activation",
    place="Section 5, MNIST",
    says=", prediction difference changes from activation to activation by over {share} % of its lowest value.",
    different=f"{_FAMILIES}; without SELU, which does not train well here",
)
def difference_depends_on_the_activation(study: Study) -> Evidence:
    """The lowest delta 1 against the highest; the printed effect is that share of the lowest."""
    labels = [label for label in study.outcomes if label not in labels_of(study, "selu")]
    low = _lowest(study, labels)
    high = max(labels, key=lambda label: (not math.isnan(difference(study, label)), difference(study, label)))
    share = (0.1 if study.name.startswith(ADAGRAD) else 0.3) * difference(study, low)
    return Evidence(agrees_more(study, low, [high], printed=share))


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
        return Evidence([Part(f"{study.name}: a SmeLU as accurate as ReLU", REVERSED)])
    return Evidence(_agree_with_relu(study, [_lowest(study, accurate)]))


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
    best = [
        max(labels_of(study, family), key=lambda label: (not math.isnan(means[label]), means[label]))
        for family in families_of(study)
    ]
    parts = corrected([part for label in best for part in wins(study, label, ["relu"], "accuracy")])
    return Evidence([max(zip(best, parts, strict=True), key=lambda pair: means[pair[0]])[1]], numbers=means)


@with_each_optimizer(
    "wider_knees_agree_more",
    place="Sections 3 and 4",
    says=", SmeLU's models mostly differ less from each other the wider its knee.",
    different=f"{_DIFFERENT}; the paper adds that the best may lie between, and every step counts here; {ADDED}",
)
def wider_knees_agree_more(study: Study) -> Evidence:
    """SmeLU with each beta against the next smaller one, by the jackknife of delta 1."""
    labels = sorted(
        labels_of(study, "smelu"), key=lambda label: float(study.outcomes[label].trial.activation.values["beta"])
    )
    return Evidence([part for a, b in pairwise(labels) for part in agrees_more(study, b, [a])])


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
    return Evidence(parts)


def swish_agrees_less(study: Study) -> Evidence:
    """The best SmeLU, GELU, Mish and TanhExp each against the best Swish."""
    swish = _lowest(study, labels_of(study, "swish"))
    compared = [family for family in families_of(study) if family not in ("swish", "softplus")]
    others = [_lowest(study, labels_of(study, family)) for family in compared]
    return Evidence(searched(study, [part for label in others for part in agrees_more(study, label, [swish])], others))


SWISH = [
    statement(
        name=f"swish_agrees_less_with_sgd{suffix}",
        place="Figure 4 (right) and section 5, MNIST",
        says="With SGD, Swish appears inferior in prediction difference to the other smooth activations.",
        needs=[study],
        different=f"{_FAMILIES}; without SoftPlus, whose best differs less than Swish's",
    )(swish_agrees_less)
    for study, suffix in ((SGD, ""), (SGD + KERAS, "_and_keras_start"))
]


# -- models of clicks: those that learned nothing agree with each other, and neither win nor lose ---------

RELATIVE = "binary"  # the paper's relative difference of two labels
_NOTHING = 0.02  # an AUC so near to one half is of a model that gives all examples the same, or nearly
_FEW = 0.1  # of the models may have learned nothing where a row counts
_BLIND = (
    "an activation with which more than a tenth of the models learned nothing (an AUC within 0.02 of one half) can "
    "neither win nor lose, which was added with records at hand"
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
        judged.append(Part(says, NOT_RUN, printed=part.printed, unit=part.unit) if lost else part)
    return judged


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
                place=place,
                says=says,
                needs=[f"{name}{start}" for name in needs],
                different="; ".join(filter(None, (drawn, _SAMPLE, different))),
                stand_in=_FEWER,
            )(decide)
            for start, suffix, drawn in (("", "", _TORCH), (KERAS, "_with_keras_start", ""))
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
    return Evidence(_smelu_agrees_more(study))


@of_clicks(
    place="Tables 2 and 3, appendix E",
    says="Less, but still: SmeLU's models differ less than ReLU's when the examples are not shuffled, and when all "
    "models have the same start.",
    needs=[IN_ORDER, SAME_START],
)
def smelu_models_of_clicks_agree_more_when_they_share(*studies: Study) -> Evidence:
    """As in table 1, in both settings."""
    return Evidence([part for study in studies for part in _smelu_agrees_more(study)])


@of_clicks(place="Table 1 and section 5, Criteo", says="SmeLU slightly improves AUC over ReLU.", needs=[APART])
def smelu_predicts_clicks_better(study: Study) -> Evidence:
    """The AUC of each SmeLU of the table against ReLU's."""
    labels = labels_of(study, "smelu")
    return Evidence([part for label in labels for part in _beat(study, label, ["relu"], "auc")])


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
    return Evidence([*_beat(study, "relu", labels, "auc"), *_agree(study, "relu", labels)])


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
    return Evidence(parts)


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
_ONE_PASS = "7,200 rows of Criteo, of which the second half is judged, and not hundreds of billions of the paper's own"
_FIGURE_3 = "Figure 3 and section 5, real data"


@statement(
    place="Section 5, real data",
    says="Two ReLU models of clicks with the same start differ by over 10 % of the predicted share of clicks.",
    needs=[PAIR],
    different=_ONLINE,
    stand_in=_ONE_PASS,
)
def two_online_relu_models_differ(study: Study) -> Evidence:
    """The relative delta 1 of their progressive predictions, against 10 %; two models have no interval."""
    share = difference(study, "relu", RELATIVE)
    return Evidence([bound("over 10 %", share > 0.1)], percent(share), {"relu": share})


@statement(
    place=_FIGURE_3,
    says="Online, smooth activations are substantially better than ReLU in prediction difference.",
    needs=[ONLINE],
    different=_ONLINE,
    stand_in=_ONE_PASS,
)
def smooth_online_models_agree_more(study: Study) -> Evidence:
    """Of each family the value of beta whose models agree most, against ReLU, by the relative delta 1."""
    best = [_agreeing(study, labels_of(study, family), RELATIVE) for family in FAMILIES]
    return Evidence(
        searched(study, [part for label in best for part in _agree(study, label, ["relu"], RELATIVE)], best)
    )


def _acceptable(study: Study, family: str) -> str | None:
    """Of the values of a family whose mean progressive log loss is no higher than ReLU's, the one whose models agree
    most; None where there is none."""
    most = study.mean("relu", "log_loss")
    labels = _counting(study, labels_of(study, family))
    acceptable = [label for label in labels if study.mean(label, "log_loss") <= most]
    return _agreeing(study, acceptable, RELATIVE) if acceptable else None


def _trades_better(study: Study, family: str, other: str | None) -> list[Part]:
    """A family's acceptable value against that of another family, or against ReLU."""
    mine = _acceptable(study, family)
    if mine is None:
        return [Part(f"{study.name}: a {family} with a loss as low as ReLU's", REVERSED)]
    theirs = "relu" if other is None else _acceptable(study, other)
    if theirs is None:
        return [Part(f"{study.name}: {mine} has a loss as low as ReLU's, and no {other}", SHOWN)]
    return _agree(study, mine, [theirs], RELATIVE)


@statement(
    place=_FIGURE_3,
    says="Online, smooth activations have better trade-offs than ReLU: they agree more without a higher loss.",
    needs=[ONLINE],
    different=f"{_ONLINE}; without SoftPlus, of which the paper says that it pays in accuracy",
    stand_in=_ONE_PASS,
)
def smooth_online_models_have_better_trade_offs(study: Study) -> Evidence:
    """Of each family but SoftPlus, and of its values whose mean progressive log loss is no higher than ReLU's, the one
    whose models agree most, against ReLU."""
    return Evidence([part for family in FAMILIES[:-1] for part in _trades_better(study, family, None)])


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
    says="A continuously differentiable SELU is inferior to SmeLU in accuracy and in prediction difference.",
    needs=[ONLINE],
    different=f"{_ONLINE}; the paper does not say to which it is inferior: SmeLU is taken",
    stand_in=_ONE_PASS,
)
def selu_is_inferior_online(study: Study) -> Evidence:
    """The SmeLU with the lowest mean log loss against SELU with beta = 1, by log loss and by the relative delta 1."""
    best = _best_loss(study, "smelu")
    return Evidence([*_beat(study, best, ["selu"], "log_loss"), *_agree(study, best, ["selu"], RELATIVE)])


@statement(
    place=_FIGURE_3,
    says="Online, the trade-offs of SmeLU, GELU and Swish are slightly better than those of Mish and TanhExp.",
    needs=[ONLINE],
    different=f"{_ONLINE}; {ADDED}",
    stand_in=_ONE_PASS,
)
def three_families_trade_best_online(study: Study) -> Evidence:
    """Of each family's values whose mean progressive log loss is no higher than ReLU's the one whose models agree most:
    each of the three against each of the two, by the relative delta 1."""
    pairs = product(("smelu", "gelu", "swish"), ("mish", "tanhexp"))
    return Evidence([part for family, other in pairs for part in _trades_better(study, family, other)])


@statement(
    place=_FIGURE_3,
    says="Online, SmeLU seems to be stronger in prediction difference, and Swish in accuracy.",
    needs=[ONLINE],
    different=f"{_ONLINE}; {ADDED}",
    stand_in=_ONE_PASS,
)
def smelu_agrees_and_swish_predicts_better_online(study: Study) -> Evidence:
    """Of the values whose mean progressive log loss is no higher than ReLU's the SmeLU and the Swish whose models agree
    most, by the relative delta 1; and the Swish and the SmeLU with the lowest mean log loss, by that."""
    losses = _beat(study, _best_loss(study, "swish"), [_best_loss(study, "smelu")], "log_loss")
    return Evidence([*_trades_better(study, "smelu", "swish"), *losses])


# -- learned with the network: appendix B -----------------------------------------------------------------

_NOT_PUBLIC = "the paper saw it in networks and data that it does not name, and prints no numbers"


def _in_both(*, place: str, says: str) -> Callable[[Callable[[Study], Evidence]], tuple[Statement, ...]]:
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
                different=f"{_NOT_PUBLIC}; the comparisons were fixed before the study ran",
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
    place="Appendix B",
    says="Learned by the loss, a generalized SmeLU serves accuracy, and reproducibility is in conflict with that.",
)
def learning_serves_accuracy_and_not_reproducibility(study: Study) -> Evidence:
    """The learned one against the SmeLU that it begins as, by the log loss; and that SmeLU against the learned one, by
    delta 1."""
    wanted = wins(study, "generalized", ["smelu"], "log_loss")
    return Evidence([*wanted, *agrees_more(study, "smelu", ["generalized"])])
