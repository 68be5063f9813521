"""The jobs of the workbench against closed forms and independent references; what is read and what is refused."""

import base64
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from softknee.app.workbench import sheet
from softknee.app.workbench.reading import read, slider_for_width
from softknee.app.workbench.workers import answer
from softknee.design.proof.certificate import Enclosure
from softknee.errors import SoftkneeError
from softknee.registry import get
from workbench_jobs import NORMAL, asked, done, points, refused

pytest.importorskip("latex2mathml", reason="latex2mathml is not installed; the extra 'web' brings it")


# -- curves -----------------------------------------------------------------------------------------------


def test_the_curve_is_the_function_and_its_derivatives() -> None:
    beta = 1.5
    result = done("curve", asked("gelu", beta=beta) | {"low": -3, "high": 2})
    x, value = points(result["curve"]["lines"][0])
    assert (x[0], x[-1]) == pytest.approx((-3, 2), abs=1e-6)
    assert len(x) > 400
    pdf, cdf = stats.norm.pdf(beta * x), special.ndtr(beta * x)
    np.testing.assert_allclose(value, x * cdf, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(points(result["curve"]["lines"][1])[1], cdf + beta * x * pdf, rtol=1e-9, atol=1e-14)
    second = beta * pdf * (2 - (beta * x) ** 2)
    np.testing.assert_allclose(points(result["curve"]["lines"][2])[1], second, rtol=1e-8, atol=1e-13)
    limit_x, limit = points(result["limit"]["curve"]["lines"][0])
    np.testing.assert_array_equal(limit, np.maximum(limit_x, 0))


def test_a_kink_is_a_point_mass_and_a_jump_a_gap() -> None:
    result = done("curve", asked("leaky_relu", slope=0.25) | {"low": -1, "high": 1})
    assert result["curve"]["masses"] == [pytest.approx([0.0, 0.75], abs=1e-7)]
    slope = np.frombuffer(base64.b64decode(result["curve"]["lines"][1]["y"]), "<f8")
    assert np.isnan(slope[:-1]).sum() == 1  # one gap between the two runs


@pytest.mark.parametrize("text", ["log(x)", "sqrt(x)", "log(x) + relu(x)"])
def test_nothing_is_drawn_where_a_function_has_no_value(text: str) -> None:
    for line in done("curve", asked(text) | {"low": -2, "high": 2})["curve"]["lines"]:
        x, y = points(line)
        assert x[np.isfinite(y)].min() > -1e-6
        assert np.isfinite(y[x > 1e-6]).all()


def test_a_pole_is_a_gap() -> None:
    for text, low in (("1/x", -2), ("1/(x - 0.3)", -2), ("1/x", -2.1)):
        line = done("curve", asked(text) | {"low": low, "high": 2})["curve"]["lines"][0]
        y = np.frombuffer(base64.b64decode(line["y"]), "<f8")
        crossing = np.flatnonzero((y[:-1] < 0) & (y[1:] > 0))
        assert len(crossing) == 0


@pytest.mark.parametrize(
    ("text", "values", "distance", "place"),
    [
        ("smelu", {"beta": 2.0}, 0.5, 0.0),
        ("srelu", {"delta": 0.4}, 3 * 0.4 / 16, 0.0),
        ("softplus", {"beta": 4.0}, math.log(2) / 4, 0.0),
        ("swish", {"beta": 1.0}, 0.27846454276107380, 1.2784645427610738),
        ("mollify(relu, box, width=0.8)", {}, 0.2, 0.0),
        ("celu", {"beta": 2.0}, 2.0, None),
        ("smooth_relu", {"beta": 1.0}, None, None),
    ],
)
def test_the_distance_to_the_hard_limit(text: str, values: dict, distance: float | None, place: float | None) -> None:
    result = done("curve", asked(text, **values))["distance"]
    if distance is None:
        assert result["value"] is None
        assert "without bound" in result["words"]
        return
    assert result["value"] == pytest.approx(distance, rel=1e-9)
    assert (result["x"] is None) == (place is None)
    if place is not None:
        assert abs(result["x"]) == pytest.approx(place, abs=1e-5)
        assert abs(result["from"] - result["to"]) == pytest.approx(distance, rel=1e-9)


def test_sliders_have_room_for_what_is_allowed() -> None:
    params = {p["name"]: p for p in done("curve", asked("lambda_gelu", lam=1.0))["params"]}
    assert params["lam"]["travel"][0] == 1
    for name in ("srelu", "generalized_smelu", "crrelu", "squaf"):
        for p in done("curve", asked(name))["params"]:
            low, high = p["travel"][0], p["travel"][-1]
            assert low < p["value"] < high
            assert p["travel"] == sorted(p["travel"])


def test_equal_travel_is_about_equal_visible_change() -> None:
    """Also of a definition whose usual value is a hundredth of what can be seen."""
    for text, values in (("srelu", {"delta": 0.01}), ("x * sigmoid(beta * x)", {"beta": 1.0}), ("a * x", {"a": 1.0})):
        name = next(iter(values))
        (p,) = done("curve", asked(text, **values) | {"low": -3, "high": 3, "natural": True})["params"]
        lines = []
        for value in p["travel"]:
            line = done("curve", asked(text, **{name: value}) | {"low": -3, "high": 3})["curve"]["lines"][0]
            lines.append(np.interp(np.linspace(-2.9, 2.9, 200), *points(line)))
        change = np.abs(np.diff(lines, axis=0)).max(axis=1)
        assert change.max() < 3 * np.median(change)
        assert np.quantile(change, 0.1) > np.median(change) / 5  # a tenth of the way is for values beyond sight


def test_room_for_a_large_number_goes_with_it() -> None:
    ends = [done("curve", asked("srelu", delta=value))["params"][0]["travel"][-1] for value in (1.0, 1000.0, 1.0)]
    assert ends[1] == 1000
    assert ends[0] == ends[2] < 100


def test_a_parameter_follows_a_curve_that_is_dragged() -> None:
    view = {"low": -3, "high": 3}
    pulled = done("curve", asked("srelu", delta=1.0) | view | {"pull": {"x": 0, "y": 0.3}})
    assert pulled["pulled"] == {"param": "delta", "value": pytest.approx(1.6, rel=1e-3)}
    x, y = points(pulled["curve"]["lines"][0])
    assert np.interp(0, x, y) == pytest.approx(0.3, abs=1e-3)
    # The joint of the pieces lies at delta.
    joints = {handle["x"]: handle["joint"] for handle in pulled["handles"]}
    assert set(joints) == {-pulled["pulled"]["value"], pulled["pulled"]["value"]}
    pull = {"joint": max(joints.items())[1], "x": 2.0}
    assert done("curve", asked("srelu", delta=1.0) | view | {"pull": pull})["pulled"]["value"] == pytest.approx(2.0)
    # Of several parameters the one that moves the curve most there, or the one that was moved last.
    both = asked("a * tanh(b * x)", a=1.0, b=1.0) | view
    assert done("curve", both | {"pull": {"x": 2.5, "y": 0.8}})["pulled"]["param"] == "a"
    pull = {"x": 0.5, "y": 0.8, "prefer": "b"}
    result = done("curve", both | {"pull": pull})["pulled"]
    assert result == {"param": "b", "value": pytest.approx(math.atanh(0.8) / 0.5, rel=1e-3)}
    # What cannot be reached is approached.
    assert done("curve", both | {"pull": {"x": 0.5, "y": 7, "param": "b"}})["pulled"]["value"] == 10
    assert "no parameter" in refused("curve", asked("relu") | view | {"pull": {"x": 0, "y": 1}})["error"]
    for wrong in (5, {"x": "a", "y": 1}, {"x": float("nan"), "y": 0}, {"joint": 9, "x": 0}):
        refused("curve", asked("srelu", delta=1.0) | view | {"pull": wrong})


def test_a_point_of_a_table_is_a_value() -> None:
    usual = done("curve", asked("squaf") | {"low": -3, "high": 3})
    assert [handle["name"] for handle in usual["handles"]] == [f"z{i}" for i in range(13)]
    moved = done("curve", asked("squaf", z4=1.5, alpha=20.0) | {"low": -3, "high": 3})
    x, y = points(moved["curve"]["lines"][0])
    assert moved["handles"][4] == {"name": "z4", "x": -1.0, "y": 1.5}
    assert np.interp(-1.0, x, y) == pytest.approx(1.5, abs=0.05)
    assert "1.5" in done("take", asked("squaf", z4=1.5))["python"]["text"]


def test_the_view_may_be_asked_for() -> None:
    assert done("curve", asked("srelu"))["natural"] == [-3, 3]
    assert "natural" not in done("curve", asked("srelu") | {"low": -1, "high": 1})
    for low, high in ((1, 1), (2, -2), (0, 1e12), (0, None), ("a", 1), (float("nan"), 1)):
        status, _ = answer("curve", asked("srelu") | {"low": low, "high": high})
        assert status == (200 if high is None else 422)


# -- texts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("x * sigmoid(x2 * x)", "x2"),
        ("  x + beta(x)", "beta"),
        ("mollify(relu, bxo, width=0.1)", "bxo"),
        ("mollify(rleu, box, width=0.1)", "rleu"),
        ("mollify(relu, box, widht=0.1)", "widht"),
        ("x +* 3", "*"),
        ("α x + 2x +* 3", "*"),
        ("αβ + sigmiod(x)", "sigmiod"),
        ("where(x > 1, x, 1 / 0)", "1 / 0"),
        ("where(x = 1, x, 0)", None),
        ("2x + x^99", "x^99"),
        ("|x| + 1/2x", "/2x"),
        ("srelux", "srelux"),
        ("x.real", "x.real"),
        ("x * sigmoid(語 * x)", "語"),
        ("(x", None),
        ("", None),
    ],
)
def test_an_error_marks_its_cause(text: str, cause: str | None) -> None:
    result = refused("curve", asked(text))
    assert result["error"].endswith((".", "?"))
    assert len(result["error"]) < 220
    if cause is not None:
        first, behind = result["span"]
        assert text[first:behind] == cause


