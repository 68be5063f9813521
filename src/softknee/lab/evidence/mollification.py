"""Statements of the mollification paper about S-ReLU in vision networks."""

from __future__ import annotations

from .compared import percent
from .runs import Runs, Study
from .statement import Evidence, bound, corrected, counted, statements_of, wins

statement = statements_of("mollification")

VIT, CONVNEXT, DELTAS = "mollification-table-1", "mollification-table-2", "mollification-table-4"
OTHERS = ("gelu", "elu", "prelu", "celu", "silu", "mish")
_CROPS = "of timm's augmentation only crops and mirror images"
_VIT = f"{_CROPS}; trained in bfloat16"
_CONVNEXT = f"{_VIT}; the paper gives no settings of ConvNeXt's own: its transformers' are taken"


def _accuracies(study: Study, labels: tuple[str, ...]) -> str:
    return ", ".join(f"{label} {percent(study.mean(label, 'accuracy'))}" for label in labels)


def _best(runs: Runs, name: str) -> Evidence:
    study = runs.study(name)
    parts = corrected(wins(study, "srelu", OTHERS, "accuracy", larger=True))
    return Evidence(
        f"{_accuracies(study, ('srelu', *OTHERS))}; S-ReLU is shown to be better than {counted(parts)}",
        parts=parts,
        numbers={label: study.mean(label, "accuracy") for label in ("srelu", *OTHERS)},
    )


@statement(
    place="Table 1, CIFAR-10, and section 5.1",
    says="S-ReLU outperforms GELU, ELU, PReLU, CELU, SiLU and Mish in vision transformers (CIFAR-10, mean of three: "
    "82.3 % against 76.4 % for the next, PReLU).",
    needs=[VIT],
    different=f"{_VIT}; of the three transformers only ViT-Tiny",
)
def srelu_is_best_in_vit(runs: Runs) -> Evidence:
    """S-ReLU with delta = 0.001 against each of the six by test accuracy."""
    return _best(runs, VIT)


@statement(
    place="Table 2, CIFAR-10",
    says="In ConvNeXt-Tiny S-ReLU reaches 89.9 %, and the others 59.8 % to 64.9 % (GELU).",
    needs=[CONVNEXT],
    different=_CONVNEXT,
)
def srelu_is_best_in_convnext(runs: Runs) -> Evidence:
    """S-ReLU against each of the six by test accuracy, and whether its gain over GELU is at least half the paper's 25
    points."""
    found = _best(runs, CONVNEXT)
    gain = found.numbers["srelu"] - found.numbers["gelu"]
    return Evidence(
        f"{found.measured}; {100 * gain:+.2f} points against GELU",
        parts=[*found.parts, bound("at least 12.5 points above GELU", gain >= 0.125)],
        numbers={**found.numbers, "gain": gain},
    )


@statement(
    place="Sections 1 and 5",
    says="What S-ReLU gains comes from smoothing ReLU's kink.",
    needs=[VIT, CONVNEXT],
    different=f"{_VIT}; the paper has no plain ReLU, from which S-ReLU with its delta differs by less than 0.0002",
)
def smoothing_is_what_helps(runs: Runs) -> Evidence:
    """S-ReLU with delta = 0.001 against plain ReLU by test accuracy, in both networks."""
    studies = [runs.study(name) for name in (VIT, CONVNEXT)]
    parts = corrected([part for study in studies for part in wins(study, "srelu", ["relu"], "accuracy", larger=True)])
    return Evidence("; ".join(f"{one.name}: {_accuracies(one, ('srelu', 'relu'))}" for one in studies), parts=parts)


@statement(
    place="Table 1",
    says="ELU and CELU, which at 1 are one function, differ: by 16.4 points in one row (56.9 % against 40.5 % on "
    "CIFAR-100).",
    needs=[VIT, CONVNEXT],
    different=f"{_VIT}; CIFAR-10, where the legible rows of the paper differ by at most 0.1",
)
def elu_and_celu_differ(runs: Runs) -> Evidence:
    """Whether their mean test accuracies are more than one point apart: a check of the noise."""
    studies = [runs.study(name) for name in (VIT, CONVNEXT)]
    gaps = {one.name: abs(one.mean("elu", "accuracy") - one.mean("celu", "accuracy")) for one in studies}
    return Evidence(
        "; ".join(f"{one.name}: {_accuracies(one, ('elu', 'celu'))}" for one in studies),
        parts=[bound(f"{name}: more than one point apart", gap > 0.01) for name, gap in gaps.items()],
        numbers=gaps,
    )


@statement(
    place="Table 4, CIFAR-10",
    says="A narrow knee is best: 81.0 % with delta = 0.001, 73.9 % with 1, 63.4 % with 5, 58.5 % with 10.",
    needs=[DELTAS],
    different=_VIT,
)
def a_narrow_knee_is_best(runs: Runs) -> Evidence:
    """delta = 0.001 against 1, 5 and 10 by test accuracy."""
    study = runs.study(DELTAS)
    narrow, wide = "srelu delta=0.001", ("srelu delta=1", "srelu delta=5", "srelu delta=10")
    return Evidence(
        _accuracies(study, tuple(study.outcomes)),
        parts=corrected(wins(study, narrow, wide, "accuracy", larger=True)),
        numbers={label: study.mean(label, "accuracy") for label in study.outcomes},
    )
