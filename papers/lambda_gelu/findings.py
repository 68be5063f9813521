"""Statements of the λ-GELU paper: learned hardness, hardening, and the replacement by ReLU."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise, product
from typing import Any

from softknee.errors import DataError
from softknee.lab.language.text_perplexity import exp_or_infinite
from softknee.lab.report.drawing import COLOURS, DASHES, SYMBOLS, Look, bands_png
from softknee.lab.report.summary import Band
from softknee.measure import Record
from softknee.measure.hardness import spearman

from ..runs import Runs, Study, command_of_recipe, command_of_row, folded
from ..statement import (
    ADDED,
    Evidence,
    Statement,
    accuracies,
    better,
    bound,
    corrected,
    drops,
    drops_less,
    mean,
    percent,
    statements_of,
    wins,
)
from .language import language_markdown

statement = statements_of("lambda_gelu")

FASHION, ADULT, CIFAR_10 = "lambda-gelu-fashion", "lambda-gelu-adult", "lambda-gelu-cifar-10"
CIFAR_100, TINY_IMAGENET = "lambda-gelu-cifar-100", "lambda-gelu-tiny-imagenet"
VISION = "mollification-table-1"  # ViT-Tiny with the functions of all papers
GRID = "lambda-gelu-figure-1"
MODES = ("uniform", "increasing", "decreasing")
LEARNED = tuple(f"λ-GELU {mode}" for mode in MODES)
HARDENED = "λ-GELU hardened"
TEMPERATURES, RATES = (0.1, 0.3, 0.6, 0.9), (1, 3, 6, 9)
_DIFFERENT = (
    "test accuracy at the epoch of the best validation, where the paper has the best validation accuracy itself, with "
    "two digits; batch, momentum and epochs are not published"
)
_UNPUBLISHED = "batch, momentum and epochs are not published"
_LAST_EPOCH = "; the hardened network is that of the last epoch"
_RESNET = "timm's ResNet-18 as it is for large images, with crops and mirror images, in bfloat16"


def profiles_of(study: Study, label: str) -> list[list[float]]:
    """The hardness of each layer at the end, in order of depth, for each seed that came to its end."""
    return [profile for profile in _profile_of_each_seed(study, label) if profile is not None]


def _profile_of_each_seed(study: Study, label: str) -> list[list[float] | None]:
    """The same for every seed, None of one that diverged; from the learned parameters where hardness is no measure."""
    outcome = study.outcomes[label]
    sites = [site["end"] for site in outcome.hardness]
    sites = sites or [way["end"] for name, way in outcome.parameters.items() if name.endswith(".lam")]
    if not sites:
        raise DataError(f"'{study.folder.name}' has no hardness of {label!r}, measured or learned; run it again.")
    return [None if None in profile else list(profile) for profile in zip(*sites, strict=True)]


def mean_hardness(study: Study, label: str) -> float:
    """The mean λ over layers and seeds, at the selected epoch."""
    return mean(hardness for profile in profiles_of(study, label) for hardness in profile)


def _robustness(study: Study) -> float:
    """Spearman's correlation of the profiles of two starts, in the mean over seeds and pairs of starts."""
    return mean(
        spearman(a, b)
        for first, second in combinations([_profile_of_each_seed(study, label) for label in LEARNED], 2)
        for a, b in zip(first, second, strict=True)
        if a is not None and b is not None
    )


def drift_of(study: Study, label: str) -> float:
    """The paper's V: the mean over layers and seeds of how far λ goes from epoch to epoch, all steps summed."""
    return mean(
        sum(abs(b - a) for a, b in pairwise(seed) if a is not None and b is not None)
        for way in study.outcomes[label].parameters.values()
        for seed in zip(*way["curve"], strict=True)
    )


def cell_of(temperature: float, rate: int) -> tuple[str, ...]:
    return tuple(f"{mode} temperature={temperature:g} rate={rate:g}" for mode in MODES)


def best_validation(study: Study, label: str) -> float:
    """The paper's BVS: the highest validation accuracy of a run, in the mean over the seeds."""
    curve = study.outcomes[label].curves.get("validation_accuracy", ())
    return mean(max((value for value in seed if value is not None), default=None) for seed in zip(*curve, strict=True))


def _gaps(study: Study, labels: Iterable[str]) -> dict[str, float]:
    """Of each label the mean test accuracy less GELU's."""
    return {label: study.mean(label, "accuracy") - study.mean("gelu", "accuracy") for label in labels}


