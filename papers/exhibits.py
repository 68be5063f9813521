"""The tables and figures of the papers, in their order: the recipes or the command that run each, or where it is found.

What a recipe runs has its numbers there, under `paper`. Numbers of what a command of its own runs stand in `Printed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .lambda_gelu.findings import LARGE, RECIPES, SMALL
from .preferences import CRRELU, S_RELU, SQUAF, SQUAF_PYTHIA, SQUAF_XL, PreferenceTable
from .runs import command_of_recipe, command_of_row
from .squaf.findings import ALONE, RATE, SHORT, TIMES, VGG, WRN


@dataclass(frozen=True)
class Printed:
    """A table of a paper that a command of its own runs.

    rows:    (label, the paper's values, the command of that row; empty where none runs it).
    command: of the whole table.
    note:    what the command does otherwise than the paper.
    """

    heads: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str], str]]
    command: str
    note: str = ""


@dataclass(frozen=True)
class Exhibit:
    """A table or figure of a paper.

    recipes: the studies that run it; records: files among the paper's records that hold it, where no recipe does.
    printed: what the paper prints, for a command of its own; shown until one of the records is there.
    where:   a sentence with a link, for what is drawn or counted and not trained, or what another command trains.
    trained: whether it takes a training, though no recipe or record of its own holds it.
    swaps:   whether it is the table of what replacing costs, which the records of these recipes hold.
    also:    what else the paper prints there, in Markdown.
    """

    place: str
    title: str
    recipes: Sequence[str] = ()
    records: Sequence[str] = ()
    printed: Printed | None = None
    where: str = ""
    swaps: bool = False
    also: str = ""
    trained: bool = False


_STARTS = {
    "uniform": "lam: 1.01",
    "increasing": "lam: 1.01, last: {lam: 2.0}",
    "decreasing": "lam: 2.0, last: {lam: 1.01}",
}
_SEEN = (
    "One command runs every beta of GELU or of the function, from the same weights on the same pairs, with three "
    "seeds, and judges by 256 pairs that were not trained on. The recipe says where the model and the pairs lie: "
    "[language models](../../docs/language.md). How many passes the paper made is not printed; here it is one."
)
_AVERAGES = """\
In the copy of the paper that we have, most cells of this table are illegible; the averages over its networks are not:

| top-1 accuracy, %, mean of | GELU | ELU | PReLU | CELU | SiLU | Mish | S-ReLU |
|:--|--:|--:|--:|--:|--:|--:|--:|
| CIFAR-10, three networks | 72.2 | 67.8 | 76.4 | 67.6 | 69.9 | 70.2 | 82.3 |
| CIFAR-100, three networks | 42.2 | 43.1 | 47.4 | 37.5 | 39.9 | 40.0 | 56.6 |
| ImageNet-1K, two networks | 57.8 | 43.2 | 58.8 | 43.3 | 52.3 | 52.9 | 60.8 |"""
_SETTINGS = "Those of the recipes; [the page on studies](../../docs/studies.md) says how they are written."


def _over_rates(rates: str) -> str:
    """Figure 2 of the λ-GELU paper: GELU, and λ-GELU from three starts with these rates of its hardness."""
    learned = (
        f"{{name: lambda_gelu, label: {name}, {start}, temperature: 0.1, rate: {rates}, learn: true}}"
        for name, start in _STARTS.items()
    )
    own = "--out studies/lambda-gelu-figure-2"  # not in the folder of table I, which has other rows
    return f"{command_of_recipe('lambda-gelu-cifar-100')} {own} --set 'activations=[gelu, {', '.join(learned)}]'"


def _preferences(table: PreferenceTable, title: str = "GPT-2 trained on preferences (DPO)", note: str = "") -> Exhibit:
    """A table of DPO: for each beta the rows of the function and of GELU, which one command runs together."""
    rows = [
        (f"{title}, β = {beta}", cells, command_of_row(table.study, label))
        for beta, label, title, cells in table.rows()
    ]
    heads = [column.head for column in table.columns]
    printed = Printed(heads, rows, command_of_recipe(table.study), f"{_SEEN} {note}".strip())
    place = table.place if table.network == "GPT-2" else f"{table.place}, {table.network}"
    return Exhibit(place, title, records=(table.study,), printed=printed)


_TABLE_I = tuple(f"lambda-gelu-{data}" for data in ("adult", "fashion", "cifar-10", "cifar-100", "tiny-imagenet"))
_LARGER = "larger language models trained on preferences"
_ALONE = "The pairs are those of HH alone, as in the paper."

EXHIBITS: dict[str, Sequence[Exhibit]] = {
    "mollification": (
        Exhibit(
            "Table 1",
            "vision transformers on CIFAR-10, CIFAR-100 and ImageNet-1K",
            (
                "mollification-table-1", "mollification-table-1-augmented", "mollification-table-1-deit",
                "mollification-table-1-tnt",
                "mollification-table-1-vit-cifar-100", "mollification-table-1-deit-cifar-100",
                "mollification-table-1-tnt-cifar-100", "mollification-table-1-vit-imagenet",
                "mollification-table-1-deit-imagenet",
            ),
            also=_AVERAGES,
        ),
        Exhibit(
            "Table 2",
            "ConvNeXt-Tiny",
            (
                "mollification-table-2", "mollification-table-2-augmented", "mollification-table-2-cifar-100",
                "mollification-table-2-imagenet",
            ),
        ),
        _preferences(
            S_RELU,
            note="The rejected rewards are illegible in the copy of the paper that we have. As the chosen rewards less "
            "the margins they would be 0.0517, 0.3329 and -0.7602 with S-ReLU and -0.2696, -1.7060 and -4.8299 with "
            "GELU: higher with S-ReLU, where the paper's text says lower. Delta is 0.001, as in all its experiments "
            "(appendix H). The paper prints neither optimizer nor rate, batch or lengths: they are those of the EAFO "
            "paper's table 8.",
        ),
        Exhibit("Table 4", "sensitivity to delta", ("mollification-table-4", "mollification-table-4-cifar-100")),
        Exhibit(
            "Figure 1", "S-ReLU for several delta", where="Drawn with a slider on [its page](../../docs/zoo/srelu.md).",
        ),
    ),
    "smelu": (
        Exhibit("Table 1", "Criteo, models that share nothing", ("smelu-table-1",)),
        Exhibit("Table 2", "Criteo, examples not shuffled", ("smelu-table-2",)),
        Exhibit("Table 3", "Criteo, models with the same start", ("smelu-table-3",)),
        Exhibit(
            "Figures 1 and 8 to 12",
            "the activations and their gradients",
            where="Drawn, with a slider, on the pages of [the zoo](../../docs/zoo/README.md).",
        ),
        Exhibit(
            "Figures 2 and 5 to 7",
            "outputs of a random network over two inputs",
            where="`softknee surface --paper 2` draws figure 2 again, and 5, 6 and 7 in the same way; [the page on "
            "studies](../../docs/studies.md#what-an-activation-does-to-the-surface) shows what they look like.",
        ),
        Exhibit("Figure 3", "clicks online", ("smelu-figure-3", "smelu-figure-3-twelve")),
        Exhibit("Figures 4 and 13 to 15, SGD", "MNIST, and other measures of the difference", ("smelu-figure-4",)),
        Exhibit("Figures 4 and 13 to 15, Adagrad", "MNIST, and other measures of the difference", ("smelu-figure-13",)),
    ),
    "lambda_gelu": (
        Exhibit("Figure 1", "temperature and learning rate of the hardness", ("lambda-gelu-figure-1",)),
        Exhibit(
            "Figure 2",
            "the learning rate of the hardness in ResNet-18 on CIFAR-100",
            printed=Printed(
                ("drift of λ", "best validation accuracy against GELU's, points"),
                [(f"c = {c}", ("drawn, not printed", "drawn, not printed"), _over_rates(f"{c}")) for c in (1, 3, 6, 9)],
                _over_rates("[1, 3, 6, 9]"),
                "Means over three starts in the paper; the command runs all three. Drift and validation accuracy of "
                "each are in the curves of its report.",
            ),
        ),
        Exhibit("Table I", "learned hardness from three starts", _TABLE_I),
        Exhibit(
            "Table I, WikiText-2",
            "perplexity of GPT-2",
            records=(SMALL, LARGE),
            printed=Printed(
                ("validation perplexity", "in epoch", "mean λ", "drift of λ"),
                [
                    ("GELU", ("28.46", "7", "", ""), command_of_row(RECIPES[LARGE], "gelu")),
                    ("ReLU", ("30.48", "9", "", ""), command_of_row(RECIPES[LARGE], "relu")),
                    (
                        "λ-GELU, uniform start",
                        ("28.45", "7", "1.00", "0.002"),
                        command_of_row(RECIPES[LARGE], "lambda_gelu"),
                    ),
                    ("λ-GELU, increasing start", ("28.71", "7", "1.24", "0.29"), ""),
                    ("λ-GELU, decreasing start", ("28.59", "7", "1.24", "0.28"), ""),
                ],
                command_of_recipe(RECIPES[LARGE]),
                "Trained here from scratch, judged by the test part; λ-GELU has the uniform start alone. What is "
                "trained on are files of the data folder: [language models](../../docs/language.md#wikitext-2) says "
                "which.",
            ),
        ),
        Exhibit("Table II", "what replacing by ReLU costs", _TABLE_I, swaps=True),
        Exhibit(
            "Figure 3",
            "validation curves and the order of layers by hardness",
            where="Drawn from the records of the studies of table I, below the tables of each.",
        ),
    ),
    "eafo": (
        Exhibit("Table 1", "CIFAR-10", ("eafo-table-1", "eafo-table-1-deit", "eafo-table-1-tnt")),
        Exhibit("Table 2", "CIFAR-100", ("eafo-table-2", "eafo-table-2-deit", "eafo-table-2-tnt")),
        Exhibit("Table 3", "ImageNet-1K", ("eafo-table-3-vit", "eafo-table-3-deit")),
        _preferences(CRRELU),
        Exhibit(
            "Tables 5, 6 and 8",
            "settings",
            where=f"{_SETTINGS} Those of GPT-2 stand in the recipe `table-4`: [language "
            "models](../../docs/language.md).",
        ),
        Exhibit(
            "Table 7",
            "numbers of parameters",
            where="Counted, not trained: they stand in the tables of the studies above, the paper's beside ours; and "
            "`learned_scalars` among the mathematical claims.",
        ),
        Exhibit(
            "Figures 1 to 3",
            "sigmoid and tanh beside the normal distribution; CRReLU for several eps",
            where="CRReLU has a slider on [its page](../../docs/zoo/crrelu.md); the first two are curves of known "
            "functions.",
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
        _preferences(SQUAF),
        Exhibit(
            "Table 6",
            "CIFAR-100",
            (
                "squaf-table-6-shufflenetv1", "squaf-table-6-vgg8", "squaf-table-6-resnet56", "squaf-table-6-vgg13",
                "squaf-table-6-vit", "squaf-table-6-efficientformer", SHORT,
            ),
            records=(ALONE,),
        ),
        Exhibit("Tables 7 and 14, figure 5, VGG", "VGG-13 teaches VGG-8", ("squaf-table-7-vgg",), records=(VGG,)),
        Exhibit("Tables 7 and 14, figure 5, WRN", "WRN-40-2 teaches WRN-16-2", ("squaf-table-7-wrn",), records=(WRN,)),
        Exhibit("Figure 3", "bits and accuracy", ("squaf-figure-3",), records=(RATE,)),
        Exhibit("Tables 8 and 9", "settings", where=_SETTINGS),
        Exhibit("Table 10", "cost in ViT-Tiny", records=(TIMES,)),
        _preferences(SQUAF_XL, _LARGER, _ALONE),
        _preferences(SQUAF_PYTHIA, _LARGER, _ALONE),
        Exhibit("Table 12", "starts of q and alpha", ("squaf-table-12",)),
        Exhibit(
            "Table 13",
            "numbers of parameters",
            where="Counted, not trained: they stand in the tables of the studies above, the paper's beside ours; and "
            "`parameters_of_the_networks` among the mathematical claims.",
        ),
        Exhibit(
            "Figure 4",
            "convergence on ImageNet-1K",
            where="The reports of the recipes `table-4-resnet34` and `table-4-vit` have these curves.",
            trained=True,
        ),
        Exhibit("Table 15", "ResNet-18 teaches MobileNet on ImageNet-1K", ("squaf-table-15",)),
        Exhibit(
            "Figures 6 to 9",
            "learned shapes",
            where="Those of the first layer of VGG-8 stand with figure 3. The reports of the recipes "
            "`table-4-resnet18`, `table-4-resnet34`, `table-4-swin` and `table-4-vit` draw those of their networks.",
            trained=True,
        ),
    ),
}  # fmt: skip
"""By the stem of the paper."""
