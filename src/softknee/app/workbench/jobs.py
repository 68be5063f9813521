"""What a worker can be asked, by name, and how an answer or an error becomes the bytes that are sent."""

from __future__ import annotations

import json
import math
import sys
import traceback
from collections.abc import Callable
from typing import Any

from ...errors import SoftkneeError
from ...lab.gallery import names
from ...registry import get
from .cost import cost
from .drawing import curve
from .export import picture, take
from .inputs import shape
from .reading import refusal
from .sheet import certificate, formulas
from .signal_flow import depth, entropy
from .uploads import uploaded


def zoo(asked: dict[str, Any]) -> dict[str, Any]:
    """The functions to pick from."""
    return {"functions": [{"name": name, "about": get(name).about} for name in names()]}


JOBS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "zoo": zoo,
    "curve": curve,
    "formulas": formulas,
    "certificate": certificate,
    "entropy": entropy,
    "depth": depth,
    "cost": cost,
    "shape": shape,
    "take": take,
    "picture": picture,
    "uploaded": uploaded,
}


def answer(job: str, asked: dict[str, Any]) -> tuple[int, bytes]:
    """The status and the JSON of an answer; an error is one too, with its sentence and its place in the text."""
    try:
        return 200, _json(JOBS[job](asked))
    except SoftkneeError as error:
        function = asked.get("function")
        text = function.get("text", "") if isinstance(function, dict) else ""
        return 422, _json(refusal(error, text if isinstance(text, str) else ""))
    except (MemoryError, RecursionError, OverflowError):
        return 422, _json({"error": "This function is too large to be worked with here; write a smaller one."})
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        said = f"This could not be computed ({type(error).__name__}). Try other numbers, or another function."
        return 422, _json({"error": said})


def _json(content: dict[str, Any]) -> bytes:
    try:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:  # a number that is not finite
        return json.dumps(_without(content), allow_nan=False, separators=(",", ":")).encode()


def _without(value: Any) -> Any:
    """The same with nothing where a number is not finite."""
    if isinstance(value, dict):
        return {key: _without(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
