"""The tables and figures of the papers, in their order: the recipes or the command that run each, or where it is found.

What a recipe runs has its numbers there, under `paper`. Numbers of what a command of its own runs stand in `Printed`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from softknee.lab.distilling.paper import PAPER
from softknee.lab.distilling.study import ENTRIES
from softknee.lab.evidence.commands import COMMANDS
from softknee.lab.evidence.lambda_gelu_language import LARGE, SMALL
from softknee.lab.evidence.squaf import TIMES
from softknee.lab.evidence.squaf_networks import ALONE, RATE, VGG, WRN


@dataclass(frozen=True)
class Printed:
    """A table of a paper that a command of its own runs: (label, the paper's values, the command of that row)."""

    heads: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str], str]]


@dataclass(frozen=True)
class Exhibit:
    """A table or figure of a paper.

    recipes: the studies that run it; records: files of docs/evidence that hold it, where no recipe does.
    printed: what the paper prints, for a command of its own; shown until one of the records is there.
    where:   a sentence with a link, for what is drawn or counted and not trained.
    swaps:   a table of what replacing costs, which the recipes' records hold.
    """

    place: str
    title: str
    recipes: Sequence[str] = ()
    records: Sequence[str] = ()
    printed: Printed | None = None
    where: str = ""
    swaps: Mapping[str, Mapping[str, tuple[float, float]]] | None = None


_PREFERENCE = "softknee study preference --model gpt2 --sets hh,shp --swap {swap} --betas {beta}"
# One row of the command that makes the record of all.
_WIKITEXT = re.sub(r"--rows \S+", "--rows {row}", COMMANDS[LARGE]).partition(" --json")[0]
_SETTINGS = "Those of the recipes; [the page on studies](../studies.md) says how they are written."


def _preferences(swap: str, title: str, heads: Sequence[str], values: Mapping[str, Sequence[Sequence[str]]]) -> Printed:
    """Rows of a table of DPO: for each beta those of the function and of GELU, which one command runs together."""
    rows = [
        (f"{name}, β = {beta}", row, _PREFERENCE.format(swap=swap, beta=beta))
        for beta, pair in values.items()
        for name, row in zip((title, "GELU"), pair, strict=True)
    ]
    return Printed(heads, rows)


def _distilled(teacher: str, student: str, options: str = "") -> Printed:
    """Tables 7, 14 and 15 of the SQUAF paper, as the package has them."""
    reported = PAPER[teacher, student]
    command = f"softknee study distil --teacher {teacher} --student {student}{options} --only "
    rows = [("teacher, ReLU", (f"{reported.teacher_accuracy:.2f}", ""), f"{command}relu")]
    for one in ENTRIES.values():
        known = (one.title in reported.accuracy, one.title in reported.parameters)
        if any(known):
            accuracy = f"{reported.accuracy[one.title]:.2f}" if known[0] else "does not converge"
            gap = f"{reported.gap[one.title]:.2f}" if one.title in reported.gap else ""
            rows.append((one.title, (accuracy, gap), f"{command}{one.name}"))
    return Printed(("accuracy, %", "generalisation gap"), rows)


def _larger(
    model: str, title: str, rows: Mapping[str, Sequence[str]], options: str = ""
) -> list[tuple[str, Sequence[str], str]]:
    command = f"softknee study preference --model {model} --swap squaf{options}"
    return [(f"{name}, {title}", values, command) for name, values in rows.items()]


_RATES = tuple(
    (f"SQUAF-P, weight {weight}", (bits,), f"softknee study rate --data-set cifar-100 --weights {weight}")
    for weight, bits in (("0", ""), ("0.001", ""), ("0.002", ""), ("0.003", ""), ("0.004", ""), ("0.006", "3.4"))
)
_DPO = ("reward margin", "reward accuracy", "evaluation loss")

