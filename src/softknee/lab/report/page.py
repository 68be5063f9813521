"""The page of a report: one HTML file with its style and script inside, which fetches nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

from ..chart import config, page_script
from ..studies.recipe import Language, Perplexity, Recipe
from ..table import Table
from .drawing import Figure, curves, hardness, learned, legend, plane
from .parts import Origin, Row, Summary, counted, duration
from .tables import (
    TITLE,
    headline,
    inside,
    measures_table,
    paper_note,
    paper_sentences,
    paper_tables,
    relative_losses,
    replacement,
    significance,
    tested,
    trials,
)

_LIGHT = """
    --paper: #fcfcfb; --card: #f5f4f1; --ink: #161615; --soft: #5d5c57; --hair: #e4e3de; --strong: #b9b8b1;
    --link: #1c5fae; --good: #1b7a52; --bad: #b03a2e;
"""
_DARK = """
    --paper: #181817; --card: #21211f; --ink: #f4f3ef; --soft: #b3b2aa; --hair: #31312e; --strong: #5b5a55;
    --link: #7db4f5; --good: #5fc79a; --bad: #f08a7c;
"""

STYLE = f"""
:root {{ color-scheme: light dark; {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
:root.printing {{ color-scheme: light; {_LIGHT} }}
@media print {{ :root {{ color-scheme: light; {_LIGHT} }} }}
* {{ box-sizing: border-box; }}
html {{ scroll-padding-top: 12px; }}
body {{ margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }}
main {{ max-width: 1040px; margin: 0 auto; padding: 40px 24px 64px; }}
h1 {{ font-size: 30px; line-height: 1.2; margin: 0 0 10px; letter-spacing: -0.01em; overflow-wrap: anywhere; }}
h2 {{ font-size: 20px; margin: 52px 0 10px; }}
p, ul {{ margin: 0 0 12px; max-width: 72ch; }}
a {{ color: var(--link); text-decoration-thickness: 1px; text-underline-offset: 2px; }}
:focus-visible {{ outline: 2px solid var(--link); }}
.skip {{ position: absolute; left: -999px; }} .skip:focus {{ left: 12px; top: 12px; background: var(--paper); }}
.lead {{ font-size: 17px; color: var(--soft); overflow-wrap: anywhere; }}
nav ul {{ display: flex; flex-wrap: wrap; gap: 4px 18px; padding: 0; margin: 14px 0 0; max-width: none; }}
nav li {{ list-style: none; font-size: 14px; }}
.answers {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(220px, 1fr)); gap: 14px; }}
.answers {{ margin: 26px 0 16px; }}
.answers > div {{ background: var(--card); border-radius: 8px; padding: 14px 16px; }}
.answers dt {{ font-size: 13px; color: var(--soft); margin-bottom: 2px; }}
.answers dd {{ margin: 0; font-size: 15px; line-height: 1.45; overflow-wrap: anywhere; }}
.note {{ border-left: 3px solid var(--bad); padding: 2px 0 2px 12px; overflow-wrap: anywhere; }}
.scroll {{ overflow-x: auto; margin: 16px 0 26px; }}
table {{ border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }}
caption {{ caption-side: bottom; text-align: left; color: var(--soft); padding-top: 10px; font-size: 13px; }}
caption span {{ display: block; max-width: min(80ch, calc(100vw - 32px)); position: sticky; left: 0; }}
th, td {{ padding: 7px 16px 7px 0; text-align: left; vertical-align: baseline; border-bottom: 1px solid var(--hair); }}
thead th {{ color: var(--soft); font-weight: 600; border-bottom-color: var(--strong); vertical-align: bottom; }}
tbody th {{ font-weight: 600; max-width: 24em; overflow-wrap: anywhere; }}
tbody th.short {{ white-space: nowrap; }}
tbody th, thead th:first-child {{ position: sticky; left: 0; background: var(--paper); }}
.number {{ text-align: right; }} td.number {{ white-space: nowrap; }}
td:last-child, thead th:last-child {{ padding-right: 0; }}
table a {{ color: inherit; text-decoration: none; }}
table a:hover, table a:focus-visible {{ color: var(--link); text-decoration: underline; }}
tbody th a {{ color: var(--link); }}
td.best {{ font-weight: 700; }}
td.better {{ color: var(--good); }} td.worse {{ color: var(--bad); }} td.other {{ color: var(--soft); }}
tr.baseline > * {{ background: var(--card); }} .tag {{ font-weight: 400; color: var(--soft); font-size: 13px; }}
figure {{ margin: 18px 0 26px; min-width: 0; }}
figcaption {{ margin-top: 6px; font-size: 13px; color: var(--soft); max-width: 80ch; overflow-wrap: anywhere; }}
.plot {{ width: 100%; }}
#vg-tooltip-element {{ visibility: hidden; position: fixed; z-index: 9; padding: 6px 10px; font-size: 13px; }}
#vg-tooltip-element {{ background: var(--card); color: var(--ink); border: 1px solid var(--strong); }}
#vg-tooltip-element.visible {{ visibility: visible; }} #vg-tooltip-element table {{ width: auto; font-size: 13px; }}
#vg-tooltip-element td {{ border: 0; padding: 1px 0; }} #vg-tooltip-element .key {{ color: var(--soft); }}
#vg-tooltip-element .key {{ padding-right: 10px; }}
.legend {{ display: flex; flex-wrap: wrap; gap: 2px 4px; margin: 4px 0 8px; }}
.legend button {{ display: inline-flex; align-items: center; gap: 7px; font: inherit; color: var(--ink); }}
.legend button {{ font-size: 13px; }}
.legend button {{ background: none; border: 0; border-radius: 5px; padding: 3px 8px 3px 4px; cursor: pointer; }}
.legend button {{ text-align: left; overflow-wrap: anywhere; }} .legend svg {{ flex: none; }}
.legend button:hover {{ background: var(--card); }} .legend button[aria-pressed="false"] {{ opacity: 0.45; }}
.pair {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 0 28px; }}
dl.facts {{ display: grid; grid-template-columns: max-content 1fr; gap: 6px 20px; margin: 0 0 20px; font-size: 14px; }}
.facts dt {{ color: var(--soft); }} .facts dd {{ margin: 0; overflow-wrap: anywhere; }}
code, pre {{ font-family: ui-monospace, monospace; font-size: 13px; }}
pre {{ background: var(--card); border-radius: 8px; padding: 14px 16px; margin: 8px 0 20px; overflow-x: auto; }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; }}
summary {{ cursor: pointer; }}
@media (max-width: 600px) {{
  main {{ padding: 24px 16px 48px; }}
  h1 {{ font-size: 25px; }} tbody th {{ min-width: 8.5em; max-width: 45vw; }}
  tbody th.short {{ white-space: normal; }} .better, .worse, .other {{ white-space: nowrap; }}
  dl.facts {{ grid-template-columns: 1fr; gap: 0; }} .facts dd {{ margin-bottom: 10px; }}
}}
@media print {{
  @page {{ margin: 15mm 13mm; }}
  body {{ font-size: 10.5pt; }} main {{ padding: 0; max-width: none; }}
  nav, .skip, .legend button[aria-pressed="false"] {{ display: none !important; }}
  h2 {{ break-after: avoid; margin-top: 26px; }} figure, tr, .answers > div {{ break-inside: avoid; }}
  table, .tag {{ font-size: 8pt; }} th, td {{ padding: 4px 8px 4px 0; }}
  .answers {{ grid-template-columns: repeat(3, 1fr); }} .pair {{ grid-template-columns: 1fr 1fr; }}
  tbody th, thead th:first-child {{ position: static; }} .scroll {{ overflow: visible; }}
  a, tbody th a {{ color: inherit; text-decoration: none; }} .answers > div, pre {{ border: 1px solid var(--hair); }}
}}
"""


_LOOK = config(
    size=12.5,
    ink="var(--ink)",
    soft="var(--soft)",
    hair="var(--hair)",
    font="system-ui, sans-serif",
    paper="transparent",
)

SCRIPT = (
    f"const look = {json.dumps(_LOOK)};"
    + r"""
