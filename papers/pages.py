"""Writes the pages: the front page, and one for each paper with its main claims, its tables beside ours, and its
mathematics; and beside each page every comparison as a CSV."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from softknee.lab.chart import INK, SOFT, Chart, Row, marks, number, rule_at, sized, write_figure
from softknee.lab.table import Table
from softknee.measure import Versions, write_whole

from .claim import CRASHED, FAILS, HOLDS, OURS, PAPERS, VERDICTS, Paper
from .exhibits import EXHIBITS
from .lambda_gelu.findings import language_tables
from .later import later_work
from .ledger import Entry
from .preferences import preference_tables
from .runs import HERE, Runs, recipe_file
from .statement import ADDED, CHANGED, DIRECTIONS, Judged, Part, counted
from .tables import (
    BELOW,
    command_to_look,
    cost_table,
    figures_of,
    need_of,
    study_tables,
    swap_table,
    write_figures,
)
from .text import cell, plain

CLAIMS, WRONG, FINDINGS = "What it says about mathematics", "Where it is wrong", "What it found by training"
VERSIONS_LINE = "Made with "
COMPARISONS, FOREST = "records/{}-comparisons.csv", "records/{}-claims.svg"  # by the stem of the paper
_CHANGED = (ADDED, CHANGED)  # stands in what is otherwise of a statement that was not fixed beforehand
_MADE = "<!-- made by `python -m papers --pages`; do not edit -->"
# What a reader of each paper remembers, in one sentence.
_MAIN = {
    "mollification": "ReLU averaged with a kernel is smooth, and S-ReLU, made so, trains better than its rivals.",
    "smelu": "Smooth activations make two trainings of one network agree more, and SmeLU most for its accuracy.",
    "lambda_gelu": "GELU with a learned hardness, driven hard, is replaced by ReLU at almost no cost.",
    "eafo": "Lowering the entropy of its outputs improves an activation, and CRReLU is what comes of ReLU.",
    "squaf": "A soft staircase with a learned table fits better than others, and its outputs need few bits.",
}
# What its page calls things, where the paper's own word is needed.
_WORDS = {
    "smelu": " Δ₁, the prediction difference, is the mean over test examples of how far the class probabilities of a "
    "model are from the mean of all models, summed over the classes; relative Δ₁ is that as a share of the predicted "
    "probability of a click. A decade is a factor of 10.",
}
# The five main claims: of each the names of statements, of which the first that has records stands on the page.
FIVE: dict[str, Sequence[Sequence[str]]] = {
    "mollification": (
        ("srelu_is_best_in_vit_augmented", "srelu_is_best_in_vit"),
        ("srelu_is_best_in_convnext_augmented", "srelu_is_best_in_convnext"),
        ("smoothing_helps_vit_augmented", "smoothing_helps_vit"),
        ("a_narrow_knee_is_best",),
        ("srelu_learns_preferences_better",),
    ),
    "smelu": (
        ("smelu_has_the_better_trade_off_with_sgd_and_keras_start", "smelu_has_the_better_trade_off_with_sgd"),
        ("smooth_models_agree_more_with_sgd_and_keras_start", "smooth_models_agree_more_with_sgd"),
        ("smelu_models_of_clicks_agree_more_with_keras_start", "smelu_models_of_clicks_agree_more"),
        ("smelu_predicts_clicks_better_with_keras_start", "smelu_predicts_clicks_better"),
        ("smelu_lessens_the_spread_of_auc_with_keras_start", "smelu_lessens_the_spread_of_auc"),
    ),
    "lambda_gelu": (
        ("learning_hardness_costs_nothing",),
        ("learned_gates_become_harder",),
        ("replacing_after_hardening_costs_little",),
        ("the_bare_swap_costs_more",),
        ("replacing_in_resnet",),
    ),
    "eafo": (
        ("crrelu_is_best_on_cifar_10_augmented", "crrelu_is_best_on_cifar_10"),
        ("crrelu_is_best_on_cifar_100",),
        ("the_correction_helps_augmented", "the_correction_helps"),
        ("less_entropy_goes_with_accuracy",),
        ("crrelu_learns_preferences_better",),
    ),
    "squaf": (
        ("gains_in_decibels",),
        ("fits_one_dimension_best",),
        ("best_in_a_small_network",),
        ("student_surpasses_its_teacher",),
        ("few_bits_cost_no_accuracy",),
    ),
}
# (study, file beside its records, caption); `softknee fits` draws them from the runs.
FIGURES: dict[str, Sequence[tuple[str, str, str]]] = {
    "squaf": (
        ("squaf-table-1-page", "pictures.png", "Originals, and what networks with ReLU, PolyNorm and SQUAF store"),
        ("squaf-table-12", "squaf-table-12-grid.png", "PSNR for twenty starts of q and alpha, the paper's beside ours"),
        ("squaf-table-2-c4", "squaf-table-2-c4-regions.png", "Decision regions of ten activations, four classes"),
        ("squaf-table-3-1d-alone", "sine-1d-curves.png", "The 1-D function and its fits"),
        ("squaf-table-3-2d", "squaf-table-3-2d-fits.png", "The 2-D function, its fits and their errors"),
    )
}

# (record, heading, what the paper has: inference latency and seconds an epoch, as multiples of GELU's).
COSTS: dict[str, Sequence[tuple[str, str, Mapping[str, tuple[float, float]]]]] = {
    "squaf": (
        (
            "h200-model-vit-table-10.json",
            "SQUAF, table 10: what an activation costs ViT-Tiny",
            {
                "relu": (5.727 / 5.896, 9 / 9),
                "gelu": (1.0, 1.0),
                "lrelu": (5.792 / 5.896, 9 / 9),
                "prelu": (5.834 / 5.896, 9 / 9),
                "swish": (6.185 / 5.896, 9 / 9),
                "crrelu": (6.959 / 5.896, 10 / 9),
                "polyrelu": (7.241 / 5.896, 11 / 9),
                "polynorm": (8.694 / 5.896, 12 / 9),
                "ditac": (9.642 / 5.896, 19 / 9),
                "squaf": (8.399 / 5.896, 11 / 9),
                "squaf-p": (8.930 / 5.896, 12 / 9),
                "squaf-s": (7.022 / 5.896, math.nan),  # which is not trained
            },
        ),
    )
}


def write_pages(entries: Sequence[Entry], judged: Sequence[Judged], runs: Runs, folder: Path = HERE) -> list[Path]:
    """Write the front page and the page of every paper, each whole or not at all, and figures beside the records."""
    write_figures(runs)
    written = [write_whole(folder / "README.md", front(entries, judged), what="page")]
    for paper in PAPERS:
        path = folder / paper.stem / "README.md"
        (path.parent / "records").mkdir(parents=True, exist_ok=True)
        if (chart := forest(paper, judged)) is not None:
            write_figure(chart, path.parent / FOREST.format(paper.stem), label=f"{_SHARES}; {paper.name}")
        write_whole(path.parent / COMPARISONS.format(paper.stem), comparisons(paper, judged), what="table")
        written.append(write_whole(path, page(paper, entries, judged, runs), what="page"))
    return written


def front(entries: Sequence[Entry], judged: Sequence[Judged]) -> str:
    """The front page: what to do, each paper with its main claim and our verdicts, and the rules."""
    rows = []
    for paper in PAPERS:
        claims, findings = _counted(paper, entries, judged)
        link = f"[{paper.name}]({paper.stem}/README.md)<br>*{paper.title}*"
        rows.append(f"| {link} | {_MAIN[paper.stem]} | {claims} | {findings} |")
    here = Versions.here()
    # Without the local part: the page does not depend on which build of torch is installed.
    named = {"softknee": here.softknee, "torch": here.torch.partition("+")[0], "SymPy": here.others.get("sympy")}
    versions = ", ".join(f"{name} {version}" for name, version in named.items() if version)
    advice = "\n".join(f"- {sentence}" for sentence in _advice({entry.statement.id: entry for entry in judged}))
    text = (HERE / "front.in").read_text(encoding="utf-8")
    return text.format(made=_MADE, advice=advice, rows="\n".join(rows), versions=f"{VERSIONS_LINE}{versions}")


_ADVISED_BY = (
    *("mollification.smoothing_helps_vit_augmented", "mollification.smoothing_helps_convnext_augmented"),
    *("mollification.srelu_is_best_in_vit_augmented", "mollification.a_narrow_knee_is_best"),
    *("lambda_gelu.replacing_in_resnet", "lambda_gelu.a_temperature_is_a_learning_rate"),
    *("smelu.smooth_models_agree_more_with_sgd", "smelu.layers_near_the_input_learn_a_negative_slope_on_mnist"),
    *("squaf.training_every_squaf_overfits", "squaf.gains_in_decibels", "squaf.best_in_a_small_network"),
    *("squaf.best_in_vgg13", "eafo.eps_turns_negative", "eafo.the_correction_helps_augmented"),
    "eafo.entropy_does_more_than_the_loss",
)


def _advice(judged: Mapping[str, Judged]) -> Iterator[str]:
    """What follows for somebody who trains a network, each sentence with its evidence, once that is there."""
    if any(name not in judged or judged[name].evidence is None for name in _ADVISED_BY):
        return

    def linked(name: str, word: str) -> str:
        return f"([{word}]({name.partition('.')[0]}/README.md#{FINDINGS.lower().replace(' ', '-')}))"

    def verdict(name: str, direction: str) -> str:
        return linked(name, direction + (", stand-in" if judged[name].stand_in else ""))

    def evidence(name: str) -> str:
        """What was found, with the verdict as a link."""
        return f"{judged[name].measured} {verdict(name, judged[name].verdict)}"

    def against(name: str, rival: str) -> str:
        """The comparison with this one, with its direction as a link."""
        entry = judged[name]
        parts = [] if entry.evidence is None else entry.evidence.parts
        (part,) = (part for part in parts if f" than {rival} " in part.says)
        return f"{part.ours()} {verdict(name, entry.word(part.direction))}"

    def numbers(name: str) -> Mapping[str, float]:
        entry = judged[name].evidence
        return {} if entry is None else entry.numbers

    yield (
        "**S-ReLU with delta = 0.001 adds nothing to ReLU that training shows**: S-ReLU less ReLU is "
        f"{evidence('mollification.smoothing_helps_vit_augmented')} in ViT-Tiny and "
        f"{evidence('mollification.smoothing_helps_convnext_augmented')} in ConvNeXt-Tiny, so that the "
        f"{against('mollification.srelu_is_best_in_vit_augmented', 'gelu')} over GELU in ViT-Tiny are ReLU's. A wide "
        f"knee costs accuracy: {against('mollification.a_narrow_knee_is_best', 'srelu delta=0.5')} for delta = 0.5 in "
        "a small ViT on Fashion-MNIST. Take ReLU."
    )
    swapped = numbers("lambda_gelu.replacing_in_resnet")
    yield (
        "**If you must ship ReLU and would rather train GELU, train λ-GELU and harden it**: in ResNet-18 on CIFAR-10 "
        f"putting ReLU in its place then costs {swapped['hardened']:.2f} points, and {swapped['gelu']:.1f} with GELU "
        "([table II](lambda_gelu/README.md#λ-gelu-table-ii-what-replacing-by-relu-costs) has four networks more, with "
        "smaller losses). Where you may choose, train with ReLU from the start: hardening "
        "[buys no accuracy](../docs/deploy.md)."
    )
    apart = numbers("smelu.smooth_models_agree_more_with_sgd")
    yield (
        "**With SGD on MNIST choose the widest SmeLU that keeps your accuracy**: the predictions of twelve models are "
        f"{apart['smelu beta=2.5']:.4f} from their mean with beta = 2.5 and {apart['relu']:.4f} with ReLU, and wider "
        "knees gain no more "
        "([figure 4](smelu/README.md#smelu-figure-4-sgd-error-and-prediction-difference-on-mnist-with-sgd)). It is not "
        "general: with Adagrad in a small network Swish agrees more at a better accuracy "
        "([figure 4, left](smelu/README.md#what-it-found-by-training)), and on 7,200 clicks SmeLU's models agree "
        "no more than ReLU's, from either start "
        "([tables 1 to 3](smelu/README.md#what-it-found-by-training)). From torch's start most of them learned nothing "
        "there with beta = 3; mind the start (`init: keras`)."
    )
    yield (
        "**If you classify with SQUAF, train the first alone; to fit a function, train all**: training all of "
        f"ViT-Tiny's costs accuracy, {against('squaf.training_every_squaf_overfits', 'squaf')}. Over the best other "
        f"activation that was run the first alone is {against('squaf.best_in_a_small_network', 'silu')} in VGG-8, and "
        f"{against('squaf.best_in_vgg13', 'gelu')} in VGG-13, both on CIFAR-100 with short schedules. With all "
        f"trained SQUAF stores pictures {min(numbers('squaf.gains_in_decibels').values()):.0f} to "
        f"{max(numbers('squaf.gains_in_decibels').values()):.0f} dB above the next function "
        "([table 1](squaf/README.md#what-it-found-by-training)); begin with q of 0.1 to 0.2 there "
        "([table 12](squaf/README.md#squaf-table-12-storing-the-cameraman-with-squaf-from-twenty-starts-of-q-and-"
        "alpha))."
    )
    eps = numbers("eafo.eps_turns_negative")
    yield (
        "**Take ReLU where you would take CRReLU in a vision transformer**: CRReLU less ReLU is "
        f"{evidence('eafo.the_correction_helps_augmented')} in ViT-Tiny. Its eps, which begins above 0, ends below it "
        f"in {eps['below']} of {eps['all']} layers and seeds here, in all of ViT-Tiny's and in none of some small "
        f"networks' {linked('eafo.eps_turns_negative', '`eps_turns_negative`')}."
    )
    yield (
        "**If you need neither exact zeros nor ReLU in the end, a generalized SmeLU that rises to the left is worth "
        "one run**: one with a left slope of -0.15, which a search found on MNIST, is [2.5 points better than "
        "ReLU](../docs/searches.md#in-another-network) in ViT-Tiny on CIFAR-10 and "
        "[level with it](../docs/searches.md#slope-and-knee-apart) in a small ViT on Fashion-MNIST; another winner of "
        "these searches was 11 points behind there. Layers near the input learn such a slope by themselves, as the "
        "SmeLU paper says, without a gain that is shown: g_minus on MNIST, "
        f"{evidence('smelu.layers_near_the_input_learn_a_negative_slope_on_mnist')}."
    )
    yield (
        "**Do not expect much of lowering the entropy of activations while a network trains**: over the same "
        f"spline with slopes learned from the loss, {evidence('eafo.entropy_does_more_than_the_loss')}. "
        "[The guide](../docs/guides/entropic.md) has how to do it."
    )
    yield (
        "**A temperature is a learning rate**: the temperature t of λ-GELU and the multiple c of its learning rate act "
        f"through c / t² alone with SGD ({evidence('lambda_gelu.a_temperature_is_a_learning_rate')}) and through c / t "
        "with Adam. Leave t at 1 and choose the rate."
    )


def _counted(paper: Paper, entries: Sequence[Entry], judged: Sequence[Judged]) -> tuple[str, str]:
    """What became of the claims and findings of a paper: "31: 27 hold, 3 partly, 1 fail"; our own stand behind."""
    plural = {HOLDS: "hold", FAILS: "fail"}
    claims = [(entry.claim.place, entry.verdict) for entry in entries if entry.claim.paper == paper]
    claims = [(place, plural.get(verdict, verdict)) for place, verdict in claims]
    findings = [(entry.statement.place, entry.verdict) for entry in judged if entry.statement.paper == paper]
    order = [plural.get(verdict, verdict) for verdict in (*VERDICTS, CRASHED)]
    return _tally(claims, order), _tally(findings, DIRECTIONS)


def _tally(verdicts: Sequence[tuple[str, str]], order: Sequence[str]) -> str:
    """How often each verdict stands there, of pairs of a place and a verdict; those of our own apart."""
    theirs, ours = ([word for place, word in verdicts if place.startswith(OURS) == own] for own in (False, True))
    words = f"{len(theirs)}: {counted(theirs, order)}" if theirs else "none"
    return f"{words}; and of our own {counted(ours, order)}" if ours else words


def page(paper: Paper, entries: Sequence[Entry], judged: Sequence[Judged], runs: Runs) -> str:
    """The page of one paper as Markdown."""
    own = [entry for entry in entries if entry.claim.paper == paper]
    return "".join(_parts(paper, own, [entry for entry in judged if entry.statement.paper == paper], runs))


def _parts(paper: Paper, entries: Sequence[Entry], judged: Sequence[Judged], runs: Runs) -> Iterator[str]:
    yield f"# {paper.name}\n\n{_MADE}\n\n*{paper.title}*\n\n{_MAIN[paper.stem]}\n\n"
    yield from _main_claims(paper, judged)
    yield "Mathematical claims {}. Findings of training {}.\n".format(*_counted(paper, entries, judged))
    yield "[How they are judged](../README.md#how-it-is-judged).\n"
    for verdict, title in ((FAILS, WRONG), (CRASHED, "Checks that did not run")):
        if listed := [entry for entry in entries if entry.verdict == verdict]:
            yield f"\n## {title}\n\n"
            word = "Error" if verdict == CRASHED else "Measured"
            for entry in listed:
                yield f"- **{entry.claim.place}.** {entry.claim.says} *{word}:* {entry.measured.rstrip('.')}.\n"
    yield "\n## Its tables and figures\n\n"
    stand_ins = _stand_ins(judged)
    yield from contents(paper, runs, stand_ins)
    yield f"\n## {FINDINGS}\n\n"
    yield from _findings([entry for entry in judged if entry.evidence is not None], runs)
    yield from _without_records([entry for entry in judged if entry.evidence is None])
    figures = [*FIGURES.get(paper.stem, ()), *figures_of(runs)]
    yield from study_tables(runs, paper.stem.replace("_", "-"), figures, BELOW, stand_ins)
    for name, heading, quoted in COSTS.get(paper.stem, ()):
        yield from cost_table(runs, name, quoted, heading)
    if paper.stem == "lambda_gelu":
        yield "\n### λ-GELU, table II: what replacing by ReLU costs\n\n"
        yield from swap_table(runs)
        yield from language_tables(runs)
    yield from preference_tables(runs, paper.stem)
    yield from later_work(paper.stem)
    yield f"\n## {CLAIMS}\n\n"
    yield from _claims(entries)


# -- the first screen -------------------------------------------------------------------------------------


def five(paper: Paper, judged: Sequence[Judged]) -> list[Judged]:
    """The main claims of a paper, each by the statement that has records, or else by the first."""
    named = {entry.statement.name: entry for entry in judged if entry.statement.paper == paper}
    claims = []
    for names in FIVE[paper.stem]:
        there = [named[name] for name in names if name in named]
        claims += [next((entry for entry in there if entry.evidence is not None), there[0])] if there else []
    return claims


def drawn(entry: Judged) -> list[Part]:
    """The comparisons that have a printed effect and an interval."""
    parts = [] if entry.evidence is None else entry.evidence.parts
    return [part for part in parts if part.printed and part.interval]


_SHARES = "Ours as a share of the paper's effect, with 95 % intervals; an arrow goes on, hollow is a stand-in"


def _main_claims(paper: Paper, judged: Sequence[Judged]) -> Iterator[str]:
    claims = five(paper, judged)
    if not claims:
        return
    yield "| main claim | printed effect | ours, 95 % interval | setting | direction | size |\n"
    yield "|---|--:|---|---|---|---|\n"
    for entry in claims:
        parts = [] if entry.evidence is None else entry.evidence.parts
        printed = _printed(drawn(entry))
        ours = "" if entry.evidence is None else entry.measured
        if len(parts) == 1 and ours == parts[0].ours():
            ours += f"<br>{readable(parts[0].says, paper)}"
        setting = "not run" if entry.evidence is None else "stand-in" if entry.stand_in else "same"
        cells = (cell(entry.statement.says), printed, cell(ours), setting, _direction(entry), entry.size)
        yield f"| {' | '.join(cells)} |\n"
    if any(drawn(entry) for entry in claims):
        yield f"\n![{_SHARES}]({FOREST.format(paper.stem)})\n"
    yield (
        "\nDifferences are positive where they go the way of the claim. Every comparison stands in "
        f"[a CSV]({COMPARISONS.format(paper.stem)}), in the order of the statements below."
        f"{_WORDS.get(paper.stem, '')}\n\n"
    )


def _printed(parts: Sequence[Part]) -> str:
    """The paper's effects: "+0.2 to +0.6 points"."""
    effects = sorted({part.printed or 0.0 for part in parts})
    ends = dict.fromkeys(f"{effect:+.3g}" for effect in (*effects[:1], *effects[-1:]))
    return f"{' to '.join(ends)} {parts[0].unit}".rstrip() if parts else ""


