"""The rooms of the package: each imports only rooms that stand before it."""

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import softknee
from layers import FILES, ROOMS, SOURCE, TYPES, imports_of, module_of, room_of


def offences(source: str, path: Path) -> list[str]:
    here = room_of(module_of(path))
    results = []
    for imported in sorted(imports_of(ast.parse(source), path)):
        there = room_of(imported)
        if there not in ROOMS:
            results.append(f"{imported} is in no known room")
        elif ROOMS.index(there) > ROOMS.index(here):
            results.append(f"{here or 'the API'} imports {imported}, which stands above it")
    return results


def test_there_are_files_to_check() -> None:
    assert len(FILES) > 10


def test_a_room_imports_only_rooms_below_it() -> None:
    results = {module_of(path): offences(path.read_text(encoding="utf-8"), path) for path in FILES}
    assert {name: faults for name, faults in results.items() if faults} == {}


def test_tests_import_helpers_and_not_one_another() -> None:
    naming = re.compile(r"^\s*(?:import|from) test_\w+", re.MULTILINE)
    paths = sorted((SOURCE.parent.parent / "tests").rglob("*.py"))
    assert [path.name for path in paths if naming.search(path.read_text(encoding="utf-8"))] == []


def test_the_package_does_not_know_the_papers() -> None:
    naming = re.compile(r"(?:import|from) papers\b|[\"']papers[.\"'/]")
    assert [module_of(path) for path in FILES if naming.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "line",
    [
        "from softknee.nn import make",
        "from ..nn import make",
        "from .. import nn",
        "import softknee.app",
        "import softknee",
        "from softknee import nn",
        "from ..nowhere import x",
        "def f():\n    from ..lab import page",
        "import_module('softknee.nn')",
        "importlib.import_module('..kernels', __package__)",
        "__import__('softknee.design')",
        "def f():\n    return import_module('softknee.lab')",
    ],
)
def test_the_check_sees_an_offence(line: str) -> None:
    assert offences(line, SOURCE / "zoo" / "example.py")


@pytest.mark.parametrize(
    "line", ["from ..spec import x", "import torch", "from . import relu", "import_module('.relu', __package__)"]
)
def test_the_check_lets_the_allowed_pass(line: str) -> None:
    assert offences(line, SOURCE / "zoo" / "example.py") == []


def test_the_front_page_may_import_types_from_above_and_nothing_else() -> None:
    types = "if TYPE_CHECKING:\n    from .surgery import swap_\n"
    assert offences(types, SOURCE / "__init__.py") == []
    assert offences("from .surgery import swap_\n", SOURCE / "__init__.py")
    assert offences(types.replace(".surgery", "..surgery"), SOURCE / "spec" / "example.py")


def test_type_checkers_see_every_name_of_the_front_page() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    (types,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == TYPES)
    seen = {a.name for node in types.body if isinstance(node, ast.ImportFrom) for a in node.names}
    assert seen == set(softknee._LAZY)


def test_the_front_page_shows_its_names_and_nothing_else() -> None:
    assert dir(softknee) == sorted(softknee.__all__)


@pytest.mark.parametrize("function", [softknee.nn.make, softknee.nn.SReLU.__init__])
def test_help_explains_the_arguments_of_a_module(function: Callable[..., object]) -> None:
    text = inspect.getdoc(function) or ""
    assert [name for name in ("learn", "per", "size", "dim") if f" {name}: " not in text] == []
