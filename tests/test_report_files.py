"""What is written beside the page: Markdown, CSV, LaTeX and figures as PDF; and that all is written whole."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest

from report_outcomes import outcomes, recipe
from softknee.files import WriteError
from softknee.lab.chart import svg_of
from softknee.lab.report import write_report
from softknee.lab.report.drawing import hardness, on_paper, pdf_figures
from softknee.lab.report.summary import Profile, summarise
from softknee.lab.report.tables import RESULTS, SEEDS
from softknee.lab.studies.reading import read_recipe
from softknee.lab.studies.trials import Outcome
from softknee.lab.table import escape_latex as tex
from softknee.lab.table import escape_markdown as md
from softknee.measure import Record

# Signs that are commands in Markdown, LaTeX or CSV, at the places where they would matter most.
HOSTILE = '*[x]|a_b & 50% of $y^2$ #1 {z} \\input{/etc/passwd} ~`q` <i>, "λ"\n- 漢 --'


@pytest.fixture(scope="module")
def found() -> list[Outcome]:
    made = outcomes(recipe(), diverging="silu")
    renamed = replace(made[1].trial.activation, label=HOSTILE)
    return [made[0], replace(made[1], trial=replace(made[1].trial, activations=(renamed,))), *made[2:]]


RECORD = Record.now("trial", command="softknee study", rows=[])


@pytest.fixture(scope="module")
def place(found: list[Outcome], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report, written over an older one."""
    folder = tmp_path_factory.mktemp("study") / "report"
    folder.mkdir()
    (folder / "index.html").write_text("an older page")
    page = write_report(
        recipe(title=HOSTILE), found, folder, command="softknee study made-up.yaml", records=[RECORD, RECORD]
    )
    assert page == folder / "index.html"
    return folder


