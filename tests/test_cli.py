"""The command: what it prints, what it writes, and how it fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from softknee.measure import Record

pytest.importorskip("typer", reason="typer is not installed; the extra 'lab' brings it")
pytest.importorskip("rich", reason="rich is not installed; the extra 'lab' brings it")


def test_help_names_the_commands(softknee) -> None:
    code, out, _ = softknee("--help")
    assert code == 0
    assert "bench" in out
    assert "study" in out


def test_version(softknee) -> None:
    code, out, _ = softknee("--version")
    assert code == 0
    assert out.startswith("softknee ")


def test_bench_prints_a_table_of_at_most_100_characters_and_writes_a_record(softknee, tmp_path: Path) -> None:
    file = tmp_path / "kernels.json"
    code, out, _ = softknee(
        *("bench", "kernels", "--device", "cpu", "--elements", "1K", "--dtype", "f32,bf16", "--repeats", "3"),
        *("--only", "srelu", "--variants", "softknee eager,pseudocode eager,torch", "--json", str(file)),
    )
    assert code == 0
    assert "srelu" in out
    assert max(len(line) for line in out.splitlines()) <= 100
    record = Record.read(file)
    assert record.kind == "bench kernels"
    assert {row["dtype"] for row in record.rows} == {"f32", "bf16"}
    assert "--json kernels.json" in record.command


def test_bench_prints_markdown(softknee) -> None:
    code, out, _ = softknee(
        *("bench", "kernels", "--device", "cpu", "--elements", "1K", "--dtype", "f32", "--repeats", "3"),
        *("--only", "relu", "--variants", "softknee eager", "--markdown"),
    )
    assert code == 0
    assert "| function | softknee |" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("bench", "kernels", "--only", "sreluu"), "Did you mean 'srelu'"),
        (("bench", "kernels", "--elements", "many"), "is no number of elements"),
        (("bench", "kernels", "--device", "abacus"), "it is auto, cpu or cuda"),
    ],
)
def test_an_error_is_a_sentence_and_code_2(softknee, arguments: tuple[str, ...], sentence: str) -> None:
    code, out, err = softknee(*arguments)
    assert code == 2
    assert out == ""
    assert sentence in err
    assert "Traceback" not in err


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    """In a process of its own, where importing the packages fails as if they were not installed, one after another."""
    program = """
import sys
import torch
from softknee.app import main
sys.argv = ["softknee", "study", "quickstart", "--set", "training.epochs=1", "--out", "folder"]
for missing in ("typer", "rich", "sklearn"):
    for name in list(sys.modules):
        if name.startswith(("softknee.app.", "softknee.lab", "typer", "rich", "sklearn")):
            del sys.modules[name]
    sys.modules[missing] = None
    sys.stderr.write(f"without {missing}: ")
    try:
        main()
    except SystemExit as stopped:
        assert stopped.code == 2, stopped.code
    else:
        raise AssertionError(missing)
    del sys.modules[missing]
"""
    finished = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        timeout=1200,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    # Not by lines: what shows progress may have ended one before the sentence.
    complaints = finished.stderr.split("without ")[1:]
    assert [item.partition(": ")[0] for item in complaints] == ["typer", "rich", "sklearn"]
    for name, complaint in zip(("'typer'", "'rich'", "scikit-learn"), complaints, strict=True):
        assert name in complaint
        assert "pip install 'softknee[lab]'" in complaint
        assert "Traceback" not in complaint


_LONG = [
    *("bench kernels", "bench wire", "bench epoch vit_tiny", "bench model timm:resnet18 --swap srelu", "surface"),
]


@pytest.mark.parametrize("command", _LONG)
def test_a_place_that_no_record_can_be_written_to_is_refused_first(command: str, softknee, tmp_path: Path) -> None:
    """Hours of training are not lost to a folder that is not there."""
    code, _, err = softknee(*command.split(), "--json", str(tmp_path / "none" / "found.json"))
    assert code == 2
    assert "there is no folder" in err
    code, _, err = softknee(*command.split(), "--json", str(tmp_path))
    assert "it is a folder" in err