def _direction(entry: Judged) -> str:
    return entry.verdict + (f"<br>{entry.counts}" if entry.counts else "")


def forest(paper: Paper, judged: Sequence[Judged]) -> Chart | None:
    """Below each main claim a line for each of its comparisons that has a printed effect: ours divided by it."""
    claims = [(entry, parts) for entry in five(paper, judged) if (parts := drawn(entry))]
    if not claims:
        return None
    heads, rows, count = [], [], 0
    for entry, parts in claims:
        heads.append({"row": count, "text": plain(entry.statement.says)})
        several = len({part.says.rpartition(": ")[0] for part in parts}) > 1
        for place, part in enumerate(parts, 1):
            printed, ends = part.printed or 1.0, part.interval or (0.0, 0.0)
            ours, low, high = (value / printed for value in (part.difference or 0.0, *ends))
            rows.append(
                {
                    "row": count + place,
                    "compared": readable(part.says, paper, with_study=several),
                    "numbers": f"{part.ours()}; printed {printed:+.3g}",
                    "ours": ours,
                    "low": _inside(low),
                    "high": _inside(high),
                    "kind": "stand-in" if entry.stand_in else "same setting",
                    "beyond": [end for end, over in ((-_REACH, low < -_REACH), (_REACH, high > _REACH)) if over],
                }
            )
        count += len(parts) + 2  # the claim above them, and an empty line below
    x = number("ours", title="share of the printed effect: 0 nothing, 1 as printed", domain=(-_REACH, _REACH))
    y = {"field": "row", "type": "ordinal", "axis": None, "scale": {"domain": list(range(count - 1))}}
    kinds = {"domain": ["same setting", "stand-in"], "range": [INK, "white"]}
    inside = [row for row in rows if abs(row["ours"]) <= _REACH]
    arrows = [{"row": row["row"], "ours": end, "turn": math.copysign(90, end)} for row in rows for end in row["beyond"]]

    def text(rows: Sequence[Row], field: str, place: float, **look: Any) -> Chart:
        return marks("text", rows, {"x": {"value": place}, "y": y, "text": {"field": field}}, align="left", **look)

    dot = {"x": x, "y": y, "fill": {"field": "kind", "type": "nominal", "scale": kinds, "title": None}}
    angle = {"field": "turn", "type": "quantitative", "scale": None}
    layers = [
        rule_at(x=0.0),
        marks("rule", [{"x": 1.0}], {"x": {**x, "field": "x"}}, color=SOFT, strokeDash=[4, 3]),
        marks("rule", rows, {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y}, color=INK, strokeWidth=1.5),
        marks("point", arrows, {"x": x, "y": y, "angle": angle}, shape="triangle", filled=True, color=INK, size=40),
        marks("point", inside, dot, stroke=INK, size=55, opacity=1),
        text(heads, "text", -_LABELS, stroke="white", strokeWidth=6),  # no line goes through the words
        text(heads, "text", -_LABELS),
        text(rows, "compared", -_LABELS + 12, color=SOFT),
        text(rows, "numbers", _WIDE + 14, color=SOFT),
    ]
    return sized({"layer": layers}, _WIDE, _LINE * (count - 1))


