"""The compiled CPU kernels: right to the last digits, in every layout, with any number of threads, never in the way."""

import functools
import itertools
import math
import os
import platform
import shutil
import threading
import time
import timeit
from pathlib import Path

import pytest
import sympy
import torch
from torch import Tensor

import processes
import softknee as sk
from extremes import assert_is_the_limit, extreme_points
from helpers import (
    BF16,
    F16,
    F32,
    F64,
    assert_close_to_reference,
    draw,
    each_kind,
    each_learned_kind,
    every_subject,
    ordinary_values,
    rounding,
    settings,
    tolerance,
)
from softknee.kernels import c_source, compiled
from softknee.kernels.squaf import choose_path, sampled_symbols, squaf, squaf_sampled, squaf_step, step_symbols
from softknee.kernels.squaf import compiled as squaf_compiled
from softknee.kernels.squaf import eager as squaf_eager
from softknee.kernels.squaf import modes as squaf_modes
from softknee.spec import Activation
from squaf_reference import parameters

try:
    compiled.compile_command()
except compiled.CompileError as error:
    pytest.skip(f"There are no compiled kernels here: {error}.", allow_module_level=True)

LEAST = compiled.SMALLEST
# More than two chunks for several threads, and no whole number of blocks.
LARGE = 3 * c_source.CHUNK + 1001


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = F32) -> Tensor:
    return (2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))).to(dtype)


def leaves(act: Activation, x: Tensor, dtype: torch.dtype = F32) -> list[Tensor]:
    # Numbers of float32 in any type, so that all compute the same.
    values = torch.tensor(list(ordinary_values(act).values()), dtype=F32).to(dtype)
    return [t.detach().clone().requires_grad_() for t in (x, *values.reshape(-1, 1))]


def run(act: Activation, inputs: list[Tensor], g: Tensor) -> list[Tensor]:
    value = act(inputs[0], **dict(zip((p.name for p in act.params), inputs[1:], strict=True)))
    return [value.detach(), *torch.autograd.grad(value, inputs, g)]


def assert_path(act: Activation, x: Tensor, path: str = "compiled") -> None:
    choice = sk.explain(act, x)
    assert choice.path == path, choice


# -- numbers --------------------------------------------------------------------------------------------------


def slopes(act: Activation, x: Tensor, values: dict[str, Tensor], filler: float = 1.0) -> dict[tuple[str, ...], Tensor]:
    """Value and derivatives at some points, each parameter's one point at a time: a kernel gives their sum."""
    wide = torch.full((LEAST,), filler)
    inputs = [wide, *values.values()]
    inputs = [t.detach().clone().requires_grad_() for t in inputs]
    inputs[0].data[: len(x)] = x
    assert_path(act, inputs[0])
    value, dx, *_ = run(act, inputs, torch.ones(LEAST))
    columns: list[list[Tensor]] = []
    for at in x.tolist() if values else ():
        inputs[0].data.fill_(filler)[7] = at
        g = torch.zeros(LEAST)
        g[7] = 1.0
        columns.append(run(act, inputs, g)[2:])
    rows = {(name,): torch.cat(sums) for name, sums in zip(values, zip(*columns, strict=True), strict=False)}
    return {(): value[: len(x)], ("x",): dx[: len(x)]} | rows


def places(act: Activation, values: dict[str, Tensor], seed: int) -> Tensor:
    """Points drawn as everywhere, and some at multiples of these widths."""
    points = [draw(act, 24, F32, seed)[0]]
    for value in values.values():
        width = value.abs() + 1e-30
        multiples = torch.tensor([-20.0, -3.0, -1.0, -0.999, -0.3, 0.3, 0.999, 1.0, 3.0, 20.0])
        points += [multiples * width, multiples / width]
    spread = torch.cat(points).clamp(-50, 50)
    return spread[torch.randperm(len(spread), generator=torch.Generator().manual_seed(seed))[:36]]


