"""Which test files are the core suite: those that run wherever torch and the tools of the tests are, and nothing else.

There is no list to keep. A file belongs to the suite if all that it imports when it is collected, itself or through the
helper modules beside it, is torch, a tool of the tests or a room of the library, and if it does not read the checkout
(documentation, records, source). A single test that needs another package says so with `pytest.importorskip`.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

# Distribution and module. torch brings SymPy and mpmath along; the versions are those of requirements/constraints.txt.
TOOLS = {
    "pytest": "pytest",
    "pytest-xdist": "xdist",
    "hypothesis": "hypothesis",
    "numpy": "numpy",
    "scipy": "scipy",
    "python-flint": "flint",
}
WITH_TORCH = {"torch", "sympy", "mpmath"}
# The rooms that `pip install softknee` promises to run with torch alone.
LIBRARY = {
    *("api", "design", "devices", "errors", "files", "kernels", "measure", "nn", "registry", "spec", "surgery"),
    *("torch_compat", "train", "transformers_names", "version", "wire", "zoo"),
}
CHECKOUT = ("__file__).parent.parent", "__file__).parents[", "__file__).resolve().parent.parent")


def core_suite(tests: Path) -> tuple[list[str], dict[str, list[str]]]:
    """The files of the suite, and for every other file what it needs besides torch."""
    needs = {path.name: sorted(_needs(path)) for path in sorted(tests.glob("test_*.py"))}
    return [name for name in needs if not needs[name]], {name: missing for name, missing in needs.items() if missing}


@functools.cache
def _needs(path: Path) -> frozenset[str]:
    source = path.read_text(encoding="utf-8")
    tests = path.parent.parent if path.parent.name == "helpers" else path.parent
    needs = {"the checkout"} if any(spelling in source for spelling in CHECKOUT) else set()
    for module in _imported(ast.parse(source).body):
        top, _, inner = module.partition(".")
        places = (tests / f"{top}.py", tests / "helpers" / f"{top}.py", tests / top / "__init__.py")
        if helper := next((place for place in places if place.exists()), None):
            needs |= _needs(helper)
        elif top == "softknee":
            room = inner.partition(".")[0]
            needs |= {f"softknee.{room}"} if room and room.islower() and room not in LIBRARY else set()
        elif top not in sys.stdlib_module_names and top not in WITH_TORCH and top not in TOOLS.values():
            needs.add(top)
    return frozenset(needs)


def _imported(body: list[ast.stmt]) -> Iterator[str]:
    """Modules that are imported when the file is; `if TYPE_CHECKING` and the bodies of functions are not."""
    for statement in body:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            inside = statement.module == "softknee"
            yield from (f"softknee.{alias.name}" if inside else statement.module for alias in statement.names)
        elif isinstance(statement, ast.Expr | ast.Assign) and (package := _skips_without(statement.value)):
            yield package
        elif isinstance(statement, ast.If | ast.Try | ast.With) and "TYPE_CHECKING" not in ast.unparse(statement):
            yield from _imported(statement.body)


def _skips_without(value: ast.expr) -> str:
    """The package of a `pytest.importorskip("package")` that stands for the whole file."""
    called = isinstance(value, ast.Call) and ast.unparse(value.func) == "pytest.importorskip"
    return ast.literal_eval(value.args[0]) if called and isinstance(value.args[0], ast.Constant) else ""
