"""The state of an interrupted trial as one file, so that it is there as a whole or not at all.

Its first line is JSON: the key of the trial, the versions of the software that can go on from it, the names and sizes
of the parts, and the checksum of all of them; the parts follow.

>>> content = pack_state("12ab", {"a.json": b"{}", "b": b"123"})
>>> unpack_state("12ab", content)
{'a.json': b'{}', 'b': b'123'}
>>> unpack_state("12ab", content[:-1]) is unpack_state("34cd", content) is None
True
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch

from ...version import VERSION


def pack_state(key: str, parts: Mapping[str, bytes]) -> bytes:
    """The parts as one file."""
    body = b"".join(parts.values())
    return _head(key, {name: len(part) for name, part in parts.items()}, body) + b"\n" + body


def unpack_state(key: str, content: bytes) -> dict[str, bytes] | None:
    """The parts; None where the file is damaged, of another trial or of other software: the trial then begins anew."""
    head, _, body = content.partition(b"\n")
    try:
        sizes: dict[str, int] = dict(json.loads(head)["parts"])
        if head != _head(key, sizes, body):
            return None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    parts, start = {}, 0
    for name, size in sizes.items():
        parts[name] = body[start : start + size]
        start += size
    return parts


def _head(key: str, sizes: Mapping[str, int], body: bytes) -> bytes:
    head: dict[str, Any] = {
        "format": "softknee state",
        "key": key,
        "softknee": VERSION,
        "torch": str(torch.__version__),
    }
    return json.dumps(head | {"parts": list(sizes.items()), "sha256": hashlib.sha256(body).hexdigest()}).encode()
