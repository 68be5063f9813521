"""What is uploaded to the workbench, what is taken home from it, and the study that it trains."""

import ast
import base64
import io
import re
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import softknee as sk
from softknee.app.workbench.export import python_line
from softknee.app.workbench.inputs import QUANTILES, density_of, sketch, unpack, uploaded
from softknee.app.workbench.reading import read
from softknee.app.workbench.training import keep_functions, recipe_for
from softknee.errors import FormulaError, InputError, SoftkneeError
from workbench_jobs import done, refused

# -- inputs -----------------------------------------------------------------------------------------------


def test_a_sketch_holds_the_quantiles() -> None:
    drawn = torch.tensor(np.random.default_rng(0).normal(1.0, 2.0, 200_000))
    text = sketch(drawn)
    assert len(text) < 1400
    expected = np.quantile(drawn.numpy(), (np.arange(QUANTILES) + 0.5) / QUANTILES)
    np.testing.assert_allclose(unpack(text).numpy(), expected, atol=2e-3)
    share = done("shape", {"density": {"kind": "data", "sketch": text}, "low": -5, "high": 7})["bars"]["share"]
    edges = np.linspace(-5, 7, len(share) + 1)
    np.testing.assert_allclose(share, np.diff(stats.norm.cdf(edges, 1, 2)), atol=3e-3)
    assert density_of({"kind": "data", "sketch": text}).samples is not None
    for damaged in ("", "AAAA", "é" * 10, text[:-8], text[::-1], "A" * 10_000, None):
        with pytest.raises(InputError, match="upload"):
            unpack(damaged)


def test_uploads_are_read_and_described() -> None:
    values = np.random.default_rng(1).normal(size=(50, 20)).astype("float32")
    values[0, 0], values[1, 1] = np.nan, np.inf
    stream = io.BytesIO()
    np.save(stream, values)
    result = uploaded({"name": "a.npy", "content": stream.getvalue()})
    assert (result["count"], result["left_out"]) == (998, 2)
    assert result["mean"] == pytest.approx(float(values[np.isfinite(values)].mean()), rel=1e-5)
    text = "first;second\n" + "\n".join(f"{a};{b}" for a, b in values[2:, :2])
    assert uploaded({"name": "a.csv", "content": text.encode()})["count"] == 96


@pytest.mark.parametrize(("between", "fraction"), [(",", "."), (";", "."), (";", ","), ("\t", ","), (" ", ".")])
def test_numbers_of_a_table_are_read_as_they_are_written(between: str, fraction: str) -> None:
    values = np.random.default_rng(2).normal(size=(40, 2)).round(3)
    text = "\n\n".join(between.join(str(item).replace(".", fraction) for item in row) for row in values)
    result = uploaded({"name": "a.csv", "content": text.encode()})
    assert (result["count"], result["low"], result["high"]) == (80, values.min(), values.max())
    with pytest.raises(InputError, match=r"Line 81 .*: 'seven"):
        uploaded({"name": "a.csv", "content": f"{text}\n\nseven{between}8".encode()})


def _saved(values: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values, **options)
    return stream.getvalue()


class _Trap:
    sprung: list[int] = []  # noqa: RUF012

    def __reduce__(self) -> Any:
        return _Trap.sprung.append, (1,)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (_saved(np.array([_Trap()], dtype=object), allow_pickle=True), "never unpickled"),
        (_saved(np.ones(100))[:-8], "cut off"),
        (_saved(np.ones(1)).replace(b"(1,)", b"(1000000000000,)"), "none|cut off"),
        (_saved(np.ones(40, dtype="complex128")), "real numbers"),
        (b"\x93NUMPY\x01\x00v\x00" + b"(" * 118, "header cannot be read"),
        (b"\x80\x04\x95" * 40, "neither"),
        (b"1,2\n3,x\n", "Line 2"),
        (b"1\n2\n3\n", "at least 32"),
        (b"", "at least 32"),
        (b"0\n" * 100, "same number"),
    ],
)
def test_an_upload_that_cannot_be_is_a_sentence(content: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words):
        uploaded({"name": "a", "content": content})
    assert _Trap.sprung == []


# -- taking -----------------------------------------------------------------------------------------------

TAKEN = [
    {"text": "srelu", "values": {"delta": 0.5}},
    {"text": "mollify(hardtanh, box, width=delta)", "values": {"delta": 0.3}},
    {"text": "x * sigmoid(beta * x) + shift", "values": {"beta": 1.5, "shift": -0.5}, "real": ["shift"]},
    {"text": "squaf", "values": {"alpha": 6.0}},
]


