"""The kernel benchmark at a tiny size: complete rows, honest failures, a fair baseline. No time is judged."""

import math
import shutil
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import softknee as sk
from softknee.devices import missing_device
from softknee.errors import InputError, ParameterError
from softknee.lab.bench import calls, candidates, clock, speed
from softknee.lab.bench.candidates import PSEUDOCODE
from softknee.lab.bench.clock import Clock, Samples, bytes_held
from softknee.measure import Quantity, Record

CPU = torch.device("cpu")
EAGER = ("softknee eager", "pseudocode eager", "torch")
FUNCTIONS = ("srelu", "relu", "lambda_gelu")


def settings(**changes: Any) -> speed.Settings:
    usual = {"elements": 2048, "dtypes": ("f32",), "functions": FUNCTIONS, "variants": EAGER, "repeats": 3}
    return speed.Settings(device=CPU, **(usual | changes))


@pytest.fixture(scope="module")
def record() -> Record:
    return speed.measure(settings(), command="softknee bench kernels")


def test_rows_are_complete(record: Record) -> None:
    measured = {(row["function"], row["variant"]) for row in record.rows}
    ours = {(name, variant) for name in FUNCTIONS for variant in EAGER[:2]}
    assert measured == ours | {("copy", "copy"), ("relu", "torch"), ("gelu", "torch"), ("silu", "torch")}
    for row in record.rows:
        assert "not_run" not in row
        assert (row["dtype"], row["elements"]) == ("f32", 2048)
        for name in ("time",) if row["variant"] == "copy" else ("forward", "forward_backward", "host"):
            assert isinstance(row[name], Quantity)
            assert 0 < row[name].low <= row[name].value <= row[name].high
            assert row[name].repeats == 3
    assert record.settings["threads"] == torch.get_num_threads()


def test_record_survives_a_round_trip_and_a_table(record: Record) -> None:
    assert Record.from_json(record.to_json()) == record
    (table,) = speed.tables(record)
    assert [line[0] for line in table.rows] == list(FUNCTIONS)
    assert all(len(line) == len(table.head) for line in table.rows)
    assert table.markdown().count("\n| ") == len(FUNCTIONS) + 2


def test_a_variant_that_fails_has_a_row_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(x: Tensor, **parameters: Tensor) -> Tensor:
        raise RuntimeError("no such kernel in /opt/somewhere/lib.so")

    monkeypatch.setattr(candidates, "PSEUDOCODE", {"relu": broken})
    record = speed.measure(settings(functions=("relu",), variants=EAGER[:2]), command="softknee bench kernels")
    _, ours, theirs = record.rows
    assert "forward" in ours
    assert theirs["not_run"] == "RuntimeError: no such kernel in lib.so"
    assert "Did not run as pseudocode eager: relu." in " ".join(speed.tables(record)[0].remarks)


def test_a_variant_that_would_not_fit_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "_free_bytes", lambda device: 1000)
    record = speed.measure(settings(functions=("relu",), variants=EAGER[:1]), command="softknee bench kernels")
    assert "GiB are free" in record.rows[1]["not_run"]


@pytest.mark.skipif(shutil.which("g++") is None and shutil.which("clang++") is None, reason="no C++ compiler is found")
def test_compiled_variants_run() -> None:
    variants = ("softknee compiled", "pseudocode compiled")
    record = speed.measure(settings(functions=("smelu",), variants=variants), command="softknee bench kernels")
    rows = record.rows[1:]
    assert [row["variant"] for row in rows] == list(variants)
    assert all("forward_backward" in row for row in rows), [row.get("not_run") for row in rows]


@pytest.mark.parametrize("name", sorted(PSEUDOCODE))
def test_pseudocode_is_the_same_function(name: str) -> None:
    """A baseline that computed something else would make every ratio meaningless."""
    if name not in sk.names():
        pytest.fail(f"The pseudocode of {name!r} has no definition beside it.")
    parameters, options = candidates.parameters_of(name, device=CPU, dtype=torch.float64)
    x = torch.linspace(-3.97, 4.03, 201, dtype=torch.float64, requires_grad=True)
    wanted = [x, *parameters.values()]
    ours, theirs = sk.get(name)(x, **parameters, **options), PSEUDOCODE[name](x, **parameters, **options)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    gradients = [torch.autograd.grad(y.sum(), wanted) for y in (ours, theirs)]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-9)


def test_every_function_is_measured_once() -> None:
    functions = candidates.every_function()
    assert len(functions) == len(set(functions)) > 25


@pytest.mark.parametrize(
    ("call", "floats"),
    [
        (torch.relu, 1),
        (lambda x: x * 2.0, 0),
        (lambda x: x.exp() * x, 2),
        (lambda x: torch.relu(x).view(-1, 2).sum(), 1),
    ],
)
def test_bytes_held_counts_each_storage_once(call: Callable[[Tensor], Tensor], floats: int) -> None:
    x = torch.randn(64, requires_grad=True)
    assert bytes_held(lambda: call(x)) == 4 * 64 * floats


