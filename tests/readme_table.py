"""What the README and docs/speed.md take from records: the speed tables, and what the evidence says.

`python tests/readme_table.py` prints the parts, with `--write` it puts them between their marks. The lines on evidence
are read from the pages of papers/ and from docs/deploy.md, which other tests hold against the records.
"""

import functools
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from papers.ledger import find_statements
from papers.runs import Runs
from papers.statement import AS_PRINTED, DIRECTIONS, SIZES, Judged, judge

from softknee.measure import Quantity, Record

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAPERS = "papers"  # the pages of all papers, as one
RECORDS = {"bf16": ROOT / "benchmarks/records/h200-bf16.json", "f32": ROOT / "benchmarks/records/h200-f32.json"}
MODELS = {
    "a small model: a step of ViT-Tiny, 256 images of 32 x 32": ROOT / "benchmarks/records/h200-model-vit-tiny.json",
    "a large model: a step of GPT-2, 8 x 1,024 tokens": ROOT / "benchmarks/records/h200-model-gpt2.json",
}
CPU = ROOT / "benchmarks/records/cpu-f32-1M.json"
SHOWN = ("srelu", "smelu", "generalized_smelu", "crrelu", "lambda_gelu", "swish", "mish", "softplus", "squaf")
BRIEF = ("srelu", "smelu", "lambda_gelu", "crrelu", "squaf")  # one of each paper
VARIANTS = ("softknee eager", "pseudocode eager", "pseudocode compiled")


# -- speed ------------------------------------------------------------------------------------------------


def table() -> list[str]:
    """The lines of the whole table, for docs/speed.md."""
    header = ["function", *(f"{v.removesuffix(' eager')}, {d}" for d in RECORDS for v in VARIANTS), "bytes held, bf16"]
    lines, rows = _head(header), _rows()
    for name in SHOWN:
        cells = [_cell(rows[dtype, name, variant]) for dtype in RECORDS for variant in VARIANTS]
        held = ", ".join(f"{rows['bf16', name, variant]['held']:.0f}" for variant in VARIANTS)
        lines.append(f"| {name} | {' | '.join(cells)} | {held} |")
    for name in ("relu", "gelu", "silu"):
        cells = [cell for dtype in RECORDS for cell in (_cell(rows[dtype, name, "torch"]), "", "")]
        held = f"{rows['bf16', name, 'torch']['held']:.0f}"
        lines.append(f"| torch's own {name} | {' | '.join(cells)} | {held} |")
    return lines


def short_table() -> list[str]:
    """The lines of the table in the README: one function of each paper beside GELU, in four places."""
    lines = _head(["beside GELU", *(f"[{name}](docs/zoo/{name}.md)" for name in BRIEF)])
    kernels, cpu = _by_function(RECORDS["bf16"]), _by_function(CPU)
    lines.append(_beside("a kernel: 64M numbers in bf16, forward and backward", kernels, "forward_backward"))
    for what, path in MODELS.items():
        before, *swaps = Record.from_json(path.read_text(encoding="utf-8")).rows
        rows = {"gelu": before} | {row["variant"]: row for row in swaps}
        lines.append(_beside(f"{what}, eager / compiled", rows, "step", "compiled_step"))
    lines.append(_beside("a CPU: 1M numbers in float32, one thread, forward and backward", cpu, "forward_backward"))
    return lines


def _by_function(path: Path) -> dict[str, Mapping[str, Any]]:
    """softknee's rows by function; that of GELU is torch's own."""
    rows = Record.from_json(path.read_text(encoding="utf-8")).rows
    ours = {row["function"]: row for row in rows if row["variant"] == VARIANTS[0]}
    return ours | {"gelu": next(row for row in rows if (row["function"], row["variant"]) == ("gelu", "torch"))}


def _beside(what: str, rows: Mapping[str, Mapping[str, Any]], *keys: str) -> str:
    """A line of ratios to GELU."""
    ratios = [
        " / ".join(f"{rows[name][key].value / rows['gelu'][key].value:.2f}" for key in keys) if name in rows else ""
        for name in BRIEF
    ]
    return f"| {what} | {' | '.join(ratios)} |"


def _head(header: list[str]) -> list[str]:
    return [f"| {' | '.join(header)} |", f"| --- |{' ---: |' * (len(header) - 1)}"]


