"""The page of a study: one HTML file with Vega, its figures, its style and its tables inside. It fetches nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

from ..chart import page_script
from ..studies.recipe import Recipe
from .beside_tables import TITLE, beside_note, beside_tables, beside_words
from .clicks import relative_losses
from .curves import curves
from .figures import Figure
from .legend import legend
from .numbers import counted, duration
from .origin import Origin
from .parts import BETTER, SLIGHTLY, WORSE, Row, Summary
from .plane import plane
from .script import SCRIPT
from .shapes import hardness, learned
from .style import STYLE
from .tables import Cell, Table, headline, inside, measures_table, replacement, significance, tested, trials

_SHORT = 30  # letters of a name that stays on one line where there is room
# Nothing may be fetched, from anywhere; what a page like this shows is all inside it.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def render(summary: Summary, origin: Origin) -> str:
    """The whole page as text."""
    title = escape(summary.recipe.title or summary.recipe.name)
    sections = [section for section in _sections(summary, origin) if section[2]]
    links = "".join(f'<li><a href="#{name}">{words}</a></li>' for name, words, _ in sections)
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
<style>{STYLE}</style>
</head>
<body>
<a class="skip" href="#results">To the results</a>
<main>
<header>
<h1>{title}</h1>
<p class="lead">{escape(_lead(summary))}</p>
<nav aria-label="On this page"><ul>{links}</ul></nav>
</header>
{_answers(summary)}
{_notes(summary)}
{body}
</main>
<script>{page_script()}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _lead(summary: Summary) -> str:
    recipe, rows = summary.recipe, summary.rows
    data = recipe.data.set or recipe.data.file or "data of its own"
    share = [
        word
        for word, shared in (
            ("initial weights", recipe.seeds.share_init),
            ("order of examples", recipe.seeds.share_order),
        )
        if shared
    ]
    sharing = f" All seeds share their {' and '.join(share)}." if share else ""
    changed = "" if recipe.augment is None else f" Training images are augmented: {recipe.augment.words()}."
    return (
        f"{_many(rows)} on {data}, {_model(recipe)}, {counted(recipe.training.epochs, 'epoch')}, "
        f"{counted(len(rows[0].seeds), 'seed')} each: for one seed, every activation is trained with the same random "
        f"numbers.{sharing}{changed} All trials together took {duration(summary.seconds)}."
    )


def _many(rows: Sequence[Row]) -> str:
    names = counted(len({row.name for row in rows}), "activation")
    return names if len({row.name for row in rows}) == len(rows) else f"{names} in {len(rows)} settings"


def _model(recipe: Recipe) -> str:
    given = ", ".join(f"{name} {_value(value)}" for name, value in recipe.model.arguments.items())
    return f"model {recipe.model.build}" + (f" ({given})" if given else "")


def _value(value: object) -> str:
    return "–".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _answers(summary: Summary) -> str:
    cards = "".join(
        f"<div><dt>{escape(one.question)}</dt><dd><strong>{escape(one.label)}</strong>{escape(one.words)}</dd></div>"
        for one in summary.sentences
    )
    return f'<dl class="answers">{cards}</dl>' if cards else ""


def _notes(summary: Summary) -> str:
    return "".join(f'<p class="note" role="note">{escape(note)}</p>' for note in summary.notes)


def _sections(summary: Summary, origin: Origin) -> list[tuple[str, str, str]]:
    """Anchor, title and content of each section; one without content is left out."""
    drawn = plane(summary)
    tests = [table for one in tested(summary) if (table := significance(summary, one))]
    more = [table for table in (measures_table(summary), inside(summary)) if table]
    return [
        (
            "results",
            "Results",
            _table(headline(summary), baseline=summary.baseline.label if summary.baseline else None),
        ),
        ("online", "In percent of the baseline's losses", _table(shown) if (shown := relative_losses(summary)) else ""),
        ("beside", TITLE, _beside(summary)),
        ("plane", "Accuracy against reproducibility", _figures([drawn] if drawn else [])),
        ("tests", "Which differences are shown", _TESTS + "".join(map(_table, tests)) if tests else ""),
        ("curves", "Training", _figures(curves(summary))),
        ("shapes", "What activations learned", _figures(learned(summary))),
        ("hardness", "Hardness by depth", _figures(hardness(summary))),
        ("replacement", "Replaced by the hard limit", _table(found) if (found := replacement(summary)) else ""),
        ("measures", "Everything measured", "".join(map(_table, more))),
        ("rerun", "Run it again", _rerun(summary, origin)),
    ]


_TESTS = (
    "<p>Each activation is compared with the baseline seed by seed. A small p says that a difference this large would "
    "be rare if there were none. “No difference shown” says only that these seeds do not show one; “equivalent” that "
    "they show it to be too small to matter; “slightly” better or worse that both are shown: a difference, and that it "
    "is too small to matter. g is the effect size: the mean difference in units of its spread over seeds.</p>"
)


# -- pieces -----------------------------------------------------------------------------------------------


def _table(table: Table, baseline: str | None = None) -> str:
    kinds = [cell.kind for cell in table.rows[0]] if table.rows else []
    head = "".join(
        f'<th scope="col"{_class("number" if kind == "number" else "")}>{escape(words)}</th>'
        for words, kind in zip(table.head, kinds, strict=True)
    )
    rows = []
    for row in table.rows:
        is_baseline = baseline is not None and row[0].text.removesuffix(" (baseline)") == baseline
        cells = "".join(map(_cell, row))
        rows.append(f"<tr{_class('baseline' if is_baseline else '')}>{cells}</tr>")
    name = f"table-{escape(table.name, quote=True)}"
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{name}-caption">'
        f'<table id="{name}"><caption id="{name}-caption"><span>{escape(table.caption)}</span></caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _class(*names: str) -> str:
    kept = " ".join(name for name in names if name)
    return f' class="{kept}"' if kept else ""


def _cell(cell: Cell) -> str:
    words = escape(cell.text)
    if cell.kind == "name":
        words = words.removesuffix(" (baseline)")
        tag = ' <span class="tag">baseline</span>' if words != escape(cell.text) else ""
        short = _class("short" if len(cell.text) <= _SHORT else "")
        return f'<th scope="row"{short}>{_link(words, cell)}{tag}</th>'
    verdict = {BETTER: "better", WORSE: "worse"}.get(cell.text.removeprefix(SLIGHTLY), "other")
    classes = _class("number" if cell.kind == "number" else verdict, "best" if cell.best else "")
    return f"<td{classes}>{_link(words, cell)}</td>"


def _link(words: str, cell: Cell) -> str:
    """The record that a number is from is a file beside the folder of the report."""
    title = f' title="{escape(cell.title, quote=True)}"' if cell.title else ""
    if cell.key is None:
        return f"<span{title}>{words}</span>" if title else words
    return f'<a href="../trials/{escape(cell.key, quote=True)}.json"{title}>{words}</a>'


def _beside(summary: Summary) -> str:
    if not summary.beside:
        return ""
    best = "".join(f"<li>{escape(words)}</li>" for words in beside_words(summary))
    note = escape(beside_note(summary))
    return (
        (f"<ul>{best}</ul>" if best else "")
        + "".join(map(_table, beside_tables(summary)))
        + (f"<p>{note}</p>" if note else "")
    )


def _figures(figures: Sequence[Figure]) -> str:
    if not figures:
        return ""
    content = "".join(map(_figure, figures))
    return content if all(one.wide for one in figures) else f'<div class="pair">{content}</div>'


def _figure(one: Figure) -> str:
    # Inside a script nothing is markup but "</" and "<!--", so no "<" may be there.
    data = json.dumps(one.on_page).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    hint = " Names in the legend show and hide what they name." if one.wide and len(one.legend) > 1 else ""
    return (
        f'<figure data-figure="{escape(one.name, quote=True)}">'
        f'<div class="plot" role="img" aria-label="{escape(one.label, quote=True)}"></div>'
        f'{legend(one.legend)}<script type="application/json">{data}</script>'
        f"<figcaption>{escape(one.caption)}{hint}</figcaption></figure>"
    )


def _rerun(summary: Summary, origin: Origin) -> str:
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(words)}</dd>" for name, words in origin.facts())
    return (
        "<p>This command runs the study again, with the recipe below.</p>"
        f"<pre><code>{escape(origin.command)}</code></pre>"
        f'<dl class="facts">{facts}</dl>{_table(trials(summary))}'
        f"<details><summary>The recipe, with everything that was left to its default</summary>"
        f"<pre><code>{escape(origin.recipe)}</code></pre></details>"
    )
