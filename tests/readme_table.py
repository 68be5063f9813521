"""What the README and docs/speed.md take from records: the speed tables, and what the evidence says.

`PYTHONPATH=.:tools python tests/readme_table.py` prints the parts, with `--write` it puts them between their marks.
"""

import re
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from papers.runs import Runs
from pictures import perplexities

from softknee.measure import Quantity, Record

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
RECORDS = ROOT / "benchmarks/records"
DTYPES = ("bf16", "f32")
MODELS = {
    "a small model: a step of ViT-Tiny, 256 images of 32 x 32": "h200-model-vit-tiny.json",
    "a large model: a step of GPT-2, 8 x 1,024 tokens": "h200-model-gpt2.json",
}
CPU = "cpu-f32-1M.json"
DESIGNED = {
    "hardtanh_biweight.json": "hardtanh mollified by the biweight",
    "relu_gaussian.json": "relu mollified by the gaussian",
}
SHOWN = ("srelu", "smelu", "generalized_smelu", "crrelu", "lambda_gelu", "swish", "mish", "softplus", "squaf")
BRIEF = ("srelu", "smelu", "lambda_gelu", "crrelu", "squaf")  # one of each paper
VARIANTS = ("softknee eager", "pseudocode eager", "pseudocode compiled")


# -- speed ------------------------------------------------------------------------------------------------


def table() -> list[str]:
    """The lines of the whole table, for docs/speed.md."""
    header = ["function", *(f"{v.removesuffix(' eager')}, {d}" for d in DTYPES for v in VARIANTS), "bytes held, bf16"]
    lines, rows = _head(header), _rows()
    for name in SHOWN:
        cells = [_cell(rows[dtype, name, variant]) for dtype in DTYPES for variant in VARIANTS]
        held = ", ".join(f"{rows['bf16', name, variant]['held']:.0f}" for variant in VARIANTS)
        lines.append(f"| {name} | {' | '.join(cells)} | {held} |")
    for name in ("relu", "gelu", "silu"):
        cells = [cell for dtype in DTYPES for cell in (_cell(rows[dtype, name, "torch"]), "", "")]
        held = f"{rows['bf16', name, 'torch']['held']:.0f}"
        lines.append(f"| torch's own {name} | {' | '.join(cells)} | {held} |")
    return lines


def short_table() -> list[str]:
    """The lines of the table in the README: one function of each paper beside GELU, in four places."""
    lines = _head(["beside GELU", *(f"[{name}](docs/zoo/{name}.md)" for name in BRIEF)])
    kernels, cpu = _by_function("h200-bf16-layers.json"), _by_function(CPU)
    lines.append(_beside("a kernel: 64M numbers in bf16, forward and backward", kernels, "forward_backward"))
    for what, name in MODELS.items():
        before, *swaps = _read(name)
        rows = {"gelu": before} | {row["variant"]: row for row in swaps}
        lines.append(_beside(f"{what}, eager / compiled", rows, "step", "compiled_step"))
    lines.append(_beside("a CPU: 1M numbers in float32, one thread, forward and backward", cpu, "forward_backward"))
    return lines


def cpu_table() -> list[str]:
    """The lines of the table of a CPU: with compiled kernels and without, and the ratio to torch's GELU."""
    compiled, plain = _by_function(CPU), _by_function("cpu-f32-1M-plain.json")
    gelu = compiled.pop("gelu")
    lines = _head(["function", "compiled", "x torch's GELU", "`SOFTKNEE_CC=0`"])
    for name, row in compiled.items():
        ratios = " / ".join(f"{row[key].value / gelu[key].value:.2f}" for key in ("forward", "forward_backward"))
        lines.append(f"| {DESIGNED.get(name, name)} | {_cell(row)} | {ratios} | {_cell(plain[name])} |")
    return [*lines, f"| torch's own gelu | {_cell(gelu)} | 1.00 / 1.00 |  |"]


def calls_table() -> list[str]:
    """The lines of the table of what a call costs its host."""
    lines = _head(["", "microseconds", "ratio"])
    for row in _read("h200-calls.json"):
        times, ratios = (
            " / ".join(f"{row[key + end].value:{form}}" for key in ("no_grad", "grad", "step"))
            for end, form in (("", ".0f"), ("_ratio", ".2f"))
        )
        kind = "with numbers" if row["kind"] == "function" else row["kind"]
        lines.append(f"| {row['function']}, {kind}, x {row['reference']} | {times} | {ratios} |")
    return lines


