"""Figures: jumps are shown as jumps, thinning moves nothing, files go by their ending, errors are sentences."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import sympy
import torch

import softknee as sk
import svg_reading
from helpers import every_subject, ordinary_values
from softknee.app import main
from softknee.errors import ParameterError, SoftkneeError
from softknee.files import WriteError
from softknee.lab import figures
from softknee.lab.figures import draw
from softknee.spec import Activation, x

F64 = torch.float64


def curve_of(name: str, low: float = -3.0, high: float = 3.0, **values: float) -> figures.Curve:
    act = sk.get(name)
    return figures.sample(figures.orders_of(act, values), low=low, high=high, seams=figures.seams_of(act, values))


# -- jumps ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "values", "runs", "masses"),
    [
        ("smelu", {"beta": 0.5}, (1, 1, 3), []),
        ("srelu", {"delta": 0.5}, (1, 1, 1), []),
        ("softplus", {}, (1, 1, 1), []),
        ("softsign", {}, (1, 1, 2), []),
        ("relu", {}, (1, 2, 1), [(0.0, 1.0)]),
        ("hardtanh", {}, (1, 3, 1), [(-1.0, 1.0), (1.0, -1.0)]),
        ("elu", {"beta": 2.0}, (1, 2, 2), [(0.0, -1.0)]),
        ("crrelu", {"eps": 0.5}, (1, 2, 1), [(0.0, 1.0)]),
        ("leaky_relu", {"slope": -0.25}, (1, 2, 1), [(0.0, 1.25)]),
    ],
)
def test_lines_break_where_the_function_jumps(name, values, runs, masses):
    curve = curve_of(name, **values)
    assert tuple(len(parts) for parts in curve.runs) == runs
    assert sum(curve.masses[2], ()) == pytest.approx(sum(masses, ()), abs=1e-6)
    assert curve.masses[1] == ()


def test_the_second_derivative_of_smelu_is_a_step():
    left, middle, right = curve_of("smelu", beta=0.5).runs[2]
    assert set(left.ys) == set(right.ys) == {0.0}
    assert set(middle.ys) == {1.0}
    assert middle.xs[0] == pytest.approx(-0.5, abs=1e-7)
    assert middle.xs[-1] == pytest.approx(0.5, abs=1e-7)


def test_jumps_are_found_where_no_seam_is_known():
    """A staircase has jumps and nothing else; a steep slope has none."""
    stairs = figures.sample([lambda t: torch.floor(t)], low=-2.5, high=2.5, seams=None)
    assert [place for place, _ in stairs.masses[1]] == pytest.approx([-2, -1, 0, 1, 2], abs=1e-9)
    assert [weight for _, weight in stairs.masses[1]] == [1.0] * 5
    steep = figures.sample([lambda t: torch.tanh(1e4 * t)], low=-1.0, high=1.0, seams=None)
    assert steep.masses[1] == ()
    act, values = sk.get("smelu"), {"beta": 0.5}
    hunted = figures.sample(figures.orders_of(act, values), low=-3, high=3, seams=None)
    assert [len(runs) for runs in hunted.runs] == [1, 1, 3]


@every_subject
def test_a_run_never_crosses_a_jump(act: Activation):
    """Between neighbouring points of a run the function moves as far as its slope allows, and no further."""
    values = ordinary_values(act)
    curve = figures.sample(figures.orders_of(act, values), low=-3, high=3, seams=figures.seams_of(act, values))
    for order in (0, 1):
        steepest = max(abs(y) for run in curve.runs[order + 1] for y in run.ys)
        for run in curve.runs[order]:
            xs, ys = torch.tensor(run.xs, dtype=F64), torch.tensor(run.ys, dtype=F64)
            assert bool((ys.diff().abs() <= 1.01 * steepest * xs.diff() + 1e-6 * (1 + ys.abs().max())).all())


# -- points and views -------------------------------------------------------------------------------------


def test_thinning_leaves_points_out_and_moves_none():
    (run,) = curve_of("gelu").runs[2]
    thin = figures.thin(run, scale_x=30.0, scale_y=50.0, tolerance=0.05)
    assert len(thin.xs) < len(run.xs) / 10
    assert {*zip(thin.xs, thin.ys, strict=True)} <= {*zip(run.xs, run.ys, strict=True)}
    assert (thin.xs[0], thin.xs[-1]) == (run.xs[0], run.xs[-1])
    xs, ys = torch.tensor(thin.xs, dtype=F64), torch.tensor(thin.ys, dtype=F64)
    at = torch.tensor(run.xs, dtype=F64)
    place = (torch.searchsorted(xs, at).clamp(1, len(xs) - 1)).long()
    share = (at - xs[place - 1]) / (xs[place] - xs[place - 1])
    on_line = ys[place - 1] + share * (ys[place] - ys[place - 1])
    slope = (ys[place] - ys[place - 1]) * 50.0 / ((xs[place] - xs[place - 1]) * 30.0)
    away = 50.0 * (torch.tensor(run.ys, dtype=F64) - on_line).abs() / torch.sqrt(1 + slope**2)
    assert float(away.max()) <= 0.05 + 1e-9


def test_a_straight_run_keeps_its_ends_alone():
    run = figures.Polyline(tuple(range(9)), tuple(2.0 * i for i in range(9)))
    assert figures.thin(run, scale_x=1.0, scale_y=1.0, tolerance=0.01) == figures.Polyline((0, 8), (0.0, 16.0))


def view_of(act: Activation, **values: float) -> tuple[float, float]:
    return figures.bounds(figures.lines_of(act, [values]), None, None)


@pytest.mark.parametrize("scale", [1e-3, 0.1, 1.0, 30.0])
def test_the_view_follows_the_knob(scale: float):
    low, high = view_of(sk.get("srelu"), delta=scale)
    assert -4 * scale <= low < -scale
    assert scale < high <= 4 * scale
    low, high = view_of(sk.get("gelu"), beta=1 / scale)
    assert -8 * scale <= low < -2 * scale
    assert 2 * scale < high <= 8 * scale


def test_a_view_is_found_for_everything():
    low, high = view_of(sk.get("relu6"))
    assert low < 0
    assert 6 < high < 12
    for formula in (x**4, sympy.sin(x), sympy.exp(x), sympy.Integer(1) * x):
        low, high = view_of(Activation("given", formula))
        assert low <= -1
        assert 1 <= high <= 20
    low, high = view_of(sk.get("crrelu_exact"))  # has a seam at 40 that guards its arithmetic
    assert high < 10


def test_darker_is_harder():
    shades = [
        sum(int(colour[i : i + 2], 16) * w for i, w in ((1, 0.21), (3, 0.72), (5, 0.07))) for colour in figures.RAMP
    ]
    assert shades == sorted(shades, reverse=True)
    widths = figures.colours(sk.get("smelu"), [{"beta": b} for b in (0.25, 0.5, 1.0)])
    gates = figures.colours(sk.get("gelu"), [{"beta": b} for b in (0.25, 0.5, 1.0)])
    assert widths == gates[::-1]
    assert widths[0] == figures.RAMP[-1]
    mixed = figures.colours(sk.get("crrelu"), [{"eps": -0.5}, {"eps": 0.5}])
    assert mixed == [*figures.DISTINCT[:2]]


def test_the_limit_is_drawn_once_or_once_for_each():
    def dotted(name: str, settings: list[dict[str, float]]) -> list[str]:
        return [line.label for line in figures.lines_of(sk.get(name), settings) if line.dotted]

    assert dotted("smelu", [{"beta": 0.5}, {"beta": 1.0}]) == ["relu"]
    assert dotted("leaky_smelu", [{"g_minus": 0.1}, {"g_minus": 0.2}]) == ["leaky_relu", ""]
    assert dotted("shifted_smelu", [{"shift": 1.0}]) == ["β → 0"]
    assert dotted("tanh", [{}]) == []


def test_a_limit_without_a_name_is_the_definition_at_the_end_of_its_knob():
    act = sk.get("shifted_smelu")
    line = figures.lines_of(act, [{"shift": 1.0}])[-1]
    curve = line.between(-3.0, 3.0)
    assert sum(curve.masses[2], ()) == pytest.approx((1.0, 1.0), abs=1e-6)
    for run in curve.runs[0]:
        assert [max(at - 1.0, 0.0) for at in run.xs] == pytest.approx(run.ys, abs=1e-9)


def test_a_smooth_limit_without_a_name_is_drawn_as_its_jumps():
    """A step smoothed: at the end of the knob its slope is a spike that no panel holds, and its value jumps."""
    delta = sk.spec.positive("delta", 1.0)
    soft = Activation("soft_step", sk.spec.Sigmoid(x / delta.symbol), params=(delta,), knob="delta")
    *_, limit = figures.lines_of(soft, [{"delta": 1.0}])
    curve = limit.between(-3.0, 3.0)
    assert len(curve.runs) == 1
    assert sum(curve.masses[1], ()) == pytest.approx((0.0, 1.0), abs=1e-9)


# -- files ------------------------------------------------------------------------------------------------


def test_svg_shows_the_values(tmp_path: Path):
    path = draw(sk.get("smelu"), tmp_path / "smelu.svg", beta=0.5, low=-2, high=2)
    picture = svg_reading.read(path.read_text(encoding="utf-8"))
    (run,) = picture.curve("0_0", 0)
    act = sk.get("smelu")
    for at, value in run:
        assert value == pytest.approx(float(act(torch.tensor(at, dtype=F64), beta=0.5)), abs=1e-3)
    assert [len(picture.curve("0_2", line)) for line in (0, 1)] == [3, 1]
    assert "β = 0.5" in picture.texts
    assert "relu" in picture.texts


def test_png_is_a_picture(tmp_path: Path):
    from PIL import Image

    first = draw(sk.get("gelu"), tmp_path / "one.png", settings=[{"beta": 1.0}, {"beta": 4.0}])
    second = draw(sk.get("gelu"), tmp_path / "two.PNG", settings=[{"beta": 1.0}, {"beta": 4.0}])
    assert first.read_bytes() == second.read_bytes()
    with Image.open(first) as image:
        assert image.size[0] > 1600
        assert image.getpixel((0, 0))[:3] == (255, 255, 255)  # pyright: ignore
        colours = {colour for _, colour in image.convert("RGB").getcolors(maxcolors=1 << 24) or ()}
        assert len(colours) > 50
        assert image.info.get("Software") is None


def test_html_stands_alone(tmp_path: Path):
    text = draw(sk.get("srelu"), tmp_path / "srelu.html", delta=0.5).read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert text.count("<svg") == 1
    assert r"\begin{cases} 0 &amp; x \le - \delta" in text
    assert "(delta + x)**3 * (3 * delta - x) / (16 * delta**3) if x &lt; delta" in text
    assert set(re.findall(r"https?://[^\"]*", text)) <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "src=" not in text


def test_a_name_cannot_break_the_page(tmp_path: Path):
    act = Activation("mine", x, about="a <script>alert(1)</script> & more")
    text = draw(act, tmp_path / "mine.html").read_text(encoding="utf-8")
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def test_stacked_panels_are_below_each_other(tmp_path: Path):
    boxes = {}
    for stacked in (False, True):
        path = draw(sk.get("relu"), tmp_path / "relu.svg", stacked=stacked)
        panels = svg_reading.read(path.read_text(encoding="utf-8")).panels
        boxes[stacked] = [panels[f"panel_0_{order}"].box for order in range(3)]
    assert len({box[1] for box in boxes[False]}) == 1
    assert len({box[0] for box in boxes[True]}) == 1
    for side, boxed in ((0, boxes[False]), (1, boxes[True])):
        assert all(before[side + 2] < after[side] for before, after in pairwise(boxed))


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("f.pdf", {}, "choose one of these endings"),
        ("f", {}, "ends in none"),
        ("f.svg", {"low": 1.0, "high": 1.0}, "is not below 1"),
        ("f.svg", {"low": float("nan")}, "is not below"),
        ("f.svg", {"betta": 1.0}, "Did you mean 'beta'"),
        ("f.svg", {"beta": -1.0}, "must be a finite number above 0"),
        ("f.svg", {"settings": []}, "1 to 6 lines"),
        ("f.svg", {"settings": [{"beta": 0.1 * i} for i in range(1, 8)]}, "1 to 6 lines"),
    ],
)
def test_what_cannot_be_drawn_is_a_sentence(tmp_path: Path, name, options, sentence):
    with pytest.raises(ParameterError, match=re.escape(sentence)):
        draw(sk.get("smelu"), tmp_path / name, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", ["png", "svg", "html"])
def test_a_folder_that_is_not_there_is_a_sentence(tmp_path: Path, ending: str):
    with pytest.raises(WriteError, match="Choose a folder that exists"):
        draw(sk.get("relu"), tmp_path / "no" / f"relu.{ending}")


def test_without_the_converter_the_extra_is_named(tmp_path: Path):
    """By the function and by the command, in a process where importing it fails as if it were not installed."""
    program = """
import sys
sys.modules["vl_convert"] = None
sys.argv = ["softknee", "gallery", "--only", "relu", "--out", "zoo"]
import softknee as sk
from softknee.app import main
from softknee.lab.figures import draw
try:
    draw(sk.get("relu"), "relu.svg")
except sk.SoftkneeError as error:
    sys.stderr.write(f"draw: {error}\\n")
main()
"""
    path = os.pathsep.join(item for item in sys.path if item)
    finished = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        timeout=1200,
        check=False,
    )
    assert finished.returncode == 2
    drawing, command = filter(None, finished.stderr.splitlines())
    assert drawing.startswith("draw: ")
    assert "pip install 'softknee[lab]'" in drawing
    assert "pip install 'softknee[lab]'" in command


def test_the_command_says_what_it_wrote(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["softknee", "gallery", "--only", "relu", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    assert "2 files written" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["relu.md", "relu.svg"]
    monkeypatch.setattr(sys, "argv", ["softknee", "gallery", "--only", "relo", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "Did you mean 'relu'" in capsys.readouterr().err


def test_errors_are_ours():
    assert issubclass(WriteError, SoftkneeError)
