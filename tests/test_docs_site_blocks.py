"""The guides: every block runs, every command exists, and the pages about adding something are followed by a test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from docsite.blocks import BlockError, blocks_of, check_command, commands_of, run_blocks_of
from docsite.build import EXTEND, pages
from docsite.follow import apply, copy_package, follow
from docsite.places import DOCS

from softknee.lab.studies.reading import read_recipe

# Other tests run these: test_readme, test_surgery_docs, test_fits_command, test_wire_boundary and test_gallery.
ELSEWHERE = {"start.md", "surgery.md", "squaf.md", "wire.md"}
SLOW = {"guides/cluster.md", "language.md"}
RUN = [
    page
    for page in pages()
    if page.name not in ELSEWHERE
    and page.parent not in (EXTEND, DOCS / "zoo")
    and any(item.kind in ("python", "console") for item in blocks_of(page))
]


def title(page: Path) -> str:
    return str(page.relative_to(DOCS))


# What libraries warn of: torch's exporter and process groups of themselves, Ray of what will change.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize(
    "page",
    [pytest.param(item, id=title(item), marks=[pytest.mark.slow] if title(item) in SLOW else []) for item in RUN],
)
def test_the_blocks_of_a_page_run(page: Path, monkeypatch: pytest.MonkeyPatch):
    # A cluster of its own: Ray would take one that a test of the other worker has just started, and loses soon.
    monkeypatch.setenv("RAY_ADDRESS", "local")
    printed = run_blocks_of(page)
    assert any(value.strip() for value in printed)


def test_the_guides_are_there():
    assert len(RUN) >= 11
    assert all((DOCS / name).is_file() for name in ELSEWHERE)


@pytest.mark.parametrize("page", [*RUN, *sorted(EXTEND.glob("*.md")), DOCS / "studies.md"], ids=title)
def test_every_recipe_of_a_page_is_one(page: Path):
    """Also those that are too large to be run here."""
    for block in blocks_of(page):
        if block.kind == "yaml" and "\nname:" in f"\n{block.code}":
            assert read_recipe(block.code).activations


@pytest.mark.parametrize("page", pages(), ids=title)
def test_every_command_of_a_page_exists(page: Path):
    for line, place in commands_of(page):
        check_command(line, place)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("softknee benhc kernels", "No such command 'benhc'"),
        ("softknee compare --papper x", "No such option: --papper"),
        ("softknee study mine.yaml --sett a=b", "No such option: --sett"),
    ],
)
def test_a_command_that_does_not_exist_is_named(line: str, words: str):
    with pytest.raises(BlockError, match=words):
        check_command(line, "page.md")


def test_a_block_that_does_not_run_is_named_with_its_line(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```python\nx = 1\n```\n\ntext\n\n```python\nprint(x)\nprint(y)\n```\n")
    with pytest.raises(BlockError, match=r"page\.md, line 10(?s:.*)line 11(?s:.*)NameError"):
        run_blocks_of(page)
    page.write_text("```console\n$ softknee study show nothing\n```\n")
    with pytest.raises(BlockError, match="There is no recipe 'nothing'"):
        run_blocks_of(page)
    page.write_text('```python\nif __name__ == "__main__":\n    raise SystemExit("no")\n```\n')
    with pytest.raises(BlockError, match="ends with 1"):
        run_blocks_of(page)


def test_files_and_hidden_preparations_are_there_for_the_blocks_after_them(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- prepare\nhidden = 3\n-->\n\n```yaml\n# a/b.yaml\nx: 1\n```\n\n"
        '```python\nfrom pathlib import Path\nprint(hidden, Path("a/b.yaml").read_text().splitlines()[1])\n```\n'
    )
    assert run_blocks_of(page) == ("", "3 x: 1\n")


# -- how to add something -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, tuple[str, ...]]]:
    """A copy of the package in which all four pages were followed, and what their blocks printed."""
    copy = copy_package(tmp_path_factory.mktemp("copy"))
    return copy, follow(sorted(EXTEND.glob("*.md")), copy)


def test_the_four_pages_can_be_followed(followed: tuple[Path, dict[str, tuple[str, ...]]]):
    _, said = followed
    assert set(said) == {"function.md", "engine.md", "measure.md", "recipe.md"}
    function, engine, measure, recipe = (
        "".join(said[f"{item}.md"]) for item in ("function", "engine", "measure", "recipe")
    )
    assert "distance to relu" in function
    assert "SmoothstepGate(beta=0.5 (learned), per='layer')" in function
    assert "1 activation replaced" in function
    assert "x*Tanh(x)" in engine
    assert engine.count("True") == 2
    assert "smelu,smelu" in measure
    assert "Smoke run" in recipe


def test_a_function_that_was_added_passes_the_tests_of_the_zoo(followed: tuple[Path, dict[str, tuple[str, ...]]]):
    """As the page says: the tests of the copy, asked for the new function alone."""
    copy, _ = followed
    files = [f"tests/test_{name}.py" for name in ("values", "claims")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider", "-k", "smoothstep_gate", *files],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    passed = int(done.stdout.rpartition(" passed")[0].rpartition(" ")[2].rpartition("\n")[2])
    assert passed > 8


def test_a_change_that_no_longer_fits_is_named(tmp_path: Path):
    page, copy = tmp_path / "page.md", tmp_path / "copy"
    (copy / "src").mkdir(parents=True)
    (copy / "src" / "a.py").write_text("one\ntwo\n")
    page.write_text("```diff\n--- src/a.py\n@@\n one\n+new\n two\n```\n")
    assert apply(page, copy) == ["src/a.py"]
    assert (copy / "src" / "a.py").read_text() == "one\nnew\ntwo\n"
    with pytest.raises(BlockError, match=r"found 0 times in src/a\.py"):
        apply(page, copy)