(function () {
  "use strict";
  const root = document.documentElement;
  // An interpreter in place of compiled expressions: the page allows no script but its own.
  const options = { ast: true, actions: false, renderer: "svg", config: look, tooltip: { disableDefaultStyle: true } };
  const views = [];

  async function draw(figure) {
    const place = figure.querySelector(".plot");
    const chart = JSON.parse(figure.querySelector("script").textContent);
    const view = (await vegaEmbed(place, chart, options)).view;
    views.push({ place, view });
    const buttons = Array.from(figure.querySelectorAll(".legend button"));
    for (const button of buttons) {
      button.addEventListener("click", () => {
        button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
        const hidden = buttons.filter((other) => other.getAttribute("aria-pressed") !== "true");
        view.signal("hidden", hidden.map((other) => other.textContent)).run();
      });
    }
  }

  function resize() {
    const printing = root.classList.contains("printing");
    for (const { place, view } of views) {
      // A page of paper is about 680 pixels wide between its margins.
      view.width(printing ? (place.closest(".pair") ? 330 : 680) : place.clientWidth).run();
    }
  }
  window.addEventListener("beforeprint", () => {
    root.classList.add("printing");
    for (const details of document.querySelectorAll("details")) details.open = true;
    resize();
  });
  window.addEventListener("afterprint", () => { root.classList.remove("printing"); resize(); });
  const drawn = Array.from(document.querySelectorAll("figure[data-figure]"), draw);
  window.drawn = Promise.all(drawn).then(() => root.classList.add("drawn"));
})();
"""
)


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
    about = f"{_many(rows)} on {data}, {_model(recipe)}"
    took = f"All trials together took {duration(summary.seconds)}."
    if isinstance(recipe.task, Perplexity):
        return f"{about}, as it is: nothing is trained. {took}"
    steps = recipe.task.steps if isinstance(recipe.task, Language) else None
    length = counted(recipe.training.epochs, "epoch") if steps is None else counted(steps, "step")
    return (
        f"{about}, {length}, {counted(len(rows[0].seeds), 'seed')} each: for one seed, every activation is trained "
        f"with the same random numbers.{sharing}{changed} {took}"
    )


def _many(rows: Sequence[Row]) -> str:
    names = counted(len({row.name for row in rows}), "activation")
    return names if len({row.name for row in rows}) == len(rows) else f"{names} in {len(rows)} settings"


def _model(recipe: Recipe) -> str:
    arguments = ", ".join(f"{name} {_value(value)}" for name, value in recipe.model.arguments.items())
    return f"model {recipe.model.build}" + (f" ({arguments})" if arguments else "")


def _value(value: object) -> str:
    return "–".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _answers(summary: Summary) -> str:
    cards = "".join(
        f"<div><dt>{escape(sentence.question)}</dt><dd><strong>{escape(sentence.label)}</strong>{escape(sentence.words)}</dd></div>"
        for sentence in summary.sentences
    )
    return f'<dl class="answers">{cards}</dl>' if cards else ""


def _notes(summary: Summary) -> str:
    return "".join(f'<p class="note" role="note">{escape(note)}</p>' for note in summary.notes)


def _sections(summary: Summary, origin: Origin) -> list[tuple[str, str, str]]:
    """Anchor, title and content of each section; one without content is left out."""
    drawn = plane(summary)
    tests = [table for measure in tested(summary) if (table := significance(summary, measure))]
    more = [table for table in (measures_table(summary), inside(summary)) if table]
    return [
        ("results", "Results", headline(summary).html()),
        ("online", "In percent of the baseline's losses", shown.html() if (shown := relative_losses(summary)) else ""),
        ("beside", TITLE, _paper(summary)),
        ("plane", "Accuracy against reproducibility", _figures([drawn] if drawn else [])),
        ("tests", "Which differences are shown", _TESTS + _tables(tests) if tests else ""),
        ("curves", "Training", _figures(curves(summary))),
        ("shapes", "What activations learned", _figures(learned(summary))),
        ("hardness", "Hardness by depth", _figures(hardness(summary))),
        ("replacement", "Replaced by the hard limit", replaced.html() if (replaced := replacement(summary)) else ""),
        ("measures", "Everything measured", _tables(more)),
        ("rerun", "Run it again", _rerun(summary, origin)),
    ]


_TESTS = (
    "<p>Each activation is compared with the baseline seed by seed. A small p says that a difference this large would "
    "be rare if there were none. “No difference shown” says only that these seeds do not show one; “equivalent” that "
    "they show it to be too small to matter; “slightly” better or worse that both are shown: a difference, and that it "
    "is too small to matter. g is the effect size: the mean difference in units of its spread over seeds.</p>"
)


def _tables(tables: Sequence[Table]) -> str:
    return "".join(table.html() for table in tables)


def _paper(summary: Summary) -> str:
    if not summary.paper_tables:
        return ""
    best = "".join(f"<li>{escape(words)}</li>" for words in paper_sentences(summary))
    note = escape(paper_note(summary))
    return (f"<ul>{best}</ul>" if best else "") + _tables(paper_tables(summary)) + (f"<p>{note}</p>" if note else "")


def _figures(figures: Sequence[Figure]) -> str:
    if not figures:
        return ""
    content = "".join(map(_figure, figures))
    return content if all(figure.wide for figure in figures) else f'<div class="pair">{content}</div>'


def _figure(figure: Figure) -> str:
    # Inside a script nothing is markup but "</" and "<!--", so no "<" may be there.
    data = json.dumps(figure.on_page).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    hint = " Names in the legend show and hide what they name." if figure.wide and len(figure.legend) > 1 else ""
    return (
        f'<figure data-figure="{escape(figure.name, quote=True)}">'
        f'<div class="plot" role="img" aria-label="{escape(figure.label, quote=True)}"></div>'
        f'{legend(figure.legend)}<script type="application/json">{data}</script>'
        f"<figcaption>{escape(figure.caption)}{hint}</figcaption></figure>"
    )


def _rerun(summary: Summary, origin: Origin) -> str:
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(words)}</dd>" for name, words in origin.facts())
    return (
        "<p>This command runs the study again, with the recipe below.</p>"
        f"<pre><code>{escape(origin.command)}</code></pre>"
        f'<dl class="facts">{facts}</dl>{trials(summary).html()}'
        f"<details><summary>The recipe, with everything that was left to its default</summary>"
        f"<pre><code>{escape(origin.recipe)}</code></pre></details>"
    )
