"""Fixtures that several files share, and the order of the files."""

import functools
import gc
import getpass
import os
import re
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

# torch is imported where it is used: the process that deals out the files to the workers needs none of it.

# Processes of its own to compile in would each import torch first, for a handful of kernels.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
# That the processor has the vector instructions it names is otherwise tried with a program that compiles for seconds.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
# Compiled kernels stay out of the user's own cache, and are there for the next run.
os.environ.setdefault("SOFTKNEE_CACHE", str(Path(tempfile.gettempdir()) / f"softknee-tests-{getpass.getuser()}"))


# Files that share what takes long to make, and by what they are known: those that ask something of every function,
# those that read the papers' records, and those that start processes from one server.
_GROUPS = {
    "zoo": re.compile(
        r"^from (?:helpers|joined) import (?:\([^)]*|.*)"
        r"\b(?:every_(?:subject|learned|formula)|each_(?:kind|learned_kind|granularity)|SUBJECTS|FORMULAS|ZOO)\b",
        re.MULTILINE,
    ),
    "records": re.compile(r"\bRuns\.committed\(|^from docsite import .*\bevidence\b", re.MULTILINE),
    "processes": re.compile(r"^import processes$", re.MULTILINE),
}


@functools.cache
def group_of(path: Path) -> str | None:
    text = path.read_text(encoding="utf-8")
    return next((name for name, pattern in _GROUPS.items() if pattern.search(text)), None)


def pytest_configure(config: pytest.Config) -> None:
    """The order of the files is ours (see below): pytest-xdist, where it is, keeps it."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`: the files of a group go to one worker.

    It derives and prints the formulas of sixty functions once. With two workers doing so, a minute more passes.
    """
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return group_of(config.rootpath / file) or file

    return Scheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Nearly all that importing two hundred files makes is there to stay: the collector need not look at it again.

    It would take a fifth of the time in which tests are collected.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """What is there when a file is done (modules, formulas, caches) stays: the collector need not look at it again.

    Else each `gc.collect()`, of which benchmarks and searches for leaks make many, would take half a second.
    """
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path != item.path:
            gc.collect()
            gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What asks the zoo first, then files with slow tests, then by the number of tests; `gpu` is skipped without one.

    Workers take one file after another. With a long one among the last, the others would end up waiting for the one
    that has it; and what takes long often has few tests.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    count = Counter(item.path for item in items)
    items.sort(key=lambda item: (group_of(item.path) != "zoo", item.path not in slow, -count[item.path], item.path))
    import torch

    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU, and torch sees none"))


@pytest.fixture(autouse=True, scope="session")
def hear_ctrl_c() -> None:
    """A suite that runs in the background inherits that Ctrl-C is ignored; what is tested here must hear it."""
    in_main = threading.current_thread() is threading.main_thread()
    if in_main and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def nobody_waits_for_the_disk() -> Iterator[None]:
    """What a test writes need not outlive a loss of power: a file that is made safe takes five milliseconds, and more.

    That it is made safe, and in which order, is what test_run_store.py and test_study_run_killed.py ask.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True, scope="module")
def own_functions_go_with_their_file() -> Iterator[None]:
    """What a file of tests registers is not there for the next one: which comes next depends on the workers."""
    from softknee.registry import names, unregister

    before = set(names())
    yield
    for name in set(names()) - before:
        unregister(name)


@pytest.fixture(autouse=True, scope="module")
def compiled_functions_go_with_their_file() -> Iterator[None]:
    """torch compiles a code object eight times at most, and all `nn.Sequential` share one: each file starts anew."""
    yield
    if compiler := sys.modules.get("torch._dynamo"):
        compiler.reset()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 4096 numbers instead of 262,144: what a CPU does block by block is then asked of 9,000 numbers.

    The block size is a number that the code reads at each call, and nothing else depends on it. One test of
    test_gradient.py keeps the real size. Compiled kernels, which would take the numbers before, stay out of the way.
    """
    monkeypatch.setattr("softknee.kernels.plain.BLOCK", 1 << 12)
    monkeypatch.setattr("softknee.kernels.compiled.SMALLEST", 1 << 40)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """For sums whose bits must not depend on how threads share them; the suite itself runs with one thread."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Command]:
    """A command that runs in this process: called with arguments, it returns exit code, output and complaints."""

    def command(main: Callable[[], None], name: str) -> Command:
        def call(*arguments: str) -> tuple[int, str, str]:
            monkeypatch.setattr(sys, "argv", [name, *arguments])
            with pytest.raises(SystemExit) as stopped:
                main()
            code = stopped.value.code
            printed = capsys.readouterr()
            return (code if isinstance(code, int) else 0), printed.out, printed.err

        return call

    return command


@pytest.fixture
def softknee(in_this_process: Callable[..., Command]) -> Command:
    """The command `softknee`."""
    from softknee.app import main

    return in_this_process(main, "softknee")


@pytest.fixture
def papers(in_this_process: Callable[..., Command]) -> Command:
    """The command `python -m papers`."""
    from papers.__main__ import main

    return in_this_process(main, "papers")


# -- the workbench, in a browser ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the workbench of a file keeps its trainings."""
    return tmp_path_factory.mktemp("studies")


