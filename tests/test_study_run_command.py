"""`softknee study` and `softknee report`: what they print, what they write, and how they fail."""

import os
import sys
from pathlib import Path

import pytest

from softknee.lab.studies.reading import find_recipe, read_recipe, shipped
from softknee.lab.studies.store import RunStore
from study_runs import RECIPE, write_points

pytest.importorskip("typer", reason="typer is not installed; the extra 'lab' brings it")
pytest.importorskip("rich", reason="rich is not installed; the extra 'lab' brings it")


@pytest.fixture(autouse=True)
def in_a_folder_with_a_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipes").mkdir()
    write_points(tmp_path / "recipes")
    (tmp_path / "recipes" / "mine.yaml").write_text(RECIPE.replace("name: small", "title: Mine"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def test_a_recipe_is_run_reported_and_found_again(softknee, tmp_path: Path) -> None:
    code, out, err = softknee("study", "recipes/mine.yaml", "--set", "training.epochs=2", "--set", "seeds=4")
    assert code == 0, err
    assert "Mine" in out
    for label in ("relu (baseline)", "smelu beta=0.5", "smelu beta=1"):
        (line,) = [item for item in out.splitlines() if item.lstrip().startswith(label)]
        assert line.count("±") == 2  # accuracy and prediction difference, each with its interval
    assert max(len(line) for line in out.splitlines()) <= 100
    assert "The report is studies/mine/report/index.html." in out
    assert [line.split(";")[0][:5] for line in err.splitlines()] == ["[1/3]", "[2/3]", "[3/3]"]
    store = RunStore(tmp_path / "studies" / "mine")
    assert len(store.finished()) == 3
    assert store.record(store.finished()[0]).command.startswith("softknee study recipes/mine.yaml --set training")
    page = tmp_path / "studies" / "mine" / "report" / "index.html"
    written = page.read_bytes()
    assert all(key.encode() in written for key in store.finished())
    page.unlink()
    # Records alone are enough for a report: predictions and models may be left behind.
    for kept in (tmp_path / "studies" / "mine" / "files").iterdir():
        kept.rename(tmp_path / kept.name)
    code, out, err = softknee("report", "studies/mine")
    assert code == 0, err
    assert "smelu beta=0.5" in out
    for kept in tmp_path.glob("*.safetensors"):
        kept.rename(tmp_path / "studies" / "mine" / "files" / kept.name)
    assert all(key.encode() in page.read_bytes() for key in store.finished())
    # Another recipe in the same place: refused, with what differs.
    code, _, err = softknee("study", "recipes/mine.yaml", "--resume")
    assert code == 2
    assert "training.epochs is 2 there and 4 here" in err
    assert "Traceback" not in err
    # An unfinished study: refused without --resume, gone on with it; and without a report where none is wanted.
    os.remove(tmp_path / "studies" / "mine" / "trials" / f"{store.finished()[0]}.json")
    again = ("study", "recipes/mine.yaml", "--set", "training.epochs=2", "--set", "seeds=4", "--out", "studies/mine")
    code, _, err = softknee(*again)
    assert code == 2
    assert "Use --resume to go on with it" in err
    page.unlink()
    code, out, err = softknee(*again, "--resume", "--no-report")
    assert code == 0, err
    assert "The records are in studies/mine." in out
    assert len(store.finished()) == 3
    assert not page.exists()


def test_the_list_names_every_recipe(softknee) -> None:
    code, out, _ = softknee("study", "list")
    assert code == 0
    assert shipped()
    for name, title in shipped():
        (line,) = [item for item in out.splitlines() if item.lstrip().startswith(f"{name} ")]
        assert title in line


def test_a_recipe_is_shown_as_it_can_be_read(softknee) -> None:
    code, out, _ = softknee("study", "show", "quickstart", "--set", "seeds=3")
    assert code == 0
    assert read_recipe(out).seeds.count == 3
    code, out, _ = softknee("study", "show", "recipes/mine.yaml", "--full")
    assert code == 0
    assert read_recipe(out).name == "mine"
    # Without a setting, as it is written: the comments of a recipe are what one copies it for.
    code, out, _ = softknee("study", "show", "own-data")
    assert code == 0
    assert out.startswith("# Your own data and your own model.")
    assert read_recipe(out) == find_recipe("own-data")


def test_help_says_what_can_be_asked_for(softknee) -> None:
    code, out, _ = softknee("study", "--help")
    assert code == 0
    for word in ("NAME_OR_FILE", "list", "show"):
        assert word in out
    for name in ("quickstart", "run"):  # the options of a recipe are those of `run`
        code, out, _ = softknee("study", name, "--help")
        assert code == 0
        for option in ("--set", "--out", "--resume", "--engine", "--data", "--no-report"):
            assert option in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("study", "quikstart"), "Did you mean 'quickstart'?"),
        (("study", "lits"), "Did you mean the command 'list'?"),
        (("study", "nowhere.yaml"), "could not be read"),
        (("study", "recipes/mine.yaml", "--set", "epochs=3"), "epochs is no key"),
        (("study", "recipes/mine.yaml", "--engine", "rya"), "Did you mean 'ray'?"),
        (("study", "recipes/mine.yaml", "--set", "device=cuda:99"), "--set device=cpu to train on the CPU"),
        (("study", "recipes/mine.yaml", "--set", "device=gpu"), "such as 'cuda:1'"),
        (("study", "recipes/mine.yaml", "--out", "recipes"), "Give the study a folder of its own"),
        (("study", "recipes/mine.yaml", "--out", "nowhere://x"), "cannot be used"),
        (("report", "recipes"), "holds no study"),
    ],
    ids=["recipe", "command", "file", "key", "engine", "device", "no device", "folder", "store", "report"],
)
def test_what_cannot_be_done_is_a_sentence_with_a_cure(softknee, arguments: tuple[str, ...], said: str) -> None:
    code, _, err = softknee(*arguments)
    assert code == 2
    assert said in err
    assert "Traceback" not in err
    assert not Path("studies").exists()  # nothing is left behind


def test_a_missing_tool_of_the_report_is_said_before_the_training(
    softknee, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    code, _, err = softknee("study", "recipes/mine.yaml", "--out", "study")
    assert code == 2
    assert "pip install 'softknee[lab]'; or leave the report out with --no-report" in err
    assert not (tmp_path / "study").exists()


def test_a_report_that_cannot_be_written_loses_nothing_and_says_so(softknee, tmp_path: Path) -> None:
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "report").write_text("a file where a folder is needed")
    code, out, err = softknee("study", "recipes/mine.yaml", "--out", "study")
    assert code == 2
    assert "The report could not be written" in err
    assert "The records are in study; then: softknee report study" in err
    assert "relu" in out  # what came of it
    (tmp_path / "study" / "report").unlink()
    assert softknee("report", "study")[0] == 0


@pytest.mark.parametrize("command", ["hardening", "wikitext", "rate", "distil"])
def test_a_retired_command_names_the_recipe_that_took_its_place(softknee, command: str) -> None:
    code, _, err = softknee("study", command, "--seeds", "3")
    assert code == 2
    assert f"'softknee study {command}' has become a recipe. Run " in " ".join(err.split())