@every_subject
def test_every_quantity_matches_fifty_digits(act: Activation):
    rows = [{name: value.float() for name, value in row.items()} for row in settings(act)]
    for seed, values in enumerate(rows[:: max(1, len(rows) // 4)]):
        x = places(act, values, seed)
        x = x[:8] if act.implicit is not None else x
        for index, result in slopes(act, x, values).items():
            assert_close_to_reference(act.partial(*index), result, x, values)


@pytest.mark.slow
@each_kind
def test_the_limit_where_it_exists_and_nan_for_nan_alone(act: Activation):
    points = torch.tensor([math.nan, *extreme_points(F32)])
    for values in settings(act)[:4]:
        numbers = {name: value.item() for name, value in values.items()}
        for index, result in slopes(act, points, {n: v.float() for n, v in values.items()}).items():
            assert torch.equal(result.isnan(), points.isnan()), (index, values)
            for at, value in zip(points.tolist()[1:], result.tolist()[1:], strict=True):
                assert_is_the_limit(act.partial(*index), value, at, numbers, F32)


@every_subject
def test_a_loop_is_made_of_vector_instructions(act: Activation):
    """A compiler that makes branches of a formula takes one element after the other: 25 to 90 times ReLU's time.

    With vectors ReLU's time is that of memory, and a special function takes four times as long.
    """
    if act.implicit is not None:
        return  # an equation is solved for each element by itself
    x, times = numbers(1 << 15), []
    for each in (act, sk.get("relu")):
        values = [torch.tensor([float(p.default)]) for p in each.params]
        plan, y = compiled.CompiledPlan(each, x, values), torch.empty_like(x)
        times.append(min(timeit.repeat(lambda: plan.forward(x, values, out=y), number=1, repeat=20)))  # noqa: B023
        times.append(min(timeit.repeat(lambda: plan.backward(x, x, values, [True]), number=1, repeat=20)))  # noqa: B023
    forward, backward, *relu = times
    for seconds, index, least in zip((forward, backward), ((), ("x",)), relu, strict=True):
        special = sum(not part.is_Piecewise for part in act.partial(*index).computed.atoms(sympy.Function))
        assert seconds < (12 + 6 * special) * least


@pytest.mark.parametrize("dtype", [BF16, F16], ids=["bfloat16", "float16"])
def test_every_half_number_comes_back(dtype: torch.dtype):
    """The conversions in C are torch's: the identity changes no bit, and results are rounded to the nearest."""
    every = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(dtype)
    x = every[~every.isnan()]
    identity = sk.Activation("same", sk.spec.x)
    assert_path(identity, x)
    assert torch.equal(identity(x), x)
    assert sk.Activation("same_again", sk.spec.x)(every)[every.isnan()].isnan().all()
    third = sk.Activation("third", sk.spec.x / 3)
    assert torch.equal(third(x), (x.float() * torch.tensor(1 / 3)).to(dtype))
    wide = sk.Activation("wide", sk.spec.x * 1e4)
    assert torch.equal(wide(x), (x.float() * 1e4).to(dtype))


@each_kind
def test_gradients_are_those_of_float64(act: Activation):
    x, g = numbers(LARGE), numbers(LARGE, seed=1)
    result, exact = run(act, leaves(act, x), g), run(act, leaves(act, x.double(), F64), g.double())
    for item, truth in zip(result[:2], exact, strict=False):
        torch.testing.assert_close(item.double(), truth, rtol=rounding(F32), atol=rounding(F32))
    size = [term.abs().sum() for term in run(act, leaves(act, x.double(), F64), g.double().abs())[2:]]
    for item, truth, bound in zip(result[2:], exact[2:], size, strict=True):
        assert abs(item.double() - truth) <= tolerance(F32, "sum") * (1 + bound)


@pytest.mark.parametrize("needs", [(True, False), (False, True), (True, True)])
def test_only_what_is_needed(needs: tuple[bool, bool]):
    act, x = sk.get("generalized_smelu"), numbers(LARGE)
    whole = run(act, leaves(act, x), torch.ones(LARGE))[1:]
    wanted = [needs[0], needs[1], False, *[True] * (len(act.params) - 2)]
    inputs = [t.requires_grad_(need) for t, need in zip(leaves(act, x), wanted, strict=True)]
    value = act(inputs[0], **dict(zip((p.name for p in act.params), inputs[1:], strict=True)))
    grads = torch.autograd.grad(value, [t for t in inputs if t.requires_grad], torch.ones(LARGE))
    for grad, truth in zip(grads, itertools.compress(whole, wanted), strict=True):
        assert torch.equal(grad, truth)


def test_double_backward_of_a_large_tensor():
    act = sk.get("gelu")
    x = numbers(LARGE).requires_grad_()
    (first,) = torch.autograd.grad(act(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, act.derivative(2)(x.detach().double()).float(), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", [F64, BF16], ids=["float64", "bfloat16"])
def test_a_parameter_of_another_type(dtype: torch.dtype):
    act, x = sk.get("srelu"), numbers(LARGE)
    delta = torch.tensor([0.75], dtype=dtype, requires_grad=True)
    value = act(x, delta=delta)
    assert torch.equal(value, act(x, delta=0.75))
    value.sum().backward()
    assert delta.grad is not None
    assert delta.grad.dtype == dtype


# -- layouts --------------------------------------------------------------------------------------------------

LAYOUTS = {
    "transposed": lambda: numbers(130, 260).t(),
    "channels_last": lambda: numbers(5, 8, 33, 29).contiguous(memory_format=torch.channels_last),
    "slice": lambda: numbers(200, 400)[::2, 1::2],
    "offset": lambda: numbers(LARGE + 3)[3:],
    "expanded": lambda: numbers(1, 300).expand(100, 300),
    "least": lambda: numbers(LEAST),
    "odd": lambda: numbers(LEAST + 1),
    "blocks": lambda: numbers(2 * LEAST),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_changes_nothing(layout: str):
    for name in ("srelu", "lambda_gelu"):
        act, x = sk.get(name), LAYOUTS[layout]()
        assert_path(act, x)
        for g in (numbers(*x.shape, seed=1), numbers(*reversed(x.shape), seed=2).permute(*range(x.dim())[::-1])):
            inputs = [x.detach().requires_grad_(), *leaves(act, x)[1:]]
            result = run(act, inputs, g)
            flat = run(act, leaves(act, x.contiguous()), g.contiguous())
            assert result[0].stride() == torch.ops.softknee.pointwise(x.to("meta"), [], act.key).stride()
            # The sums follow storage, which is another order.
            for item, other in zip(result, flat, strict=True):
                torch.testing.assert_close(item, other, rtol=1e-5 if item.dim() == 1 else 0, atol=0)


def test_a_value_does_not_depend_on_its_place():
    act, x = sk.get("gelu"), numbers(LARGE)
    for start in (1, 5, 1024, 4099):
        assert torch.equal(act(x)[start:], act(x[start:]))


@pytest.mark.parametrize("dtype", [F32, BF16], ids=["float32", "bfloat16"])
def test_in_place_and_nothing_beside(dtype: torch.dtype):
    act, module = sk.get("smelu"), sk.nn.SmeLU(inplace=True)
    around = numbers(LARGE + 2, dtype=dtype)
    inner, before = around[1:-1], around.clone()
    version = inner._version
    assert module(inner) is inner
    assert inner._version > version
    assert torch.equal(inner, act(before[1:-1]))
    assert torch.equal(around[[0, -1]], before[[0, -1]])


def test_a_lazy_minus_is_a_minus():
    x = torch.complex(torch.zeros(LEAST), numbers(LEAST)).conj().imag
    assert x.is_neg()
    assert torch.equal(sk.get("srelu")(x), sk.get("srelu")(x.clone()))
    assert torch.equal(sk.nn.SReLU(inplace=True)(x), sk.get("srelu")(x.resolve_neg()))


ROWS = {  # of the input, of the parameter
    "channels": ((8, 24, 9, 7), (24, 1, 1)),
    "channels last": ((8, 24, 9, 7), (1, 7)),
    "replicas": ((5, 40, 33), (5, 1, 1)),
    "long rows": ((3, c_source.CHUNK + 1001), (3, 1)),
    "one row": ((LARGE,), (1,)),
    "neurons": ((600, 24), (24,)),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ROWS)
def test_a_parameter_for_each_row(kind: str, threads: int):
    """One of the parameters varies, the other does not; their sums are those of float64, in every run the same."""
    shape, own = ROWS[kind]
    act, x, g = sk.get("asymmetric_smelu"), numbers(*shape), numbers(*shape, seed=1)
    choice, before = sk.explain(sk.nn.SReLU(), x), torch.get_num_threads()
    assert choice.path == "compiled"
    many = kind not in ("neurons", "channels last")
    alpha, beta = numbers(*own, seed=2).abs() + 0.5, torch.tensor([0.75])
    assert ("row" in compiled.why_not(act, x, [alpha, beta])) == (not many)
    results = []
    try:
        torch.set_num_threads(threads)
        for dtype in (F32, F32, F64):
            inputs = [t.to(dtype).requires_grad_() for t in (x.clone(), alpha.clone(), beta.clone())]
            results.append(run(act, inputs, g.to(dtype)))
    finally:
        torch.set_num_threads(before)
    for result, again, exact in zip(*results, strict=True):
        assert torch.equal(result, again)
        torch.testing.assert_close(result.double(), exact, rtol=1e-5, atol=1e-5 * math.sqrt(x.numel() / exact.numel()))


def test_a_sum_leaves_out_what_fills_a_vector_up():
    """The slope by b is infinite at 0, which no element is."""
    b = sk.spec.Param("b", 1.0)
    act = sk.Activation("logarithm", b.symbol * sk.spec.parse("log(abs(x))"), params=(b,))
    x = numbers(LEAST + 1).abs() + 0.1
    assert_path(act, x)
    value = torch.tensor([1.0], requires_grad=True)
    (slope,) = torch.autograd.grad(act(x, b=value).sum(), value)
    torch.testing.assert_close(slope, x.double().log().sum().float().reshape(1))


# -- SQUAF (test_squaf_kernels.py has the rest) --------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1,), (3, 1), (5,)])
@pytest.mark.parametrize("window", [5, None])
def test_a_table_of_many_parts_and_any_number_of_threads(shape: tuple[int, ...], window: int | None):
    x, g, p = numbers(3500, 3, 5), numbers(3500, 3, 5, seed=1), parameters(shape, k=4, dtype=F32)
    assert choose_path(x)[0] == "compiled"

    def run(dtype: torch.dtype) -> list[Tensor]:
        inputs = [t.detach().to(dtype).requires_grad_() for t in (x, *p.values())]
        value = squaf(inputs[0], **dict(zip(p, inputs[1:], strict=True)), window=window)
        return [value.detach(), *torch.autograd.grad(value, inputs, g.to(dtype))]

    before, runs = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            runs.append(run(F32))
    finally:
        torch.set_num_threads(before)
    for result, *others, truth in zip(*runs, run(F64), strict=True):
        assert all(torch.equal(result, other) for other in others)
        torch.testing.assert_close(result.double(), truth, rtol=2e-5, atol=1e-5 * truth.abs().max().item())


@pytest.mark.skipif(platform.machine() != "x86_64", reason="where there is one form of every loop")
@pytest.mark.parametrize("k", [2, 16, 40, 200])  # few numbers are held in registers, of many there is one copy of sums
def test_a_table_is_the_same_by_any_compiler(k: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    p, x, g = parameters(k=k, dtype=F32), numbers(50_003), numbers(50_003, seed=1)
    x = x * (k * p["q"])  # some beyond the ends
    x[:3] = torch.tensor([torch.inf, -torch.inf, 0.0])

    def run() -> list[Tensor]:
        inputs = [t.clone().requires_grad_() for t in (x, *p.values())]
        value = squaf(inputs[0], **dict(zip(p, inputs[1:], strict=True)), window=5)
        return [value.detach(), *torch.autograd.grad(value, inputs, g)]

    results = [run()]
    monkeypatch.setenv("SOFTKNEE_CACHE", str(tmp_path / "cache"))
    others = ['cc "$@" -mno-avx512f', 'cc "$@" -mno-avx2', *(['clang "$@"'] if shutil.which("clang") else [])]
    for command in others:
        monkeypatch.setenv("SOFTKNEE_CC", script(tmp_path, f"exec {command}"))
        monkeypatch.setattr(squaf_compiled, "_library", functools.cache(squaf_compiled._library.__wrapped__))
        assert choose_path(x)[0] == "compiled"
        results.append(run())
    for native, *rest in zip(*results, strict=True):
        for other in rest:
            torch.testing.assert_close(other, native, rtol=1e-6, atol=1e-6 * native.abs().max().item())


@pytest.mark.parametrize("dtype", [F32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("size", "table", "seeds"),
    [
        ((70_001,), (1,), ()),
        ((64, 17, 200), (200,), ()),  # a row of parameters for each element that follows
        ((3, 16, 30, 31), (16, 1, 1), ()),
        ((4, 5, 1700), (1,), (4,)),  # a seed for each part
    ],
)
def test_chosen_points_are_those_of_plain_operations(
    size: tuple[int, ...],
    table: tuple[int, ...],
    seeds: tuple[int, ...],
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
):
    """Values and symbols, drawn and nearest. Both forms round, and may part where a draw falls between two points."""
    p, x = parameters(table, k=6, dtype=F32), (2 * numbers(*size)).to(dtype)
    x.view(-1)[:3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    seed = torch.tensor([2**62 + 12345, 7, 2**40 + 1, 99])[: math.prod(seeds)].reshape(seeds)
    assert choose_path(x)[0] == "compiled"

    def chosen() -> list[Tensor]:
        q, z = p["q"], p["z"]
        values = squaf_sampled(x, **p, seed=seed), squaf_step(x, q=q, z=z)
        return [*values, sampled_symbols(x, **p, seed=seed), step_symbols(x, q=q, z=z)]

    ours = chosen()
    monkeypatch.setattr(squaf_modes, "kernels_for", lambda _: squaf_eager)
    for result, plain in zip(ours, chosen(), strict=True):
        assert (result.dtype, result.stride()) == (plain.dtype, plain.stride())
        differ = (result != plain) & ~(result.isnan() & plain.isnan())
        assert differ.sum() <= 1
    assert (ours[0].view(-1)[0].isnan(), ours[2].view(-1)[0]) == (True, -1)


def test_a_table_that_is_too_large_takes_the_general_way():
    p, x = parameters(k=2500, dtype=F32), numbers(LEAST)
    exact = squaf(x.double(), **{name: t.double() for name, t in p.items()})
    torch.testing.assert_close(squaf(x, **p).double(), exact, rtol=1e-5, atol=1e-5)


# -- threads and processes ------------------------------------------------------------------------------------


@each_learned_kind
def test_the_bits_do_not_depend_on_the_threads(act: Activation):
    x, g = numbers(LARGE), numbers(LARGE, seed=1)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 2, 3):
            torch.set_num_threads(threads)
            results.append(run(act, leaves(act, x), g))
    finally:
        torch.set_num_threads(before)
    for again in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], again, strict=True))


def fresh(name: str = "srelu") -> Activation:
    """The same function as a definition of its own, for which nothing has been compiled in this process."""
    return sk.get(name).with_(name=f"{name}_again")


def expected(x: Tensor) -> Tensor:
    return sk.get("srelu")(x.double()).float()


def assert_right(act: Activation, x: Tensor) -> None:
    torch.testing.assert_close(act(x), expected(x), rtol=1e-6, atol=1e-6)


def test_several_threads_meet_at_one_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("SOFTKNEE_CACHE", str(tmp_path))
    act, x, runs = fresh(), numbers(LARGE), []
    original = compiled._run
    monkeypatch.setattr(compiled, "_run", lambda *a: runs.append(1) or original(*a))
    workers = [threading.Thread(target=assert_right, args=(act, x)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert_path(act, x)
    assert len(runs) == 1


# In the child torch's own operations would wait for the threads that its parent had: it calls none on a large tensor.
PROCESS = """
import os, torch, softknee as sk
torch.set_num_threads(2)
act, x = sk.get("srelu"), torch.linspace(-3, 3, 100_000)
assert sk.explain(act, x).path == "compiled", sk.explain(act, x)
expected, positive = act(x).numpy().tobytes(), x.relu().numpy().tobytes()
child = os.fork()
if child == 0:
    same = act(x).numpy().tobytes() == expected and sk.get("relu")(x).numpy().tobytes() == positive
    os._exit(0 if same else 3)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.slow
def test_two_processes_at_once_and_their_forks(tmp_path: Path):
    processes.run(processes.execute, PROCESS, environment={"SOFTKNEE_CACHE": str(tmp_path / "cache")})
    folder = tmp_path / "cache"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert sorted(path.suffix for path in folder.iterdir()) == [".so", ".so"]  # no file of one that was still writing


# -- what can go wrong ----------------------------------------------------------------------------------------


def script(folder: Path, text: str) -> str:
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


BROKEN = {
    "fails": ("echo 'error: out of order' >&2; exit 1", "out of order"),
    "dies": ("kill -9 $$", "failed: exit -9"),
    "writes nothing": ("cat > /dev/null", "wrote nothing"),
    "hangs": ("sleep 100 & sleep 100", "did not end in 0.5 seconds"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_compiler(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    text, reason = BROKEN[kind]
    monkeypatch.setenv("SOFTKNEE_CC", script(tmp_path, text))
    monkeypatch.setenv("SOFTKNEE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compiled, "_SECONDS", 0.5)
    monkeypatch.setattr(compiled, "_process", compiled._Process())
    act, x = fresh(), numbers(600_000)
    start = time.monotonic()
    choice = sk.explain(act, x)
    assert time.monotonic() - start < 30
    assert choice.path == "blocks"
    assert reason in choice.reason
    assert_right(act, x)
    assert list((tmp_path / "cache").iterdir()) == []
    if kind == "hangs":  # one wait is enough, however many definitions there are
        monkeypatch.setattr(compiled, "_compile", None)
        assert reason in sk.explain(fresh("smelu"), x).reason


@pytest.mark.parametrize(("setting", "reason"), [("0", "switches"), ("", "switches"), ("no-such-cc", "no C compiler")])
def test_without_a_compiler(setting: str, reason: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOFTKNEE_CC", setting)
    act = fresh()
    for size, path in ((600_000, "blocks"), (LEAST, "plain")):
        x = numbers(size)
        choice = sk.explain(act, x)
        assert choice.path == path
        assert reason in choice.reason
        assert_right(act, x)


@pytest.mark.slow
def test_a_damaged_file_is_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("SOFTKNEE_CACHE", str(tmp_path / "cache"))
    x = numbers(LARGE)
    assert_path(fresh(), x)
    (path,) = (tmp_path / "cache").iterdir()
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", whole[:-40] + b"x" + whole[-39:]):
        path.unlink()  # the old one may be mapped
        path.write_bytes(damaged)
        path.chmod(0o700)
        act = fresh()
        assert_path(act, x)
        assert_right(act, x)
        assert path.stat().st_size == len(whole)


def test_a_library_is_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("SOFTKNEE_CACHE", str(tmp_path))
    x = numbers(LARGE)
    assert_path(fresh(), x)

    def refuse(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(compiled, "_run", refuse)
    assert_path(fresh(), x)


def test_what_others_can_write_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    folder = tmp_path / "cache"
    monkeypatch.setenv("SOFTKNEE_CACHE", str(folder))
    x = numbers(LARGE)
    assert_path(fresh(), x)
    (path,) = folder.iterdir()
    for place in (path, folder):
        place.chmod(0o777)
        choice = sk.explain(fresh(), x)
        assert choice.path == "plain"
        assert "another user" in choice.reason
        place.chmod(0o700)
    target = path.rename(tmp_path / "elsewhere")
    path.symlink_to(target)
    assert sk.explain(fresh(), x).path == "plain"


def test_a_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    places = [tmp_path / "file" / "cache", Path("/proc/softknee")]
    (tmp_path / "file").write_text("")
    if os.getuid():  # root writes everywhere
        (tmp_path / "locked").mkdir(mode=0o500)
        places.append(tmp_path / "locked")
    for place in places:
        monkeypatch.setenv("SOFTKNEE_CACHE", str(place))
        act, x = fresh(), numbers(LARGE)
        assert "could not be stored or loaded" in sk.explain(act, x).reason
        assert_right(act, x)


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("SOFTKNEE_CACHE", str(tmp_path))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    choice = sk.explain(fresh(), numbers(LARGE))
    assert choice.path == "plain"
    assert "No space left" in choice.reason
    assert list(tmp_path.iterdir()) == []


def test_a_trace_compiles_nothing(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise AssertionError("compiled in a trace")

    monkeypatch.setattr(compiled, "_library", refuse)
    act, x = fresh(), numbers(LARGE)
    for trace in (torch.compile(act, backend="eager"), torch.func.vmap(act)):
        torch.testing.assert_close(trace(x), expected(x), rtol=1e-6, atol=1e-6)


def test_a_function_without_c_goes_another_way():
    act = sk.Activation("waves", sk.spec.x + sk.spec.parse("sin(x)"))
    choice = sk.explain(act, numbers(LARGE))
    assert choice.path == "plain"
    assert "sin has no lowering" in choice.reason


def test_a_strange_name_of_a_parameter():
    other = sk.spec.Param("größe", 0.5)
    act = sk.Activation("named", sk.spec.x * other.symbol, params=(other,))
    assert torch.equal(act(numbers(LEAST)), 0.5 * numbers(LEAST))
