"""Copies the pages of docs/ into the folder that Sphinx reads, with links and mathematics as the site has them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from papers.claim import PAPERS
from papers.runs import command_of_recipe

import softknee as sk
from softknee.lab.studies.reading import dump

from .blocks import SHOWN
from .drawn import slider
from .evidence import runs
from .markdown import cards, figures, site_links, site_math
from .places import DOCS, RECORDS, ROOT
from .places import PAPERS as PAPERS_FOLDER

PICTURES = (".png", ".svg", ".jpg", ".webp")
# Pages that others make or that have a form of their own here.
_SKIP = ("zoo",)
# Below the cards of the first page: what the sidebar has, which a telephone hides.
_ALSO = """
**Look up:** [reference](reference/index.md) · [data sets](data.md) · [language models](language.md) ·
[status: what runs where](status.md) · [versions of torch](versions.md) · [pitfalls](pitfalls.md) ·
[architecture](architecture.md) · [changelog](changelog.md)

**Papers beside ours:** {papers}

**Add your own:** [function](extend/function.md) · [engine](extend/engine.md) · [measure](extend/measure.md) ·
[recipe](extend/recipe.md)
"""
# Where a page of docs/ says how to come by the pages that only the site has, the site leads to them.
_ON_THE_SITE = re.compile(r"<!-- reference and papers -->.*?<!-- end -->", re.S)
_BLOCK = re.compile(rf"^```(?:{'|'.join(SHOWN)})\n.*?^```$", re.M | re.S)


def folders_of_records() -> dict[str, Path]:
    """Folders of a finished study, by their place on the site: each has a page that lists its records."""
    own = {str(path.parent.relative_to(DOCS)): path.parent for path in sorted(DOCS.rglob("study.json"))}
    of_papers = sorted(PAPERS_FOLDER.glob("*/records/*/study.json"))
    return own | {str(path.parent.relative_to(ROOT)): path.parent for path in of_papers}


def site_page(text: str, *, page: str, printed: tuple[str, ...] = (), source: str = "") -> str:
    """A page as Sphinx gets it; `printed` is put below the blocks that printed it. For `source` see `site_links`."""
    text = re.sub(r"^<!-- table: ([\w-]+) -->$", lambda match: _table(match[1]), text, flags=re.M)
    text = re.sub(r"^<!-- slider: (\w+) -->$", lambda match: slider(sk.get(match[1])), text, flags=re.M)
    if printed:
        outputs = iter(printed)
        text = _BLOCK.sub(lambda match: match[0] + _output(next(outputs, "")), text)
    text = cards(site_math(site_links(text, page=page, folders=tuple(folders_of_records()), source=source)))
    return figures(text, up="../") if page.startswith("papers/") else text


def _table(name: str) -> str:
    """The table of docs/deploy.md that is made from a record, which a test holds against that record."""
    text = (DOCS / "deploy.md").read_text(encoding="utf-8")
    parts = r"\n\n(.*?)(?=^- |^Record: ).*?^(Record: .*?)\n\n"
    match = re.search(rf"^<!-- {re.escape(name)} -->{parts}", text, flags=re.M | re.S)
    if match is None:
        raise ValueError(f"docs/deploy.md has no table {name!r}.")
    return f"{match[1].strip()}\n\n{match[2]}".replace("](../", "](../../")


def _output(output: str) -> str:
    if not output.strip():
        return ""
    lines = output.rstrip().splitlines()
    shown = "\n".join([*lines[:24], *(["..."] if len(lines) > 24 else [])])
    return f"\n\n```{{code-block}} text\n:class: output\n\n{shown}\n```"


def stage(out: Path, printed: Mapping[str, tuple[str, ...]]) -> None:
    """Everything that is written by hand, its pictures, the records and the changelog."""
    for path in sorted(DOCS.rglob("*")):
        place = path.relative_to(DOCS)
        if not path.is_file() or place.parts[0] in _SKIP:
            continue
        target = out / place
        if path.suffix == ".md":
            target = target.with_name("index.md") if path.name == "README.md" else target
            target.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text(encoding="utf-8")
            text = site_page(text, page=str(place), printed=printed.get(str(place), ()))
            papers = " · ".join(f"[{paper.name}](papers/{paper.stem}.md)" for paper in PAPERS)
            text = _ON_THE_SITE.sub(f"· [reference](reference/index.md)\n\n**Papers beside ours:** {papers}", text)
            if str(place) == "index.md":
                text += _ALSO.format(papers=papers)
            orphan = "---\norphan: true\n---\n\n" if place.parts[0] == "quickstart" else ""
            target.write_text(orphan + _present(text), encoding="utf-8")
        elif path.suffix in (*PICTURES, ".json"):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    for path in sorted(PAPERS_FOLDER.glob("*/records/**/*")):
        if path.suffix in (*PICTURES, ".json", ".csv"):
            target = out / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    shutil.copytree(RECORDS, out / "records", dirs_exist_ok=True)
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    (out / "changelog.md").write_text(changes, encoding="utf-8")
    for place, folder in folders_of_records().items():
        (out / place / "index.md").write_text(_records_page(place, folder), encoding="utf-8")


def _present(text: str) -> str:
    """Without the parts, and the entries of a table of contents, that are marked "if there" and are not."""

    def entry(match: re.Match[str]) -> str:
        return f"{match[1]}\n" if (DOCS / f"{match[1]}.md").is_file() else ""

    def part(match: re.Match[str]) -> str:
        return match[2] if (DOCS / match[1]).is_file() else ""

    text = re.sub(r"^<!-- if there: (\S+) -->\n(.*?)^<!-- end -->\n", part, text, flags=re.M | re.S)
    return re.sub(r"^(\S+) \[if there\]\n", entry, text, flags=re.M)


def _records_page(place: str, folder: Path) -> str:
    """A page for a folder of records: what was run, and each record to download."""
    study = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    rows = []
    for file in sorted((folder / "trials").glob("*.json")):
        trial = json.loads(file.read_text(encoding="utf-8"))["settings"]["trial"]
        labels = ", ".join(activation["label"] for activation in trial["activations"])
        rows.append(f"| {labels.replace('|', '')} | {trial['kind']} | [{file.stem}](trials/{file.name}) |")
    name = study["recipe"]["name"]
    begun = runs().unfinished.get(folder.name) if place.startswith("papers/") else None
    part = f" **Unfinished:** {begun[0]} of {begun[1]} activations were run so far." if begun else ""
    recipe = dump(study["recipe"]).strip()
    return f"""---
orphan: true
---

# Records of {name}

{study["recipe"].get("title") or ""}

Each file holds one activation with every seed: hardware, versions, settings, and a number for each seed. Again with
`{command_of_recipe(name)}`; one activation with `--only`.{part}

| activation | what | record |
|---|---|---|
{chr(10).join(rows)}

## The recipe

```yaml
{recipe}
```
"""
