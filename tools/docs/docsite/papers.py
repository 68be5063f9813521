"""One page for each paper: its functions, its claims with verdicts, its tables beside ours; and the ledger's front."""

from __future__ import annotations

import re
from pathlib import Path

import softknee as sk
from softknee.lab import gallery
from softknee.lab.evidence.commands import command_of
from softknee.lab.gallery_page import title_of
from softknee.lab.ledger.entry import PAPERS, Paper

from .beside import UNFINISHED, beside, index, unfinished
from .found import judged, runs
from .markdown import badge, cards
from .origins import PAPER_OF
from .places import DOCS
from .staging import site_page

_ABOUT = {
    "mollification": "A function becomes smooth when it is averaged with a bump around every point. The paper "
    "averages ReLU with Epanechnikov's kernel and gets S-ReLU. Here: "
    "[`sk.design.mollify`](../reference/design.md#mollify), with eight kernels, their mixtures and any piecewise "
    "polynomial, and [the guide to designing functions](../guides/design.md).",
    "smelu": "Two networks that differ in nothing but their seed disagree on many examples, and smooth activations "
    "make them disagree less. The paper joins two lines by a parabola and gets SmeLU. Here: "
    "[`sk.measure.prediction_difference`](../reference/measure.md#prediction_difference), "
    "[`sk.train.Ensemble`](../reference/train.md#ensemble), and [the guide to reproducibility]"
    "(../guides/reproducible.md).",
    "lambda_gelu": "GELU with a learned hardness that is then driven up until ReLU can take its place. Here: "
    "[`sk.Hardener`](../reference/softknee.md#hardener), [`sk.relu_ize_`](../reference/softknee.md#relu_ize_) and "
    "[the guide to shipping a ReLU](../guides/ship.md).",
    "eafo": "An activation is searched for by lowering the entropy of its outputs; the search ends at CRReLU. Here: "
    "[`sk.design.eafo`](../reference/design.md#eafo), `worst` and `eafo_descent`.",
    "squaf": "A soft staircase with a learned table: it can be any function, and its outputs can be coded as symbols. "
    "Here: [the guide to SQUAF](../squaf.md) and [activations on the wire](../wire.md).",
}


def write_papers(out: Path) -> None:
    """The pages of the papers and the index of the ledger."""
    folder = out / "papers"
    folder.mkdir(parents=True, exist_ok=True)
    for paper in PAPERS:
        (folder / f"{paper.stem}.md").write_text(page(paper), encoding="utf-8")
    (out / "ledger.md").write_text(ledger(), encoding="utf-8")


def page(paper: Paper) -> str:
    """The page of one paper."""
    failures, claims = _claims(paper)
    names = [name for name in gallery.names() if PAPER_OF.get(name) == paper.stem]
    functions = ", ".join(f"[{title_of(sk.get(name))}](../zoo/{name}.md)" for name in names)
    parts = [
        f"# {paper.name}\n\n*{paper.title}*\n\n{_ABOUT[paper.stem]}\n\nIts functions: {functions}.",
        f"**In short:** {_short(paper)}",
        f"## Its tables and figures\n\n{index(paper)}",
    ]
    if failures:
        parts.append("## Where it is wrong\n\n" + "\n".join(failures))
    parts.append("## What it found by training\n\n" + _statements(paper))
    parts.append("## Its tables beside ours\n\n" + _moved(beside(paper)))
    parts.append("## What it says about mathematics\n\n" + cards(claims))
    return "\n\n".join(parts) + "\n"


def _moved(text: str) -> str:
    """Links of the page of the evidence, seen from the folder of the papers."""
    moved = re.sub(r"\]\(evidence/", "](../evidence/", text)
    return site_page(moved, page="papers/any.md")


