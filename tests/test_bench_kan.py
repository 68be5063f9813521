"""The benchmark of KAN layers: its rivals are what they say, and what its record holds."""

import gc
import json
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from softknee.app.commands import app
from softknee.errors import ParameterError
from softknee.lab.bench import kan
from softknee.lab.bench.kan import FUNCTIONS, RadialLayer, Settings, SplineLayer, count_trained, measure, tables
from softknee.lab.studies.trials import Outcome
from softknee.measure import Record

SMALL = {
    "device": torch.device("cpu"),
    "tasks": ("product", "bessel"),
    "models": ("squaf", "fastkan", "efficient-kan", "mlp"),
    "seeds": 2,
    "iterations": 20,
    "repeats": 2,
    "threads": 1,
}


def test_the_splines_of_efficient_kan_are_ours() -> None:
    torch.manual_seed(0)
    layer = SplineLayer(3, 2).double()
    x = 1.9 * torch.rand(50, 3, dtype=torch.float64) - 0.95
    ours = kan.KANLinear(3, 2, edge="spline", grid=11, dtype=torch.float64)
    with torch.no_grad():
        ours.table.copy_((layer.table * layer.scale.unsqueeze(-1)).permute(2, 1, 0))
        assert ours.weight is not None
        ours.weight.copy_(layer.base.T)
    torch.testing.assert_close(layer(x), ours(x), rtol=0, atol=1e-12)


def test_fastkan_is_a_sum_of_gaussians() -> None:
    torch.manual_seed(0)
    layer = RadialLayer(2, 3).double()
    x = torch.rand(4, 2, dtype=torch.float64)
    points, width = torch.linspace(-1.25, 1.25, 11, dtype=torch.float64), 0.25

    def edge(i: int, o: int, at: Tensor) -> Tensor:
        weights = layer.table.weight[o].reshape(2, 11)[i]
        return (weights * (-(((at - points) / width) ** 2)).exp()).sum()

    for row, out in zip(x, layer(x), strict=True):
        for o in range(3):
            base = sum(layer.base.weight[o, i] * row[i] / (1 + (-row[i]).exp()) for i in range(2))
            expected = layer.base.bias[o] + base + sum(edge(i, o, row[i]) for i in range(2))
            torch.testing.assert_close(out[o], expected, rtol=0, atol=1e-6)


def test_the_functions_have_their_known_values() -> None:
    x, y = torch.tensor([0.0, -1.0], dtype=torch.float64), torch.tensor([1.0, -1.0], dtype=torch.float64)
    assert FUNCTIONS["product"](x, y)[0].item() == pytest.approx(2.718281828459045)
    assert FUNCTIONS["bessel"](x, y)[1].item() == 1.0  # J_0(0)
    assert FUNCTIONS["elliptic"](x, y)[1].item() == pytest.approx(0.7568024953079282)  # sn(-4 | 0) = sin(-4)
    half = torch.tensor([0.5], dtype=torch.float64)
    degree_two = torch.tensor([-0.2], dtype=torch.float64)  # P_2(t) = (3 t^2 - 1) / 2
    assert FUNCTIONS["legendre"](degree_two, half).item() == pytest.approx((3 * 0.45**2 - 1) / 2)
    assert FUNCTIONS["incomplete"](half, y[1:]).item() == pytest.approx(0.75)  # F(t | 0) = t


def test_the_mlp_has_as_many_parameters() -> None:
    for widths in ((2, 5, 1), (784, 64, 10)):
        ours, mlp = (count_trained(kan.MODELS[name](widths)) for name in ("squaf", "mlp"))
        assert abs(mlp - ours) <= 0.05 * ours


def test_the_record_holds_errors_and_times(tmp_path: Path) -> None:
    record = measure(Settings(**SMALL), command="test")
    assert [(row["task"], row["model"]) for row in record.rows] == [
        (task, model) for task in SMALL["tasks"] for model in SMALL["models"]
    ]
    for row in record.rows:
        assert "not_run" not in row
        assert len(row["errors"]) == 2
        assert row["errors"][0] != row["errors"][1]
        assert 0 < row["error"].value < 2
        assert row["step"].value > 0
    assert Record.read(record.write(tmp_path / "kan.json")) == record
    again = measure(Settings(**SMALL | {"tasks": ("product",), "models": ("squaf",)}), command="test")
    assert again.rows[0]["errors"] == record.rows[0]["errors"]
    assert len(tables(record)) == 2


def test_the_command_prints_a_table_and_writes_the_record(tmp_path: Path) -> None:
    path = tmp_path / "kan.json"
    options = [
        "--tasks=product",
        "--models=squaf,fastkan",
        "--seeds=1",
        "--iterations=2",
        "--device=cpu",
        "--repeats=1",
    ]
    result = CliRunner().invoke(app, ["bench", "kan", *options, "--json", str(path)], catch_exceptions=False)
    assert result.exit_code == 0
    for words in ("product, 2-5-1", "test error", "than FastKAN"):
        assert words in result.stdout
    assert json.loads(path.read_text())["settings"]["models"] == ["squaf", "fastkan"]


def test_pykan_that_is_missing_is_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kan, "find_spec", lambda name: None)
    record = measure(Settings(**SMALL | {"tasks": ("product",), "models": ("pykan",)}), command="test")
    assert "pip install pykan" in record.rows[0]["not_run"]


