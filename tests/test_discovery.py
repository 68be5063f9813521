"""What there is can be found: dir(), help(), the help of the command, and what an editor sees."""

import ast
import pydoc
import re
from pathlib import Path

import pytest

import softknee as sk

PACKAGES = ("design", "measure", "nn", "spec", "surgery", "train", "wire")
SOURCE = Path(sk.__file__).parent


@pytest.mark.parametrize("package", ["", *PACKAGES])
def test_everything_public_is_in_dir_and_documented(package: str) -> None:
    module = getattr(sk, package) if package else sk
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        assert name == "__version__" or (getattr(module, name).__doc__ or "").strip(), name


def test_help_of_the_package_leads_to_every_verb() -> None:
    text = sk.__doc__ or ""
    assert [name for name in sk.__all__ if name != "__version__" and not re.search(rf"\b{name}\b", text)] == []
    assert "calibrate_" in pydoc.render_doc(sk, renderer=pydoc.plaintext)


def test_every_verb_for_models_is_on_the_front_page() -> None:
    assert [name for name in sk.surgery.__all__ if name.endswith("_") and name not in sk.__all__] == []


@pytest.mark.parametrize("package", ["", *PACKAGES])
def test_an_editor_sees_every_name(package: str) -> None:
    """Type checkers run nothing: each name must stand in an import or a definition, perhaps under TYPE_CHECKING."""
    tree = ast.parse((SOURCE / package / "__init__.py").read_text(encoding="utf-8"))
    seen: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.asname or alias.name for alias in node.names]
            # `from .zoo import *` takes what its __all__ lists.
            seen |= set(sk.nn.zoo.__all__) if names == ["*"] else set(names)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            seen.add(node.name)
        elif isinstance(node, ast.Assign):
            seen |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    module = getattr(sk, package) if package else sk
    assert set(module.__all__) - seen == set()


def test_the_command_leads_to_every_command() -> None:
    typer = pytest.importorskip("typer", reason="typer is not installed; the extra 'lab' brings it")
    from softknee.app.commands import app

    group = typer.main.get_command(app)
    for name, command in group.commands.items():
        first = (command.help or "").split("\n\n")[0]
        assert first, name
        for below in getattr(command, "commands", {}):
            assert re.search(rf"\b{below}\b", command.help), f"{name} {below}"
    assert "help(sk)" in app.info.epilog
