"""Statements of the SQUAF paper about fitting, images and toy classification."""

from __future__ import annotations

import math

from .runs import Runs, Study
from .statement import ADDED, Evidence, bound, corrected, counted, statements_of, wins

statement = statements_of("squaf")

OTHERS = ("relu", "gelu", "leaky_relu", "prelu", "swish", "crrelu", "polyrelu", "polynorm", "ditac")
FITTING = (*OTHERS, "kaf")
PICTURES = ("camera", "grass", "page")
_SEEDS = "several seeds where the paper has one number; its points and its starts of the other functions are not known"


def _order(study: Study, labels: tuple[str, ...], measure: str, *, larger: bool) -> list[str]:
    """The labels from best to worst by their mean; those that diverged with every seed last."""
    logarithmic = measure == "mse"

    def rank(label: str) -> float:
        mean = study.mean(label, measure, logarithmic=logarithmic)
        return math.inf if math.isnan(mean) else (-mean if larger else mean)

    return sorted(labels, key=rank)


def _error(study: Study, label: str) -> str:
    return f"{study.mean(label, 'mse', logarithmic=True):.1e}"


def _fitting(runs: Runs, name: str) -> Evidence:
    study = runs.study(name)
    parts = corrected(wins(study, "squaf", FITTING, "mse", larger=False, logarithmic=True))
    best, *_ = _order(study, FITTING, "mse", larger=False)
    ratio = study.mean(best, "mse", logarithmic=True) / study.mean("squaf", "mse", logarithmic=True)
    return Evidence(
        f"mean squared error (geometric mean of {study.seeds('squaf')} seeds): SQUAF {_error(study, 'squaf')}; the "
        f"best other is {best} with {_error(study, best)}, {ratio:.2g} times SQUAF's; ReLU {_error(study, 'relu')}. "
        f"SQUAF is shown to be better than {counted(parts)}",
        parts=[*parts, bound("at least 10 times lower than every other", ratio >= 10)],
        numbers={label: study.mean(label, "mse", logarithmic=True) for label in (*FITTING, "squaf")},
    )


@statement(
    place="Table 3, 1D function",
    says="With SQUAF the network [1, 64, 1] has a mean squared error of 4.0e-5, 1 to 4 orders of magnitude below every "
    "other activation (1.0e-3 for the next, DiTAC).",
    needs=["squaf-table-3-1d"],
    different=_SEEDS,
)
def fits_one_dimension_best(runs: Runs) -> Evidence:
    """SQUAF against each of the ten others by the logarithm of the error, and the ratio to the best of them."""
    return _fitting(runs, "squaf-table-3-1d")


@statement(
    place="Table 3, 2D function",
    says="With SQUAF the network [2, 50, 1] has a mean squared error of 4.0e-4, an order of magnitude below every "
    "other activation (4.0e-3 for the next, DiTAC).",
    needs=["squaf-table-3-2d"],
    different=_SEEDS,
)
def fits_two_dimensions_best(runs: Runs) -> Evidence:
    """As for one dimension."""
    return _fitting(runs, "squaf-table-3-2d")