@statement(
    place="Table I",
    says="With learned hardness, from any of three starts, the network is about as good as with GELU; the largest "
    "difference in the rows of Fashion-MNIST and Adult is 2 points.",
    needs=[FASHION, ADULT],
    different=_DIFFERENT,
)
def learning_hardness_costs_nothing(*studies: Study) -> Evidence:
    """Whether the mean test accuracy of each start is at most 2 points from GELU's."""
    gaps = {f"{study.name}: {label}": gap for study in studies for label, gap in _gaps(study, LEARNED).items()}
    return Evidence(
        "; ".join(f"{study.name}: {accuracies(study, ('gelu', *LEARNED))}" for study in studies),
        parts=[bound(f"{name} within 2 points of GELU", abs(gap) <= 0.02) for name, gap in gaps.items()],
        numbers=gaps,
    )


@statement(
    place="Table I",
    says="The learned hardness leaves its start for harder gates: its mean over the layers of these MLPs is 2.45 to "
    "8.67.",
    needs=[FASHION, ADULT],
    different=_DIFFERENT,
)
def learned_gates_become_harder(*studies: Study) -> Evidence:
    """Whether the mean λ of each start, at the selected epoch, is above 2, the largest value that any layer begins
    with."""
    means = {f"{study.name}: {label}": mean_hardness(study, label) for study in studies for label in LEARNED}
    return Evidence(
        "mean λ of " + "; ".join(f"{name} {hardness:.2f}" for name, hardness in means.items()),
        parts=[bound(f"{name} above 2", hardness > 2) for name, hardness in means.items()],
        numbers=means,
    )


@statement(
    place="Figure 3 and section IV-B",
    says="On Fashion-MNIST the order of the layers by hardness does not depend on the start (high rank correlation); "
    "on Adult it does more.",
    needs=[FASHION, ADULT],
    different=_DIFFERENT,
)
def order_of_layers_is_robust(*studies: Study) -> Evidence:
    """Spearman's correlation of the profiles of two starts, in the mean over seeds and pairs of starts: at least 0.8 on
    Fashion-MNIST, and lower on Adult."""
    fashion, adult = (_robustness(study) for study in studies)
    return Evidence(
        f"mean rank correlation {fashion:.2f} on Fashion-MNIST, {adult:.2f} on Adult",
        parts=[bound("at least 0.8 on Fashion-MNIST", fashion >= 0.8), bound("lower on Adult", adult < fashion)],
        numbers={FASHION: fashion, ADULT: adult},
    )


@statement(
    place="Table I, CIFAR-10",
    says="In ResNet-18 on CIFAR-10 learned hardness, from any of three starts, is as good as GELU (95 % each).",
    needs=[CIFAR_10],
    different=f"{_DIFFERENT}; {_RESNET}; {ADDED}",
)
def learning_hardness_costs_nothing_in_resnet(study: Study) -> Evidence:
    """Whether the mean test accuracy of each start is at most 1 point from GELU's."""
    gaps = _gaps(study, LEARNED)
    return Evidence(
        accuracies(study, ("gelu", *LEARNED)),
        parts=[bound(f"{label} within 1 point of GELU", abs(gap) <= 0.01) for label, gap in gaps.items()],
        numbers=gaps,
    )


@statement(
    place="Figure 3 and section IV-B",
    says="In ResNet-18 on CIFAR-10, too, the order of the layers by hardness does not depend on the start (high rank "
    "correlation).",
    needs=[CIFAR_10],
    different=f"{_DIFFERENT}; {_RESNET}; {ADDED}",
)
def order_of_layers_is_robust_in_resnet(study: Study) -> Evidence:
    """Spearman's correlation of the profiles of two starts, in the mean over seeds and pairs of starts, against 0.8."""
    rho = _robustness(study)
    parts = [bound("at least 0.8", rho >= 0.8)]
    return Evidence(f"mean rank correlation {rho:.2f}", parts=parts, numbers={CIFAR_10: rho})