def test_a_step_that_cannot_be_recorded_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[Any] = []

    def captured(step: Any, *, changes: Any, device: torch.device) -> Any:
        recorded.append(step)
        if len(recorded) == 2:
            raise RuntimeError("operation not permitted when stream is capturing")
        return step

    monkeypatch.setattr(kan, "captured", captured)
    settings = Settings(**SMALL | {"tasks": ("product",), "models": ("squaf", "fastkan"), "seeds": 1})
    object.__setattr__(settings, "ways", ("eager", "graph"))  # as on a GPU
    record = measure(settings, command="test")
    ours, theirs = record.rows
    assert ours["step"].value > 0
    assert ours["graph_step"].value > 0
    assert theirs["step"].value > 0
    assert "stream is capturing" in theirs["graph_step_not_run"]
    (table,) = tables(record)
    assert table.remarks == ["product, fastkan, graph: " + theirs["graph_step_not_run"]]
    assert len(table.head) == 9


def test_what_a_graph_writes_into_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph knows its tensors by their addresses alone: the optimiser must not go while it is replayed."""

    def captured(step: Any, *, changes: Any, device: torch.device) -> Any:
        alive = weakref.ref(step)
        del step

        def replay() -> None:
            gc.collect()
            assert alive() is not None, "the step is gone, and with it the state of its optimiser"

        return replay

    monkeypatch.setattr(kan, "captured", captured)
    settings = Settings(**SMALL | {"tasks": ("product",), "models": ("fastkan",), "seeds": 1})
    object.__setattr__(settings, "ways", ("graph",))
    (row,) = measure(settings, command="test").rows
    assert row["graph_step"].value > 0, row


def test_settings_are_checked() -> None:
    with pytest.raises(ParameterError, match="no task called 'produkt'"):
        Settings(**SMALL | {"tasks": ("produkt",)})
    with pytest.raises(ParameterError, match="seeds of at least 1"):
        Settings(**SMALL | {"seeds": 0})
    with pytest.raises(ParameterError, match="recorded as a graph on a GPU only"):
        Settings(**SMALL | {"ways": ("eager", "graph")})
    assert Settings(**SMALL).ways == ("eager",)
    assert Settings(**SMALL | {"device": torch.device("cuda")}).ways == ("eager", "graph")


def test_the_guide_says_what_the_records_say() -> None:
    root = Path(__file__).parents[1]
    names = ("product", "bessel", "elliptic", "untuned")
    records = [Record.read(root / f"benchmarks/records/cpu-kan-{name}.json") for name in names]
    text = (root / "docs/guides/kan.md").read_text(encoding="utf-8")
    every = [row for record in records for row in record.rows]
    steps = {(row["task"], row["model"]): row["step"].value for row in every}
    tasks = list(dict.fromkeys(row["task"] for row in every))
    assert set(tasks) == set(FUNCTIONS)
    for model in records[0].settings["models"]:
        rows = [row for row in every if row["model"] == model]
        errors = [f"{1e3 * row['error'].value:.1f} ± {1e3 * row['error'].spread:.1f}" for row in rows]
        ratios = [steps[row["task"], model] / steps[row["task"], "fastkan"] for row in rows]
        times = "1" if model == "fastkan" else f"{min(ratios):.1f} to {max(ratios):.1f}"
        assert f"| {' | '.join([str(rows[0]['parameters']), *errors, times])} |" in text
    shares = [steps[task, ours] / steps[task, "pykan"] for task in tasks for ours in ("squaf", "spline")]
    assert f"Ours took {min(shares):.1f} to {max(shares):.1f} of pykan's time" in text
    images = {row["model"]: row for row in Record.read(root / "benchmarks/records/cpu-kan-mnist.json").rows}
    for model, row in images.items():
        wrong = f"{1e2 * row['error'].value:.1f} ± {1e2 * row['error'].spread:.1f}"
        times = "1" if model == "fastkan" else f"{row['step'].value / images['fastkan']['step'].value:.2f}"
        assert f"| {row['parameters']} | {wrong} | {times} |" in text
    errors, steps = (Record.read(root / f"benchmarks/records/h200-kan-{name}.json").rows for name in ("mnist", "step"))
    timed = {(row["task"], row["model"]): row for row in steps}
    for row in errors:
        times = []
        for size in (timed["mnist", row["model"]], timed["product", row["model"]]):
            graph = f"{size['graph_step'].value:.3f}" if "graph_step" in size else "–"
            times.append(f"{size['step'].value:.2f}, {graph}")
        wrong = f"{1e2 * row['error'].value:.2f} ± {1e2 * row['error'].spread:.2f}"
        assert f"| {wrong} | {' | '.join(times)} |" in text


def test_the_guide_says_what_the_study_of_digits_says() -> None:
    root = Path(__file__).parents[1]
    text = (root / "docs/guides/kan.md").read_text(encoding="utf-8")
    for path in (root / "benchmarks/records/kan-digits/trials").glob("*.json"):
        outcome = Outcome.read(Record.read(path))
        if outcome.trial.kind == "train":
            accuracy = torch.tensor(outcome.test["accuracy"], dtype=torch.float64)
            shown = f"{1e2 * accuracy.mean():.2f} ± {1e2 * accuracy.std():.2f}"
            assert f"| {outcome.trial.activation.label} | {shown} |" in text