_REACH = 2.0  # printed effects to either side; an arrow says that something lies beyond
_WIDE, _LABELS, _LINE = 300, 405, 18  # pixels: the panel, what stands to the left of it, a line


def _inside(share: float) -> float:
    return max(-_REACH, min(_REACH, share))


_STUDY = re.compile(r"^(?P<study>[^:]*): ")
# What papers call the functions and measures that a comparison names as recipes do.
_NAMES = "ReLU GELU SiLU SmeLU Swish CRReLU PReLU ELU CELU SELU Mish TanhExp PolyNorm PolyReLU DiTAC KAF"
_CALLED = {name.lower(): name for name in _NAMES.split()}
_CALLED |= {"srelu": "S-ReLU", "leaky_relu": "LeakyReLU", "lambda_gelu": "λ-GELU", "squaf": "SQUAF"}
_CALLED |= {"delta_1": "Δ₁", "delta_2": "Δ₂", "binary": "relative Δ₁", "log_loss": "log loss"}
_CALLED |= {"auc": "AUC", "psnr": "PSNR", "mse": "mean squared error"}


def readable(says: str, paper: Paper, *, with_study: bool = False) -> str:
    """A comparison in the words of the papers, without the name of its study or with it.

    >>> readable("smelu-table-1: smelu beta=2 lower than relu in delta_1", PAPERS[1], with_study=True)
    'table 1: SmeLU β = 2 lower than ReLU in Δ₁'
    """
    study = match["study"] if (match := _STUDY.match(says)) else ""
    words = re.sub(r"[a-z_]+[0-9]?", lambda word: _CALLED.get(word[0], word[0]), says[match.end() if match else 0 :])
    words = words.replace("beta=", "β = ").replace("delta=", "δ = ")
    place = study.removeprefix(f"{paper.stem.replace('_', '-')}-").replace("-keras", " (Keras)").replace("-", " ")
    return f"{place}: {words}" if place and (with_study or "=" in study) else words