def _rows() -> dict[tuple[str, str, str], Mapping[str, Any]]:
    return {
        (dtype, row["function"], row["variant"]): row
        for dtype, path in RECORDS.items()
        for row in Record.from_json(path.read_text(encoding="utf-8")).rows
    }


def _cell(row: Mapping[str, Any]) -> str:
    return " / ".join(_short(row[name]) for name in ("forward", "forward_backward"))


def _short(quantity: Quantity) -> str:
    value = quantity.value
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


# -- evidence ---------------------------------------------------------------------------------------------


def evidence() -> list[str]:
    """The lines of the README on what was found, with the numbers as the pages of the evidence have them now."""
    said = (_mathematics(), _training(), _lifted(), _reproducible(), _shipped(), _soft(), _bits())
    return [line for item in said for line in textwrap.wrap(f"- {item}", 120, subsequent_indent="  ", **_WHOLE)]


_WHOLE: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


def _mathematics() -> str:
    sums = _sums("mathematics")
    hold, partly, fail = (sums[verdict] for verdict in ("hold", "partly", "fail"))
    printed, proved = _only(
        r"Lipschitz constant of GELU is ([\d.]+)\. \*Measured:\* .*? proved to be (\d\.\d{4})", PAPERS
    )
    return (
        f"**Mathematics.** {hold + partly + fail} claims of the papers checked by programs: {hold} hold, {partly} hold "
        f"partly, {fail} are [wrong](papers/README.md) (GELU's Lipschitz constant is {proved}, not {printed})."
    )


@functools.cache
def _judged() -> dict[str, Judged]:
    return {entry.statement.id: entry for entry in judge(find_statements(), Runs.committed())}


def _training() -> str:
    entries = _judged().values()
    sums = Counter(entry.verdict for entry in entries)
    words = ", ".join(f"{sums[verdict]} {verdict}" for verdict in DIRECTIONS[:-1] if sums[verdict])
    sizes = Counter(part.size for entry in entries if entry.evidence for part in entry.evidence.parts if part.size)
    printed = ", ".join(f"{sizes[size]} {size}" for size in SIZES[1:])
    later = sum("with records at hand" in entry.statement.different for entry in entries if entry.evidence)
    return (
        f"**Training.** {len(entries) - sums['no records']} of {len(entries)} findings are [judged by "
        f"records](papers/README.md#how-it-is-judged) so far: {words}. Of {sum(sizes.values())} printed "
        f"effects {sizes[AS_PRINTED]} come out as printed (the others: {printed}). The rules and "
        f"{later} of the findings were added or changed with these records at hand."
    )


def _lifted() -> str:
    convnext, printed = _accuracies("### Mollification, table 2: S-ReLU and others in ConvNeXt-Tiny on CIFAR-10\n")
    timms, _ = _accuracies("### Mollification, table 2: S-ReLU and others in ConvNeXt-Tiny on CIFAR-10, more")
    vit, _ = _accuracies("### Mollification, table 1: Eleven activations in ViT-Tiny on CIFAR-10\n")
    return (
        f"**The largest gain.** From {printed['gelu']} % with GELU to {printed['srelu']} % with S-ReLU, says a paper "
        f"of ConvNeXt-Tiny on CIFAR-10. Here GELU has {convnext['gelu']} %, S-ReLU {convnext['srelu']} %, and plain "
        f"ReLU, which the paper leaves out, {convnext['relu']} % with crops and mirror images, {timms['gelu']}, "
        f"{timms['srelu']} and {timms['relu']} % with RandAugment, mixup and more; in ViT-Tiny {vit['gelu']}, "
        f"{vit['srelu']} and {vit['relu']} %, and CRReLU {vit['crrelu']} %."
    )


def _accuracies(title: str) -> tuple[dict[str, str], dict[str, str]]:
    """Ours and the paper's of each activation, in percent."""
    head, *rows = _table(PAPERS, title)
    printed, ours = head.index("accuracy, %: paper"), head.index("here")
    return {row[0]: row[ours].split()[0] for row in rows}, {row[0]: row[printed] for row in rows}