@statement(
    place="Table 3, last two rows, and section 4.1",
    says="A SQUAF alone (k = 95) fits 200 times better than the network with SQUAF; one with 28 numbers (k = 13) does "
    "as well as the network with DiTAC, which has 7.2 times as many.",
    needs=["squaf-table-3-1d", "squaf-table-3-1d-alone"],
    different=_SEEDS,
)
def alone_it_fits_better(runs: Runs) -> Evidence:
    """The errors of the lone SQUAFs against those of the networks, as ratios of geometric means; 5 points each, as the
    paper says, and 21 beside it."""
    inside, alone = runs.study("squaf-table-3-1d"), runs.study("squaf-table-3-1d-alone")
    large, small, wide = "SQUAF k=95", "SQUAF k=13", "SQUAF k=95, 21 points"
    with_it, with_ditac = (inside.mean(label, "mse", logarithmic=True) for label in ("squaf", "ditac"))
    gain, wider = (with_it / alone.mean(label, "mse", logarithmic=True) for label in (large, wide))
    against = alone.mean(small, "mse", logarithmic=True) / with_ditac
    return Evidence(
        f"k = 95: {_error(alone, large)}, {gain:.3g} times below the network with SQUAF ({_error(inside, 'squaf')}); "
        f"with 21 points in place of 5 {_error(alone, wide)}, {wider:.3g} times below. k = 13: {_error(alone, small)}, "
        f"{against:.2g} times the error of the network with DiTAC ({_error(inside, 'ditac')})",
        parts=[
            bound("alone at least 200 times better", gain >= 200),
            bound("28 numbers as good as DiTAC", against <= 1.1),
        ],
        numbers={"gain": gain, "gain_with_21_points": wider, "against_ditac": against},
    )


@statement(
    place="Section 1, with table 3",
    says="In function fitting the gain over the other activations is up to 5000 times (2.0e-7 with a SQUAF alone, "
    "1.0e-3 with the network of the next, DiTAC).",
    needs=["squaf-table-3-1d", "squaf-table-3-1d-alone"],
    different=f"{_SEEDS}; {ADDED}",
)
def gains_in_function_fitting(runs: Runs) -> Evidence:
    """The error of the best network with another activation divided by that of the lone SQUAF with k = 95 and 5 points,
    geometric means both."""
    inside, alone = runs.study("squaf-table-3-1d"), runs.study("squaf-table-3-1d-alone")
    best, *_ = _order(inside, FITTING, "mse", larger=False)
    gain = inside.mean(best, "mse", logarithmic=True) / alone.mean("SQUAF k=95", "mse", logarithmic=True)
    return Evidence(
        f"{_error(inside, best)} with {best}, {_error(alone, 'SQUAF k=95')} with a SQUAF alone: {gain:.3g} times",
        parts=[bound("at least 5000 times", gain >= 5000)],
        numbers={"gain": gain},
    )


@statement(
    place="Section 4.1, on KAF",
    says="KAF with one set of parameters for the layer is generally the worst of the compared activations; in the "
    "paper's table Swish alone has a higher error, in two dimensions.",
    needs=["squaf-table-3-1d", "squaf-table-3-2d"],
    different=_SEEDS + "; the paper gives neither KAF's points nor its start",
)
def kaf_is_worst(runs: Runs) -> Evidence:
    """Each of the other nine against KAF by the logarithm of the error."""
    parts, places = [], []
    for name in ("squaf-table-3-1d", "squaf-table-3-2d"):
        study = runs.study(name)
        for other in OTHERS:
            parts += wins(study, other, ["kaf"], "mse", larger=False, logarithmic=True)
        order = _order(study, FITTING, "mse", larger=False)
        places.append(f"{name[-2:]}: KAF {_error(study, 'kaf')}, place {order.index('kaf') + 1} of {len(order)}")
    parts = corrected(parts)
    return Evidence("; ".join(places) + f". {counted(parts)} others are shown to be better than it", parts=parts)


def _picture(runs: Runs, picture: str) -> tuple[Study, str, float]:
    study = runs.study(f"squaf-table-1-{picture}")
    best, *_ = _order(study, OTHERS, "psnr", larger=True)
    return study, best, study.mean("squaf", "psnr") - study.mean(best, "psnr")


