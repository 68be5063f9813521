"""A running workbench and a browser for tests: the real command, and Chromium driven by Playwright."""

import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from browser import CHROMIUM

SOURCE = Path(__file__).parents[2] / "src"
SLOW = 180_000  # milliseconds that a busy machine may take for what takes seconds on a quiet one
# The command, which gives a job as long: its limits are of the clock, and others may have the machine.
PATIENT = f"""
from softknee.app.workbench.workers import LIMITS
from softknee.app import main
LIMITS.update(dict.fromkeys(LIMITS, {SLOW / 1000}))
main()
"""


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """The address of `softknee workbench`, with its trainings in that folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", PATIENT, "workbench", "--no-open", "--port", "0", "--out", str(folder)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    match = re.search(r"http://\S+/", process.stdout.readline())
    assert match is not None
    try:
        yield match[0]
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=600)


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class Page:
    """A tab with the workbench in it. `complaints` are errors of scripts and requests to anywhere else."""

    def __init__(self, context: Any, address: str) -> None:
        self.tab, self.address = context.new_page(), address
        self.tab.set_default_timeout(SLOW)
        self.complaints: list[str] = []
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.on("request", self._note)

    def _note(self, request: Any) -> None:
        if not request.url.startswith((self.address, "blob:", "data:", "about:blank")):
            self.complaints.append(f"asked for {request.url}")

    def open(self, *functions: str, **more: str) -> "Page":
        query = urlencode([*(("f", function) for function in functions), *more.items()])
        self.tab.goto(f"{self.address}?{query}" if query else self.address)
        self.curve(max(0, len(functions) - 1))
        return self

    def leave(self) -> list[str]:
        """Forget everything that this visit left in the tab; what there was to complain of."""
        self.tab.unroute_all(behavior="ignoreErrors")
        self.tab.goto("about:blank")
        session = self.tab.context.new_cdp_session(self.tab)
        session.send("Storage.clearDataForOrigin", {"origin": self.address.rstrip("/"), "storageTypes": "all"})
        session.send("Page.resetNavigationHistory")
        session.detach()
        complaints, self.complaints = self.complaints, []
        return complaints

    def curve(self, place: int = 0, order: int = 0) -> str:
        """The path of a curve, as soon as it is drawn."""
        path = self.tab.locator(f".panel[data-order='{order}'] path.line[data-function='{place}']")
        path.wait_for(state="attached")
        return path.get_attribute("d")

    def until(self, holds: Callable[[], Any], what: str) -> Any:
        """Wait for something that Python can see; a script of ours must not be evaluated in the page (its policy)."""
        for _ in range(SLOW // 50):
            if result := holds():
                return result
            self.tab.wait_for_timeout(50)
        raise AssertionError(f"This never came: {what}.")

    def changed(self, before: str, place: int = 0) -> str:
        return self.until(lambda: (now := self.curve(place)) != before and now, "another curve")

    @property
    def url(self) -> str:
        return self.tab.url

    def text(self, selector: str) -> str:
        result = self.tab.locator(selector).first
        result.wait_for()
        # A text of an SVG has no inner text.
        return result.text_content() if result.evaluate("node => node instanceof SVGElement") else result.inner_text()


def number(text: str) -> float:
    """A number as the page writes it."""
    plain = text.replace("−", "-").replace("∞", "inf")
    return float(plain) if plain != "–" else math.nan


def assert_quick(page: Page) -> list[float]:
    """The quickest of the times from an event to its picture is what the page takes; the rest say how busy it is."""
    times = page.tab.evaluate("() => workbench.latencies")
    assert len(times) >= 5, times
    if min(times) >= 50:
        # What the page asks for meanwhile comes through here, and goes on when this has looked at the machine.
        page.tab.route("**/api/*", lambda route: route.continue_())
        slow = _slowdown()
        page.tab.unroute_all(behavior="wait")
        assert slow >= 1.2, times
        assert min(times) < 200 * slow, (times, slow)
    return times


def _slowdown() -> float:
    """How many times longer than its work a calculation on every core takes: above 1 where others have them too."""

    def measure(block: bytes) -> float:
        begin, start = time.monotonic(), time.thread_time()
        while time.thread_time() - start < 0.5:
            sha256(block)  # which lets the other threads run
        return (time.monotonic() - begin) / (time.thread_time() - start)

    cores = os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as threads:
        return max(threads.map(measure, [bytes(2**20)] * cores))