@pytest.mark.parametrize("function", TAKEN, ids=lambda one: one["text"].split("(")[0])
def test_the_python_line_makes_the_function(function: dict[str, Any]) -> None:
    scope: dict[str, Any] = {}
    exec(python_line(read(function)), scope)
    x = torch.linspace(-2, 2, 41)
    mine = read(function)
    expected = mine.act(x.double(), **mine.given)
    torch.testing.assert_close(scope["module"](x).double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("function", TAKEN[:3], ids=lambda one: one["text"].split("(")[0])
def test_the_definition_file_loads(function: dict[str, Any], tmp_path: Any) -> None:
    path = tmp_path / "taken.json"
    path.write_text(done("take", {"function": function})["definition"]["text"], encoding="utf-8")
    loaded, mine = sk.load(path), read(function)
    x = torch.linspace(-2, 2, 41, dtype=torch.float64)
    torch.testing.assert_close(loaded(x), mine.act(x, **mine.given), rtol=1e-12, atol=1e-14)


def test_the_kernel_names_only_what_it_imports() -> None:
    source = done("take", {"function": {"text": "gelu"}})["kernel"]["text"]
    tree = ast.parse(source)
    made = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert made == {"value", "forward_flat", "slopes", "backward_flat"}
    line = next(node for node in tree.body if isinstance(node, ast.ImportFrom))
    brought = {name.name for name in line.names}
    assert "normal_cdf" in brought
    from softknee.kernels.generate import _NAMESPACE

    called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    assert called <= made | brought | {"range"} | set(_NAMESPACE)
    assert called - made - {"range"} <= brought
    taken = done("take", {"function": {"text": "squaf"}})
    assert taken["kernel"]["error"].endswith(".")
    assert taken["definition"]["error"].endswith(".")


def test_the_picture_is_drawn_for_paper() -> None:
    functions = [{"text": "srelu", "values": {"delta": 1.0}}, {"text": "gelu"}]
    request = {"functions": functions, "low": -2, "high": 2}
    drawn = done("picture", request | {"kind": "svg"})["text"]
    assert "<svg" in drawn
    assert len(set(re.findall(r"line_0_0_(\d+)_", drawn))) >= 2
    png = base64.b64decode(done("picture", request | {"kind": "png"})["base64"])
    assert png.startswith(b"\x89PNG")
    for wrong in ({"kind": "exe"}, {"functions": []}, {"functions": functions * 3}):
        assert refused("picture", request | {"kind": "svg"} | wrong)["error"].endswith(".")


@pytest.mark.parametrize(
    ("texts", "count"),
    [
        (["relu"], 1),
        (["mollify(hardtanh, box, width=0.4)"], 2),  # a width that is a number is no knob, and the page shows the limit
        (["smooth_relu"], 2),
        (["srelu", "smelu"], 3),  # both have relu
    ],
)
def test_the_picture_has_the_limits_of_the_page(texts: list[str], count: int) -> None:
    request = {"functions": [{"text": text} for text in texts], "low": -2, "high": 2, "kind": "svg"}
    assert len(set(re.findall(r"line_0_0_(\d+)_", done("picture", request)["text"]))) == count


# -- trying -----------------------------------------------------------------------------------------------


def test_the_recipe_is_the_quickstart_with_the_functions_of_the_page(tmp_path: Any) -> None:
    from softknee.lab.studies.reading import find_recipe

    usual = find_recipe("quickstart")
    functions = [{"text": "gelu"}, {"text": "x * sigmoid(beta * x)", "values": {"beta": 3.0}}, {"text": "gelu"}]
    made = recipe_for({"functions": functions, "seeds": 3, "learn": True}, name="workbench-1")
    assert [activation.title for activation in made.activations] == [
        "relu",
        "gelu beta=1",
        "x * sigmoid(beta * x), beta=3",
    ]
    assert (made.data, made.model, made.training) == (usual.data, usual.model, usual.training)
    assert (made.seeds.count, made.baseline) == (3, "relu")
    own = sk.get(made.activations[2].name)
    assert own.param("beta").default == 3.0
    for _ in range(2):  # before every trial
        keep_functions(made, tmp_path)
        assert [sk.load(path).name for path in (tmp_path / "functions").iterdir()] == [own.name]
    assert made.activations[2].learn
    for wrong in ({"functions": []}, {"functions": functions, "seeds": 1}, {"functions": functions, "epochs": 10**9}):
        with pytest.raises(SoftkneeError, match=r"from 1|1 to 4|two seeds"):
            recipe_for(wrong, name="workbench-2")
    with pytest.raises(FormulaError):
        recipe_for({"functions": [{"text": "x +"}]}, name="workbench-3")