@statement(
    place="Table 1",
    says="SQUAF stores all three pictures best, in PSNR and in SSIM, 11.4 to 25.3 dB above the next activation.",
    needs=[f"squaf-table-1-{one}" for one in PICTURES],
    different="four seeds where the paper has one number",
)
def stores_pictures_best(runs: Runs) -> Evidence:
    """SQUAF against each of the nine others, PSNR and SSIM, for each picture; and the lead over the best of them."""
    parts, told, numbers = [], [], {}
    for picture in PICTURES:
        study, best, lead = _picture(runs, picture)
        parts += wins(study, "squaf", OTHERS, "psnr", larger=True) + wins(study, "squaf", OTHERS, "ssim", larger=True)
        told.append(
            f"{picture} {study.mean('squaf', 'psnr'):.2f} dB, SSIM {study.mean('squaf', 'ssim'):.4f} (next: {best}, "
            f"{study.mean(best, 'psnr'):.2f} dB, SSIM {study.mean(best, 'ssim'):.4f})"
        )
        numbers[f"lead_{picture}"] = lead
    parts = corrected(parts)
    return Evidence("; ".join(told) + f". {counted(parts)} comparisons are shown", parts=parts, numbers=numbers)


@statement(
    place="Table 1 and the abstract",
    says="The gain over the next activation is up to 25.27 dB (grass), and more than 11 dB for every picture.",
    needs=[f"squaf-table-1-{one}" for one in PICTURES],
    different="four seeds where the paper has one number",
)
def gains_in_decibels(runs: Runs) -> Evidence:
    """The difference of the mean PSNR of SQUAF and of the best other activation."""
    leads = {picture: _picture(runs, picture)[2] for picture in PICTURES}
    text = ", ".join(f"{picture} {lead:.2f} dB" for picture, lead in leads.items())
    parts = [bound(f"{picture} more than 11 dB", lead > 11) for picture, lead in leads.items()]
    return Evidence(text, parts=[*parts, bound("25.27 dB for one", max(leads.values()) >= 25.27)], numbers=leads)


@statement(
    place="Table 1, runner-up",
    says="In PSNR PolyNorm is the best of the other activations for every picture.",
    needs=[f"squaf-table-1-{one}" for one in PICTURES],
    different="four seeds where the paper has one number",
)
def polynorm_is_next(runs: Runs) -> Evidence:
    """PolyNorm against each of the other eight by PSNR."""
    parts, told = [], []
    for picture in PICTURES:
        study, best, _ = _picture(runs, picture)
        parts += wins(study, "polynorm", [one for one in OTHERS if one != "polynorm"], "psnr", larger=True)
        told.append(f"{picture}: {best} leads, PolyNorm {study.mean('polynorm', 'psnr'):.2f} dB")
    parts = corrected(parts)
    return Evidence("; ".join(told) + f". {counted(parts)} comparisons are shown", parts=parts)


@statement(
    place="Table 2",
    says="In toy classification SQUAF is best: by little with 3 classes (97.22 %), by 8.75 points with 4 (93.75 %).",
    needs=["squaf-table-2-c3", "squaf-table-2-c4"],
    different="clusters of our own: the paper does not give the places of its; eight seeds",
)
def classifies_clusters_best(runs: Runs) -> Evidence:
    """SQUAF against each of the nine others by test accuracy; the lead over the best of them."""
    parts, told, leads = [], [], {}
    for count in (3, 4):
        study = runs.study(f"squaf-table-2-c{count}")
        parts += wins(study, "squaf", OTHERS, "accuracy", larger=True)
        best, *_ = _order(study, OTHERS, "accuracy", larger=True)
        leads[count] = 100 * (study.mean("squaf", "accuracy") - study.mean(best, "accuracy"))
        told.append(
            f"{count} classes: SQUAF {100 * study.mean('squaf', 'accuracy'):.2f} %, {best} "
            f"{100 * study.mean(best, 'accuracy'):.2f} %"
        )
    parts = corrected(parts)
    return Evidence(
        "; ".join(told) + f". {counted(parts)} comparisons are shown",
        parts=[*parts, bound("8.75 points ahead with 4 classes", leads[4] >= 8.75)],
        numbers={f"lead_{count}": lead for count, lead in leads.items()},
    )