def test_bytes_held_sees_what_custom_functions_keep() -> None:
    class Keeper(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            ctx.extra = torch.ones_like(x)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return gradients[0]

    x = torch.randn(64, requires_grad=True)
    assert bytes_held(lambda: Keeper.apply(x)) == 2 * 4 * 64  # type: ignore[arg-type]
    assert bytes_held(lambda: Keeper.apply(x), excluded=[x]) == 4 * 64  # type: ignore[arg-type]


def test_the_clock_takes_turns_and_bounds_slow_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a time of its own, in which calls take what they say and a busy machine takes nothing."""
    order: list[str] = []
    now = 0.0

    def quick_call() -> None:
        nonlocal now
        order.append("quick")
        now += 0.001

    def slow() -> None:
        nonlocal now
        order.append("slow")
        now += 0.02

    def failing() -> None:
        raise ValueError("never works")

    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=lambda: now))
    quick, limited, failed = Clock(device=CPU, repeats=8, seconds_per_call=0.05).race([quick_call, slow, failing])
    assert isinstance(quick, Samples)
    assert isinstance(limited, Samples)
    assert isinstance(failed, ValueError)
    assert len(quick.device) == 8
    measured = order[-(8 + len(limited.device)) :]
    rounds = list(zip(measured[:6:2], measured[1:6:2], strict=True))
    assert all(sorted(each) == ["quick", "slow"] for each in rounds)  # two fit into 0.05 s, and three are the least
    assert len({*rounds}) == 2  # once the one is first, once the other
    assert measured[6:] == ["quick"] * 5
    assert limited.device == limited.host == pytest.approx([0.02] * 3)
    assert quick.device == pytest.approx([0.001] * 8)


@pytest.mark.parametrize(("text", "count"), [("4096", 4096), ("64K", 65536), ("64M", 2**26), ("1g", 2**30)])
def test_elements_are_read(text: str, count: int) -> None:
    assert speed.parse_elements(text) == count


@pytest.mark.parametrize("text", ["", "0", "-1", "64X", "1.5M"])
def test_strange_elements_are_refused(text: str) -> None:
    with pytest.raises(ParameterError, match="is no number of elements"):
        speed.parse_elements(text)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"functions": ("sreluu",)}, "Did you mean 'srelu'"),
        ({"dtypes": ("int8",)}, "no dtype called 'int8'"),
        ({"variants": ("magic",)}, "Known are softknee eager"),
        ({"repeats": 0}, "repeats of at least 1"),
    ],
)
def test_strange_settings_are_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence):
        settings(**change)


@pytest.mark.parametrize(
    ("device", "cuda", "mps", "said"),
    [
        ("cpu", 0, False, ""),
        ("cuda", 1, False, ""),
        ("cuda:1", 2, False, ""),
        ("mps", 0, True, ""),
        ("cuda", 0, True, "No CUDA device is visible to torch here"),
        ("cuda:7", 0, False, "No CUDA device is visible to torch here"),
        ("cuda:7", 1, False, "There is no device cuda:7 here, where torch sees cuda:0 alone"),
        ("cuda:2", 2, False, "There is no device cuda:2 here, where torch sees cuda:0 to cuda:1"),
        ("mps", 1, False, "No MPS device (the GPU of an Apple computer) is visible to torch here"),
    ],
)
def test_a_device_that_is_not_there_is_said(device: str, cuda: int, mps: bool, said: str) -> None:
    assert missing_device(torch.device(device), cuda=cuda, mps=mps) == said


def test_a_device_is_chosen_or_the_way_out_is_said() -> None:
    assert speed.choose_device("cpu") == torch.device("cpu")
    with pytest.raises(ParameterError, match="auto, cpu or cuda"):
        speed.choose_device("gpu")
    if torch.cuda.is_available():
        assert speed.choose_device("auto") == speed.choose_device("cuda") == torch.device("cuda")
    else:
        assert speed.choose_device("auto") == torch.device("cpu")
        with pytest.raises(InputError, match="use --device cpu, or run where there is one"):
            speed.choose_device("cuda")


def test_numbers_of_the_squaf_baseline() -> None:
    """The window of five follows the full sum to the size of its jump, e^{-6h}, at h = 1.5."""
    parameters, _ = candidates.parameters_of("squaf", device=CPU, dtype=torch.float64)
    x = torch.linspace(-5, 5, 400, dtype=torch.float64)
    near, full = (PSEUDOCODE["squaf"](x, **parameters, window=window) for window in (5, 65))
    assert float((near - full).detach().abs().max()) < 40 * math.exp(-9)


def test_what_a_call_costs_its_host() -> None:
    chosen = calls.Settings(device=CPU, functions=("relu", "srelu"), calls=2, repeats=2)
    record = calls.measure(chosen, command="softknee bench calls")
    kinds = [(row["function"], row["kind"], row["reference"]) for row in record.rows]
    assert kinds == [
        ("gelu from Python", "fixed", "nn.GELU"),
        ("relu", "fixed", "nn.GELU"),
        ("srelu", "fixed", "nn.GELU"),
        ("srelu", "learned", "nn.PReLU"),
        ("srelu", "function", "F.gelu"),
    ]
    for row in record.rows:
        assert all(row[column].value > 0 and row[f"{column}_ratio"].repeats == 2 for column in calls.COLUMNS)
    table = calls.tables(record)[0].markdown()
    assert "| srelu | learned |" in table
    with pytest.raises(ParameterError, match="Did you mean 'srelu'"):
        calls.Settings(device=CPU, functions=("sreluu",))
