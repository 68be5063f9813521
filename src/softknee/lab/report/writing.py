"""All files of a report: all are made before the first is written, and each is written whole."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from ...files import make_folder, write_whole
from ...measure.record import Record
from ..chart import asset, config, outline, page_script
from ..studies.recipe import Language, Perplexity, Recipe
from ..studies.trials import Outcome
from ..table import duration, escape_latex
from . import drawing, tables
from .summary import Origin, Summary, counted, origin_of, summarise

_LOOK = config(
    size=12.5,
    ink="var(--ink)",
    soft="var(--soft)",
    hair="var(--hair)",
    font="system-ui, sans-serif",
    paper="transparent",
)
# Nothing may be fetched, from anywhere; what a page like this shows is all inside it.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
_TESTS = (
    "<p>Each activation is compared with the baseline seed by seed. A small p says that a difference this large would "
    "be rare if there were none. “No difference shown” says only that these seeds do not show one; “equivalent” that "
    "they show it to be too small to matter; “slightly” better or worse that both are shown: a difference, and that it "
    "is too small to matter. g is the effect size: the mean difference in units of its spread over seeds.</p>"
)


def render(summary: Summary, origin: Origin) -> str:
    """The whole page as text."""
    title = escape(summary.recipe.title or summary.recipe.name)
    advice = summary.recommendation
    recommendation = (
        f'<p class="advice"><strong>{escape(advice.advice)}</strong> {escape(" ".join(advice.reasons))}</p>'
        if advice
        else ""
    )
    answers = "".join(
        f"<div><dt>{escape(answer.question)}</dt><dd><strong>{escape(answer.label)}</strong>{escape(answer.words)}</dd></div>"
        for answer in summary.sentences
    )
    shown = f'<dl class="answers">{answers}</dl>' if answers else ""
    sections = [section for section in _sections(summary, origin, shown) if section[2]]
    links = "".join(f'<li><a href="#{name}">{words}</a></li>' for name, words, _ in sections)
    notes = "".join(f'<p class="note" role="note">{escape(note)}</p>' for note in summary.notes)
    body = "\n".join(
        f'<section id="{name}" aria-labelledby="{name}-head">\n<h2 id="{name}-head">{words}</h2>\n{content}\n</section>'
        for name, words, content in sections
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta http-equiv="Content-Security-Policy" content="{_POLICY}"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>{title}</title>
<style>
{asset("page.css")}</style>
</head>
<body>
<a class="skip" href="#results">To the results</a>
<main>
<header>
<h1>{title}</h1>
<p class="lead">{escape(_lead(summary))}</p>
{recommendation}
<nav aria-label="On this page"><ul>{links}</ul></nav>
</header>
{notes}
{body}
</main>
<script>{page_script()}</script>
<script>const look = {json.dumps(_LOOK)};
{asset("report/page.js")}</script>
</body>
</html>
"""


def _lead(summary: Summary) -> str:
    recipe, rows = summary.recipe, summary.rows
    names = {row.name for row in rows}
    several = "" if len(names) == len(rows) else f" in {len(rows)} settings"
    arguments = ", ".join(
        f"{name} {'–'.join(map(str, value)) if isinstance(value, list | tuple) else value}"
        for name, value in recipe.model.arguments.items()
    )
    model = f"model {recipe.model.build}" + (f" ({arguments})" if arguments else "")
    data = recipe.data.set or recipe.data.file or "data of its own"
    about = f"{counted(len(names), 'activation')}{several} on {data}, {model}"
    took = f"All trials together took {duration(summary.seconds)}."
    if isinstance(recipe.task, Perplexity):
        return f"{about}, as it is: nothing is trained. {took}"
    shared = ["initial weights"] * recipe.seeds.share_init + ["order of examples"] * recipe.seeds.share_order
    sharing = f" All seeds share their {' and '.join(shared)}." if shared else ""
    changed = "" if recipe.augment is None else f" Training images are augmented: {recipe.augment.words()}."
    steps = recipe.task.steps if isinstance(recipe.task, Language) else None
    length = counted(recipe.training.epochs, "epoch") if steps is None else counted(steps, "step")
    return (
        f"{about}, {length}, {counted(len(rows[0].seeds), 'seed')} each: for one seed, every activation is trained "
        f"with the same random numbers.{sharing}{changed} {took}"
    )