@statement(
    place="Table 12 and appendix A.6",
    says="Unless q or the sharpness h = alpha q^2 is too large, SQUAF stores the picture better than every other "
    "activation: in 18 of 20 starts, all but (q 0.1, h 10) and (q 1, h 0.5).",
    needs=["squaf-table-12", "squaf-table-1-camera"],
    different="four seeds where the paper has one number; compared with our own best baseline",
)
def start_of_q_and_alpha_matters_little(runs: Runs) -> Evidence:
    """The mean PSNR of each start against the best mean of the other activations on the same picture."""
    grid = runs.study("squaf-table-12")
    study, best, _ = _picture(runs, "camera")
    level = study.mean(best, "psnr")
    means = {label: grid.mean(label, "psnr") for label in grid.outcomes}
    above = [label for label, mean in means.items() if mean > level]
    below = [f"{label} ({mean:.1f} dB)" for label, mean in means.items() if not mean > level]
    exceptions = {"q=0.1 h=10", "q=1 h=0.5"}
    finite = [one for one in means.values() if not math.isnan(one)]
    return Evidence(
        f"{len(above)} of {len(means)} starts are above the {level:.2f} dB of {best}; below: "
        f"{', '.join(below) or 'none'}. From {min(finite):.1f} to {max(finite):.1f} dB",
        parts=[
            bound(f"{label} {'not ' if label in exceptions else ''}above", (mean > level) != (label in exceptions))
            for label, mean in means.items()
        ],
        numbers=means,
    )


TIMES, MODES = "h200-model-vit-table-10.json", "h200-model-vit-squaf-bf16.json"


def _times(runs: Runs, name: str, what: str) -> dict[str, float]:
    """Milliseconds of every variant of a benchmark, by the first word of its text, or the mode of a SQUAF."""
    found = {}
    for row in runs.benchmark(name).rows:
        text = row["variant"]
        mode = next((one for one in ("sampled", "step") if f"mode={one}" in text), "")
        found[" ".join([text.partition("(")[0], mode]).strip()] = row[what].value
    return found


@statement(
    place="Table 10 and appendix A.4",
    says="In ViT-Tiny SQUAF is quicker at inference than PolyNorm and DiTAC, but takes 1.42 times as long as GELU, and "
    "1.22 times in training; SQUAF-P is slower than SQUAF, SQUAF-S about as quick as CRReLU.",
    needs=[TIMES, MODES],
    different="one H200 in place of A6000s, batches of 256, our kernels; float32, but SQUAF-P in bfloat16; that "
    "SQUAF-S is held against CRReLU and no longer against ReLU in bfloat16 was changed with records at hand: both hold",
)
def costs_of_a_transformer(runs: Runs) -> Evidence:
    """Medians of an inference and of a training step of vit_tiny_patch16_224, all variants in turns in one run."""
    inference, training = _times(runs, TIMES, "forward"), _times(runs, TIMES, "step")
    modes = _times(runs, MODES, "forward")
    ratio, slower = inference["squaf"] / inference["before"], training["squaf"] / training["before"]
    sampled, step = modes["squaf sampled"] / modes["squaf"], inference["squaf step"] / inference["crrelu"]
    listed = ", ".join(
        f"{name} {inference[name] / inference['before']:.2f}" for name in ("crrelu", "ditac", "polynorm")
    )
    return Evidence(
        f"relative to GELU: SQUAF {ratio:.3f} at inference and {slower:.3f} in a training step with all its "
        f"parameters; {listed} at inference. SQUAF-P takes {sampled:.2f} times as long as SQUAF, SQUAF-S {step:.2f} "
        "times as long as CRReLU",
        parts=[
            bound("quicker than PolyNorm", inference["squaf"] < inference["polynorm"]),
            bound("quicker than DiTAC", inference["squaf"] < inference["ditac"]),
            bound("at least 1.42 times GELU at inference", ratio >= 1.42),
            bound("at least 1.22 times GELU in training", slower >= 1.22),
            bound("SQUAF-P slower than SQUAF", sampled > 1),
            bound("SQUAF-S within 5 % of CRReLU", step < 1.05),
        ],
        numbers={"inference": ratio, "training": slower, "sampled": sampled, "step": step},
    )
