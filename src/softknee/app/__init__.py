"""The `softknee` command. It holds no logic of its own: it reads arguments, calls a room and prints."""

import sys
from collections.abc import Callable

from ..errors import MissingToolError, SoftkneeError

# The modules that the command needs beyond torch, and the extra that brings each.
_EXTRA_OF = dict.fromkeys(("typer", "rich", "sklearn", "numpy", "vl_convert"), "lab") | dict.fromkeys(
    ("safetensors", "onnx", "onnxscript", "onnxruntime", "torch_pruning", "maraboupy"), "deploy"
)


def main() -> None:
    """Run the command `softknee`."""

    def app() -> None:
        from .commands import app

        app(prog_name="softknee")

    run(app, name="softknee")


def run(app: Callable[[], None], *, name: str) -> None:
    """Run a command; an error made on purpose is printed as its sentence, with exit code 2."""
    try:
        _with_extras(app)
    except SoftkneeError as error:
        sys.stderr.write(f"{name}: {error}\n")
        raise SystemExit(2) from None


def _with_extras(app: Callable[[], None]) -> None:
    try:
        app()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRA_OF:
            raise
        raise MissingToolError(
            f"This command needs the package {missing!r}, which is not installed. "
            f"Install it with: pip install 'softknee[{_EXTRA_OF[missing]}]'"
        ) from error
