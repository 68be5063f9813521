"""The pages of the zoo: what the gallery has of a function, a slider, its cost, who proposed it, what was found."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from papers.claim import PAPERS

import softknee as sk
from softknee.lab import gallery
from softknee.lab.gallery import smoothness, title_of
from softknee.measure import Record
from softknee.spec import Activation, SoftTable

from .drawn import slider, thumbnail
from .evidence import evidence_of
from .markdown import site_math
from .origins import PAPER_OF, REFERENCES
from .places import DOCS, RECORDS
from .status import support

_COSTS = (
    ("H200, float32", ("h200-f32.json", "h200-f32-layers.json")),  # the pseudocode, and the layers
    ("H200, bf16", ("h200-bf16.json", "h200-bf16-layers.json")),
    ("CPU, float32", ("cpu-f32.json",)),
)


def write_zoo(out: Path, *, bent: Collection[str] | None = None) -> None:
    """Write every page, its figure, and the index into the folder of the site; sliders for all, or for those named."""
    folder = out / "zoo"
    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted((DOCS / "zoo").glob("*.svg")):
        (folder / file.name).write_bytes(file.read_bytes())
    costs = read_costs()
    for name in gallery.names():
        (folder / f"{name}.md").write_text(page(name, costs, bend=bent is None or name in bent), encoding="utf-8")
    (folder / "index.md").write_text(index(), encoding="utf-8")


def page(name: str, costs: dict[str, list[str]], *, bend: bool = True) -> str:
    """The page of one function."""
    act = sk.get(name)
    committed = DOCS / "zoo" / f"{name}.md"
    # The committed page has the proofs, which take a while; a test holds it against the definition.
    text = committed.read_text(encoding="utf-8") if committed.is_file() else gallery.page(act, gallery.settings(act))
    text = site_math(text)
    if bend and (bent := slider(act)):
        text = re.sub(r"(^# .*?\n\n.*?\n)", lambda match: f"{match[1]}\n{bent}\n", text, count=1, flags=re.S)
    head, use, code = text.partition("## Use")
    runs = f"## Where it runs\n\n{support(act)} [The whole matrix](../status.md)."
    more = [_cost(name, costs), runs, _origin(act), evidence_of(name, title_of(act))]
    return f"{head}{use}{code}\n" + "\n\n".join(more) + "\n"


def read_costs() -> dict[str, list[str]]:
    """For each function the rows of a table: what it costs here, what as it is usually written, from the records."""
    costs: dict[str, list[str]] = {}
    for words, files in _COSTS:
        rows: dict[str, dict[str, Any]] = {}
        for file in files:
            for row in Record.from_json((RECORDS / file).read_text(encoding="utf-8")).rows:
                rows.setdefault(row["function"], {})[row["variant"]] = row
        for name, variants in rows.items():
            ours = variants.get("softknee eager")
            if ours is None:
                continue
            plain = [variants.get(f"pseudocode {how}") for how in ("eager", "compiled")]
            cells = [_ratio(variant) for variant in (ours, *plain)]
            costs.setdefault(name, []).append(f"| [{words}](../records/{files[-1]}) | {' | '.join(cells)} |")
    return costs


def _ratio(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    # A variant that ran out of memory has a note in its record and no time.
    pair = [row.get(what) for what in ("forward", "forward_backward")]
    return " / ".join("–" if time is None else _short(time.value) for time in pair)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _cost(name: str, costs: dict[str, list[str]]) -> str:
    rows = costs.get(name)
    if not rows:
        return f"## Cost\n\nNo record has it; measure it on your machine with `softknee bench kernels --only {name}`."
    table = "\n".join(rows)
    return f"""## Cost

Multiples of copying the same tensor: forward / forward and backward with all gradients. No fused function can be below
1 / 2.5.

| machine | softknee | as usually written | the same, compiled |
|---|---:|---:|---:|
{table}

On your machine: `softknee bench kernels --only {name}`."""


def _origin(act: Activation | SoftTable) -> str:
    name = act.name
    if name in PAPER_OF:
        paper = next(paper for paper in PAPERS if paper.stem == PAPER_OF[name])
        text = f"From the {paper.name} paper, *{paper.title}*: [its claims and tables](../papers/{paper.stem}.md)."
        if name == "crrelu_exact":
            text += " The paper approximates this function and does not use it."
        return f"## Who proposed it\n\n{text}"
    return f"## Who proposed it\n\n{REFERENCES.get(name, act.about)}"


# -- the index --------------------------------------------------------------------------------------------


def index() -> str:
    """All functions as a grid of small pictures, and the gallery's table below."""
    tiles = []
    for name in gallery.names():
        act = sk.get(name)
        tiles.append(
            f'<a class="tile" href="{name}.html">{thumbnail(act)}<strong>{_breakable(title_of(act))}</strong>'
            f"<span>{_tags(act)}</span></a>"
        )
    table = (DOCS / "zoo" / "README.md").read_text(encoding="utf-8")
    _, rows = table.split("| function |", 1)
    rest = f"| function |{rows}"
    entries = "\n".join(gallery.names())
    return f"""# The zoo

{len(gallery.names())} functions of one variable, each with a page: formula, a slider over its knob, proved constants,
exact zeros, cost, where it runs, who proposed it, what was found in training. Blue is f, orange f′.

<div class="tiles">{"".join(tiles)}</div>

`sk.names()` lists them, `sk.get("srelu")` is the definition, `sk.nn.make("srelu")` a module; [another
one](../extend/function.md) is one file. Functions of whole rows and the papers' baselines (`sk.nn.PolyReLU`,
`PolyNorm`, `KAF`, `DiTAC`) are in the [reference](../reference/nn.md).

## As a table

{rest}
```{{toctree}}
:hidden:
:titlesonly:
:maxdepth: 1

{entries}
```
"""


def _breakable(title: str) -> str:
    """A long name may be broken between its words: AsymmetricSmeLU before SmeLU."""
    return re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "<wbr>", title)


def _tags(act: Activation | SoftTable) -> str:
    claims = act.claims
    if claims is None:
        return ""
    smooth = smoothness(claims.smoothness)
    tags = ["C<sup>∞</sup>" if smooth == "all" else f"C<sup>{smooth}</sup>"]
    if act.knobs and getattr(act, "limit", None):
        tags.append(f"→ {act.limit}")  # type: ignore[union-attr]
    if claims.monotone is True:
        tags.append("monotone")
    return " · ".join(tags)
