"""Follows the pages of docs/extend to the letter, in a copy of the package: files are made, changes made, blocks run.

```python             a file, where the first line is `# src/...`; else a block that is run
```yaml               a file in the same way
```diff               `--- FILE`, then lines with ' ', '+' and '-' in front; where they belong is found by what stays
```console            `$ softknee ...`, run
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .blocks import Block, BlockError, blocks_of
from .places import ROOT

_FILE = re.compile(r"# ((?:src|tests)/[\w./-]+)\n")
_RUNNER = """
import json, sys
sys.path[:0] = sys.argv[2:3]
from pathlib import Path
from docsite.blocks import BlockError, run_blocks_of
printed = {}
for name, page in json.loads(Path(sys.argv[1]).read_text()).items():
    try:
        printed[name] = run_blocks_of(Path(page))
    except BlockError as error:
        sys.exit(str(error))
print("\\n@@" + json.dumps(printed))
"""


def copy_package(to: Path) -> Path:
    """A copy of the package and its tests, to be changed."""
    for folder in ("src/softknee", "tests", "papers"):
        shutil.copytree(ROOT / folder, to / folder, ignore=shutil.ignore_patterns("records"))
    for file in ("pyproject.toml", "conftest.py"):
        shutil.copyfile(ROOT / file, to / file)
    return to


def apply(page: Path, copy: Path) -> list[str]:
    """Make the files and changes of a page in a copy; the names of the files."""
    done = []
    for block in blocks_of(page):
        file = _FILE.match(block.code)
        if file:
            place = copy / file[1]
            if place.exists():
                raise BlockError(f"The file of {block.place} is there already: {file[1]}.")
            # The first line only says where it belongs, except in YAML, where it is a comment like any other.
            place.write_text(block.code[file.end() :], encoding="utf-8")
            done.append(file[1])
        elif block.kind == "diff":
            done.append(_change(block, copy))
    return done


def _change(block: Block, copy: Path) -> str:
    head, *lines = [line for line in block.code.splitlines() if line != "@@"]
    place = copy / head.removeprefix("--- ")
    text = place.read_text(encoding="utf-8")
    before = "\n".join(line[1:] for line in lines if line[:1] != "+")
    after = "\n".join(line[1:] for line in lines if line[:1] != "-")
    # Whole lines only.
    places = [match.start() for match in re.finditer(rf"^{re.escape(before)}$", text, flags=re.M)]
    if len(places) != 1:
        raise BlockError(
            f"What stays in the change of {block.place} is found {len(places)} times in {head[4:]}, not once."
        )
    place.write_text(text[: places[0]] + after + text[places[0] + len(before) :], encoding="utf-8")
    return head[4:]


def follow(pages: Sequence[Path], copy: Path) -> dict[str, tuple[str, ...]]:
    """Apply some pages to one copy, run their blocks with it in one process, and return what they printed."""
    for page in pages:
        apply(page, copy)
    listed = copy / "pages.json"
    listed.write_text(json.dumps({page.name: str(page) for page in pages}), encoding="utf-8")
    tools = str(Path(__file__).parents[1])
    path = os.pathsep.join([str(copy), str(copy / "src"), str(copy / "tests")])
    done = subprocess.run(
        [sys.executable, "-c", _RUNNER, str(listed), tools],
        env=os.environ | {"PYTHONPATH": path, "SOFTKNEE_DOCS_SOURCE": str(copy / "src")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=copy,
    )
    if done.returncode:
        raise BlockError(f"Following {', '.join(page.name for page in pages)}:\n{done.stderr[-2500:]}")
    printed = json.loads(done.stdout.rpartition("@@")[2])
    return {name: tuple(texts) for name, texts in printed.items()}
