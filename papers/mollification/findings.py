"""Statements of the mollification paper about S-ReLU in vision networks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ..claim import OURS
from ..runs import Study
from ..statement import (
    ADDED,
    CHANGED,
    IN_VISION,
    Evidence,
    alike,
    best_of,
    fewer_dead,
    scores,
    stands_in,
    statements_of,
    wins,
)

statement = statements_of("mollification")

VIT, CONVNEXT, DELTAS = "mollification-table-1", "mollification-table-2", "mollification-table-4"
ALL_TRAININGS = "norms and biases do not decay, some training images are kept for validation, the last epoch counts"
IN_BFLOAT16 = f"trained in bfloat16; {ALL_TRAININGS}"
PLAIN = "crops and mirror images alone, of what timm provides"
TRAINING = (
    "with so little augmentation most networks get nearly all training images right and most accuracies are above the "
    f"paper's; {IN_BFLOAT16}"
)
AUGMENTATION = (
    "crops, mirror images, RandAugment, mixup, cutmix, erasing and smoothed labels, where the paper says no more than "
    f"that timm provides its augmentation; {IN_BFLOAT16}"
)
_NO_RELU = "the paper has no plain ReLU, from which S-ReLU with its delta differs by less than 0.0002"
# The means over three transformers on CIFAR-10; of ViT-Tiny's own row two cells are legible in our copy.
MEANS = {"gelu": 72.2, "elu": 67.8, "prelu": 76.4, "celu": 67.6, "silu": 69.9, "mish": 70.2, "srelu": 82.3}
MEANS_100 = {"gelu": 42.2, "elu": 43.1, "prelu": 47.4, "celu": 37.5, "silu": 39.9, "mish": 40.0, "srelu": 56.6}
_OF_THREE = "the paper's numbers are means over three transformers, of which this is ViT-Tiny"
# Study, name, network and data, and the paper's scores where the recipe has not all of them.
_TABLES = (
    (VIT, "vit", "ViT-Tiny on CIFAR-10", MEANS),
    (f"{VIT}-augmented", "vit_augmented", "ViT-Tiny on CIFAR-10 with timm's augmentation", MEANS),
    (f"{VIT}-vit-cifar-100", "vit_on_cifar_100", "ViT-Tiny on CIFAR-100", MEANS_100),
    (f"{VIT}-vit-imagenet", "vit_on_imagenet", "ViT-Tiny on ImageNet-1K", None),
    (f"{VIT}-deit", "deit", "DeiT-Tiny on CIFAR-10", None),
    (f"{VIT}-deit-cifar-100", "deit_on_cifar_100", "DeiT-Tiny on CIFAR-100", None),
    (f"{VIT}-deit-imagenet", "deit_on_imagenet", "DeiT-Tiny on ImageNet-1K", None),
    (f"{VIT}-tnt", "tnt", "TNT-Small on CIFAR-10", None),
    (f"{VIT}-tnt-cifar-100", "tnt_on_cifar_100", "TNT-Small on CIFAR-100", None),
    (CONVNEXT, "convnext", "ConvNeXt-Tiny on CIFAR-10", None),
    (f"{CONVNEXT}-augmented", "convnext_augmented", "ConvNeXt-Tiny on CIFAR-10 with timm's augmentation", None),
    (f"{CONVNEXT}-cifar-100", "convnext_on_cifar_100", "ConvNeXt-Tiny on CIFAR-100", None),
    (f"{CONVNEXT}-imagenet", "convnext_on_imagenet", "ConvNeXt-Tiny on ImageNet-1K", None),
)
_EPOCHS = "8 epochs without augmentation"
SHORT_VIT = (f"{VIT}-vit-cifar-100-short", f"15 of the 100 epochs, {PLAIN}")
SMALL_DEIT = (f"{VIT}-deit-small", f"a DeiT of two blocks of width 48 on 20,000 images of CIFAR-10, {_EPOCHS}")
SMALL_TNT = (f"{VIT}-tnt-small", f"a TNT of two blocks of widths 48 and 8 on 20,000 images of CIFAR-10, {_EPOCHS}")
SMALL_CONVNEXT = (
    f"{CONVNEXT}-cifar-100-small",
    f"four blocks of widths 16 to 128, 25,000 images, {_EPOCHS}",
)
# By study: what is there in its place as long as it was not run, and how that differs; or how it differs itself.
_INSTEAD = {
    DELTAS: (f"{DELTAS}-small", f"a ViT of two blocks of width 32 on 20,000 images of Fashion-MNIST, {_EPOCHS}"),
    VIT: (VIT, PLAIN),
    CONVNEXT: (CONVNEXT, PLAIN),
    f"{VIT}-vit-cifar-100": SHORT_VIT,
    f"{VIT}-deit": SMALL_DEIT,
    f"{VIT}-tnt": SMALL_TNT,
    f"{CONVNEXT}-cifar-100": SMALL_CONVNEXT,
}


def otherwise(study: str, instead: Mapping[str, tuple[str, str]]) -> str:
    """What is otherwise in the training of a study, or of what stands in for it."""
    other, how = instead.get(study, (study, ""))
    if other.endswith("-small"):
        return ALL_TRAININGS
    return TRAINING if how == PLAIN else IN_BFLOAT16 if how else AUGMENTATION


def _different(study: str, printed: object) -> str:
    settings = "of ConvNeXt's settings the paper gives the 100 epochs alone: the rest is its transformers'"
    words = [otherwise(study, _INSTEAD)]
    words += [_OF_THREE] if printed else [settings, CHANGED] if CONVNEXT in study else []
    return "; ".join(words)


def srelu_is_best(study: Study, printed: dict[str, float] | None = None) -> Evidence:
    """S-ReLU with delta = 0.001 against each of the six by test accuracy."""
    return best_of(study, "srelu", IN_VISION, printed=printed)


def smoothing_helps(study: Study) -> Evidence:
    """S-ReLU with delta = 0.001 against plain ReLU by test accuracy."""
    return best_of(study, "srelu", ["relu"])


BEST = [
    statement(
        name=f"srelu_is_best_in_{name}",
        place=f"Table {study.removeprefix('mollification-table-')[0]}, {network}",
        says=f"S-ReLU outperforms GELU, ELU, PReLU, CELU, SiLU and Mish in {network}.",
        needs=[study],
        labels=["srelu"],
        different=_different(study, printed),
        **stands_in(study, _INSTEAD),
    )(partial(srelu_is_best, printed=printed))
    for study, name, network, printed in _TABLES
]
SMOOTHING = [
    statement(
        name=f"smoothing_helps_{name}",
        place=f"Sections 1 and 5, {network}",
        says=f"What S-ReLU gains in {network} comes from smoothing ReLU's kink.",
        needs=[study],
        labels=["srelu", "relu"],
        different=f"{_different(study, printed)}; {_NO_RELU}",
        **stands_in(study, _INSTEAD),
    )(smoothing_helps)
    for study, name, network, printed in _TABLES
    if name in ("vit", "vit_augmented", "convnext", "convnext_augmented")
]


def a_narrow_knee_is_best(study: Study) -> Evidence:
    """delta = 0.001 against each of the other seven by test accuracy."""
    narrow = "srelu delta=0.001"
    wide = [label for label in study.printed_scores("accuracy") if label != narrow]
    return Evidence(wins(study, narrow, wide, "accuracy"))


NARROW = [
    statement(
        name=name,
        place=f"Table 4, {data}",
        says=f"A narrow knee is best in ViT-Tiny on {data}: delta = 0.001 before seven wider ones.",
        needs=[study],
        labels=["srelu delta=0.001"],
        different=otherwise(study, _INSTEAD),
        **stands_in(study, _INSTEAD),
    )(a_narrow_knee_is_best)
    for name, study, data in (
        ("a_narrow_knee_is_best", DELTAS, "CIFAR-10"),
        ("a_narrow_knee_is_best_on_cifar_100", f"{DELTAS}-cifar-100", "CIFAR-100"),
    )
]


@statement(
    place="Appendix E",
    says="ReLU leaves units dead, and S-ReLU, whose slope does not vanish left of 0 at once, avoids that.",
    needs=[f"{VIT}-augmented"],
    labels=["srelu", "relu"],
    different=f"{AUGMENTATION}; {ADDED}",
)
def srelu_leaves_fewer_dead_units(study: Study) -> Evidence:
    """The share of dead units after training, with S-ReLU and with ReLU."""
    return fewer_dead(study, "srelu")


@statement(
    place=f"{OURS} check",
    says="S-ReLU with delta = 0.001 is as accurate as ReLU: both within one point of each other in four studies.",
    needs=[VIT, f"{VIT}-augmented", CONVNEXT, f"{CONVNEXT}-augmented"],
    labels=["srelu", "relu"],
    different=f"two of the studies have crops and mirror images alone; {IN_BFLOAT16}; {_NO_RELU}; {ADDED}",
)
def srelu_is_as_accurate_as_relu(*studies: Study) -> Evidence:
    """An equivalence test of the test accuracies with a margin of one point."""
    return Evidence(
        [
            alike(
                f"{study.name}: srelu within one point of relu",
                *(scores(study, label) for label in ("srelu", "relu")),
                margin=1.0,
                unit="points",
            )
            for study in studies
        ]
    )