@pytest.fixture(scope="module")
def address(studies: Path) -> Iterator[str]:
    """Of a running workbench."""
    from workbench_page import running

    with running(studies) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, driven by Playwright."""
    from workbench_page import chromium

    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def visitors(browser: Any, address: str) -> list[Any]:
    """Those who have come so far, each with storage and a tab of their own: opening a window takes a second of CPU."""
    return []


@pytest.fixture
def visit(browser: Any, address: str, visitors: list[Any]) -> Iterator[Callable[..., Any]]:
    """Opens the page for one visitor; afterwards no script may have failed, and nothing been fetched from outside.

    A visit leaves nothing behind: the next one, in the same tab, finds neither storage nor history.
    """
    from workbench_page import Page

    waiting, pages = list(visitors), []

    def opened(*functions: str, width: int = 1440, scheme: str = "light", context: Any = None, **more: str) -> Page:
        if context is not None:
            page = Page(context, address)
        elif waiting:
            page = waiting.pop(0)
        else:
            context = browser.new_context(permissions=["clipboard-read", "clipboard-write"], accept_downloads=True)
            visitors.append(page := Page(context, address))
        pages.append(page)
        page.tab.set_viewport_size({"width": width, "height": 900})
        page.tab.emulate_media(color_scheme=scheme)
        page.tab.bring_to_front()
        return page.open(*functions, **more)

    yield opened
    complaints = [complaint for page in pages for complaint in page.leave()]
    for page in pages:
        if page not in visitors:
            page.tab.close()
    assert complaints == []


@pytest.fixture(autouse=True, scope="session")
def the_language_of_the_interpreter_is_replaced_once() -> None:
    """Triton's interpreter, without what it does again at every call.

    It puts its functions into `triton.language` at every launch and at every call within a kernel. It searches the
    whole language for them each time, which takes a third of the time of these tests; and it makes the table of NumPy's
    types at every operation. In this process nothing is compiled, so that both may stay.
    """
    if os.environ.get("TRITON_INTERPRET") != "1":
        return
    import triton.language as tl
    from triton.runtime import interpreter

    if not hasattr(interpreter, "_LangPatchScope"):  # another version of Triton: the tests take longer
        return
    interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    interpreter._patch_lang = lambda fn: interpreter._LangPatchScope()
    types: dict[str, Any] = {}
    numpy_type = interpreter._get_np_dtype

    def known(dtype: Any) -> Any:
        name = dtype.scalar.name
        if name not in types:
            types[name] = numpy_type(dtype.scalar)
        return types[name]

    interpreter._get_np_dtype = known
