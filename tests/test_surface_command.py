"""`softknee surface`: the files it writes, read back."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from softknee.app.commands import app
from softknee.errors import ParameterError
from softknee.lab.surface import Setting, heights, roughness
from softknee.measure.record import Record


def run(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, ["surface", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_figure_numbers_and_record_agree(tmp_path: Path) -> None:
    files = {name: tmp_path / f"s.{name}" for name in ("png", "npz", "json")}
    output = run(
        *("--only", "relu,smelu(beta=0.5)", "--clip", "none,2", "--v", "2", "--seed", "4", "--networks", "2"),
        *("--points", "13", "--dpi", "60", "--out", files["png"], "--numbers", files["npz"], "--json", files["json"]),
    )
    assert "smelu(beta=0.5)" in output
    assert "s.png" in output
    record = Record.read(files["json"])
    assert record.seeds == (4, 5)
    settings = [
        Setting(activation, v=2.0, clip=clip) for clip in (None, 2.0) for activation in ("relu", "smelu(beta=0.5)")
    ]
    assert [(row["activation"], row["norm"], row["v"], row["clip"]) for row in record.rows] == [
        (item.activation, item.norm, item.v, item.clip) for item in settings
    ]
    with np.load(files["npz"], allow_pickle=False) as kept:
        assert kept["heights"].shape == (4, 13, 13)
        assert kept["axis"][[0, 6, 12]].tolist() == [-6, 0, 6]
        assert kept["settings"][3] == "smelu(beta=0.5) norm=weight v=2 clip=2.0"
        for index, (setting, row) in enumerate(zip(settings, record.rows, strict=True)):
            drawn = torch.from_numpy(kept["heights"][index])
            assert drawn.equal(heights(setting, seed=4, points=13))
            other = heights(setting, seed=5, points=13)
            kinks = [roughness(value, step=1.0).kink for value in (drawn, other)]
            assert row["kink"].value == pytest.approx(sum(kinks) / 2)
            assert row["kink"].repeats == 2
    assert files["png"].read_bytes().startswith(b"\x89PNG")


def shades(path: Path) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(path).convert("RGB")) / 255


def test_the_same_call_draws_the_same_picture_and_another_another(tmp_path: Path) -> None:
    common = ("--only", "relu", "--points", "21", "--dpi", "50")
    for name, more in (("a", ()), ("b", ()), ("c", ("--seed", "1")), ("d", ("--view", "map"))):
        run(*common, *more, "--out", tmp_path / f"{name}.png")
    first = (tmp_path / "a.png").read_bytes()
    assert first == (tmp_path / "b.png").read_bytes()
    pictures = {name: shades(tmp_path / f"{name}.png") for name in "acd"}
    assert np.abs(pictures["a"] - pictures["c"]).max() > 0.2
    for picture in pictures.values():
        coloured = (picture.max(2) - picture.min(2)) > 0.15  # the surface; letters and lines are grey
        assert coloured.mean() > 0.1


def test_drawings_for_print(tmp_path: Path) -> None:
    run("--only", "relu,gelu", "--norm", "layer", "--points", "9", "--view", "map", "--out", tmp_path / "s.svg")
    root = ElementTree.parse(tmp_path / "s.svg").getroot()
    assert sum(node.tag.endswith("}image") for node in root.iter()) == 2
    run("--only", "linear", "--norm", "none", "--clip", "6", "--points", "9", "--out", tmp_path / "s.pdf")
    assert (tmp_path / "s.pdf").read_bytes().startswith(b"%PDF")


def test_refusals_come_before_any_work(tmp_path: Path) -> None:
    for words, arguments in (
        (".svg or .pdf", ("--out", tmp_path / "s.jpg")),
        ("--paper says", ("--paper", "5", "--norm", "none")),
        ("--v takes numbers", ("--v", "one")),
        ("--clip takes numbers", ("--clip", "none,6x")),
        ("There is no norm", ("--norm", "batch")),
        ("There is no view", ("--view", "globe")),
        ("written as .npz", ("--numbers", tmp_path / "s.csv")),
    ):
        with pytest.raises(ParameterError, match=words):
            run("--out", tmp_path / "s.png", *arguments)
    assert list(tmp_path.iterdir()) == []