EXHIBITS: dict[str, Sequence[Exhibit]] = {
    "mollification": (
        Exhibit(
            "Table 1",
            "vision transformers on CIFAR-10, CIFAR-100 and ImageNet-1K",
            (
                "mollification-table-1", "mollification-table-1-deit", "mollification-table-1-tnt",
                "mollification-table-1-vit-cifar-100", "mollification-table-1-deit-cifar-100",
                "mollification-table-1-tnt-cifar-100", "mollification-table-1-vit-imagenet",
                "mollification-table-1-deit-imagenet",
            ),
        ),
        Exhibit(
            "Table 2",
            "ConvNeXt-Tiny",
            ("mollification-table-2", "mollification-table-2-cifar-100", "mollification-table-2-imagenet"),
        ),
        Exhibit(
            "Table 3",
            "GPT-2 trained on preferences (DPO)",
            printed=_preferences(
                "srelu",
                "S-ReLU",
                ("chosen reward", "reward margin", "preference accuracy"),
                {
                    "0.1": (("0.1501", "0.0984", "0.5938"), ("-0.2037", "0.0659", "0.5313")),
                    "2": (("0.3861", "0.0532", "0.5156"), ("-1.6600", "0.0460", "0.5080")),
                    "5": (("1.1062", "1.8664", "0.5103"), ("-3.6484", "1.1815", "0.5012")),
                },
            ),
        ),
        Exhibit("Table 4", "sensitivity to delta", ("mollification-table-4", "mollification-table-4-cifar-100")),
        Exhibit("Figure 1", "S-ReLU for several delta", where="Drawn with a slider on [its page](../zoo/srelu.md)."),
    ),
    "smelu": (
        Exhibit("Table 1", "Criteo, models that share nothing", ("smelu-table-1",)),
        Exhibit("Table 2", "Criteo, examples not shuffled", ("smelu-table-2",)),
        Exhibit("Table 3", "Criteo, models with the same start", ("smelu-table-3",)),
        Exhibit(
            "Figures 1 and 8 to 12",
            "the activations and their gradients",
            where="Drawn, with a slider, on the pages of [the zoo](../zoo/index.md).",
        ),
        Exhibit(
            "Figures 2 and 5 to 7",
            "outputs of a random network over two inputs",
            where="`softknee surface --paper 2` draws figure 2 again, and 5, 6 and 7 in the same way; "
            "[the design of the package](../design.md) shows what they look like.",
        ),
        Exhibit("Figure 3", "clicks online", ("smelu-figure-3", "smelu-figure-3-twelve")),
        Exhibit("Figure 4, SGD", "MNIST", ("smelu-figure-4",)),
        Exhibit("Figures 4 and 13 to 15, Adagrad", "MNIST, and other measures of the difference", ("smelu-figure-13",)),
    ),
    "lambda_gelu": (
        Exhibit("Figure 1", "temperature and learning rate of the hardness", ("lambda-gelu-figure-1",)),
        Exhibit(
            "Figure 2",
            "the learning rate of the hardness in ResNet-18 on CIFAR-100",
            printed=Printed(
                ("validation score",),
                [
                    (
                        f"c = {c}",
                        ("drawn, not printed",),
                        "softknee study run lambda-gelu-cifar-100 --set 'activations=[gelu, {name: lambda_gelu, "
                        f"lam: 1.01, temperature: 0.1, rate: {c}, learn: true}}]'",
                    )
                    for c in (1, 3, 6, 9)
                ],
            ),
        ),
        Exhibit(
            "Table I",
            "learned hardness from three starts",
            (
                "lambda-gelu-adult", "lambda-gelu-fashion", "lambda-gelu-cifar-10", "lambda-gelu-cifar-100",
                "lambda-gelu-tiny-imagenet",
            ),
        ),
        Exhibit(
            "Table I, WikiText-2",
            "perplexity of GPT-2",
            records=(SMALL, LARGE),
            printed=Printed(
                ("perplexity",),
                [
                    ("GELU", ("28.46",), _WIKITEXT.format(row="gelu")),
                    ("ReLU", ("30.48",), _WIKITEXT.format(row="relu")),
                    ("λ-GELU, uniform start", ("28.45",), _WIKITEXT.format(row="lambda_gelu")),
                ],
            ),
        ),
        Exhibit(
            "Table II",
            "what replacing by ReLU costs",
            swaps={
                "lambda-gelu-adult": {"gelu": (85, 80), "λ-GELU hardened": (81, 81)},
                "lambda-gelu-fashion": {"gelu": (86, 83), "λ-GELU hardened": (86, 85)},
                "lambda-gelu-cifar-10": {"gelu": (95, 92), "λ-GELU hardened": (95, 95)},
                "lambda-gelu-cifar-100": {"gelu": (74, 67), "λ-GELU hardened": (74, 72)},
                "lambda-gelu-tiny-imagenet": {"gelu": (71, 68), "λ-GELU hardened": (71, 72)},
            },
        ),
        Exhibit(
            "Figure 3",
            "validation curves and the order of layers by hardness",
            where="The studies of table I keep both; their reports draw the curves, and the statement about the order "
            "of the layers stands [above](#what-it-found-by-training).",
        ),
    ),
    "eafo": (
        Exhibit("Table 1", "CIFAR-10", ("eafo-table-1", "eafo-table-1-deit", "eafo-table-1-tnt")),
        Exhibit("Table 2", "CIFAR-100", ("eafo-table-2", "eafo-table-2-deit", "eafo-table-2-tnt")),
        Exhibit("Table 3", "ImageNet-1K", ("eafo-table-3-vit", "eafo-table-3-deit")),
        Exhibit(
            "Table 4",
            "GPT-2 trained on preferences (DPO)",
            printed=_preferences(
                "crrelu",
                "CRReLU",
                _DPO,
                {
                    "0.1": (("0.1428", "0.6210", "0.6476"), ("0.1419", "0.6196", "0.6480")),
                    "1": (("0.4626", "0.5756", "0.9201"), ("0.4556", "0.5731", "0.9298")),
                    "2": (("0.7736", "0.5628", "1.462"), ("0.7176", "0.5606", "1.481")),
                    "5": (("1.846", "0.5635", "3.268"), ("1.651", "0.5566", "3.305")),
                },
            ),
        ),
        Exhibit("Tables 5, 6 and 8", "settings", where=_SETTINGS),
        Exhibit(
            "Table 7",
            "numbers of parameters",
            where="Counted, not trained: `learned_scalars` among [the mathematical claims](#what-it-says-about-"
            "mathematics). Every study also has a column of them.",
        ),
        Exhibit(
            "Figures 1 to 3",
            "sigmoid and tanh beside the normal distribution; CRReLU for several eps",
            where="CRReLU has a slider on [its page](../zoo/crrelu.md); the first two are curves of known functions.",
        ),
    ),
    "squaf": (
        Exhibit(
            "Table 1 and figure 1",
            "fitting pictures",
            ("squaf-table-1-camera", "squaf-table-1-grass", "squaf-table-1-page"),
        ),
        Exhibit("Table 2 and figure 2", "telling clusters apart", ("squaf-table-2-c3", "squaf-table-2-c4")),
        Exhibit("Table 3", "fitting functions", ("squaf-table-3-1d", "squaf-table-3-2d", "squaf-table-3-1d-alone")),
        Exhibit(
            "Table 4",
            "ImageNet-1K",
            ("squaf-table-4-resnet18", "squaf-table-4-resnet34", "squaf-table-4-vit", "squaf-table-4-swin"),
        ),
        Exhibit(
            "Table 5",
            "GPT-2 trained on preferences (DPO)",
            printed=_preferences(
                "squaf",
                "SQUAF",
                ("reward accuracy, %", "reward margin", "evaluation loss"),
                {
                    "0.1": (("62.50", "0.1352", "0.6510"), ("62.11", "0.0977", "0.6646")),
                    "0.2": (("62.89", "0.1838", "0.6544"), ("59.76", "0.1639", "0.6733")),
                    "0.4": (("61.33", "0.4201", "0.6547"), ("58.59", "0.3033", "0.7184")),
                },
            ),
        ),
        Exhibit(
            "Table 6",
            "CIFAR-100",
            (
                "squaf-table-6-shufflenetv1", "squaf-table-6-vgg8", "squaf-table-6-resnet56", "squaf-table-6-vgg13",
                "squaf-table-6-vit", "squaf-table-6-efficientformer",
            ),
            records=(ALONE,),
        ),
        Exhibit(
            "Tables 7 and 14, figure 5, VGG",
            "VGG-13 teaches VGG-8",
            records=(VGG,),
            printed=_distilled("vgg13", "vgg8"),
        ),
        Exhibit(
            "Tables 7 and 14, figure 5, WRN",
            "WRN-40-2 teaches WRN-16-2",
            records=(WRN,),
            printed=_distilled("wrn40_2", "wrn16_2"),
        ),
        Exhibit("Figure 3", "bits and accuracy", records=(RATE,), printed=Printed(("bits an activation",), _RATES)),
        Exhibit("Tables 8 and 9", "settings", where=_SETTINGS),
        Exhibit("Table 10", "cost in ViT-Tiny", records=(TIMES,)),
        Exhibit(
            "Table 11",
            "larger language models trained on preferences",
            printed=Printed(
                ("reward accuracy, %", "reward margin", "evaluation loss"),
                [
                    *_larger(
                        "gpt2-xl",
                        "GPT-2 XL",
                        {"SQUAF": ("63.28", "0.2190", "0.6400"), "GELU": ("62.89", "0.2182", "0.6411")},
                    ),
                    *_larger(
                        "pythia-2.8b",
                        "Pythia-2.8B",
                        {"SQUAF": ("64.84", "0.4302", "0.6075"), "GELU": ("63.67", "0.3883", "0.6108")},
                        " --micro-batch 4",
                    ),
                ],
            ),
        ),
        Exhibit("Table 12", "starts of q and alpha", ("squaf-table-12",)),
        Exhibit(
            "Table 13",
            "numbers of parameters",
            where="Counted, not trained: `parameters_of_the_networks` among [the mathematical claims]"
            "(#what-it-says-about-mathematics).",
        ),
        Exhibit(
            "Figure 4",
            "convergence on ImageNet-1K",
            where="The report of `softknee study run squaf-table-4-resnet34`, and of `squaf-table-4-vit`, has these "
            "curves.",
        ),
        Exhibit(
            "Table 15",
            "ResNet-18 teaches MobileNet on ImageNet-1K",
            printed=_distilled("timm:resnet18", "timm:mobilenetv1_100", " --data-set imagenet"),
        ),
        Exhibit(
            "Figures 6 to 9",
            "learned shapes",
            where="`softknee study distil --teacher none --student timm:resnet18 --data-set imagenet --only squaf "
            "--where all --shapes shapes.png` trains and draws those of ResNet-18; the other networks likewise.",
        ),
    ),
}  # fmt: skip
"""By the stem of the paper."""