@pytest.mark.parametrize(("sign", "cure"), [("ｘ", "; write x."), ("語", "formula.")])
def test_a_sign_that_is_not_of_the_language_is_named_with_what_to_write(sign: str, cure: str) -> None:
    assert refused("curve", asked(f"x {sign}"))["error"].endswith(cure)


def test_every_new_name_is_a_slider_at_once() -> None:
    params = done("curve", asked("a * tanh(βx) + c²"))["params"]
    assert [(p["name"], p["value"], p["own"]) for p in params] == [("a", 1, True), ("beta", 1, True), ("c", 1, True)]
    with pytest.raises(SoftkneeError, match="moves 12 at most"):
        read({"text": "x + " + " + ".join(f"a{i}" for i in range(13))})


def test_a_new_name_with_a_value_is_a_parameter() -> None:
    result = read({"text": "x * sigmoid(beta * x) + shift", "values": {"beta": 2.0, "shift": -1}, "real": ["shift"]})
    assert result.values == {"beta": 2.0, "shift": -1.0}
    at = torch.tensor([0.5], dtype=torch.float64)
    assert result.act(at, **result.given).item() == pytest.approx(0.5 / (1 + math.exp(-1)) - 1, rel=1e-14)
    with pytest.raises(SoftkneeError, match="above 0"):
        read({"text": "x * sigmoid(beta * x)", "values": {"beta": -2.0}})
    # What it does not have is let go, and what is left out is the definition's own.
    assert read({"text": "srelu", "values": {"beta": 3.0}}).values == {"delta": get("srelu").param("delta").default}