def comparisons(paper: Paper, judged: Sequence[Judged]) -> str:
    """Every comparison of a paper as CSV."""
    head = (
        *("statement", "comparison", "seeds", "difference", "low", "high", "unit", "p", "printed"),
        *("direction", "size", "seeds needed", "setting"),
    )
    rows = []
    for entry in judged:
        if entry.evidence is None or entry.statement.paper != paper:
            continue
        for part in entry.evidence.parts:
            low, high = part.interval or (None, None)
            numbers = [_digits(value) for value in (part.difference, low, high)]
            sized = ("", "") if entry.stand_in else (part.size, part.needed or "")
            answers = (_digits(part.printed), entry.word(part.direction), *sized)
            row = (entry.statement.name, part.says, part.seeds or "", *numbers, part.unit, _digits(part.p, 2), *answers)
            rows.append((*row, entry.stand_in or "same"))
    return Table(head=head, rows=rows).csv()


def _digits(value: float | None, digits: int = 4) -> str:
    return "" if value is None else f"{value:.{digits}g}"


# -- what follows below it --------------------------------------------------------------------------------


def _stand_ins(judged: Sequence[Judged]) -> dict[str, str]:
    """By study: in which way it stands in for the paper's, as the first statement about it has it; no study that is
    of the paper's setting for one statement stands in for another."""
    theirs = [entry for entry in judged if not entry.statement.place.startswith(OURS)]
    own = {name for entry in theirs if not entry.stand_in for name in entry.records}
    named = {name: entry.stand_in for entry in reversed(judged) if entry.stand_in for name in entry.records}
    return {name: how for name, how in named.items() if name not in own}