def _reproducible() -> str:
    title = "### SmeLU, figure 4 (SGD): Error and prediction difference on MNIST with SGD\n"
    head, *rows = _table(PAPERS, title)
    place = head.index("prediction difference")
    number = {row[0]: float(row[place].split()[0]) for row in rows}
    accuracy = {row[0]: row[head.index("accuracy, %")].split()[0] for row in rows}
    widths = [name for name in number if name.startswith("smelu")]
    best, tried = min(widths, key=number.__getitem__), len(widths)
    unfinished = re.search(r"^Unfinished: (\d+ of \d+) activations", _section(PAPERS, title), flags=re.M)
    so_far = f" ({unfinished[1]} settings run: no verdict yet)" if unfinished else ""
    (small, *verdicts) = _table("quickstart/report/report.md", "# Seven activations")
    against = small.index("reproducibility against relu")
    shown = [row[0] for row in verdicts if "better" in row[against]]
    digits = f"only {', '.join(shown)} beats ReLU" if shown else "none is shown to beat ReLU"
    three, softest = (
        (best, "relu", "gelu beta=1"),
        min(entry for name, entry in number.items() if name.startswith("gelu ")),
    )
    apart, right = [f"{number[item]:.4f}" for item in three], [accuracy[value] for value in three]
    return (
        f"**Reproducible.** On MNIST trainings with SmeLU (β = {best.partition('=')[2]}, the best of {tried}) differ "
        f"from their mean by {apart[0]}, with ReLU by {apart[1]}, with GELU by {apart[2]} ({softest:.4f} at best), at "
        f"{right[0]}, {right[1]} and {right[2]} % accuracy{so_far}. On the small digits of `make study` {digits}."
    )


def _shipped() -> str:
    head, *rows = _table("deploy.md", "<!-- h200-hardening-fashion -->")
    cnn = {row[0]: dict(zip(head, (item.split(" ±")[0] for item in row), strict=True)) for row in rows}
    soft, gelu = cnn["lambda_gelu"], cnn["gelu"]
    columns, *models = _table(PAPERS, "### λ-GELU, WikiText-2: a GPT-2 of 124")
    large = {row[0]: dict(zip(columns, (value.split(" ±")[0] for value in row), strict=True)) for row in models}
    hard, plain, scratch = large["lambda-GELU, hardened"], large["GELU"], large["ReLU from scratch"]["free"]
    return (
        f"**Shipped as ReLU.** A CNN on Fashion-MNIST has {soft['hardened']} % with hardened λ-GELU, "
        f"{soft['replaced']} % with ReLU in its place; GELU swapped without hardening falls from {gelu['free']} to "
        f"{gelu['swapped directly']} %. ReLU from scratch has {soft['ReLU from scratch']} %: there hardening keeps "
        "accuracy and does not buy any. [Measured](docs/deploy.md). A GPT-2 of 124M parameters on a part of WikiText-2 "
        f"has perplexity {hard['hardened']} hardened and {hard['replaced']} with ReLU; with GELU {plain['free']}, and "
        f"{plain['replaced']} once it is swapped; with ReLU from scratch {scratch}."
    )


def _soft() -> str:
    gains = _judged()["squaf.gains_in_decibels"].evidence
    clusters = _judged()["squaf.classifies_clusters_best"].evidence
    assert gains is not None
    assert clusters is not None
    low, high = min(gains.numbers.values()), max(gains.numbers.values())
    (four,) = (part for part in clusters.parts if "c4: squaf better than polynorm" in part.says)
    accuracies = sorted(
        100 * (value or 0.0) for value in Runs.committed().study("squaf-table-2-c4").values("squaf", "accuracy")
    )
    vit, _ = _accuracies("### SQUAF, table 6: SQUAF and others in ViT-Tiny")
    return (
        f"**Learned tables.** In the mean of its seeds SQUAF stores pictures {low:.0f} to {high:.0f} dB better than "
        f"the next function (the paper: 11 to 25). On four clusters it is {four.ours()} from PolyNorm: one seed "
        f"collapsed ({accuracies[0]:.0f} %, the others {accuracies[1]:.0f} to {accuracies[-1]:.0f}). ViT-Tiny "
        f"has {vit['squaf first']} % on CIFAR-10 where the first of its functions is trained, "
        f"as in the paper, and {vit['squaf']} % where all are (GELU {vit['gelu']} %), at [these "
        "costs](docs/squaf.md#what-it-costs-a-model)."
    )


