"""mpmath's precision belongs to the whole process, so this package never reads or sets it."""

from __future__ import annotations

import ast
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mpmath
import pytest
import sympy
from papers import claim

import softknee as sk
from helpers import every_subject
from softknee.spec import NormalCdf, Tanh, x
from softknee.spec.precision import OwnContext, compiled, context, to_digits
from softknee.spec.reference import evaluate

SOURCE = Path(sk.__file__).parent
POINTS = (-3.0, -0.7, 0.0, 1e-9, 2.5)


def quantities() -> list[sk.Activation]:
    acts = [sk.get(name) for name in ("srelu", "gelu", "mish", "crrelu_exact", "smooth_relu")]
    return [item for act in acts for item in (act, act.derivative(1), *(act.partial(p.name) for p in act.params))]


def values(act: sk.Activation) -> list[tuple[int, ...]]:
    return [evaluate(act, at)._mpf_ for at in POINTS]


def test_threads_do_not_change_one_another_nor_mpmath():
    """Beside a thread that sets mpmath's precision, 151 of 5,400 results were wrong, and 140 digits were left."""
    acts = quantities()
    expected = [values(act) for act in acts]
    stop, before = threading.Event(), mpmath.mp.dps
    seen: set[int] = set()

    def other_user() -> None:
        while not stop.is_set():
            for digits in (3, 15, 90):
                with mpmath.workdps(digits):
                    seen.add(mpmath.mp.dps)

    beside = threading.Thread(target=other_user)
    beside.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            results = [list(pool.map(values, acts)) for _ in range(3)]
    finally:
        stop.set()
        beside.join()
    assert all(result == expected for result in results)
    assert seen == {3, 15, 90}  # what the other user set was never changed under it
    assert mpmath.mp.dps == before


@pytest.mark.parametrize("digits", [3, 15, 200])
def test_results_have_fifty_digits_whatever_mpmath_is_set_to(digits: int):
    with mpmath.workdps(digits):
        sum_of_two = evaluate(sk.get("gelu"), 1.0) + evaluate(sk.get("mish"), 1.0)
        assert mpmath.mp.dps == digits
    mp = context(60)
    assert abs(sum_of_two - (mp.ncdf(1) + mp.tanh(mp.log1p(mp.e)))) < mp.mpf(10) ** -48


@every_subject
def test_no_evaluation_sets_the_precision_of_others(act: sk.Activation, monkeypatch: pytest.MonkeyPatch):
    set_to: list[object] = []

    def watch(own: object) -> property:
        def put(mp: object, value: int) -> None:
            if mp is mpmath.mp:
                set_to.append(value)
            own.fset(mp, value)

        return property(own.fget, put)

    kind = type(mpmath.mp)
    for name in ("prec", "dps"):
        monkeypatch.setattr(kind, name, watch(getattr(kind, name)))
    mpmath.mp.dps = 15
    assert set_to == [15]
    evaluate(act.derivative(1), 0.5)
    for p in act.params:
        evaluate(act.partial(p.name), 0.5)
    assert set_to == [15]


def test_threads_of_the_ledger_have_their_own_precision():
    mp = OwnContext()
    assert isinstance(claim.mp, OwnContext)
    with mp.workdps(40), ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: mp.dps).result() == 15
        assert mp.dps == 40


@pytest.mark.parametrize(
    ("expr", "truth"),
    [
        (sympy.erf(1), "0.8427007929497148693412206350826"),
        (sympy.tanh(sympy.Rational(1, 3)), "0.3215127375316343447194062224252"),
        (sympy.erf(20) - 1, "-5.395865611607900928934999167905e-176"),  # 175 digits cancel
        (sympy.sqrt(2), "1.414213562373095048801688724210"),
    ],
)
def test_constants_have_their_digits(expr: sympy.Expr, truth: str):
    before = mpmath.mp.prec
    assert abs(to_digits(expr, 30) / sympy.Float(truth, 31) - 1) < sympy.Float(10) ** -29
    assert mpmath.mp.prec == before


def test_a_constant_without_a_value_stays_as_it_is():
    expr = sympy.erf(sympy.Symbol("free"))
    assert to_digits(expr, 20) == expr


def test_primitives_calculate_in_the_context_of_their_argument():
    mp = context(40)
    for primitive in (NormalCdf, Tanh):
        result = compiled([x], primitive(x), mp)(mp.mpf(1) / 3)
        assert result.context is mp
        assert result == compiled([x], primitive.elementary(x), mp)(mp.mpf(1) / 3)


ALLOWED = {"MPContext", "libmp"}


def uses_of_the_global_context(tree: ast.Module) -> list[str]:
    results = []
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="mpmath"), attr=name) if name not in ALLOWED:
                results.append(f"line {node.lineno}: mpmath.{name} works in the context of everybody")
            case ast.ImportFrom(module="mpmath", names=names) if {name.name for name in names} - ALLOWED:
                results.append(f"line {node.lineno}: a name of the context of everybody")
            case ast.Import(names=names) if any(name.name == "mpmath" and name.asname for name in names):
                results.append(f"line {node.lineno}: mpmath under another name")
            case ast.Call(func=ast.Attribute(attr="evalf")):
                results.append(f"line {node.lineno}: to_digits, unlike evalf, does not set mpmath's precision")
            case ast.Call(func=ast.Attribute(attr="lambdify"), args=args, keywords=keywords):
                given = [*args, *(keyword.value for keyword in keywords)]
                if any(isinstance(item, ast.Constant) and item.value == "mpmath" for item in given):
                    results.append(f"line {node.lineno}: use spec.precision.compiled")
    return results


def test_no_file_uses_the_global_context():
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name != "precision.py":
            result = uses_of_the_global_context(ast.parse(path.read_text(encoding="utf-8")))
            assert not result, f"{path.relative_to(SOURCE)}: {result}"


@pytest.mark.parametrize(
    "text",
    [
        "mpmath.mp.dps = 3",
        "mpmath.exp(1)",
        "from mpmath import mp",
        "import mpmath as m",
        "e.evalf(3)",
        "sympy.lambdify(x, e, 'mpmath')",
        "sympy.lambdify(x, e, modules='mpmath')",
    ],
)
def test_each_use_of_the_global_context_is_seen(text: str):
    assert len(uses_of_the_global_context(ast.parse(text))) == 1