def _sections(summary: Summary, origin: Origin, answers: str) -> list[tuple[str, str, str]]:
    """Anchor, title and content of each section; one without content is left out."""

    def html(*shown: tables.Table | None) -> str:
        return "".join(table.html() for table in shown if table)

    tests = html(*(tables.significance(summary, measure) for measure in tables.tested(summary)))
    best = "".join(f"<li>{escape(words)}</li>" for words in tables.paper_sentences(summary))
    note = escape(tables.paper_note(summary))
    paper = (
        (f"<ul>{best}</ul>" if best else "") + html(*tables.paper_tables(summary)) + (f"<p>{note}</p>" if note else "")
    )
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(words)}</dd>" for name, words in origin.facts)
    rerun = (
        "<p>This command runs the study again, with the recipe below.</p>"
        f"<pre><code>{escape(origin.command)}</code></pre>"
        f'<dl class="facts">{facts}</dl>{tables.trials(summary).html()}'
        f"<details><summary>The recipe, with everything that was left to its default</summary>"
        f"<pre><code>{escape(origin.recipe)}</code></pre></details>"
    )
    return [
        ("plane", "Accuracy against reproducibility", _figures(drawing.plane(summary))),
        ("results", "Results", answers + tables.headline(summary).html()),
        ("online", "In percent of the baseline's losses", html(tables.relative_losses(summary))),
        ("beside", tables.TITLE, paper),
        ("tests", "Which differences are shown", _TESTS + tests if tests else ""),
        ("curves", "Training", _figures(*drawing.curves(summary))),
        ("shapes", "What activations learned", _figures(*drawing.learned(summary))),
        ("hardness", "Hardness by depth", _figures(*drawing.hardness(summary))),
        ("replacement", "Replaced by the hard limit", html(tables.replacement(summary))),
        ("measures", "Everything measured", html(tables.measures_table(summary), tables.inside(summary))),
        ("rerun", "Run it again", rerun),
    ]


def _figures(*figures: drawing.Figure | None) -> str:
    shown = [figure for figure in figures if figure]
    content = "".join(map(_html_figure, shown))
    return content if all(figure.wide for figure in shown) else f'<div class="pair">{content}</div>'


def _html_figure(figure: drawing.Figure) -> str:
    # Inside a script nothing is markup but "</" and "<!--", so no "<" may be there.
    data = json.dumps(figure.on_page).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    hint = " Names in the legend show and hide what they name." if figure.wide and len(figure.legend) > 1 else ""
    return (
        f'<figure data-figure="{escape(figure.name, quote=True)}">'
        f'<div class="plot" role="img" aria-label="{escape(figure.label, quote=True)}"></div>'
        f'{_legend(figure.legend)}<script type="application/json">{data}</script>'
        f"<figcaption>{escape(figure.caption)}{hint}</figcaption></figure>"
    )


def _legend(entries: Sequence[drawing.Entry]) -> str:
    """Buttons, which the keyboard reaches and which break into lines as text does; a single name needs none."""
    buttons = []
    for entry in entries:
        dashes = " ".join(map(str, drawing.STROKES[entry.dash]))
        line = f'<path d="M0 6H26" stroke="{entry.colour}" stroke-width="2" stroke-dasharray="{dashes}"/>' * entry.line
        mark = f'<path d="{outline(entry.symbol)}" transform="translate(13 6) scale(5)" fill="{entry.colour}"/>'
        parts = line + mark * bool(entry.symbol)
        buttons.append(
            f'<button type="button" aria-pressed="{"true" if entry.shown else "false"}">'
            f'<svg width="26" height="12" viewBox="0 0 26 12" aria-hidden="true">{parts}</svg>'
            f"<span>{escape(entry.name)}</span></button>"
        )
    group = '<div class="legend" role="group" aria-label="Shown in the figure">'
    return f"{group}{''.join(buttons)}</div>" if len(entries) > 1 else ""