@statement(
    place="Table I, Tiny-ImageNet",
    says="In DeiT-Tiny learned hardness is as good as GELU (72 % each); its mean over the layers is 1.19 to 1.21.",
    needs=[VISION],
    labels=["gelu", "lambda_gelu"],
    different="ViT-Tiny on CIFAR-10, trained from scratch, in place of DeiT-Tiny on Tiny-ImageNet; rate 2.5e-4 and "
    "decay 0.05 in place of 5e-4 and 0.07, crops and mirror images alone, bfloat16; test accuracy of the last of 100 "
    f"epochs, from the uniform start alone; {ADDED}",
)
def learning_hardness_in_a_vision_transformer(study: Study) -> Evidence:
    """Whether the mean test accuracy is at most 1 point from GELU's, and the mean of λ at most 1.24, the largest that
    the paper has for a transformer."""
    (gap,) = _gaps(study, ["lambda_gelu"]).values()
    hardness = mean_hardness(study, "lambda_gelu")
    return Evidence(
        f"{accuracies(study, ('gelu', 'lambda_gelu'))}; mean λ {hardness:.2f}",
        parts=[bound("within 1 point of GELU", abs(gap) <= 0.01), bound("mean λ at most 1.24", hardness <= 1.24)],
        numbers={"gap": gap, "mean": hardness},
    )


@statement(
    place="Table II",
    says="After hardening, putting ReLU in the place of λ-GELU costs at most a point (Fashion-MNIST: 86 to 85 %, "
    "Adult: 81 to 81 %).",
    needs=[FASHION, ADULT],
    different=_DIFFERENT + _LAST_EPOCH,
)
def replacing_after_hardening_costs_little(*studies: Study) -> Evidence:
    """Whether the mean drop of test accuracy is at most 1 point."""
    lost = {study.name: mean(drops(study, HARDENED)) for study in studies}
    return Evidence(
        "; ".join(f"{name}: {100 * drop:.2f} points lost" for name, drop in lost.items()),
        parts=[bound(f"{name}: at most 1 point", drop <= 0.01) for name, drop in lost.items()],
        numbers=lost,
    )


@statement(
    place="Table II",
    says="Putting ReLU in the place of GELU without hardening costs more (Fashion-MNIST: 86 to 83 %, Adult: 85 to "
    "80 %).",
    needs=[FASHION, ADULT],
    different=_DIFFERENT + _LAST_EPOCH,
)
def the_bare_swap_costs_more(*studies: Study) -> Evidence:
    """The drop of test accuracy of hardened λ-GELU against that of GELU, seed by seed."""
    return Evidence(
        "; ".join(
            f"{study.name}: GELU loses {100 * mean(drops(study, 'gelu')):.2f} points, hardened λ-GELU "
            f"{100 * mean(drops(study, HARDENED)):.2f}"
            for study in studies
        ),
        parts=corrected([drops_less(study, HARDENED, "gelu") for study in studies]),
    )


def _replacing(name: str, points: int, *, place: str, says: str, needs: Iterable[str], different: str) -> Statement:
    """What the replacement costs after hardening, at most so many points, and that it costs less than with GELU."""

    def decide(study: Study) -> Evidence:
        lost, bare = mean(drops(study, HARDENED)), mean(drops(study, "gelu"))
        return Evidence(
            f"hardened λ-GELU loses {100 * lost:.2f} points, GELU {100 * bare:.2f} (before: "
            f"{accuracies(study, ('gelu', HARDENED))})",
            parts=[
                bound(f"at most {points} points after hardening", lost <= points / 100),
                *corrected([drops_less(study, HARDENED, "gelu")]),
            ],
            numbers={"hardened": lost, "gelu": bare},
        )

    decide.__doc__ = (
        f"Whether the mean drop of test accuracy of hardened λ-GELU is at most {points} point{'s' * (points > 1)}; and "
        "that drop against GELU's, seed by seed."
    )
    return statement(name=name, place=place, says=says, needs=needs, different=different)(decide)


