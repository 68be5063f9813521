"""The gallery: pages are what the definitions say, pictures show the truth, nothing is missing or left over."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import sympy
import torch

import processes
import softknee as sk
import svg_reading
from helpers import ZOO
from softknee.design.proof.certify import certify
from softknee.errors import ParameterError
from softknee.lab import gallery
from softknee.lab.gallery import EXHIBITS, exhibit
from softknee.registry import unregister
from softknee.spec import Activation
from softknee.spec.reference import evaluate

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "zoo"
NAMES = [*ZOO, "squaf"]
# One of each kind: joined pieces, gates, kinks, an implicit function, a limit without a name.
SOME = ("smelu", "srelu", "gelu", "elu", "hardswish", "crrelu_exact", "shifted_smelu", "relu")
every_name = pytest.mark.parametrize("name", NAMES)


def picture(name: str) -> svg_reading.Picture:
    return svg_reading.read((PAGES / f"{name}.svg").read_text(encoding="utf-8"))


# -- what is there ----------------------------------------------------------------------------------------


def test_every_function_has_a_page_and_every_page_a_function():
    assert {path.stem for path in PAGES.glob("*.md")} == {*NAMES, "README"}
    assert {path.stem for path in PAGES.glob("*.svg")} == {*NAMES, "all", "relatives"}


def test_every_exhibit_is_of_a_function():
    assert set(EXHIBITS) <= set(NAMES)


def test_a_picture_is_small_and_stands_alone():
    allowed = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    for path in PAGES.glob("*.svg"):
        text = path.read_text(encoding="utf-8")
        most = 3_000 * len(NAMES) if path.stem == "all" else 80_000  # that of all grows with them
        assert len(text.encode()) < most, path.stem
        assert set(re.findall(r"https?://[^\"]*", text)) <= allowed, path.stem


def test_links_lead_somewhere():
    for path in PAGES.glob("*.md"):
        targets = re.findall(r"\]\(([^)]+)\)", path.read_text(encoding="utf-8"))
        assert targets, path.stem
        assert [target for target in targets if not (path.parent / target).exists()] == [], path.stem


def test_tables_are_rectangles():
    """A bar inside a formula or a sentence would add a column to its row."""
    for path in PAGES.glob("*.md"):
        tables = re.findall(r"(?:^\|.*\n)+", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert tables, path.stem
        for table in tables:
            columns = {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}
            assert len(columns) == 1, (path.stem, table)


# -- as generated -----------------------------------------------------------------------------------------


@every_name
def test_a_page_is_what_its_definition_generates(name: str):
    act = sk.get(name)
    assert (PAGES / f"{name}.md").read_text(encoding="utf-8") == gallery.page(act, gallery.settings(act))
    assert svg_reading.differences(picture(name), svg_reading.read(gallery.figure(act))) == []


def test_the_index_is_what_is_generated():
    listed = {name: f"| [{gallery.title_of(sk.get(name))}]({name}.md) | `{name}` |" for name in NAMES}
    text = (PAGES / gallery.INDEX).read_text(encoding="utf-8")
    assert [name for name, row in listed.items() if row not in text] == []
    assert text == gallery.index()


@pytest.mark.slow
@pytest.mark.parametrize(("stem", "draw"), [("all", gallery.everything), ("relatives", gallery.relatives)])
def test_the_pictures_of_all_are_what_is_generated(stem: str, draw):
    assert svg_reading.differences(picture(stem), svg_reading.read(draw())) == []


def test_a_changed_function_is_noticed():
    """By 1%: a hundredth of the panel, ten times the tolerance."""
    act = sk.get("smelu")
    changed = Activation("smelu", act.formula * 1.01, params=act.params, knob=act.knob, limit=act.limit)
    differences = svg_reading.differences(picture("smelu"), svg_reading.read(gallery.figure(changed)))
    assert any(line.startswith("line line_0_0") for line in differences)
    kinked = Activation("smelu", act.formula + 0.01 * abs(sk.spec.x), params=act.params, knob=act.knob, limit=act.limit)
    differences = svg_reading.differences(picture("smelu"), svg_reading.read(gallery.figure(kinked)))
    assert any(line.startswith("only in one: mass") for line in differences)


def test_another_process_writes_the_same_bytes(tmp_path: Path):
    """With another seed of Python's hashes."""
    program = """
import sys
from softknee.lab import gallery
assert hash("softknee") != int(sys.argv[2])
gallery.write(sys.argv[1], only=["leaky_smelu"])
"""
    processes.run(processes.execute, program, str(tmp_path), str(hash("softknee")), count=1)
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == ["leaky_smelu.md", "leaky_smelu.svg"]
    act = sk.get("leaky_smelu")
    assert (tmp_path / "leaky_smelu.svg").read_text(encoding="utf-8") == gallery.figure(act)
    assert (tmp_path / "leaky_smelu.md").read_text(encoding="utf-8") == gallery.page(act, gallery.settings(act))


# -- the truth --------------------------------------------------------------------------------------------


