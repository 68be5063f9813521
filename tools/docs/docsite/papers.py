"""One page for each paper: its functions, its claims with verdicts, its tables beside ours; and the ledger's front."""

from __future__ import annotations

import re
from pathlib import Path

from papers.claim import PAPERS, Paper
from papers.commands import command_of
from papers.pages import CLAIMS, WRONG

import softknee as sk
from softknee.lab import gallery
from softknee.lab.gallery import title_of

from .beside import UNFINISHED, beside, index, unfinished
from .found import judged, runs
from .markdown import badge, cards
from .origins import PAPER_OF
from .places import PAPERS as FOLDER
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
    """Links of the papers' pages, seen from the folder of the site that these pages lie in."""
    return site_page(text, page="papers/any.md")


def _claims(paper: Paper) -> tuple[list[str], str]:
    """Of the paper's own page, which a test holds against the ledger: its failures, and the table of its claims."""
    sections = dict(re.findall(r"^## (.*?)\n\n(.*?)(?=^## |\Z)", _page_of(paper), flags=re.M | re.S))
    return sections.get(WRONG, "").strip().splitlines(), sections[CLAIMS].strip() + "\n"


def _page_of(paper: Paper) -> str:
    return (FOLDER / paper.stem / "README.md").read_text(encoding="utf-8")


def _short(paper: Paper) -> str:
    verdicts = re.findall(r"\| \**(holds|partly|fails)\** \|$", _claims(paper)[1], flags=re.M)
    holds, partly, fails = (verdicts.count(verdict) for verdict in ("holds", "partly", "fails"))
    of = [one for one in judged() if one.statement.paper == paper]
    done = [one for one in of if one.evidence is not None]
    words = {verdict: sum(one.verdict == verdict for one in done) for verdict in dict.fromkeys(o.verdict for o in done)}
    told = ", ".join(f"{count} {verdict}" for verdict, count in words.items())
    empirical = f"{len(done)} judged by records ({told})" if done else "none with the records that judge it yet"
    return (
        f"{len(verdicts)} mathematical claims checked: {holds} hold, {partly} hold partly, {fails} fail. {len(of)} "
        f"findings of training, {empirical}."
    )


def _statements(paper: Paper) -> str:
    lines = []
    for one in judged():
        if one.statement.paper != paper:
            continue
        needs = ", ".join(_study(name) for name in one.statement.needs)
        name = one.statement.name
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
    path = runs().paths[name].relative_to(FOLDER)
    link = f"[{name}]({path})" if name.endswith(".json") else f"[{name}]({path}/index.md)"
    return f"{link} ({UNFINISHED}: {unfinished(name)})" if unfinished(name) else link


def ledger() -> str:
    """The front page of the papers, and the list of their pages."""
    text = site_page((FOLDER / "README.md").read_text(encoding="utf-8"), page="ledger.md", source="papers")
    entries = "\n".join(f"papers/{paper.stem}" for paper in PAPERS)
    return f"{text}\n```{{toctree}}\n:hidden:\n:titlesonly:\n\n{entries}\n```\n"