REPLACING = (
    _replacing(
        "replacing_in_resnet",
        1,
        place="Table II, CIFAR-10",
        says="In ResNet-18 on CIFAR-10 the replacement costs nothing after hardening (95 to 95 %), and 3 points "
        "without (95 to 92 %).",
        needs=[CIFAR_10],
        different=f"{_DIFFERENT}; {_RESNET}{_LAST_EPOCH}; what the bare swap costs is compared, and not held against "
        "the 3 points",
    ),
    _replacing(
        "replacing_in_resnet_on_cifar_100",
        3,
        place="Table II, CIFAR-100",
        says="In ResNet-18 on CIFAR-100 the replacement costs 2 points after hardening (74 to 72 %), and 7 without (74 "
        "to 67 %).",
        needs=[CIFAR_100],
        different=f"{_DIFFERENT}; {_RESNET}",
    ),
    _replacing(
        "replacing_in_deit",
        1,
        place="Table II, Tiny-ImageNet",
        says="In DeiT-Tiny on Tiny-ImageNet the replacement costs nothing after hardening (71 to 72 %), and 3 points "
        "without (71 to 68 %).",
        needs=[TINY_IMAGENET],
        different=f"{_DIFFERENT}; trained from scratch, with crops and mirror images, in bfloat16",
    ),
)


@statement(
    place="Table II",
    says="On Adult hardening itself costs 4 points before any replacement (81 % against 85 % with GELU).",
    needs=[ADULT],
    different=_DIFFERENT + _LAST_EPOCH,
)
def hardening_costs_accuracy_on_adult(study: Study) -> Evidence:
    """GELU against hardened λ-GELU by test accuracy, before the replacement."""
    parts = corrected(wins(study, "gelu", [HARDENED], "accuracy", larger=True))
    return Evidence(accuracies(study, ("gelu", HARDENED)), parts=parts)


def _grid(study: Study, measure: Callable[[Study, str], float]) -> dict[tuple[float, int], float]:
    """Of each cell (temperature, rate) the mean of a measure over the starts."""
    return {cell: mean(measure(study, label) for label in cell_of(*cell)) for cell in product(TEMPERATURES, RATES)}


@statement(
    place="Figure 1 and section IV-A",
    says="Hardness moves more the lower the temperature t and the larger the multiple c of its learning rate.",
    needs=[GRID],
    different=_UNPUBLISHED,
)
def drift_follows_temperature_and_rate(study: Study) -> Evidence:
    """The paper's drift of each cell, a mean over starts and seeds: from neighbour to neighbour it must grow with c and
    fall with t."""
    drift = _grid(study, drift_of)
    along_c = [(f"t={t:g}: c={a} to {b}", drift[t, a] < drift[t, b]) for t in TEMPERATURES for a, b in pairwise(RATES)]
    along_t = [
        (f"c={c}: t={a:g} to {b:g}", drift[a, c] > drift[b, c]) for c in RATES for a, b in pairwise(TEMPERATURES)
    ]
    return Evidence(
        f"drift of λ from {drift[0.9, 1]:.2f} (t = 0.9, c = 1) to {drift[0.1, 9]:.2f} (t = 0.1, c = 9)",
        parts=[bound(says, holds) for says, holds in (*along_c, *along_t)],
        numbers={f"t={t:g} c={c}": value for (t, c), value in drift.items()},
    )


@statement(
    place="Figure 1 and section IV-A",
    says="With t = 0.1 and c = 9 the best validation accuracy stays close to GELU's.",
    needs=[GRID],
    different=_UNPUBLISHED,
)
def the_chosen_cell_is_as_good_as_gelu(study: Study) -> Evidence:
    """Whether the mean best validation accuracy of the cell, over starts and seeds, is at most 1 point from GELU's."""
    ours, gelu = _grid(study, best_validation)[0.1, 9], best_validation(study, "gelu")
    return Evidence(
        f"best validation accuracy {percent(ours)} against {percent(gelu)} with GELU",
        parts=[bound("within 1 point", abs(ours - gelu) <= 0.01)],
        numbers={"lambda_gelu": ours, "gelu": gelu},
    )


@statement(
    place="Section IV-A, last paragraph, and section V",
    says="Over the whole grid of t and c, learning the hardness leaves the best validation accuracy close to GELU's.",
    needs=[GRID],
    different=f"{_UNPUBLISHED}; {ADDED}",
)
def every_cell_is_as_good_as_gelu(study: Study) -> Evidence:
    """Whether the mean best validation accuracy of each cell, over starts and seeds, is at most 1 point from GELU's."""
    gelu = best_validation(study, "gelu")
    gaps = {f"t={t:g} c={c}": value - gelu for (t, c), value in _grid(study, best_validation).items()}
    low, high = (100 * choose(gaps.values()) for choose in (min, max))
    return Evidence(
        f"from {low:+.2f} to {high:+.2f} points of GELU's {percent(gelu)}",
        parts=[bound(f"{name} within 1 point", abs(gap) <= 0.01) for name, gap in gaps.items()],
        numbers=gaps,
    )


