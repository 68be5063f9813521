"""Statements of the λ-GELU paper: learned hardness, hardening, and the replacement by ReLU."""

from __future__ import annotations

from itertools import combinations, pairwise

from ...errors import DataError
from ...measure.hardness import spearman
from .compared import accuracies, drops, drops_less, mean, percent
from .runs import Runs, Study
from .statement import ADDED, Evidence, bound, corrected, statements_of, wins

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
_RESNET = "timm's ResNet-18 as it is for large images, with crops and mirror images, in bfloat16"


def profiles_of(study: Study, label: str) -> list[list[float]]:
    """The hardness of each layer at the end, in order of depth, for each seed that came to its end."""
    return [one for one in _profile_of_each_seed(study, label) if one is not None]


def _profile_of_each_seed(study: Study, label: str) -> list[list[float] | None]:
    """The same for every seed, None of one that diverged; from the learned parameters where hardness is no measure."""
    outcome = study.outcomes[label]
    sites = [site["end"] for site in outcome.hardness]
    sites = sites or [way["end"] for name, way in outcome.parameters.items() if name.endswith(".lam")]
    if not sites:
        raise DataError(f"'{study.folder.name}' has no hardness of {label!r}, measured or learned; run it again.")
    return [None if None in one else list(one) for one in zip(*sites, strict=True)]


def mean_hardness(study: Study, label: str) -> float:
    """The mean λ over layers and seeds, at the selected epoch."""
    return mean(one for profile in profiles_of(study, label) for one in profile)


def _robustness(study: Study) -> float:
    """Spearman's correlation of the profiles of two starts, in the mean over seeds and pairs of starts."""
    profiles = {label: _profile_of_each_seed(study, label) for label in LEARNED}
    return mean(
        spearman(a, b)
        for one, other in combinations(LEARNED, 2)
        for a, b in zip(profiles[one], profiles[other], strict=True)
        if a is not None and b is not None
    )


def drift_of(study: Study, label: str) -> float:
    """The paper's V: the mean over layers and seeds of how far λ goes from epoch to epoch, all steps summed."""
    found = []
    for way in study.outcomes[label].parameters.values():
        for seed in zip(*way["curve"], strict=True):
            found.append(sum(abs(b - a) for a, b in pairwise(seed) if a is not None and b is not None))
    return mean(found)


def cell_of(temperature: float, rate: int) -> tuple[str, ...]:
    return tuple(f"{mode} temperature={temperature:g} rate={rate:g}" for mode in MODES)


def best_validation(study: Study, label: str) -> float:
    """The paper's BVS: the highest validation accuracy of a run, in the mean over the seeds."""
    curve = study.outcomes[label].curves.get("validation_accuracy", ())
    return mean(max((one for one in seed if one is not None), default=None) for seed in zip(*curve, strict=True))


