"""The papers' own pages as pages of the site, each with its functions and what of the package it led to."""

from __future__ import annotations

import re
from pathlib import Path

from papers.claim import PAPERS, Paper

import softknee as sk
from softknee.lab import gallery
from softknee.lab.gallery import title_of

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


_INTERVAL = re.compile(r"(?<=\d) (\[[^\][|,]*, [^\][|,]*\])(?=[^|\n]*\|)")


def write_papers(out: Path) -> None:
    """The pages of the papers and the index of the ledger."""
    folder = out / "papers"
    folder.mkdir(parents=True, exist_ok=True)
    for paper in PAPERS:
        (folder / f"{paper.stem}.md").write_text(page(paper), encoding="utf-8")
    (out / "ledger.md").write_text(ledger(), encoding="utf-8")


def page(paper: Paper) -> str:
    """The page of one paper: its README, which a test holds against claims and records, and what the package has."""
    text = (FOLDER / paper.stem / "README.md").read_text(encoding="utf-8")
    names = [name for name in gallery.names() if PAPER_OF.get(name) == paper.stem]
    functions = ", ".join(f"[{title_of(sk.get(name))}](../zoo/{name}.md)" for name in names)
    text = site_page(text, page=f"papers/{paper.stem}.md", source=f"papers/{paper.stem}")
    text = re.sub(r"^\|.*$", lambda row: _INTERVAL.sub(r' <span class="interval">\1</span>', row[0]), text, flags=re.M)
    title = f"*{paper.title}*\n\n"
    return text.replace(title, f"{title}{_ABOUT[paper.stem]}\n\nIts functions: {functions}.\n\n", 1)


def ledger() -> str:
    """The front page of the papers, and the list of their pages."""
    text = site_page((FOLDER / "README.md").read_text(encoding="utf-8"), page="ledger.md", source="papers")
    entries = "\n".join(f"papers/{paper.stem}" for paper in PAPERS)
    return f"{text}\n```{{toctree}}\n:hidden:\n:titlesonly:\n\n{entries}\n```\n"
