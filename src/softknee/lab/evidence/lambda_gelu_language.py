"""Statements of the λ-GELU paper about GPT-2 on WikiText-2, judged by records of `softknee study wikitext`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..language.text_perplexity import exp_or_infinite
from ..language.wikitext_study import wikitext_markdown
from .compared import mean
from .lambda_gelu import ADULT, CIFAR_10, FASHION, VISION, mean_hardness
from .runs import Runs
from .statement import ADDED, Evidence, better, bound, corrected, statements_of

statement = statements_of("lambda_gelu")

SMALL, LARGE = "lambda-gelu-wikitext-small.json", "lambda-gelu-wikitext-124m.json"
_GELU, _LAMBDA, _RELU = "GELU", "lambda-GELU, hardened", "ReLU from scratch"
_WIKITEXT = (
    "models trained from scratch on what of WikiText-2 is at hand (the record names it), where the paper has GPT-2 on "
    "the whole training part; the validation part is trained on, too; the raw training text has words that valid and "
    "test have as <unk>; λ-GELU from the uniform start alone, where the paper has three; it does not say whether "
    "GPT-2 begins with published weights, as its numbers suggest; judged by the test part at the end of the training, "
    "where the paper has the best epoch by the validation part; rates of 1e-3 and 6e-4 and a decay "
    "of 0.1, as for a training from scratch, where the paper has 5e-5 and 0.01"
)


def _languages(runs: Runs) -> dict[str, dict[str, Mapping[str, Any]]]:
    """The rows of the records that are there, by the size of the model and by their names."""
    found = {}
    for name in (SMALL, LARGE):
        if runs.has(name):
            record = runs.benchmark(name)
            millions = record.settings["parameters"] / 1e6
            found[f"{millions:.0f}M parameters"] = {row["row"]: row for row in record.rows}
    return found


def language_tables(runs: Runs) -> Iterator[str]:
    """A table for each record that is there, with what the paper has beside it."""
    for name in (SMALL, LARGE):
        if not runs.has(name):
            continue
        record = runs.benchmark(name)
        settings, machine = record.settings, record.hardware.gpu or record.hardware.cpu
        yield f"\n### λ-GELU, WikiText-2: a GPT-2 of {settings['parameters']:,} parameters from scratch\n\n"
        yield wikitext_markdown(record)
        sizes = f"{settings['layers']} layers of width {settings['width']}"
        batches = f"{settings['steps']} steps of {settings['batch']} x {settings['context']} tokens"
        yield (
            f"\nPerplexity of the test part, {len(record.seeds)} seeds on {machine}: mean and standard deviation. "
            f"{sizes}, {batches}, trained on {settings['train']} ({settings['tokens']:,} tokens). *bare*: ReLU in the "
            "place of λ-GELU that was learned freely; *replaced*: in the place of what is hardened, or of GELU. The "
            "paper's GPT-2, with the whole training part: GELU 28.46, ReLU 30.48, λ-GELU 28.45 to 28.71; it prints no "
            f"number after the replacement. Again: `{record.command}`. [Record](evidence/{name}).\n"
        )


def _losses(row: Mapping[str, Any], column: str) -> list[float]:
    """Nats of a token for each seed."""
    return list(row["loss_by_seed"][column])


def _perplexity(row: Mapping[str, Any], column: str) -> float:
    """The mean over the seeds; infinite where float64 has no number for it."""
    return mean(exp_or_infinite(one) for one in _losses(row, column))


@statement(
    place="Table I, WikiText-2",
    says="GPT-2 with ReLU is worse than with GELU (perplexity 30.48 against 28.46); with learned hardness it is as "
    "good (28.45 to 28.71).",
    needs=[SMALL, LARGE],
    different=_WIKITEXT,
)
def relu_is_worse_in_language_models(runs: Runs) -> Evidence:
    """GELU against ReLU by the loss of a token, seed by seed; and whether the perplexity of learned λ-GELU is within
    1 % of GELU's, which is what the paper's rows differ by at most."""
    compared, bounds, words = [], [], []
    for size, rows in _languages(runs).items():
        each = {name: _perplexity(rows[name], "free") for name in (_GELU, _RELU, _LAMBDA)}
        losses = (_losses(rows[name], "free") for name in (_GELU, _RELU))
        compared.append(better(f"{size}: GELU better than ReLU", *losses, larger=False))
        near = abs(each[_LAMBDA] / each[_GELU] - 1) <= 0.01
        bounds.append(bound(f"{size}: learned λ-GELU within 1 % of GELU", near))
        words.append(f"{size}: GELU {each[_GELU]:.2f}, ReLU {each[_RELU]:.2f}, learned λ-GELU {each[_LAMBDA]:.2f}")
    return Evidence("perplexity, " + "; ".join(words), parts=[*corrected(compared), *bounds])


@statement(
    place="Section IV-C, WikiText-2",
    says="Putting ReLU in the place of the activations deteriorates GPT-2 severely, with GELU and with hardened λ-GELU "
    "alike.",
    needs=[SMALL, LARGE],
    different=f"{_WIKITEXT}; the paper has no number for it: severe is taken as a perplexity 10 % higher",
)
def replacing_breaks_language_models(runs: Runs) -> Evidence:
    """Whether the mean perplexity is more than 10 % higher after the replacement, without any training."""
    parts, words = [], []
    for size, rows in _languages(runs).items():
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
def hardening_lessens_the_shock(runs: Runs) -> Evidence:
    """What the replacement adds to the loss of hardened λ-GELU against what it adds to GELU's, seed by seed; and
    whether it adds more than 0.01 nats (1 % of the perplexity) to the former."""
    compared, bounds, words = [], [], []
    for size, rows in _languages(runs).items():
        hard, plain = (
            [after - before for before, after in zip(_losses(row, first), _losses(row, "replaced"), strict=True)]
            for row, first in ((rows[_LAMBDA], "hardened"), (rows[_GELU], "free"))
        )
        compared.append(better(f"{size}: hardened λ-GELU loses less than GELU", hard, plain, larger=False))
        bounds.append(bound(f"{size}: hardened λ-GELU loses more than 1 %", mean(hard) > 0.01))
        words.append(f"{size}: {mean(hard):z.4f} nats with hardened λ-GELU, {mean(plain):z.4f} with GELU")
    return Evidence("the replacement adds, " + "; ".join(words), parts=[*corrected(compared), *bounds])


def _learned(runs: Runs) -> dict[str, float]:
    """The mean λ over layers and seeds, by the size of the model."""
    return {
        size: mean(one for seed in rows[_LAMBDA]["learned_knobs"] for one in seed)
        for size, rows in _languages(runs).items()
    }


@statement(
    place="Table I, WikiText-2",
    says="The learned hardness of GPT-2 stays near its start: its mean over the layers is 1.00 from the uniform start, "
    "and at most 1.24 from the others.",
    needs=[SMALL, LARGE],
    different=f"{_WIKITEXT}; judged by the 1.24 of the paper's other starts, since its 1.00 leaves no room for a bound",
)
def language_models_keep_soft_gates(runs: Runs) -> Evidence:
    """Whether the mean λ over layers and seeds is at most 1.24 from the uniform start at 1.01."""
    means = _learned(runs)
    return Evidence(
        "mean λ " + "; ".join(f"{size}: {one:.2f}" for size, one in means.items()),
        parts=[bound(f"{size}: at most 1.24", one <= 1.24) for size, one in means.items()],
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
def networks_made_for_relu_learn_harder_gates(runs: Runs) -> Evidence:
    """The mean λ of the MLPs and of ResNet-18 from the uniform start against that of each GPT-2 and of ViT-Tiny."""
    soft = {f"GPT-2 of {size}": one for size, one in _learned(runs).items()}
    soft["ViT-Tiny"] = mean_hardness(runs.study(VISION), "lambda_gelu")
    hard = {name: mean_hardness(runs.study(name), "λ-GELU uniform") for name in (FASHION, ADULT, CIFAR_10)}
    return Evidence(
        "mean λ from the uniform start: " + "; ".join(f"{name} {one:.2f}" for name, one in (hard | soft).items()),
        parts=[
            bound(f"{name} harder than {other}", one > theirs)
            for name, one in hard.items()
            for other, theirs in soft.items()
        ],
        numbers=hard | soft,
    )