def _claims(entries: Sequence[Entry]) -> Iterator[str]:
    yield "| place | claim | measured | verdict |\n|---|---|---|---|\n"
    for entry in entries:
        wrong = entry.verdict in (FAILS, CRASHED)  # which stand above, with what was measured
        measured = "see above" if wrong else cell(entry.measured)
        place = f"{cell(entry.claim.place)}<br>`{entry.claim.name}`"
        verdict = f"**{entry.verdict}**" if wrong else entry.verdict
        yield f"| {place} | {cell(entry.claim.says)} | {measured} | {verdict} |\n"


def _findings(judged: Sequence[Judged], runs: Runs) -> Iterator[str]:
    if not judged:
        return
    yield "| place | statement | ours | verdict | size | records |\n|---|---|---|---|---|---|\n"
    for entry in judged:
        statement = entry.statement
        links = ", ".join(records_of(statement.paper, name, runs) for name in entry.records)
        mark = " †" if set(statement.different.split("; ")) & set(_CHANGED) else ""
        place = f"{cell(statement.place)}<br>`{statement.name}`{mark}"
        links += f"<br>Stand-in: {cell(entry.stand_in)}" if entry.stand_in else ""
        columns = (place, cell(statement.says), cell(entry.measured), _direction(entry), entry.size, links)
        yield f"| {' | '.join(columns)} |\n"
    yield "\n<details><summary>How each is judged, and what is otherwise than in the paper</summary>\n\n"
    alike: dict[str, dict[str, list[str]]] = {}  # the names by what is otherwise, but for what † says, and by how
    for entry in judged:
        clauses = entry.statement.different.split("; ")
        different = "; ".join(clause for clause in clauses if clause not in _CHANGED)
        alike.setdefault(different, {}).setdefault(entry.statement.how, []).append(entry.statement.name)
    for different, ways in alike.items():
        yield f"- Otherwise: {cell(different)}.\n"
        for how, names in ways.items():
            yield f"  - {', '.join(f'`{name}`' for name in names)}: {cell(how)}\n"
    yield "\n</details>\n"