def memory_table() -> list[str]:
    """The lines of the table of what a block holds for its backward pass."""
    rows = _read("h200-memory.json")
    (unit,) = (row["step"].value for row in rows if (row["function"], row["save"]) == ("nn.GELU", "input"))
    lines = _head(["", "saved", "held", "peak", "forward and backward"])
    for row in rows:
        sizes = f"{row['held']:.2f} | {row['peak']:.2f}"
        lines.append(f"| {row['function']} | {row['save']} | {sizes} | {row['step'].value / unit:.3f} |")
    return lines


def model_table() -> list[str]:
    """The lines of the table of a training step in a model, eager and compiled."""
    models = {"ViT-Tiny": _read("h200-model-vit-tiny.json"), "GPT-2": _read("h200-model-gpt2.json")}
    ways = [(rows, prefix) for rows in models.values() for prefix in ("", "compiled_")]
    lines = _head(["", *(f"{name}, {way}" for name in models for way in ("eager", "compiled"))])
    own = " | ".join(f"{rows[0][prefix + 'step'].value:.1f} ms" for rows, prefix in ways)
    lines.append(f"| its own GELU | {own} |")
    for name in BRIEF:
        ratios = [
            _ratio(row, rows[0], prefix + "step") for rows, prefix in ways for row in rows if row["variant"] == name
        ]
        lines.append(f"| {name} | {' | '.join(f'{ratio:.3f}' for ratio in ratios)} |")
    busy = " | ".join(f"{rows[0][prefix + 'busy']:.0%}" for rows, prefix in ways)
    return [*lines, f"| *the GPU computes, with GELU* | {busy} |"]


def _read(name: str) -> tuple[Mapping[str, Any], ...]:
    return Record.from_json((RECORDS / name).read_text(encoding="utf-8")).rows


def _by_function(name: str) -> dict[str, Mapping[str, Any]]:
    """softknee's rows by function; that of GELU is torch's own."""
    rows = _read(name)
    ours = {row["function"]: row for row in rows if row["variant"] == VARIANTS[0]}
    return ours | {"gelu": next(row for row in rows if (row["function"], row["variant"]) == ("gelu", "torch"))}


def _beside(what: str, rows: Mapping[str, Mapping[str, Any]], *keys: str) -> str:
    """A line of ratios to GELU."""
    ratios = [
        " / ".join(f"{_ratio(rows[name], rows['gelu'], key):.2f}" for key in keys) if name in rows else ""
        for name in BRIEF
    ]
    return f"| {what} | {' | '.join(ratios)} |"


def _ratio(row: Mapping[str, Any], unit: Mapping[str, Any], key: str) -> float:
    """The ratio of two times: round by round where the record has it, else of the two."""
    known = row.get(f"{key}_ratio")
    return row[key].value / unit[key].value if known is None else known.value


def _head(header: list[str]) -> list[str]:
    return [f"| {' | '.join(header)} |", f"| --- |{' ---: |' * (len(header) - 1)}"]


def _rows() -> dict[tuple[str, str, str], Mapping[str, Any]]:
    return {
        (dtype, row["function"], row["variant"]): row
        for dtype in DTYPES
        for kind in ("", "-layers")  # the pseudocode, and then the layers
        for row in _read(f"h200-{dtype}{kind}.json")
    }


def _cell(row: Mapping[str, Any]) -> str:
    return " / ".join(_short(row[name]) for name in ("forward", "forward_backward"))


def _short(quantity: Quantity) -> str:
    value = quantity.value
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


# -- evidence ---------------------------------------------------------------------------------------------


def evidence() -> list[str]:
    """The lines of the README on what was found, from the records."""
    lines = (_shipped(), _reproducible(), _accurate())
    return [line for item in lines for line in textwrap.wrap(f"- {item}", 120, subsequent_indent="  ", **_WHOLE)]


_WHOLE: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


def _shipped() -> str:
    rows = perplexities()
    hard, gelu, scratch = rows["lambda-GELU, hardened"], rows["GELU"], rows["ReLU from scratch"]
    return (
        f"**Shipped as ReLU.** GPT-2, trained on a part of WikiText-2, mean of 3 seeds: perplexity "
        f"{hard['hardened']:.2f} with hardened λ-GELU and {hard['replaced']:.2f} once ReLU has its place; with GELU "
        f"{gelu['free']:.2f} and {gelu['replaced']:.2f}; with ReLU from the start {scratch['free']:.2f}. [The same for "
        "MLPs and ResNets, and through ONNX, a verifier and pruning](docs/deploy.md)."
    )


