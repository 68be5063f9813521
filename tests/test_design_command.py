"""`softknee design`: what it prints, draws and saves, and how it fails."""

import sys
from pathlib import Path

import pytest
import torch

import softknee as sk
from softknee.measure import Record

pytest.importorskip("typer", reason="typer is not installed; the extra 'lab' brings it")
pytest.importorskip("rich", reason="rich is not installed; the extra 'lab' brings it")
pytest.importorskip("vl_convert", reason="vl-convert is not installed; the extra 'lab' brings it")

KNEE = "mollify(relu, epanechnikov, width=0.1)"


@pytest.fixture(autouse=True)
def in_an_empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_it_prints_the_sheet_draws_and_saves(softknee, tmp_path: Path) -> None:
    code, out, err = softknee("design", KNEE, "--name", "knee", "--save", "knee.json")
    assert code == 0, err
    assert r"\operatorname{knee}(x) = \begin{cases}" in out
    assert f"from {KNEE}" in out
    assert "for x < 1/10" in out
    assert "as a text" in out
    assert "certificate of knee()" in out
    assert "C2" in out
    assert "The curves of f, f' and f'' are in knee.html." in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["knee.html", "knee.json"]
    assert (tmp_path / "knee.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    x = torch.linspace(-0.3, 0.3, 61, dtype=torch.float64)
    torch.testing.assert_close(sk.load("knee.json")(x), sk.get("srelu")(x, delta=0.1))


def test_parameters_are_declared_and_shown(softknee, tmp_path: Path) -> None:
    code, out, _ = softknee(
        *("design", "x * sigmoid(beta * x) + g * x", "--param", "beta=2", "--param", "g=0.1:real"),
        *("--plot", "curve.png", "--save", "own.json", "--name", "own"),
    )
    assert code == 0
    assert "a finite number above 0" in out
    assert "certificate of own(beta=2, g=0.1)" in out
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert [(p.name, p.default) for p in sk.load("own.json").params] == [("beta", 2.0), ("g", 0.1)]


def test_a_saved_file_is_taken_again_by_this_command_and_by_others(softknee, tmp_path: Path) -> None:
    assert softknee("design", "x * sigmoid(beta * x)", "--param", "beta=1.5", "--no-plot", "--save", "own.json")[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["own.json"]
    code, out, _ = softknee("design", "own.json", "--no-plot", "--name", "again")
    assert code == 0
    assert "beta" in out
    code, out, _ = softknee(
        *("bench", "kernels", "--device", "cpu", "--elements", "1K", "--dtype", "f32", "--repeats", "2"),
        *("--only", "own.json", "--variants", "softknee eager", "--json", "bench.json"),
    )
    assert code == 0
    assert "own.json" in out
    assert "own.json" in {row["function"] for row in Record.read(tmp_path / "bench.json").rows}


def test_without_the_prover_it_says_so_and_goes_on(softknee, monkeypatch: pytest.MonkeyPatch) -> None:
    # By its module: in the package the name is the function.
    monkeypatch.setitem(sys.modules, "flint", None)
    code, out, _ = softknee("design", "swish", "--no-plot")
    assert code == 0
    assert "python-flint" in out


BAD = {
    "a misspelt name": (("swosh",), "Did you mean 'swish'"),
    "hostile": (("__import__('os').system('true')",), "called"),
    "undeclared": (("x * gamma",), "--param gamma=1.0"),
    "not a number": (("beta * x", "--param", "beta=one"), "not a finite number"),
    "no value": (("beta * x", "--param", "beta"), "a name and a number"),
    "given twice": (("beta * x", "--param", "beta=1", "--param", "beta=2"), "each name once"),
    "not in the text": (("x", "--param", "beta=1"), "nothing in the text"),
    "a bad name": (("x", "--name", "a b"), "plain letters"),
    "a refused join": (("rescu((0, 0), x)",), "slopes 0 and 1"),
    "no such file": (("nowhere.json",), "could not be read"),
    "an odd figure": (("x", "--plot", "curve.bmp"), "ends in"),
    "an odd file": (("x", "--no-plot", "--save", "knee.txt"), "ends in .json"),
    "parameters of a file": (("nowhere.json", "--param", "beta=1"), "has its parameters already"),
}


@pytest.mark.parametrize(("arguments", "words"), BAD.values(), ids=BAD)
def test_a_bad_call_ends_with_code_2_and_one_sentence(softknee, arguments: tuple[str, ...], words: str) -> None:
    code, _, err = softknee("design", *arguments)
    assert code == 2
    assert words in err
    assert "Traceback" not in err
    assert err.strip().splitlines()[-1].startswith("softknee: ")


def test_a_bad_call_leaves_no_file_behind(softknee, tmp_path: Path) -> None:
    softknee("design", "swosh", "--save", "knee.json")
    assert list(tmp_path.iterdir()) == []