def test_the_width_of_a_mollifier_can_become_a_slider() -> None:
    result = slider_for_width("mollify(hardtanh, triweight, width=0.4)")
    assert result == {"text": "mollify(hardtanh, triweight, width=delta)", "values": {"delta": 0.4}, "word": "width"}
    fixed, free = read({"text": "mollify(hardtanh, triweight, width=0.4)"}), read(result)
    x = torch.linspace(-2, 2, 101, dtype=torch.float64)
    torch.testing.assert_close(fixed.act(x), free.act(x, **free.given), rtol=1e-13, atol=1e-15)
    assert slider_for_width("mollify(relu, box, width=delta)") is None
    assert slider_for_width("x + 1") is None


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "().__class__",
        "lambda: x",
        "x" + " + x" * 1000,
        "(" * 60 + "x" + ")" * 60,
        "9**9**9",
        "exp(exp(exp(exp(1e9))))",
        "max(max(max(x, 1), 2), x) " * 40,
        "knee.json",
        "x\u2009+ 1",
        "norm_based",
    ],
)
def test_a_hostile_text_is_a_sentence(text: str) -> None:
    assert refused("curve", asked(text))["error"].endswith((".", "?"))


@pytest.mark.parametrize(
    "function",
    [None, [], {"text": 5}, {"text": "srelu", "values": {"delta": "1"}}, {"text": "srelu", "values": {"delta": True}}],
)
def test_a_request_of_another_shape_is_a_sentence(function: Any) -> None:
    for job in ("curve", "formulas", "certificate", "entropy", "depth", "cost", "take"):
        assert refused(job, {"function": function, "density": NORMAL})["error"].endswith(".")