# -- Statements of the λ-GELU paper about GPT-2 on WikiText-2, judged by records of `softknee study wikitext`, whose
# place recipes have taken.


SMALL, LARGE = "lambda-gelu-wikitext-small.json", "lambda-gelu-wikitext-124m.json"
RECIPES = {SMALL: "lambda-gelu-wikitext-small", LARGE: "lambda-gelu-wikitext-124m"}
"""The recipes that have taken the place of the commands which made these records."""
_GELU, _LAMBDA, _RELU = "GELU", "lambda-GELU, hardened", "ReLU from scratch"
_LABELS = {_GELU: "gelu", _LAMBDA: "lambda_gelu", "S-ReLU, hardened": "srelu", _RELU: "relu"}  # as `--only` takes them
_WIKITEXT = (
    "models trained from scratch on what of WikiText-2 is at hand (the record names it), where the paper has GPT-2 on "
    "the whole training part; the validation part is trained on, too; the raw training text has words that valid and "
    "test have as <unk>; λ-GELU from the uniform start alone, where the paper has three; it does not say whether "
    "GPT-2 begins with published weights, as its numbers suggest; judged by the test part at the end of the training, "
    "where the paper has the best epoch by the validation part; rates of 1e-3 and 6e-4 and a decay "
    "of 0.1, as for a training from scratch, where the paper has 5e-5 and 0.01"
)


def language_tables(runs: Runs) -> Iterator[str]:
    """A table for each record that is there, with what the paper has beside it."""
    for name in (SMALL, LARGE):
        if not runs.has(name):
            continue
        record = runs.benchmark(name)
        settings, machine = record.settings, record.hardware.gpu or record.hardware.cpu
        yield f"\n### λ-GELU, WikiText-2: a GPT-2 of {settings['parameters']:,} parameters from scratch\n\n"
        yield language_markdown(record)
        sizes = f"{settings['layers']} layers of width {settings['width']}"
        batches = f"{settings['steps']} steps of {settings['batch']} x {settings['context']} tokens"
        yield (
            f"\nPerplexity of the test part, {len(record.seeds)} seeds on {machine}: mean and standard deviation. "
            f"{sizes}, {batches}, trained on {settings['train']} ({settings['tokens']:,} tokens). *bare*: ReLU in the "
            "place of λ-GELU that was learned freely; *replaced*: in the place of what is hardened, or of GELU. The "
            "paper's GPT-2, with the whole training part: GELU 28.46, ReLU 30.48, λ-GELU 28.45 to 28.71; it prints no "
            f"number after the replacement. Again: `{command_of_recipe(RECIPES[name])}`. [Record](records/{name}).\n"
        )
        yield folded(command_of_row(RECIPES[name], _LABELS[row["row"]]) for row in record.rows)


def _by_size(records: Iterable[Record]) -> dict[str, dict[str, Mapping[str, Any]]]:
    """The rows of each record by their names, by the size of the model."""
    return {
        f"{record.settings['parameters'] / 1e6:.0f}M parameters": {row["row"]: row for row in record.rows}
        for record in records
    }


def _losses(row: Mapping[str, Any], column: str) -> list[float]:
    """Nats of a token for each seed."""
    return list(row["loss_by_seed"][column])


def _perplexity(row: Mapping[str, Any], column: str) -> float:
    """The mean over the seeds; infinite where float64 has no number for it."""
    return mean(exp_or_infinite(loss) for loss in _losses(row, column))


@statement(
    place="Table I, WikiText-2",
    says="GPT-2 with ReLU is worse than with GELU (perplexity 30.48 against 28.46); with learned hardness it is as "
    "good (28.45 to 28.71).",
    needs=[SMALL, LARGE],
    different=_WIKITEXT,
)
def relu_is_worse_in_language_models(*records: Record) -> Evidence:
    """GELU against ReLU by the loss of a token, seed by seed; and whether the perplexity of learned λ-GELU is within
    1 % of GELU's, which is what the paper's rows differ by at most."""
    compared, bounds, words = [], [], []
    for size, rows in _by_size(records).items():
        gelu, relu, learned = (_perplexity(rows[name], "free") for name in (_GELU, _RELU, _LAMBDA))
        losses = (_losses(rows[name], "free") for name in (_GELU, _RELU))
        compared.append(better(f"{size}: GELU better than ReLU", *losses, larger=False))
        bounds.append(bound(f"{size}: learned λ-GELU within 1 % of GELU", abs(learned / gelu - 1) <= 0.01))
        words.append(f"{size}: GELU {gelu:.2f}, ReLU {relu:.2f}, learned λ-GELU {learned:.2f}")
    return Evidence("perplexity, " + "; ".join(words), parts=[*corrected(compared), *bounds])