def _bits() -> str:
    head, *rows = _table(PAPERS, "### SQUAF, figure 3: bits and accuracy")
    results = {
        (row[0], row[1]): {name: cell.split()[0] for name, cell in zip(head, row, strict=True) if cell} for row in rows
    }
    relu, last = results["ReLU", ""], results[rows[-1][0], rows[-1][1]]
    names, *alone = _table(PAPERS, "### SQUAF, table 6: VGG-8")
    right = {row[0]: row[names.index("accuracy, %")].split()[0] for row in alone}
    says = _judged()["squaf.few_bits_cost_no_accuracy"].statement.says
    claimed = _only(r"take down to ([\d.]+) bits in place of 32", text=says)[0]
    said = {"shown": "beats", "reversed": "is below", "not shown": "is not shown to beat"}
    priced, plain = (
        said[_direction(f"squaf.{name}", says)]
        for name, says in (
            ("few_bits_cost_no_accuracy", "SQUAF-P more accurate than ReLU at the largest weight"),
            ("best_in_a_small_network", "SQUAF better than ReLU"),
        )
    )
    return (
        f"**Sent as bits.** VGG-8 on CIFAR-10 with SQUAF-P takes {float(last['Huffman']):.2f} bits an activation (the "
        f"paper, on CIFAR-100: {claimed}) at {last['accuracy, %']} %, which {priced} ReLU's {relu['accuracy, %']} %; "
        f"SQUAF, with 32 bits, {plain} it ({right['SQUAF']} against {right['ReLU']} %)."
    )


def _direction(name: str, says: str) -> str:
    evidence = _judged()[name].evidence
    return next(part.direction for part in evidence.parts if part.says == says) if evidence is not None else "not shown"


def _sums(column: str) -> Counter[str]:
    """How often each verdict stands in a column of the front page of the papers: "12: 9 hold, 3 partly"."""
    text = (ROOT / "papers" / "README.md").read_text(encoding="utf-8")
    head, *rows = _table(PAPERS, "## The papers", text=text)
    cells = (row[head.index(column)].partition(":")[2] for row in rows)
    return Counter(dict.fromkeys(("hold", "partly", "fail"), 0)) + Counter(
        word for cell in cells for count, word in re.findall(r"(\d+) ([a-z ]+)", cell) for _ in range(int(count))
    )


def _text(page: str) -> str:
    if page == PAPERS:
        return "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "papers").glob("*/README.md")))
    return (DOCS / page).read_text(encoding="utf-8")


def _section(page: str, title: str, text: str = "") -> str:
    """From the line that begins with the title to the next heading."""
    text = text or _text(page)
    return _only(rf"^({re.escape(title)}.*\n(?:(?!#).*\n)*)", text=text)[0]


def _table(page: str, title: str, text: str = "") -> list[list[str]]:
    """The first table below the title, as cells, without the line of dashes."""
    lines = re.search(r"(?:^\|.*\n)+", _section(page, title, text), flags=re.M)
    assert lines is not None, f"{page} has no table below {title!r}."
    rows = [[item.strip().strip("*") for item in line.strip("|").split("|")] for line in lines[0].splitlines()]
    return [rows[0], *rows[2:]]


def _only(pattern: str, page: str = "", *, text: str = "") -> tuple[str, ...]:
    """The groups of the one place that the pattern fits."""
    result = list(re.finditer(pattern, text or _text(page), flags=re.M))
    assert len(result) == 1, f"{pattern!r} fits {len(result)} places of {page}."
    return result[0].groups()


# -- the pages --------------------------------------------------------------------------------------------

PARTS = {
    "speed": (ROOT / "README.md", short_table),
    "evidence": (ROOT / "README.md", evidence),
    "whole table": (DOCS / "speed.md", table),
}


def marked(name: str) -> tuple[str, str, str]:
    """A page in three: before a part, what stands between its marks, and after it."""
    text = PARTS[name][0].read_text(encoding="utf-8")
    mark = rf"<!-- {name}: made by tests/readme_table\.py -->\n"
    return _only(rf"\A([\s\S]*^{mark})([\s\S]*?)(^<!-- end -->\n[\s\S]*)\Z", text=text)  # type: ignore[return-value]


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