def _reproducible() -> str:
    study = Runs.committed().study("smelu-figure-4")
    apart = {label: float(study.outcomes[label].difference["delta_1"]["value"]) for label in study.outcomes}
    best = min((label for label in apart if label.startswith("smelu")), key=apart.__getitem__)
    right = {label: 100 * study.mean(label, "accuracy") for label in (best, "relu")}
    return (
        f"**Reproducible.** On MNIST the predictions of twelve trainings differ by {apart[best]:.4f} with SmeLU "
        f"({best.partition(' ')[2]}) and by {apart['relu']:.4f} with ReLU, at {right[best]:.2f} and "
        f"{right['relu']:.2f} % accuracy. [How to measure yours](docs/guides/reproducible.md)."
    )


def _accurate() -> str:
    runs = Runs.committed()
    plain, augmented = runs.study("mollification-table-1"), runs.study("mollification-table-1-augmented")
    labels = ("relu", "gelu", "srelu", "crrelu", "lambda_gelu")
    right = sorted(100 * plain.mean(label, "accuracy") for label in labels)
    mixed = {label: 100 * augmented.mean(label, "accuracy") for label in ("relu", "srelu", "crrelu", "gelu")}
    winner = 100 * Runs(RECORDS).study("search-transfer").mean("mnist join 517", "accuracy")
    small, large = (runs.study(f"squaf-table-6-{name}-short") for name in ("vgg8", "vgg13"))
    vgg = [f"{100 * study.mean(label, 'accuracy'):.1f}" for study in (small, large) for label in ("squaf", "relu")]
    return (
        f"**Accurate?** It depends on the training: ViT-Tiny on CIFAR-10 has {right[0]:.1f} to {right[-1]:.1f} % with "
        "ReLU, GELU, S-ReLU, CRReLU and λ-GELU, which three seeds do not tell apart; under mixup, cutmix and "
        f"RandAugment, with five seeds, {mixed['relu']:.1f} % with ReLU, {mixed['srelu']:.1f} % with S-ReLU, "
        f"{mixed['crrelu']:.1f} % with CRReLU, {mixed['gelu']:.1f} % with GELU, and {winner:.1f} % with a "
        "generalized SmeLU that rises to the left, which [a search](docs/searches.md) found. VGG-8 on CIFAR-100 has "
        f"{vgg[0]} % with SQUAF and {vgg[1]} % with ReLU in 40 epochs, VGG-13 {vgg[2]} and {vgg[3]} % in 24, where "
        f"GELU has {100 * large.mean('gelu', 'accuracy'):.1f} %, with five seeds. [The papers' claims, one by "
        "one](papers/README.md)."
    )


def _only(pattern: str, text: str) -> tuple[str, ...]:
    """The groups of the one place that the pattern fits."""
    result = list(re.finditer(pattern, text, flags=re.M))
    assert len(result) == 1, f"{pattern!r} fits {len(result)} places."
    return result[0].groups()


# -- the pages --------------------------------------------------------------------------------------------

PARTS = {
    "speed": (ROOT / "README.md", short_table),
    "evidence": (ROOT / "README.md", evidence),
    "whole table": (DOCS / "speed.md", table),
    "calls table": (DOCS / "speed.md", calls_table),
    "cpu table": (DOCS / "speed.md", cpu_table),
    "memory table": (DOCS / "speed.md", memory_table),
    "model table": (DOCS / "speed.md", model_table),
}


def marked(name: str) -> tuple[str, str, str]:
    """A page in three: before a part, what stands between its marks, and after it."""
    text = PARTS[name][0].read_text(encoding="utf-8")
    mark = rf"<!-- {name}: made by tests/readme_table\.py -->\n"
    return _only(rf"\A([\s\S]*^{mark})([\s\S]*?)(^<!-- end -->\n[\s\S]*)\Z", text)  # type: ignore[return-value]


def made(name: str) -> str:
    """What ought to stand there."""
    return "\n" + "\n".join(PARTS[name][1]()) + "\n\n"


if __name__ == "__main__":
    for part, (path, _) in PARTS.items():
        if sys.argv[1:] == ["--write"]:
            before, _, after = marked(part)
            path.write_text(before + made(part) + after, encoding="utf-8")
        else:
            sys.stdout.write(made(part))