@statement(
    place="Section IV-C, WikiText-2",
    says="Putting ReLU in the place of the activations deteriorates GPT-2 severely, with GELU and with hardened λ-GELU "
    "alike.",
    needs=[SMALL, LARGE],
    different=f"{_WIKITEXT}; the paper has no number for it: severe is taken as a perplexity 10 % higher",
)
def replacing_breaks_language_models(*records: Record) -> Evidence:
    """Whether the mean perplexity is more than 10 % higher after the replacement, without any training."""
    parts, words = [], []
    for size, rows in _by_size(records).items():
        for name, before in ((_GELU, "free"), (_LAMBDA, "hardened")):
            smooth, replaced = (_perplexity(rows[name], column) for column in (before, "replaced"))
            parts.append(bound(f"{size}: {name} more than 10 % worse", replaced > 1.1 * smooth))
            words.append(f"{size}, {name}: {smooth:.2f} before, {replaced:.2f} after")
    return Evidence("perplexity, " + "; ".join(words), parts=parts)


@statement(
    place="Section V",
    says="In GPT-2 hardening lessens the shock of a direct swap, and does not fully preserve the performance.",
    needs=[SMALL, LARGE],
    different=f"{_WIKITEXT}; by what the swap costs, and not by what hardening costs before it, which the tables show",
)
def hardening_lessens_the_shock(*records: Record) -> Evidence:
    """What the replacement adds to the loss of hardened λ-GELU against what it adds to GELU's, seed by seed; and
    whether it adds more than 0.01 nats (1 % of the perplexity) to the former."""
    compared, bounds, words = [], [], []
    for size, rows in _by_size(records).items():
        hard, plain = (
            [after - before for before, after in zip(_losses(row, first), _losses(row, "replaced"), strict=True)]
            for row, first in ((rows[_LAMBDA], "hardened"), (rows[_GELU], "free"))
        )
        compared.append(better(f"{size}: hardened λ-GELU loses less than GELU", hard, plain, larger=False))
        bounds.append(bound(f"{size}: hardened λ-GELU loses more than 1 %", mean(hard) > 0.01))
        words.append(f"{size}: {mean(hard):z.4f} nats with hardened λ-GELU, {mean(plain):z.4f} with GELU")
    return Evidence("the replacement adds, " + "; ".join(words), parts=[*corrected(compared), *bounds])


def _learned(records: Iterable[Record]) -> dict[str, float]:
    """The mean λ over layers and seeds, by the size of the model."""
    return {
        size: mean(hardness for seed in rows[_LAMBDA]["learned_knobs"] for hardness in seed)
        for size, rows in _by_size(records).items()
    }


@statement(
    place="Table I, WikiText-2",
    says="The learned hardness of GPT-2 stays near its start: its mean over the layers is 1.00 from the uniform start, "
    "and at most 1.24 from the others.",
    needs=[SMALL, LARGE],
    different=f"{_WIKITEXT}; judged by the 1.24 of the paper's other starts, since its 1.00 leaves no room for a bound",
)
def language_models_keep_soft_gates(*records: Record) -> Evidence:
    """Whether the mean λ over layers and seeds is at most 1.24 from the uniform start at 1.01."""
    means = _learned(records)
    return Evidence(
        "mean λ " + "; ".join(f"{size}: {hardness:.2f}" for size, hardness in means.items()),
        parts=[bound(f"{size}: at most 1.24", hardness <= 1.24) for size, hardness in means.items()],
        numbers=means,
    )