def latex(summary: Summary, origin: Origin, figures: Mapping[str, str]) -> str:
    """The document; `figures` has the caption of each file in figures/."""
    text = escape_latex
    answers = "\n".join(
        rf"\item {text(answer.question)}: \textbf{{{text(answer.label)}}}{text(answer.words)}"
        for answer in summary.sentences
    )
    advice = summary.recommendation
    first = f"\\noindent\\textbf{{{text(advice.advice)}}} {text(' '.join(advice.reasons))}\n" if advice else ""
    lists = f"\\begin{{itemize}}\n{answers}\n\\end{{itemize}}\n" if answers else ""
    notes = "".join(f"\n\\noindent {text(note)}\n" for note in summary.notes)
    shown = [*tables.every_table(summary), tables.relative_losses(summary)]
    floats = "\n".join(table.latex() for table in shown if table)
    paper = ""
    if summary.paper_tables:
        sentences = (*tables.paper_sentences(summary), tables.paper_note(summary))
        words = "".join(f"\n\\noindent {text(sentence)}\n" for sentence in sentences if sentence)
        own = "\n".join(table.latex() for table in tables.paper_tables(summary))
        paper = f"\\section*{{{tables.TITLE}}}\n{words}\n{own}\n"
    pictures = "\n".join(
        rf"""\begin{{figure}}[htbp]
\centering
\includegraphics[width=\linewidth]{{figures/{name}.pdf}}
\caption{{{text(caption)}}}
\label{{fig:{name}}}
\end{{figure}}
"""
        for name, caption in figures.items()
    )
    facts = "\n".join(f"\\item {text(name)}: {text(words)}" for name, words in origin.facts)
    return rf"""% Written by softknee. Run again with: {text(origin.command)}
\documentclass{{article}}
\usepackage[T1]{{fontenc}}
\usepackage{{textcomp}}
\usepackage[margin=25mm]{{geometry}}
\usepackage{{booktabs}}
\usepackage{{graphicx}}
% A table that is wider than the line is made as wide as the line.
\newcommand{{\fitted}}[1]{{\resizebox{{\ifdim\width>\linewidth\linewidth\else\width\fi}}{{!}}{{#1}}}}
\title{{{text(summary.recipe.title or summary.recipe.name)}}}
\date{{}}
\begin{{document}}
\maketitle
{first}{lists}{notes}
{floats}
{paper}{pictures}
\section*{{Run it again}}
\noindent\texttt{{{text(origin.command)}}}
\begin{{itemize}}
{facts}
\end{{itemize}}
\end{{document}}
"""


def report_files(
    recipe: Recipe, outcomes: Sequence[Outcome], *, command: str, records: Sequence[Record] = ()
) -> dict[str, bytes]:
    """The content of every file of a report by its name, index.html last; nothing is written.

    records: what the outcomes were read from; they say which machines and versions the trials ran with. Without them
             the report names the machine that it is made on.
    """
    summary, origin = summarise(recipe, outcomes), origin_of(recipe, command=command, records=records)
    pictures = drawing.pdf_figures(summary)
    captions = {name: caption for name, (_, caption) in pictures.items()}
    texts = {
        "results.csv": tables.results_csv(summary),
        "seeds.csv": tables.seeds_csv(outcomes),
        **({"paper.csv": tables.paper_csv(summary)} if summary.paper_tables else {}),
        "report.md": tables.markdown(summary, origin),
        "report.tex": latex(summary, origin, captions),
        "index.html": render(summary, origin),
    }
    files = {f"figures/{name}.pdf": content for name, (content, _) in pictures.items()}
    return files | {name: text.encode("utf-8") for name, text in texts.items()}


def write_report(
    recipe: Recipe,
    outcomes: Sequence[Outcome],
    place: str | os.PathLike[str],
    *,
    command: str,
    records: Sequence[Record] = (),
) -> Path:
    """Write the report into a folder next to `trials`, where the records are, and return the path of its page.

    Each file is written whole or not at all; links lead to ../trials/KEY.json.
    """
    # First, so that nothing is drawn in vain.
    folder = make_folder(Path(place) / "figures", what="report").parent
    for name, content in report_files(recipe, outcomes, command=command, records=records).items():
        write_whole(folder / name, content, what="report")
    return folder / "index.html"
