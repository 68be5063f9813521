"""What is refused at the door: other hosts' names, other sites' requests, bodies that are too large.

A page of another site can make a browser send requests here, under this machine's own name if it controls a name
server (DNS rebinding). So the Host header must be one of ours, and a request that changes or costs something must come
from our own page. The policy that goes out with the page lets it load nothing from anywhere else.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# A report carries its script and style inside it; it runs as a site of its own that can reach nothing.
REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads allow-popups; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data: blob:; font-src data:; frame-ancestors 'none'"
)
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
LOCAL = ("127.0.0.1", "localhost", "::1")


class TooLargeError(Exception):
    """More of a body has come than is allowed."""


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: Any, *, hosts: tuple[str, ...], most_bytes: dict[str, int], usual_bytes: int) -> None:
        self._app, self._hosts, self._most, self._usual = app, hosts, most_bytes, usual_bytes

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if refused := self._refusal(scope["method"], headers):
            await _reply(send, 403, refused)
            return
        most = self._most.get(scope["path"], self._usual)
        too_large = f"This is larger than the {_size(most)} that are taken here; send less."
        if headers.get("content-length", "0").isdecimal() and int(headers.get("content-length", "0")) > most:
            await _reply(send, 413, too_large)
            return
        seen = 0

        async def counted() -> Any:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > most:
                raise TooLargeError
            return message

        async def furnished(message: Any) -> None:
            if seen > most:
                return  # what the application makes of the broken body; the answer is ours
            if message["type"] == "http.response.start":
                policy = REPORT_POLICY if scope["path"].startswith("/runs/") else PAGE_POLICY
                extra = {**_HEADERS, "content-security-policy": policy}
                own = [(name.encode(), value.encode()) for name, value in extra.items()]
                given = [pair for pair in message.get("headers", []) if pair[0].decode().lower() not in extra]
                message = {**message, "headers": [*given, *own]}
            await send(message)

        try:
            await self._app(scope, counted, furnished)
        except TooLargeError:
            await _reply(send, 413, too_large)

    def _refusal(self, method: str, headers: dict[str, str]) -> str:
        """Why a request is refused; empty if it is not."""
        if _name(headers.get("host", "")) not in self._hosts:
            return "The workbench answers under its own address only; open the one that softknee printed."
        if method in ("GET", "HEAD"):
            return ""
        origin = headers.get("origin")
        foreign = origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
        if foreign or headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return "This request comes from another site, and is refused."
        return ""


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _size(count: int) -> str:
    return f"{count // 2**20} MB" if count >= 2**20 else f"{count // 2**10} kB"


async def _reply(send: Any, status: int, text: str) -> None:
    body = json.dumps({"error": text}).encode()
    headers = {**_HEADERS, "content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    start = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})
