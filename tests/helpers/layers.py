"""The rooms of the package in their order, and the imports of a file."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "softknee"
FILES = sorted(SOURCE.rglob("*.py"))


# From the ground up. The empty name is the package itself, which is `api` as a list of names.
ROOMS = (
    "version",
    "errors",
    "files",
    "devices",
    "torch_compat",
    "registry",
    "transformers_names",
    "spec",
    "zoo",
    "design",
    "kernels",
    "nn",
    "api",
    "",
    "surgery",
    "wire",
    "train",
    "measure",
    "lab",
    "app",
    "__main__",
)


TYPES = "TYPE_CHECKING"


def room_of(module: str) -> str:
    """The room of a dotted module name that starts with the package."""
    return [*module.split("."), ""][1]


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(tree: ast.Module, path: Path) -> set[str]:
    """Every module of the package that the file imports, lazily, by a name in a string or at once, and in full.

    The front page names what stands above it and loads it when asked: what it shows type checkers is no import.
    """
    package = module_of(path).split(".")
    if path == SOURCE / "__init__.py":
        shown = [node for node in tree.body if not (isinstance(node, ast.If) and ast.unparse(node.test) == TYPES)]
        tree = ast.Module(shown, [])
    if path.name != "__init__.py":
        package = package[:-1]
    result: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            # `from softknee import nn` may name a room, where `from softknee import get` names the API.
            result |= {f"{origin}.{a.name}" if origin == "softknee" and a.name in ROOMS else origin for a in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            name = node.args[0] if node.args else None
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                level = len(name.value) - len(name.value.lstrip("."))
                base = package[: len(package) - level + 1] if level else []
                result.add(".".join([*base, name.value[level:]]))
    return {name for name in result if name.split(".")[0] == "softknee"}
