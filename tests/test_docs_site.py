"""The site: it is built whole, every link and anchor leads somewhere, nothing is fetched, what is wrong is noticed."""

from __future__ import annotations

import re
import shlex
import sys
import types
from html import unescape
from pathlib import Path

import pytest
import torch
from docsite import build as building
from docsite import evidence, links, markdown, reference, rooms, staging, status, zoo
from docsite.blocks import check_command, commands_of
from docsite.places import DOCS, ROOT
from papers.claim import PAPERS
from papers.exhibits import EXHIBITS
from papers.runs import command_of_recipe, command_of_row, labels_of_recipe, recipe_file, recipe_named, recipe_names
from papers.tables import COMMANDS

import softknee as sk
from browser import CHROMIUM, Browser
from softknee.lab import gallery
from softknee.lab.studies.reading import find_recipe
from softknee.lab.studies.recipe import Preference
from softknee.measure import Record

# The sliders take longest to draw, and are the same code for all.
BENT = ("smelu", "squaf")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, with the sliders of two functions; the blocks of its pages are run in test_docs_site_blocks."""
    out = tmp_path_factory.mktemp("site")
    building.write_sources(out / "source", {}, bent=BENT)
    building.make_html(out / "source", out / "html")
    return out / "html"


def _article(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("<article")[2].partition("</article>")[0]


def _plain(html: str) -> str:
    """The words of a page, without tags."""
    return unescape(re.sub(r"<[^>]+>", "", re.sub(r"<br ?/?>", "\n", html)))


# -- the site ---------------------------------------------------------------------------------------------


def test_every_link_and_anchor_leads_somewhere_and_nothing_is_fetched(site: Path):
    assert links.problems(site) == []


def test_every_function_and_every_paper_has_its_page(site: Path):
    for name in gallery.names():
        text = (site / "zoo" / f"{name}.html").read_text(encoding="utf-8")
        for section in ("formula", "cost", "where-it-runs", "who-proposed-it", "what-the-evidence-says", "use"):
            assert f'id="{section}"' in text, (name, section)
        assert '<math xmlns="http://www.w3.org/1998/Math/MathML"' in text
    for paper in PAPERS:
        text = (site / "papers" / f"{paper.stem}.html").read_text(encoding="utf-8")
        assert text.count('class="verdict') > 10
        assert 'id="its-tables-and-figures"' in text


def test_every_next_step_is_two_clicks_away(site: Path):
    """From the start page through at most one page to every page of ours."""
    seen, pages = {"index.html"}, {"index.html"}
    for _ in range(2):
        result = set()
        for page in pages:
            for path in {address.partition("#")[0] for address in links.read(site / page).links}:
                if "://" not in path and path.endswith(".html"):
                    result.add(str(((site / page).parent / path).resolve().relative_to(site.resolve())))
        pages = result - seen
        seen |= result
    made = {str(path.relative_to(site)) for path in site.rglob("*.html") if "_static" not in path.parts}
    apart = {
        item
        for item in made - seen
        if not item.startswith((*(f"papers/{paper.stem}/records/" for paper in PAPERS), "quickstart/"))
    }
    assert apart <= {"genindex.html", "py-modindex.html", "search.html"}
    # A telephone hides the sidebar: what people look for is in the text of the first page, or of one that it names.
    first = _article(site / "index.html")
    for name in ("reference/index", "status", "pitfalls", "changelog", "architecture", "ledger", "zoo/index", "start"):
        assert f'href="{name}.html' in first, name
    for folder in ("guides", "extend", "papers"):
        for path in (site / folder).glob("*.html"):
            assert f'href="{folder}/{path.name}' in first, path.name


def test_every_recipe_is_on_its_papers_page_and_what_was_run_with_a_command_for_every_row(site: Path):
    """Also of rows that were not run; a study of which nothing was run has one line."""
    runs = evidence.runs()
    listed = {name for exhibits in EXHIBITS.values() for exhibit in exhibits for name in exhibit.recipes}
    assert listed <= set(recipe_names())
    named = {name for name in recipe_names() if recipe_named(name).paper is not None}
    for name in named - listed:  # language models, whose tables have another form
        page = recipe_file(name).parents[1] / "README.md"
        assert f"`{command_of_recipe(name)}`" in page.read_text("utf-8"), f"{name} has no place in an exhibits.yaml."
    for paper in PAPERS:
        places = {name for exhibit in EXHIBITS[paper.stem] for name in exhibit.recipes}
        assert {name for name in listed if recipe_file(name).parents[1].name == paper.stem} <= places
        text = _plain((site / "papers" / f"{paper.stem}.html").read_text(encoding="utf-8"))
        for name in places:
            stem = recipe_file(name).stem
            assert stem in text
            assert (f"{stem}: not run" in text) == (name not in runs.names), name
            if name not in runs.names or recipe_file(name).parents[1].name != paper.stem:
                continue  # a study of another paper has its table there
            recipe = runs.recipe(name)
            missing = [label for label in labels_of_recipe(recipe) if command_of_row(name, label) not in text]
            assert not missing, (name, missing)
            # Those of preferences have the numbers of several papers.
            rows = () if recipe.paper is None or isinstance(recipe.task, Preference) else recipe.paper.values.values()
            for row in rows:
                assert all(f"{value:.4g}".rstrip("0") in text or f"{value:,.0f}" in text for value in row.values())
            done = " of ".join(map(str, runs.unfinished.get(name, ()))) or r"\d+ of \d+"
            remark = re.search(rf"\b{re.escape(stem)}: (stand-in, )?{done} rows were run", text)
            assert (remark is not None) == (name in runs.unfinished), name


def test_every_command_on_a_papers_page_is_understood():
    pages = [ROOT / "papers" / paper.stem / "README.md" for paper in PAPERS]
    commands = {command for page in pages for command, _ in commands_of(page)}
    assert len(commands) > 300
    kinds = {}
    labels = {str(recipe_file(name).relative_to(ROOT)): labels_of_recipe(recipe_named(name)) for name in recipe_names()}
    for command in sorted(commands):
        _, *group, name, option, value = words if len(words := shlex.split(command)) == 6 else ["", "", "", "", ""]
        if group == ["study", "run"] and option == "--only":  # one of these stands for all; each names a known label
            kinds["study run"] = command
            assert value in labels[name], command
        else:
            kinds[" ".join(re.sub(r"(?<= --only | --swap )\S+", "", command).split())] = command
        if group == ["study", "run"] and option == "--set":
            find_recipe(ROOT / name, settings=[value])
    for command in (*kinds.values(), *COMMANDS.values()):
        check_command(command, "a paper's page")


def test_mathematics_is_mathml_and_needs_no_script(site: Path):
    text = (site / "zoo" / "smelu.html").read_text(encoding="utf-8")
    assert not re.search(r"<script[^>]*(?:mathjax|katex)", text, flags=re.I)
    assert "<mfrac>" in text
    assert not re.search(r"<m(?:i|o|text)>\\", text)


def test_a_slider_holds_the_function(site: Path):
    """The path that is drawn first is f at the place of the slider, to a third of a unit of the picture."""
    text = (site / "zoo" / "smelu.html").read_text(encoding="utf-8")
    (first, *_) = re.findall(r'<path class="soft" d="([^"]+)"', text)
    (beta,) = re.findall(r"<output>([\d.]+)</output>", text)
    points = [tuple(map(float, item.split())) for item in re.findall(r"[\d.]+ [\d.]+", first)]
    assert len(points) > 8
    # x from -3 to 3 over a width of 300, f from 0 to 3; the rest of the frame follows from the first and last point.
    (_, ground), (_, top) = points[0], points[-1]
    places = torch.tensor([x / 50 - 3 for x, _ in points], dtype=torch.float64)
    values = sk.get("smelu")(places, beta=float(beta))
    drawn = torch.tensor([3 * (ground - y) / (ground - top) for _, y in points], dtype=torch.float64)
    torch.testing.assert_close(drawn, values, atol=0.012, rtol=0)


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed, and the pages are looked at in it")
def test_no_page_is_wider_than_its_window(site: Path):
    pages = ("index", "zoo/index", "zoo/smelu", "papers/smelu", "reference/nn")
    wide = []
    with Browser() as browser:
        for page in pages:
            browser.open((site / f"{page}.html").as_uri())
            for width in (400, 820, 1024, 1366, 1440):  # a phone, tablets, laptops
                browser.size(width, 800)
                if (result := browser.evaluate("document.documentElement.scrollWidth")) > width:
                    wide.append((page, width, result))
    assert wide == []


# -- what is wrong is noticed -------------------------------------------------------------------------------


def test_a_dead_link_an_anchor_and_a_fetch_from_outside_are_named(tmp_path: Path):
    (tmp_path / "there.html").write_text('<h1 id="here">x</h1>')
    (tmp_path / "style.css").write_text("body { background: url('https://example.org/a.png') }")
    (tmp_path / "index.html").write_text(
        '<link rel="stylesheet" href="style.css"/><a href="there.html#here">good</a><a href="https://example.org">good</a>'
        '<a href="gone.html">dead</a><a href="there.html#gone">dead</a><a href="#gone">dead</a>'
        '<script src="https://example.org/a.js"></script><img src="no.png"/><a href="../up.html">dead</a>'
    )
    result = links.problems(tmp_path)
    assert len(result) == 7
    for words in (
        "'gone.html' leads to no file",
        "'there.html#gone' leads to an anchor",
        "'#gone'",
        "a.js' lies outside",
    ):
        assert any(words in value for value in result), words
    assert any("style.css" in item and "lies outside" in item for item in result)


def test_a_page_with_a_dead_link_does_not_build(tmp_path: Path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "index.md").write_text("# Here\n\n[nowhere](nowhere.md) and [no anchor](#nowhere)\n")
    with pytest.raises(building.BuildError, match="complaints"):
        building.make_html(source, tmp_path / "html")


def test_an_undocumented_name_does_not_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    room = types.ModuleType("undocumented_room", "A room.")

    class Told:
        """A class with a method that nobody explains."""

        def silent(self) -> None: ...

    Told.__module__ = "softknee.undocumented_room"

    def untold() -> None: ...

    room.Told, room.untold, room.__all__ = Told, untold, ["Told", "untold"]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, room.__name__, room)
    assert reference.undocumented(room.__name__) == [
        "undocumented_room.Told.silent",
        "undocumented_room.untold",
    ]
    monkeypatch.setattr(reference, "ROOMS", {room.__name__: "A room."})
    with pytest.raises(reference.UndocumentedError, match=r"Told\.silent, undocumented_room\.untold\. Write one"):
        reference.write_reference(tmp_path)


def test_every_public_room_is_in_the_reference():
    assert {
        "softknee",
        *(f"softknee.{name}" for name in sk.__all__ if isinstance(getattr(sk, name), types.ModuleType)),
    } <= set(reference.ROOMS)


@pytest.mark.parametrize("latex", [r"\begin{cases} 1", r"\nosuchcommand{x}"])
def test_a_formula_that_is_not_understood_does_not_build(latex: str, tmp_path: Path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "index.md").write_text(f"# Here\n\n```math\n{latex}\n```\n")
    with pytest.raises(building.BuildError, match="complaints"):
        building.make_html(source, tmp_path / "html")


# -- generated pages ----------------------------------------------------------------------------------------


def test_the_rooms_are_those_of_the_imports():
    used = rooms.edges()
    assert used["nn", "kernels"] > 3
    assert ("spec", "zoo") not in used
    picture = rooms.picture()
    assert all(f">{room}</text>" in picture for room in rooms.present() if room not in ("", "__main__"))
    floor = {room: level for level, several in enumerate(rooms.storeys()) for room in several}
    assert all(floor[here] > floor[there] for here, there in used if here in floor and there in floor and floor[here])


def test_the_status_page_is_what_the_code_answers():
    """Three functions again, without the slow exports; the whole page is made by `make docs-status`."""
    text = (DOCS / "status.md").read_text(encoding="utf-8")
    assert {name for name in gallery.names() if f"(zoo/{name}.md)" in text} == set(gallery.names())
    for name in ("smelu", "crrelu_exact", "squaf"):
        result = status.answers(name)
        listed = status.committed()[name]
        assert {item: listed[item] for item in result} == {
            value: "✓" if two == "yes" else two for value, two in result.items()
        }


def test_the_status_says_no_where_the_answer_is_no():
    assert status.answer(lambda: False) == "no"
    assert status.answer(lambda: 1 / 0 > 0) == "no (ZeroDivisionError)"


def test_costs_are_those_of_the_records():
    costs = zoo.read_costs()
    assert len(set(gallery.names()) & set(costs)) > 25  # one that was just added is in no record yet
    (row,) = [item for item in costs["srelu"] if "H200, float32" in item]
    for name, variant in (("h200-f32-layers", "softknee eager"), ("h200-f32", "pseudocode eager")):
        rows = Record.read(ROOT / f"benchmarks/records/{name}.json").rows
        (own,) = [each for each in rows if (each["function"], each["variant"]) == ("srelu", variant)]
        assert f"| {own['forward'].value:.3g} / {own['forward_backward'].value:.3g}" in row


def test_a_cards_verdict_and_its_bars_are_kept():
    text = "| place | claim | measured | verdict |\n|---|---|---|---|\n| Sec. 1<br>`name` | a \\| b | 3 | **fails** |\n"
    card = markdown.cards(text)
    assert 'class="verdict fails"' in card
    assert "a | b" in card
    other = "| a | b |\n|---|---|\n| 1 | 2 |\n"
    assert markdown.cards(other) == other


def test_links_of_pages_are_moved_with_them():
    page = "[a](../benchmarks/records/x.json) [b](evidence/run/trials) [c](zoo/README.md#all) `[d](../no.md)` [e](https://x.y)"
    assert markdown.site_links(page, page="index.md", folders=["evidence/run"]) == (
        "[a](records/x.json) [b](evidence/run/index.md) [c](zoo/index.md#all) `[d](../no.md)` [e](https://x.y)"
    )
    assert markdown.site_links("[a](../../benchmarks/records/x.json)", page="guides/g.md") == "[a](../records/x.json)"


def test_what_a_block_printed_stands_below_it():
    text = "```python\nprint(1)\n```\n\nand\n\n```python\nx = 1\n```\n"
    made = staging.site_page(text, page="any.md", printed=("1\n", ""))
    assert ":class: output\n\n1\n```" in made
    assert made.count("```{code-block}") == 1