def _claims(paper: Paper) -> tuple[list[str], str]:
    """Of the ledger's page, which a test holds against the ledger: the failures of a paper, and its table."""
    text = (DOCS / "claims.md").read_text(encoding="utf-8")
    failures = [line for line in text.splitlines() if line.startswith(f"- **{paper.name}, ")]
    section = re.search(rf"^## {re.escape(paper.name)}\n\n\*.*?\*\n\n(.*?)(?=^## |\Z)", text, flags=re.M | re.S)
    if section is None:
        raise ValueError(
            f"docs/claims.md has no section {paper.name!r}; make it again: softknee claims --docs docs/claims.md"
        )
    return failures, section[1].strip() + "\n"


def _short(paper: Paper) -> str:
    text = (DOCS / "claims.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| {re.escape(paper.name)} \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", text, flags=re.M)
    assert row is not None
    every, holds, partly, fails = row.groups()
    of = [one for one in judged() if one.statement.paper == paper]
    done = [one for one in of if one.evidence is not None]
    words = {verdict: sum(one.verdict == verdict for one in done) for verdict in dict.fromkeys(o.verdict for o in done)}
    told = ", ".join(f"{count} {verdict}" for verdict, count in words.items())
    empirical = f"{len(done)} judged by records ({told})" if done else "none with the records that judge it yet"
    return (
        f"{every} mathematical claims checked: {holds} hold, {partly} hold partly, {fails} fail. {len(of)} findings of "
        f"training, {empirical}."
    )


def _statements(paper: Paper) -> str:
    lines = []
    for one in judged():
        if one.statement.paper != paper:
            continue
        needs = ", ".join(_study(name) for name in one.statement.needs)
        name = one.statement.decide.__name__
        mark = badge(UNFINISHED if one.unfinished else one.verdict)
        body = [f":::{{container}} claim\n{mark} **{one.statement.place}** `{name}`"]
        if one.counts:
            body[0] += f" ({one.counts})"
        body.append(one.statement.says)
        if one.evidence is not None:
            body.append(f"*Found:* {one.measured}")
            body.append(f"*Different from the paper:* {one.statement.different}")
        body.append(f"*Decided by:* {needs}")
        lines.append("\n\n".join(body) + "\n:::")
    return "\n\n".join(lines)


def _study(name: str) -> str:
    """A link to the records of a study; the command, where there are none."""
    if name not in runs().names:
        return f"`{command_of(name)}`"
    link = f"[{name}](../evidence/{name})" if name.endswith(".json") else f"[{name}](../evidence/{name}/index.md)"
    return f"{link} ({UNFINISHED}: {unfinished(name)})" if unfinished(name) else link


def ledger() -> str:
    """The front page of the ledger: both halves in one table."""
    rows = []
    text = (DOCS / "claims.md").read_text(encoding="utf-8")
    for paper in PAPERS:
        found = re.search(rf"^\| {re.escape(paper.name)} \|(.*)\|$", text, flags=re.M)
        assert found is not None
        counts = [one.strip() for one in found[1].split("|")]
        of = [one for one in judged() if one.statement.paper == paper]
        done = sum(one.evidence is not None for one in of)
        link = f"[{paper.name}](papers/{paper.stem}.md)"
        begun = sum(bool(one.unfinished) for one in of)
        rows.append(f"| {link} | {' | '.join(counts)} | {len(of)} | {done} | {begun} |")
    entries = "\n".join(f"papers/{paper.stem}" for paper in PAPERS)
    total = re.search(r"^\| all \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", text, flags=re.M)
    assert total is not None
    return f"""# The ledger

Five papers, taken at their word. What a program can check without training is in the [mathematical half](claims.md):
{total[1]} claims, of which {total[2]} hold, {total[3]} hold partly and {total[4]} fail. What only training can test is
in the [empirical half](evidence.md), judged by committed records under rules that were fixed before the studies ran.
Every paper has a page with both, with its tables beside ours, and with the command that runs each row again.

| paper | claims | hold | partly | fail | findings of training | judged | unfinished |
|---|---:|---:|---:|---:|---:|---:|---:|
{chr(10).join(rows)}

`softknee claims` runs the first half again in less than half a minute; `softknee claims --empirical` judges the second.

```{{toctree}}
:hidden:
:titlesonly:

claims
evidence
{entries}
```
"""