# -- facts ------------------------------------------------------------------------------------------------


def test_formulas_are_mathematics_for_a_browser() -> None:
    formulas = done("formulas", asked("smelu"))["formulas"]
    assert [formula["latex"].partition("(")[0] for formula in formulas] == ["f", "f'", "f''"]
    assert formulas[0]["mathml"].startswith("<math")
    assert "<mfrac>" in formulas[0]["mathml"]
    assert "<mtable" in formulas[0]["mathml"]  # the cases
    assert formulas[2]["text"] == "0 if x < -beta; 1 / (2 * beta) if x < beta; 0 otherwise"


def test_a_closed_form_is_one_list_of_cases_also_where_their_order_hangs_on_the_numbers() -> None:
    text = "mollify(hardtanh, box, width=delta)"
    for delta, seams, condition in ((0.4, 4, "\\delta < 1"), (1.5, 4, "\\delta > 1")):
        result = done("formulas", asked(text, delta=delta))
        assert result["at_numbers"]
        first = result["formulas"][0]
        assert first["latex"].count(r"\begin{cases}") == 1
        assert first["latex"].count(r"\\\\"[:2]) >= seams
        assert condition in first["latex"]
    assert not done("formulas", asked("srelu"))["at_numbers"]


def test_the_certificate_in_rows() -> None:
    pytest.importorskip("flint", reason="python-flint is not installed; the extra 'design' brings it")
    rows = {name: (value, where) for name, value, where in done("certificate", asked("smelu", beta=0.1))["rows"]}
    assert rows["Lipschitz constant"] == ("1", "at x = 0.1 … ∞")
    assert rows["distance to relu"] == ("0.025", "at x = 0")
    assert rows["smoothness"] == ("C¹", "")
    assert rows["monotone"] == ("yes", "")
    assert rows["exactly 0"] == ("−∞ … −0.1", "")
    gelu = {name: value for name, value, _ in done("certificate", asked("gelu"))["rows"]}
    assert gelu["Lipschitz constant"] == "1.1289041…"
    assert gelu["smoothness"] == "C∞"