@statement(
    place="Table I",
    says="With learned hardness, from any of three starts, the network is about as good as with GELU; the largest "
    "difference in the rows of Fashion-MNIST and Adult is 2 points.",
    needs=[FASHION, ADULT],
    different=_DIFFERENT,
)
def learning_hardness_costs_nothing(runs: Runs) -> Evidence:
    """Whether the mean test accuracy of each start is at most 2 points from GELU's."""
    studies = [runs.study(name) for name in (FASHION, ADULT)]
    gaps = {
        f"{study.name}: {label}": study.mean(label, "accuracy") - study.mean("gelu", "accuracy")
        for study in studies
        for label in LEARNED
    }
    return Evidence(
        "; ".join(f"{one.name}: {accuracies(one, ('gelu', *LEARNED))}" for one in studies),
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
def learned_gates_become_harder(runs: Runs) -> Evidence:
    """Whether the mean λ of each start, at the selected epoch, is above 2, the largest value that any layer begins
    with."""
    studies = [runs.study(name) for name in (FASHION, ADULT)]
    means = {f"{study.name}: {label}": mean_hardness(study, label) for study in studies for label in LEARNED}
    return Evidence(
        "mean λ of " + "; ".join(f"{name} {one:.2f}" for name, one in means.items()),
        parts=[bound(f"{name} above 2", one > 2) for name, one in means.items()],
        numbers=means,
    )


@statement(
    place="Figure 3 and section IV-B",
    says="On Fashion-MNIST the order of the layers by hardness does not depend on the start (high rank correlation); "
    "on Adult it does more.",
    needs=[FASHION, ADULT],
    different=_DIFFERENT,
)
def order_of_layers_is_robust(runs: Runs) -> Evidence:
    """Spearman's correlation of the profiles of two starts, in the mean over seeds and pairs of starts: at least 0.8 on
    Fashion-MNIST, and lower on Adult."""
    found = {name: _robustness(runs.study(name)) for name in (FASHION, ADULT)}
    return Evidence(
        f"mean rank correlation {found[FASHION]:.2f} on Fashion-MNIST, {found[ADULT]:.2f} on Adult",
        parts=[
            bound("at least 0.8 on Fashion-MNIST", found[FASHION] >= 0.8),
            bound("lower on Adult", found[ADULT] < found[FASHION]),
        ],
        numbers=found,
    )


@statement(
    place="Table I, CIFAR-10",
    says="In ResNet-18 on CIFAR-10 learned hardness, from any of three starts, is as good as GELU (95 % each).",
    needs=[CIFAR_10],
    different=f"{_DIFFERENT}; {_RESNET}; {ADDED}",
)
def learning_hardness_costs_nothing_in_resnet(runs: Runs) -> Evidence:
    """Whether the mean test accuracy of each start is at most 1 point from GELU's."""
    study = runs.study(CIFAR_10)
    gaps = {label: study.mean(label, "accuracy") - study.mean("gelu", "accuracy") for label in LEARNED}
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
def order_of_layers_is_robust_in_resnet(runs: Runs) -> Evidence:
    """Spearman's correlation of the profiles of two starts, in the mean over seeds and pairs of starts, against 0.8."""
    found = _robustness(runs.study(CIFAR_10))
    return Evidence(
        f"mean rank correlation {found:.2f}", parts=[bound("at least 0.8", found >= 0.8)], numbers={CIFAR_10: found}
    )


@statement(
    place="Table I, Tiny-ImageNet",
    says="In DeiT-Tiny learned hardness is as good as GELU (72 % each); its mean over the layers is 1.19 to 1.21.",
    needs=[VISION],
    labels=["gelu", "lambda_gelu"],
    different="ViT-Tiny on CIFAR-10, trained from scratch, in place of DeiT-Tiny on Tiny-ImageNet; rate 2.5e-4 and "
    "decay 0.05 in place of 5e-4 and 0.07, crops and mirror images alone, bfloat16; test accuracy of the last of 100 "
    f"epochs, from the uniform start alone; {ADDED}",
)
def learning_hardness_in_a_vision_transformer(runs: Runs) -> Evidence:
    """Whether the mean test accuracy is at most 1 point from GELU's, and the mean of λ at most 1.24, the largest that
    the paper has for a transformer."""
    study = runs.study(VISION)
    gap = study.mean("lambda_gelu", "accuracy") - study.mean("gelu", "accuracy")
    found = mean_hardness(study, "lambda_gelu")
    return Evidence(
        f"{accuracies(study, ('gelu', 'lambda_gelu'))}; mean λ {found:.2f}",
        parts=[bound("within 1 point of GELU", abs(gap) <= 0.01), bound("mean λ at most 1.24", found <= 1.24)],
        numbers={"gap": gap, "mean": found},
    )


@statement(
    place="Table II",
    says="After hardening, putting ReLU in the place of λ-GELU costs at most a point (Fashion-MNIST: 86 to 85 %, "
    "Adult: 81 to 81 %).",
    needs=[FASHION, ADULT],
    different=_DIFFERENT + "; the hardened network is that of the last epoch",
)
def replacing_after_hardening_costs_little(runs: Runs) -> Evidence:
    """Whether the mean drop of test accuracy is at most 1 point."""
    found = {name: mean(drops(runs.study(name), HARDENED)) for name in (FASHION, ADULT)}
    return Evidence(
        "; ".join(f"{name}: {100 * one:.2f} points lost" for name, one in found.items()),
        parts=[bound(f"{name}: at most 1 point", one <= 0.01) for name, one in found.items()],
        numbers=found,
    )


@statement(
    place="Table II",
    says="Putting ReLU in the place of GELU without hardening costs more (Fashion-MNIST: 86 to 83 %, Adult: 85 to "
    "80 %).",
    needs=[FASHION, ADULT],
    different=_DIFFERENT + "; the hardened network is that of the last epoch",
)
def the_bare_swap_costs_more(runs: Runs) -> Evidence:
    """The drop of test accuracy of hardened λ-GELU against that of GELU, seed by seed."""
    studies = [runs.study(name) for name in (FASHION, ADULT)]
    return Evidence(
        "; ".join(
            f"{one.name}: GELU loses {100 * mean(drops(one, 'gelu')):.2f} points, hardened λ-GELU "
            f"{100 * mean(drops(one, HARDENED)):.2f}"
            for one in studies
        ),
        parts=corrected([drops_less(one, HARDENED, "gelu") for one in studies]),
    )


def _replacing(study: Study, *, at_most: float) -> Evidence:
    lost, bare = mean(drops(study, HARDENED)), mean(drops(study, "gelu"))
    return Evidence(
        f"hardened λ-GELU loses {100 * lost:.2f} points, GELU {100 * bare:.2f} (before: "
        f"{accuracies(study, ('gelu', HARDENED))})",
        parts=[
            bound(f"at most {100 * at_most:g} points after hardening", lost <= at_most),
            *corrected([drops_less(study, HARDENED, "gelu")]),
        ],
        numbers={"hardened": lost, "gelu": bare},
    )


@statement(
    place="Table II, CIFAR-10",
    says="In ResNet-18 on CIFAR-10 the replacement costs nothing after hardening (95 to 95 %), and 3 points without "
    "(95 to 92 %).",
    needs=[CIFAR_10],
    different=f"{_DIFFERENT}; {_RESNET}; the hardened network is that of the last epoch; what the bare swap costs is "
    "compared, and not held against the 3 points",
)
def replacing_in_resnet(runs: Runs) -> Evidence:
    """Whether the mean drop of test accuracy of hardened λ-GELU is at most 1 point; and that drop against GELU's, seed
    by seed."""
    return _replacing(runs.study(CIFAR_10), at_most=0.01)


@statement(
    place="Table II, CIFAR-100",
    says="In ResNet-18 on CIFAR-100 the replacement costs 2 points after hardening (74 to 72 %), and 7 without (74 to "
    "67 %).",
    needs=[CIFAR_100],
    different=f"{_DIFFERENT}; {_RESNET}",
)
def replacing_in_resnet_on_cifar_100(runs: Runs) -> Evidence:
    """Whether the mean drop of test accuracy of hardened λ-GELU is at most 3 points; and that drop against GELU's, seed
    by seed."""
    return _replacing(runs.study(CIFAR_100), at_most=0.03)


@statement(
    place="Table II, Tiny-ImageNet",
    says="In DeiT-Tiny on Tiny-ImageNet the replacement costs nothing after hardening (71 to 72 %), and 3 points "
    "without (71 to 68 %).",
    needs=[TINY_IMAGENET],
    different=f"{_DIFFERENT}; trained from scratch, with crops and mirror images, in bfloat16",
)
def replacing_in_deit(runs: Runs) -> Evidence:
    """Whether the mean drop of test accuracy of hardened λ-GELU is at most 1 point; and that drop against GELU's, seed
    by seed."""
    return _replacing(runs.study(TINY_IMAGENET), at_most=0.01)


@statement(
    place="Table II",
    says="On Adult hardening itself costs 4 points before any replacement (81 % against 85 % with GELU).",
    needs=[ADULT],
    different=_DIFFERENT + "; the hardened network is that of the last epoch",
)
def hardening_costs_accuracy_on_adult(runs: Runs) -> Evidence:
    """GELU against hardened λ-GELU by test accuracy, before the replacement."""
    study = runs.study(ADULT)
    parts = corrected(wins(study, "gelu", [HARDENED], "accuracy", larger=True))
    return Evidence(accuracies(study, ("gelu", HARDENED)), parts=parts)


@statement(
    place="Figure 1 and section IV-A",
    says="Hardness moves more the lower the temperature t and the larger the multiple c of its learning rate.",
    needs=[GRID],
    different="batch, momentum and epochs are not published",
)
def drift_follows_temperature_and_rate(runs: Runs) -> Evidence:
    """The paper's drift of each cell, a mean over starts and seeds: from neighbour to neighbour it must grow with c and
    fall with t."""
    study = runs.study(GRID)
    drift = {(t, c): mean(drift_of(study, label) for label in cell_of(t, c)) for t in TEMPERATURES for c in RATES}
    along_c = [(f"t={t:g}: c={a} to {b}", drift[t, a] < drift[t, b]) for t in TEMPERATURES for a, b in pairwise(RATES)]
    along_t = [
        (f"c={c}: t={a:g} to {b:g}", drift[a, c] > drift[b, c]) for c in RATES for a, b in pairwise(TEMPERATURES)
    ]
    return Evidence(
        f"drift of λ from {drift[0.9, 1]:.2f} (t = 0.9, c = 1) to {drift[0.1, 9]:.2f} (t = 0.1, c = 9)",
        parts=[bound(says, holds) for says, holds in (*along_c, *along_t)],
        numbers={f"t={t:g} c={c}": one for (t, c), one in drift.items()},
    )


@statement(
    place="Figure 1 and section IV-A",
    says="With t = 0.1 and c = 9 the best validation accuracy stays close to GELU's.",
    needs=[GRID],
    different="batch, momentum and epochs are not published",
)
def the_chosen_cell_is_as_good_as_gelu(runs: Runs) -> Evidence:
    """Whether the mean best validation accuracy of the cell, over starts and seeds, is at most 1 point from GELU's."""
    study = runs.study(GRID)
    ours, gelu = mean(best_validation(study, one) for one in cell_of(0.1, 9)), best_validation(study, "gelu")
    return Evidence(
        f"best validation accuracy {percent(ours)} against {percent(gelu)} with GELU",
        parts=[bound("within 1 point", abs(ours - gelu) <= 0.01)],
        numbers={"lambda_gelu": ours, "gelu": gelu},
    )


@statement(
    place="Section IV-A, last paragraph, and section V",
    says="Over the whole grid of t and c, learning the hardness leaves the best validation accuracy close to GELU's.",
    needs=[GRID],
    different=f"batch, momentum and epochs are not published; {ADDED}",
)
def every_cell_is_as_good_as_gelu(runs: Runs) -> Evidence:
    """Whether the mean best validation accuracy of each cell, over starts and seeds, is at most 1 point from GELU's."""
    study = runs.study(GRID)
    gelu = best_validation(study, "gelu")
    gaps = {
        f"t={t:g} c={c}": mean(best_validation(study, one) for one in cell_of(t, c)) - gelu
        for t in TEMPERATURES
        for c in RATES
    }
    low, high = (100 * choose(gaps.values()) for choose in (min, max))
    return Evidence(
        f"from {low:+.2f} to {high:+.2f} points of GELU's {percent(gelu)}",
        parts=[bound(f"{name} within 1 point", abs(gap) <= 0.01) for name, gap in gaps.items()],
        numbers=gaps,
    )