def assert_shows(act: Activation, values: dict[str, float], name: str, line: int, per_run: int = 3) -> int:
    """Points of a drawn line against 50 digits, within what rounding to a hundredth of a point explains."""
    drawn, checked = picture(name), 0
    for order in range(3):
        panel = drawn.panels[f"panel_0_{order}"]
        wide, tall = panel.point
        for run in drawn.curve(f"0_{order}", line):
            # The ends of a run are one-sided: the reference is asked a little inside.
            inside = [(run[0][0] + 0.02 * wide, run[0][1]), *run[1:-1], (run[-1][0] - 0.02 * wide, run[-1][1])]
            for x, y in inside[:: max(1, len(inside) // per_run)]:
                quantity = act.derivative(order)
                near = [float(evaluate(quantity, x + aside * wide, **values)) for aside in (-0.01, 0, 0.01)]
                room = 0.03 * tall + 2 * (max(near) - min(near))
                assert min(near) - room <= y <= max(near) + room, (name, values, order, x, y, near)
                checked += 1
    return checked


@pytest.mark.parametrize("name", SOME)
def test_the_pictures_show_the_truth(name: str):
    """All are drawn by one function, and are as it draws them: one of each kind stands for all."""
    act = sk.get(name)
    few = 1 if act.implicit is not None else 3
    lines = gallery.settings(act)
    checked = sum(assert_shows(act, values, act.name, line, few) for line, values in enumerate(lines))
    assert checked >= 3 * len(lines)
    if act.limit is not None and not act.limit_params:
        assert assert_shows(sk.get(act.limit), {}, act.name, len(lines)) >= 3


def test_squafs_formulas_are_those_of_its_page():
    """The formulas that the page prints, worked out as they stand, against the kernels."""
    values = {"k": 6, "q": 0.5, "alpha": 6.0, "window": None}
    x = torch.linspace(-4, 4, 97, dtype=torch.float64)
    y = torch.arange(-6, 7, dtype=torch.float64) * 0.5
    z, p = y.relu(), torch.softmax(-6.0 * (x[:, None] - y) ** 2, dim=1)
    f, m = (z * p).sum(1, keepdim=True), (y * p).sum(1, keepdim=True)
    by_hand = [f[:, 0], 12.0 * ((z - f) * (y - m) * p).sum(1), 144.0 * ((z - f) * (y - m) ** 2 * p).sum(1)]
    for order, expected in enumerate(by_hand):
        torch.testing.assert_close(sk.get("squaf").derivative(order)(x, **values), expected, rtol=1e-12, atol=1e-12)
    page = (PAGES / "squaf.md").read_text(encoding="utf-8")
    assert r"f''(x) = 4 \alpha^2 \sum_{i=-k}^{k} (z_i - f(x))\, (y_i - m(x))^2\, p_i(x)" in page


@pytest.mark.parametrize("name", [name for name, shown in EXHIBITS.items() if shown.place is not None])
def test_the_place_that_a_page_states_is_the_proven_one(name: str):
    """The distance itself is a claim of the definition, which test_hardening_limits holds against its proof."""
    act, shown, (values, *_) = sk.get(name), exhibit(name), gallery.settings(sk.get(name))
    proof = certify(act, **{key: str(value) for key, value in values.items()})
    assert proof.distance is not None
    assert shown.place is not None
    stated = float(shown.place(*(sympy.Rational(str(values.get(p.name, p.default))) for p in act.params)))
    assert stated in [pytest.approx(abs(float(region.begin)), abs=1e-9) for region in proof.distance.places]


def test_the_distance_of_the_implicit_function():
    """y - x is eps y e^(-y^2/2), at most |eps| e^(-1/2), reached at y = 1; below 0 the same holds at x = -1."""
    act = sk.get("crrelu_exact")
    for eps in (-0.5, 0.25):
        most = float(act.claims.distance.subs(act.param("eps").symbol, eps))
        for at in (-1.0, 1.0 - eps * math.exp(-0.5)):
            assert abs(float(evaluate(act, at, eps=eps)) - max(at, 0.0)) == pytest.approx(most, rel=1e-12)
        x = torch.linspace(-6, 6, 4001, dtype=torch.float64)
        assert float((act(x, eps=eps) - x.relu()).abs().max()) <= most * (1 + 1e-12)


def test_the_example_of_a_page_runs():
    for name in NAMES:
        (code,) = re.findall(r"```python\n(.*?)```", (PAGES / f"{name}.md").read_text(encoding="utf-8"), re.DOTALL)
        room: dict[str, object] = {}
        exec(code, room)
        assert isinstance(room["m"], torch.nn.Module), name
        assert isinstance(room["y"], torch.Tensor), name


# -- writing ----------------------------------------------------------------------------------------------


def test_only_some(tmp_path: Path):
    written = gallery.write(tmp_path / "new" / "folder", only=["relu", "tanh"])
    assert [path.name for path in written] == ["relu.svg", "relu.md", "tanh.svg", "tanh.md"]
    assert (tmp_path / "new" / "folder" / "tanh.md").read_bytes() == (PAGES / "tanh.md").read_bytes()


def test_a_function_of_rows_has_no_curve(tmp_path: Path):
    rows = sk.register(sk.spec.Rowwise("halved", lambda x: x / 2))
    try:
        assert rows.name not in gallery.names()
        with pytest.raises(ParameterError, match="a function of whole rows"):
            gallery.write(tmp_path, only=["halved"])
    finally:
        unregister("halved")