def test_what_is_proved_of_a_table_is_an_interval_rounded_outward(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flint", reason="python-flint is not installed; the extra 'design' brings it")
    monkeypatch.setattr(sheet, "SECONDS", 4.0)  # the largest slope of this table is not found in 20 either
    rows = {name: value for name, value, _ in done("certificate", asked("squaf", z4=-0.5))["rows"]}
    assert rows["monotone"] == "no"
    assert rows["smoothness"] == "C∞"
    proved = Enclosure(Fraction(101177123456, 10**11), Fraction(101522999999, 10**11))
    assert sheet._number(proved) == "1.01177 to 1.01523"
    assert sheet._number(Enclosure(Fraction(-1, 3), math.inf)) == "at least −0.333334"


@pytest.mark.parametrize(("text", "domain"), [("log(x)", "x > 0"), ("sqrt(x)", "x ≥ 0"), ("1/x", "x ≠ 0")])
def test_a_certificate_says_where_a_function_is_defined(text: str, domain: str) -> None:
    pytest.importorskip("flint", reason="python-flint is not installed; the extra 'design' brings it")
    result = done("certificate", asked(text))
    assert result["domain"] == domain
    assert result["rows"] == []
    assert "oo" not in " ".join(result["open"])


def test_entropy_against_closed_forms_and_quadrature() -> None:
    logistic = {"kind": "logistic", "mean": 0.0, "scale": 1.0}
    result = done("entropy", asked("sigmoid") | {"density": logistic})
    assert result["whole"]
    assert result["change"] == pytest.approx(-2.0, abs=1e-9)  # the output is uniform, the input has 2 nats
    assert result["mean"] == pytest.approx(0.5, abs=1e-12)
    assert result["deviation"] == pytest.approx(1 / math.sqrt(12), rel=1e-9)
    relu = done("entropy", asked("relu") | {"density": NORMAL})
    assert (relu["change"], relu["low"], relu["high"]) == (pytest.approx(0, abs=1e-12), 0, None)
    assert (relu["share"], relu["flat"]) == (pytest.approx(0.5), pytest.approx(0.5))
    gelu = done("entropy", asked("gelu") | {"density": NORMAL})
    assert gelu["low"] == pytest.approx(-0.75179152469356445, abs=1e-9)

    def log_slope(x: float) -> float:
        return math.log(special.ndtr(x) + x * stats.norm.pdf(x)) * stats.norm.pdf(x)

    mean = integrate.quad(log_slope, gelu["low"], 12, limit=400)[0] / stats.norm.sf(gelu["low"])
    assert gelu["change"] == pytest.approx(mean, rel=1e-6)
    assert "up and down" in gelu["words"]


def test_a_function_without_values_there_has_no_entropy() -> None:
    result = done("entropy", asked("log(x)") | {"density": NORMAL})
    assert result["change"] is None
    assert "no value for some of these inputs" in result["words"]


def test_moments_that_do_not_exist_are_said_and_not_shown() -> None:
    result = done("entropy", asked("1/x") | {"density": NORMAL})
    assert result["mean"] is None
    assert result["deviation"] is None
    assert "the mean, the deviation and the mean of f′(X)² do not exist" in result["words"]
    # sqrt|x| has a mean and a deviation, but no mean of f'(x)^2 = 1/(4 |x|); E log|f'| exists.
    result = done("entropy", asked("sqrt(abs(x))") | {"density": NORMAL})
    assert result["mean"] == pytest.approx(2**0.25 * math.gamma(0.75) / math.sqrt(math.pi), rel=1e-6)
    assert result["slope_square"] is None
    assert "the mean of f′(X)² does not exist" in result["words"]
    assert result["change"] == pytest.approx(-math.log(2) + (0.5772156649015329 + math.log(2)) / 4, rel=1e-6)


def test_depth_begins_at_the_second_moment_of_the_inputs() -> None:
    result = done("depth", asked("relu") | {"density": {"kind": "uniform", "mean": 1.0, "scale": 3.0}})
    assert result["q"] == pytest.approx(1 + 9 / 3, rel=1e-9)
    assert result["on_edge"]
    assert (result["gain"], result["weights"]) == (pytest.approx(math.sqrt(2)), pytest.approx(2.0))
    # The map of ReLU, by its closed form (Cho and Saul): c' = (sqrt(1 - c^2) + c (pi - arccos c)) / pi.
    c = 0.0
    for gap in result["one_minus_c"][:6]:
        assert gap == pytest.approx(1 - c, rel=1e-9)
        c = (math.sqrt(1 - c * c) + c * (math.pi - math.acos(c))) / math.pi
