"""Any torch from 2.6 on: what an old compiler cannot trace is not written, and what it cannot end it is not given."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import softknee as sk
from softknee import torch_compat
from softknee.kernels import pointwise
from softknee.kernels.dispatch import exporting

PACKAGE = Path(sk.__file__).parent
TRACED = ("spec", "kernels", "nn")
F64 = torch.float64


def unions(source: str) -> list[int]:
    """The lines with isinstance(value, A | B), which the compilers of torch 2.6 and 2.8 cannot trace."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("isinstance", "issubclass")
        and any(isinstance(inner, ast.BitOr) for inner in ast.walk(node.args[1]))
    ]


def test_traced_code_asks_for_a_tuple_of_types() -> None:
    files = [path for room in TRACED for path in (PACKAGE / room).rglob("*.py")]
    assert len(files) > 50
    results = {str(path.relative_to(PACKAGE)): unions(path.read_text(encoding="utf-8")) for path in files}
    assert {name: lines for name, lines in results.items() if lines} == {}


def test_the_check_sees_a_union() -> None:
    assert unions("isinstance(value, int | float)") == [1]
    assert unions("x = 1\nisinstance(value, (str, int | float))") == [2]
    assert unions("isinstance(value, (int, float)) | True") == []


class Told(torch.nn.Module):
    """Adds 1 in an export and 2 elsewhere."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if exporting() else x + 2


@pytest.mark.parametrize("strict", [False, True])
def test_an_export_is_told_from_a_compilation(strict: bool) -> None:
    x = torch.zeros(1)
    program = torch.export.export(Told(), (x,), strict=strict)
    assert program.module()(x).item() == 1
    assert torch.compile(Told(), fullgraph=True, backend="eager")(x).item() == 2
    assert Told()(x).item() == 2


def test_a_solved_definition_stays_one_operator_where_the_compiler_follows_every_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The way of torch 2.6, on any torch: same numbers, and a graph that its compiler comes to an end with."""
    act, operators = sk.get("crrelu_exact"), []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        del inputs
        operators.extend(str(n.target) for part in graph.modules() for n in getattr(part, "graph", _Empty).nodes)
        return graph

    monkeypatch.setattr(torch_compat, "FOLLOWS_EVERY_PATH", True)
    traced = pointwise._traced(act).function
    x = torch.linspace(-3, 3, 41, dtype=F64, requires_grad=True)
    eps = torch.full((1,), 0.3, dtype=F64, requires_grad=True)
    actual = torch.compile(lambda x, eps: traced.apply(x, eps), fullgraph=True, backend=backend)(x, eps)
    expected = act(x, eps=eps)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    weights = torch.linspace(1, 2, 41, dtype=F64)
    for ours, theirs in zip(
        torch.autograd.grad((actual * weights).sum(), (x, eps)),
        torch.autograd.grad((expected * weights).sum(), (x, eps)),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    assert {"softknee.pointwise.default", "softknee.pointwise_backward.default"} <= set(operators)
    assert len(operators) < 40


class _Empty:
    nodes = ()


# -- importing --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_neither_importing_nor_eager_mode_loads_the_compiler() -> None:
    """Which takes 2 to 10 s. Every part is imported; every function and every baseline made, called, differentiated.

    In one process, which loads torch once. SymPy comes with the first definition, and not with the package; modules do
    not load the engines that make definitions.
    """
    program = """
import sys
import torch
assert "torch._dynamo" not in sys.modules

def report(what):
    if "torch._dynamo" in sys.modules:
        print(what)
        sys.exit()

import softknee as sk
report("softknee")
assert "sympy" not in sys.modules
import softknee.nn
report("softknee.nn")
print(*(name for name in sys.modules if name.startswith("softknee.design")))
for name in sk.__all__:
    getattr(sk, name)
    report(name)
x = torch.randn(4, 8, requires_grad=True)
squaf = dict(k=4, q=0.5)
for name in sk.names():
    sk.nn.make(name, learn=True, **(squaf if name == "squaf" else {}))(x).sum().backward()
    report(name)
for kind in (sk.nn.KAF, sk.nn.DiTAC, sk.nn.PolyNorm, sk.nn.PolyReLU, sk.nn.UnitRows):
    kind()(x).sum().backward()
    report(kind.__name__)
for kind in (sk.nn.SQUAFP, sk.nn.SQUAFS):
    kind(**squaf)(x).sum().backward()
    report(kind.__name__)
sk.get("srelu")(x, delta=0.5).sum().backward()
sk.explain(sk.nn.SReLU(), x)
report("a call")
print("none")
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-W", "ignore", "-c", program]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["none"]
