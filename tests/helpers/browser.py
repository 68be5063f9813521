"""A headless Chromium for tests: one process, spoken to over a pipe (the DevTools protocol), with no network to use."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import Any

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
_FLAGS = (
    "--headless",
    "--no-sandbox",  # the tests may run as root, in a container
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Browser:
    """Use as a context; `events` holds everything the page reported."""

    def __init__(self) -> None:
        assert CHROMIUM is not None
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, from_browser = os.pipe(), os.pipe()
        self.write, self.read = to_browser[1], from_browser[0]

        def on_three_and_four() -> None:
            # First out of the way: the pipes themselves may be numbers 3 and 4.
            ends = os.dup(to_browser[0]), os.dup(from_browser[1])
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.process = subprocess.Popen(
            [CHROMIUM, *_FLAGS, f"--user-data-dir={self.folder.name}", "about:blank"],
            preexec_fn=on_three_and_four,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser[0])
        os.close(from_browser[1])
        self.rest, self.number = b"", 0
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    session: str | None = None

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(20)
        os.close(self.write)
        os.close(self.read)
        self.folder.cleanup()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its answer."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        content = json.dumps(message).encode() + b"\0"
        while content:
            content = content[os.write(self.write, content) :]
        answer = self._until(lambda one: one.get("id") == self.number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _until(self, wanted: Callable[[dict[str, Any]], bool], seconds: float = 600.0) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while True:
            while b"\0" in self.rest:
                line, self.rest = self.rest.split(b"\0", 1)
                message = json.loads(line)
                if "method" in message:
                    self.events.append(message)
                if wanted(message):
                    return message
            ready, _, _ = select.select([self.read], [], [], max(0.0, end - time.monotonic()))
            assert ready, "The browser did not answer in time."
            self.rest += os.read(self.read, 1 << 20)

    def open(self, url: str) -> None:
        """Load a page, and return when its scripts have run."""
        self.call("Page.navigate", url=url)
        self._until(lambda one: one.get("method") == "Page.loadEventFired")
        # On a busy machine that may have been the empty page that a browser starts with.
        end = time.monotonic() + 600
        while self.evaluate("location.href === 'about:blank' || document.readyState !== 'complete'"):
            assert time.monotonic() < end, f"The browser did not load {url} in time."
            time.sleep(0.02)

    def size(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def media(self, *, scheme: str = "light", kind: str = "") -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=kind, features=features)
        # The page is told of the change when it is next painted.
        self.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)))")

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, *, whole: bool = True) -> bytes:
        result = self.call("Page.captureScreenshot", captureBeyondViewport=whole, format="png")
        return base64.b64decode(result["data"])

    def pdf(self) -> bytes:
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"])

    def errors(self) -> list[str]:
        """Exceptions, and what was logged as an error or a warning."""
        results = []
        for event in self.events:
            method, params = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                results.append(str(params["exceptionDetails"]))
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                results.append(str(params["args"]))
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                results.append(str(params["entry"]))
        return results

    def requests(self) -> list[str]:
        """Every address that was asked for."""
        return [
            event["params"]["request"]["url"] for event in self.events if event["method"] == "Network.requestWillBeSent"
        ]