@pytest.fixture(scope="module")
def files(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def test_all_files_are_there_and_no_temporary_one(files: dict[str, bytes]) -> None:
    figures = {f"figures/{name}.pdf" for name in ("plane", "validation-accuracy", "train-loss", "shapes", "hardness")}
    assert set(files) == figures | {"index.html", "report.md", "report.tex", "results.csv", "seeds.csv"}


def test_results_csv_has_every_number_with_all_its_digits(files: dict[str, bytes], found: list[Outcome]) -> None:
    rows = list(csv.DictReader(io.StringIO(files["results.csv"].decode())))
    assert tuple(rows[0]) == RESULTS
    summary = summarise(recipe(), found)
    by_name = {(row["activation"], row["measure"]): row for row in rows}
    assert len(by_name) == len(rows) == len(summary.rows) * (len(summary.measures) + 4) - 4  # one is not timed
    for row in summary.judged:
        for measure in summary.measures:
            line, number = by_name[row.label, measure.name], row.result(measure)
            assert number is not None
            assert number.interval is not None
            assert (float(line["value"]), float(line["low"]), float(line["high"])) == (number.value, *number.interval)
            assert line["record"] == row.key
            if verdict := row.verdicts.get(measure.name):
                assert float(line["p_holm"]) == verdict.adjusted
                assert line["verdict"] == verdict.words
    gone = by_name["silu", "accuracy"]
    assert (gone["value"], gone["low"], gone["p"], gone["diverged"]) == ("", "", "", "1")
    assert float(by_name["relu", "train_ratio"]["value"]) == 0.93


def test_seeds_csv_has_every_seed(files: dict[str, bytes], found: list[Outcome]) -> None:
    rows = list(csv.DictReader(io.StringIO(files["seeds.csv"].decode())))
    assert tuple(rows[0]) == SEEDS
    values = {(row["activation"], row["measure"], int(row["seed"])): row for row in rows}
    assert len(values) == len(rows)
    for outcome in found[:-1]:
        label = outcome.trial.activation.label
        for seed, value in zip(outcome.trial.seeds.numbers, outcome.test["accuracy"], strict=True):
            assert values[label, "test.accuracy", seed]["value"] == ("" if value is None else repr(value))
    assert values["silu", "test.accuracy", 2]["diverged_in_epoch"] == "4"
    assert values["relu", "delta_1.without_this_seed", 0]["value"] == repr(found[0].difference["delta_1"]["without"][0])


def test_markdown_tables_keep_their_columns(files: dict[str, bytes]) -> None:
    text = files["report.md"].decode()
    tables = re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    assert len(tables) == 8
    for table in tables:
        widths = {len(re.split(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1
    assert f"[{md(HOSTILE)}](../trials/" in text
    assert "| [silu](../trials/" in text
    assert "**silu" not in text


def test_markdown_signs_are_plain_text() -> None:
    assert md("a_b*c|<d>\n#") == r"a\_b\*c\|\<d\> \#"


def test_the_recipe_of_a_report_can_be_read_back(files: dict[str, bytes]) -> None:
    text = files["report.md"].decode()
    (yaml,) = re.findall(r"```yaml\n(.*?)\n```", text, flags=re.DOTALL)
    assert read_recipe(yaml) == recipe(title=HOSTILE)


# -- LaTeX: there may be no compiler, so its grammar is checked as far as a document of this kind can go wrong --------


def document(files: dict[str, bytes]) -> str:
    return files["report.tex"].decode()


def test_latex_braces_and_environments_are_closed(files: dict[str, bytes]) -> None:
    text = document(files)
    depth = 0
    for sign in re.sub(r"\\[{}\\]", "", text):
        depth += {"{": 1, "}": -1}.get(sign, 0)
        assert depth >= 0
    assert depth == 0
    opened: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert opened == []
    assert text.count("$") % 2 == 0 or text.replace(r"\$", "").count("$") % 2 == 0


def test_latex_tables_have_a_cell_for_every_column(files: dict[str, bytes]) -> None:
    tables = re.findall(r"\\begin\{tabular\}\{(\w+)\}\n(.*?)\\end\{tabular\}", document(files), flags=re.DOTALL)
    assert len(tables) == 8
    for columns, body in tables:
        lines = [line for line in body.splitlines() if line not in (r"\toprule", r"\midrule", r"\bottomrule")]
        for line in lines:
            assert line.endswith(r" \\")
            assert len(re.split(r"(?<!\\)&", line)) == len(columns)
            # What follows a \\ must not start with what it would take as an argument.
            assert not line.startswith(("[", "*"))


def test_latex_has_no_sign_of_the_users_as_a_command(files: dict[str, bytes]) -> None:
    body = document(files).split(r"\begin{document}")[1]
    used = set(re.findall(r"\\([A-Za-z]+)", body))
    words = """maketitle begin end item textbf noindent centering caption label fitted toprule midrule bottomrule
        bfseries boldmath pm includegraphics linewidth section texttt Delta lambda textbackslash textasciitilde
        textasciicircum textbar textquotedbl textquotesingle textasciigrave"""
    own = set(words.split())
    assert used <= own
    assert not re.search(r"(?<!\\)[%#]", body.replace("tab:", ""))
    assert re.search(r"(?<!\\)_", re.sub(r"\$_\d\$", "", re.sub(r"\\label\{.*?\}", "", body))) is None


def test_latex_signs_are_plain_text() -> None:
    assert tex("a_b & 5%") == r"a\_b \& 5\%"
    assert tex("\\x{y}") == r"\textbackslash{}x\{y\}"
    assert tex("--set") == "-{}-set"
    assert tex("λ≈漢é") == r"$\lambda${[}U+2248{]}{[}U+6F22{]}é"
    assert tex("97 ± 1\u00a0%\n[a]*") == r"97 $\pm$ 1~\% {[}a{]}{*}"


def test_latex_is_bold_where_nothing_is_shown_to_be_better(files: dict[str, bytes], found: list[Outcome]) -> None:
    first = document(files).split(r"\midrule")[1].split(r"\bottomrule")[0]
    lines = {line.split(" & ")[0]: line.split(" & ")[1:3] for line in first.strip().splitlines()}
    summary = summarise(recipe(), found)
    bold = 0
    for row in summary.rows:
        cells = lines[tex(f"{row.label} (baseline)" if row.baseline else row.label)]
        for name, cell in zip(("accuracy", "delta_1"), cells, strict=True):
            assert cell.startswith(r"{\bfseries\boldmath ") == (name in row.best)
            bold += name in row.best
    assert 2 <= bold < 2 * len(summary.rows)


# -- figures and writing ----------------------------------------------------------------------------------


def test_figures_have_their_fonts_inside_and_no_date(files: dict[str, bytes]) -> None:
    for content in (content for name, content in files.items() if name.endswith(".pdf")):
        assert content.startswith(b"%PDF")
        assert b"/CreationDate" not in content
        assert b"/Type3" not in content  # what many conferences refuse
        assert b"/FontFile2" in content


def test_a_figure_is_the_same_bytes_each_time(files: dict[str, bytes], found: list[Outcome]) -> None:
    """Of a PDF all but the order in which its fonts are listed."""
    summary = summarise(recipe(), found)
    assert sorted(pdf_figures(summary, only=["plane"])["plane"][0]) == sorted(files["figures/plane.pdf"])
    some = ["plane", "hardness"]
    assert pdf_figures(summary, png=True, only=some) == pdf_figures(summary, png=True, only=some)


def test_links_lead_to_the_records_beside_the_report(files: dict[str, bytes], found: list[Outcome]) -> None:
    linked = set(re.findall(r'href="\.\./trials/(\w+)\.json"', files["index.html"].decode()))
    assert linked == {outcome.trial.key for outcome in found}
    words = RECORD.created.replace("T", " ").replace("Z", " UTC")
    assert f"- Measured: {words}\n" in files["report.md"].decode()


def test_a_place_that_cannot_be_written_to_is_named(found: list[Outcome], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(WriteError, match="could not be made"):
        write_report(recipe(), found[:2], tmp_path / "file" / "report", command="softknee study")
    assert (tmp_path / "file").read_text() == "in the way"


def test_sites_have_their_names_below_the_axis_and_of_many_every_second() -> None:
    for count, step in ((3, 1), (17, 1), (30, 2)):
        names = tuple(f"layer{place}.act" for place in range(count))
        sites = tuple((1.0 + place, 1.5 + place) for place in range(count))
        profile = Profile(label="relu", knob="lam", paths=names, start=sites, end=sites, distance=sites)
        (figure,) = hardness(replace(summarise(recipe(), outcomes(recipe())), profiles=(profile,)))
        axis = figure.chart["layer"][-1]["encoding"]["x"]["axis"]
        assert axis["values"] == [*range(1, count + 1, step)]
        assert axis["labelExpr"].startswith('["layer0.act", "layer1.act", ')
        assert ("labelAngle" in axis) == (count > 4)
        svg = svg_of(on_paper([figure]), label="profile")
        assert [name for name in names[::step] if f">{name}</text>" not in svg] == []