@statement(
    place="Section IV-B, below figure 3",
    says="As a mild trend, networks that are commonly trained with ReLU (MLP, ResNet-18) learn harder gates than those "
    "that are commonly trained with GELU (in the paper 1.65 to 8.67 against 1.00 to 1.24 in the mean over the layers).",
    needs=[FASHION, ADULT, CIFAR_10, SMALL, LARGE, VISION],
    different="from the uniform start; how far hardness goes depends on how long it is trained, and GPT-2 was trained "
    "for 500 and 400 steps, ResNet-18 for 14,000 and ViT-Tiny for 19,000; ResNet-18 is timm's for large images; "
    "ViT-Tiny on CIFAR-10, trained from scratch, in place of DeiT-Tiny on Tiny-ImageNet, its λ that of the last epoch "
    f"and not of the best one; GPT-2: {_WIKITEXT}; {ADDED}",
)
def networks_made_for_relu_learn_harder_gates(*needed: Any) -> Evidence:
    """The mean λ of the MLPs and of ResNet-18 from the uniform start against that of each GPT-2 and of ViT-Tiny."""
    *mlps_and_resnet, small, large, vision = needed
    soft = {f"GPT-2 of {size}": hardness for size, hardness in _learned([small, large]).items()}
    soft["ViT-Tiny"] = mean_hardness(vision, "lambda_gelu")
    hard = {study.name: mean_hardness(study, "λ-GELU uniform") for study in mlps_and_resnet}
    return Evidence(
        "mean λ from the uniform start: "
        + "; ".join(f"{name} {hardness:.2f}" for name, hardness in (hard | soft).items()),
        parts=[bound(f"{name} harder than {other}", hard[name] > soft[other]) for name, other in product(hard, soft)],
        numbers=hard | soft,
    )


# -- Whether λ-GELU orders the layers by hardness alike from all starts, epoch by epoch: figure 3 (right) of its paper.


FIGURE = "order-of-layers"
CAPTION = (
    "Rank correlation of the layers' hardness between two starts after each epoch: mean over seeds, with its standard "
    "deviation; 1 where both order the layers alike"
)


def order_figure(study: Study) -> bytes | None:
    """The figure as a PNG; None where fewer than two starts were run, or the hardness was not followed."""
    bands = [_band(name, seeds) for name, seeds in correlations(study).items() if seeds]
    look = {band.label: Look(COLOURS[place], SYMBOLS[place], DASHES[place]) for place, band in enumerate(bands)}
    return bands_png(look, bands, "Spearman's correlation") if bands else None


def correlations(study: Study) -> dict[str, list[list[float]]]:
    """[seed][epoch] of the correlation between the profiles of two starts, by the names of the two.

    Seeds are paired, as everywhere; one that diverged from either start is left out. Not a number where all layers of
    a profile are equally hard.
    """
    profiles = {
        label.removeprefix("λ-GELU "): _profile_of_each_epoch(study, label)
        for label in LEARNED
        if label in study.outcomes
    }
    return {
        f"{start} and {other}": [
            [spearman(a, b) for a, b in zip(first, second, strict=True)]
            for first, second in zip(profiles[start], profiles[other], strict=True)
            if first and second
        ]
        for start, other in combinations(profiles, 2)
    }


def _profile_of_each_epoch(study: Study, label: str) -> list[list[tuple[float, ...]]]:
    """[seed][epoch][layer]; empty for a seed that diverged, and if a layer's hardness was not followed."""
    outcome = study.outcomes[label]
    ways = [outcome.parameters.get(f"{site['path']}.{site['knob']}") for site in outcome.hardness]
    curves = [list(zip(*way["curve"], strict=True)) for way in ways if way is not None]
    if len(curves) < len(ways) or not curves:
        return [[] for _ in outcome.diverged]
    seeds = [list(zip(*(curve[seed] for curve in curves), strict=True)) for seed in range(len(outcome.diverged))]
    return [[] if any(None in epoch for epoch in seed) else seed for seed in seeds]


def _band(name: str, seeds: Sequence[Sequence[float]]) -> Band:
    """Mean and standard deviation over the seeds, of the epochs that have a correlation."""
    points = []
    for epoch, values in enumerate(zip(*seeds, strict=True), start=1):
        there = [value for value in values if not math.isnan(value)]
        if there:
            points.append((epoch, statistics.fmean(there), statistics.pstdev(there)))
    return Band(
        label=name,
        curve=FIGURE,
        epochs=tuple(epoch for epoch, _, _ in points),
        middle=tuple(middle for _, middle, _ in points),
        low=tuple(max(-1.0, middle - spread) for _, middle, spread in points),
        high=tuple(min(1.0, middle + spread) for _, middle, spread in points),
    )
