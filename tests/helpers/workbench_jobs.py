"""Jobs of the workbench asked in this process, without a server."""

import base64
import json
from typing import Any

import numpy as np

from softknee.app.workbench.workers import answer

NORMAL = {"kind": "normal", "mean": 0.0, "scale": 1.0}


def asked(text: str, **values: float) -> dict[str, Any]:
    return {"function": {"text": text, "values": values}}


def done(job: str, request: dict[str, Any]) -> dict[str, Any]:
    status, content = answer(job, request)
    assert status == 200, content
    return json.loads(content)


def refused(job: str, request: dict[str, Any]) -> dict[str, Any]:
    status, content = answer(job, request)
    assert status == 422, content
    return json.loads(content)


def points(line: dict[str, str]) -> tuple[np.ndarray, np.ndarray]:
    """The points of a line of the page, without the gaps between its runs."""
    x, y = (np.frombuffer(base64.b64decode(line[name]), "<f8") for name in ("x", "y"))
    assert x.shape == y.shape
    return x[np.isfinite(x)], y[np.isfinite(x)]