def records_of(paper: Paper, name: str, runs: Runs) -> str:
    """A link to records from the page of a paper; they may be those of another."""
    if name not in runs.paths:
        return f"`{name}`"
    return f"[{name}]({_folder(runs.paths[name].parent.parent.name, paper)}records/{name})"


def _folder(owner: str, paper: Paper) -> str:
    """The folder of the first paper, for a link on the page of the second."""
    return "" if owner == paper.stem else f"../{owner}/"


def _without_records(judged: Sequence[Judged]) -> Iterator[str]:
    """What no records decide yet, and the recipes that make them."""
    waiting = []
    for entry in judged:
        recipes = ", ".join(_recipe(name, entry.statement.paper) for name in entry.missing)
        waiting.append(f"`{entry.statement.name}` ({recipes})")
    if waiting:
        yield f"\nWithout records: {', '.join(waiting)}.\n"


def _recipe(name: str, paper: Paper) -> str:
    """A link to a recipe from the page of a paper; it may be that of another."""
    file = recipe_file(name)
    return name if file is None else f"[{file.stem}]({_folder(file.parents[1].name, paper)}recipes/{file.name})"


# -- the paper's tables and figures


def contents(paper: Paper, runs: Runs, stand_ins: Collection[str]) -> Iterator[str]:
    """Every table and figure of a paper, in its order, with what runs it and how far that was run."""
    yield (
        "`softknee study run FILE` runs a recipe of the third column, with `--only LABEL` one row of it; `--smoke` "
        "tries it in a minute on a CPU. What has no remark was run in the paper's setting, as far as that is known; "
        "the paper's numbers stand in the recipe.\n\n"
    )
    yield "| in the paper | what | run by |\n|---|---|---|\n"
    exhibits = EXHIBITS[paper.stem]
    for exhibit in exhibits:
        studies = [_recipe(name, paper) + _remark(name, runs, stand_ins) for name in exhibit.recipes]
        commands = [f"`{cell(command_to_look(name))}`{_remark(name, runs, stand_ins)}" for name in exhibit.records]
        by = "<br>".join(filter(None, [*studies, *commands, cell(exhibit.where)]))
        yield f"| {exhibit.place} | {exhibit.title} | {by} |\n"
    yield from (f"\n{exhibit.place}. {exhibit.also}\n" for exhibit in exhibits if exhibit.also)


def _remark(name: str, runs: Runs, stand_ins: Collection[str]) -> str:
    """What a study is not: run, whole, of the paper's setting."""
    if name not in runs.names:
        words = ["not run", need_of(name)]
    else:
        part = "{} of {} rows were run".format(*runs.unfinished[name]) if name in runs.unfinished else ""
        words = ["stand-in" if name in stand_ins else "", part]
    return f": {', '.join(filter(None, words))}" if any(words) else ""
