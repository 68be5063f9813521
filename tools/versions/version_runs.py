"""The core suite from the wheel, on the oldest and the newest torch, in environments that have little else.

    make test-versions                              # the oldest and the newest torch, this Python
    make test-versions TORCH="2.8.0 2.10.0"         # these
    make test-versions PYTHONS="python3.12"         # with another Python
    make test-versions ONLY="compile export"        # the files of that name and no other; the result says so
    make test-versions RECORD=--record              # and write the table of docs/versions.md
    make test-core                                  # the pinned torch, a few functions for the zoo, nothing slow

An environment is made once per pair of Python and torch, under .venv-versions, and used again. The wheel is built anew,
from the source distribution, and the tests run in a folder that holds the tests and no source.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from core_suite import TOOLS, core_suite

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = ROOT / "build" / "versions"
ENVIRONMENTS = ROOT / ".venv-versions"
RECORD = Path(__file__).with_name("results.json")
PAGE = ROOT / "docs" / "versions.md"


def main() -> None:
    arguments = _arguments()
    oldest = oldest_torch()
    files, left_out = core_suite(ROOT / "tests")
    wheel = build_wheel()
    tree = copy_tests()
    _say(f"{len(files)} files of tests from {wheel.name}; {len(left_out)} need more than torch and are left out:")
    for need, count in Counter(need for needs in left_out.values() for need in needs).most_common():
        _say(f"  {count:3} need {need}")
    if arguments.only:
        files = [name for name in files if name.removeprefix("test_").removesuffix(".py") in arguments.only]
        _say(f"of which only {', '.join(files)}")
    results = []
    for python in arguments.python:
        versions = arguments.torch or ([pinned_torch()] if arguments.quick else None)
        for wanted in versions or [f"{oldest}.*", newest_torch(python)]:
            result = run_suite(environment(python, wanted), wheel, tree, files, arguments)
            results.append(result | {"only": arguments.only})
            _say(line_of(result))
            for reason, count in result["skipped for"].items():
                _say(f"  {count:3} skipped: {reason}")
            if arguments.record:
                record(results[-1])
    sys.exit(0 if all(result["ended"] and not result["failed"] and result["passed"] for result in results) else 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", nargs="*", help="versions of torch; without them the oldest and the newest")
    parser.add_argument("--python", nargs="+", default=[sys.executable], help="interpreters; without them this one")
    parser.add_argument("--only", nargs="*", default=[], help="names of test files, without test_ and .py")
    parser.add_argument("--quick", action="store_true", help="the pinned torch, a few functions for all, nothing slow")
    parser.add_argument("--record", action="store_true", help="write the results to the table of docs/versions.md")
    parser.add_argument("--workers", type=int, default=2, help="processes that share the tests")
    parser.add_argument("--limit", type=float, default=30, help="minutes after which the suite of a version is ended")
    return parser.parse_args()


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


# -- what is tested ---------------------------------------------------------------------------------------------------


def oldest_torch() -> str:
    """As pyproject.toml has it: 2.6."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (torch,) = (requirement for requirement in project["dependencies"] if requirement.startswith("torch"))
    return torch.removeprefix("torch>=")


def pinned_torch() -> str:
    """As requirements/constraints.txt has it."""
    return next(pin.partition("==")[2] for pin in _pins() if pin.startswith("torch=="))


def newest_torch(python: str) -> str:
    """The version that pip would install today; without a network, the newest that an environment is there for."""
    wanted = ("install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet", "--report", "-", "torch")
    resolved = subprocess.run([python, "-m", "pip", *wanted], capture_output=True, text=True, check=False)
    if resolved.returncode == 0:
        return json.loads(resolved.stdout[resolved.stdout.index("{") :])["install"][0]["metadata"]["version"]
    there = [path.name.partition("-torch")[2] for path in ENVIRONMENTS.glob(f"py{_version(python)}-torch*")]
    numbers = [version for version in there if re.fullmatch(r"[\d.]+", version)]
    if not numbers:
        sys.exit(f"pip cannot say which torch is the newest, and no environment is there yet.\n{resolved.stderr}")
    return max(numbers, key=lambda version: [int(part) for part in version.split(".")])


def build_wheel() -> Path:
    """By way of the source distribution, so that nothing gets in which that does not hold."""
    shutil.rmtree(HERE / "dist", ignore_errors=True)
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", HERE / "dist", ROOT)
    (wheel,) = (HERE / "dist").glob("*.whl")
    return wheel


def copy_tests() -> Path:
    """A folder with the tests, what Python compiled of them, their configuration and no source of the package."""
    tree = HERE / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(ROOT / "tests", tree / "tests", ignore=shutil.ignore_patterns("interpreter"))
    for path in (ROOT / "pyproject.toml", ROOT / "conftest.py", Path(__file__).parent / "wheel_only.py"):
        shutil.copy(path, tree)
    return tree


# -- where it is tested -----------------------------------------------------------------------------------------------


def environment(python: str, torch: str) -> Path:
    """The interpreter of an environment with this torch and the tools of the tests, which is made if need be."""
    home = ENVIRONMENTS / f"py{_version(python)}-torch{torch.removesuffix('.*')}"
    inside, stamp = home / "bin" / "python", home / "installed.txt"
    packages = [f"torch=={torch}", *pinned()]
    if not stamp.exists() or stamp.read_text(encoding="utf-8").split() != packages:
        _say(f"installing {' '.join(packages)} in {home.relative_to(ROOT)}")
        if not inside.exists():
            _run(python, "-m", "venv", home)
        _run(inside, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *packages)
        stamp.write_text("\n".join(packages), encoding="utf-8")
    return inside


def pinned() -> list[str]:
    """The tools of the tests, in the versions of requirements/constraints.txt."""
    return sorted(pin for pin in _pins() if pin.partition("==")[0] in TOOLS)


def _pins() -> list[str]:
    return (ROOT / "requirements" / "constraints.txt").read_text(encoding="utf-8").splitlines()


def _version(python: str) -> str:
    return _run(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()


def _run(*command: Any) -> str:
    # Not with PYTHONPATH: what it names would count as installed.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT, env=clean)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


# -- the test ---------------------------------------------------------------------------------------------------------


def run_suite(python: Path, wheel: Path, tree: Path, files: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    """Install the wheel there, run the tests, and count what became of them."""
    quiet = ("--disable-pip-version-check", "install", "--quiet", "--no-deps", "--force-reinstall")
    _run(python, "-m", "pip", *quiet, wheel)
    versions = _run(python, "-c", "import platform, torch; print(platform.python_version(), torch.__version__)").split()
    log, report = HERE / f"{python.parent.parent.name}.log", HERE / f"{python.parent.parent.name}.xml"
    report.unlink(missing_ok=True)
    shared = ("-n", str(arguments.workers), "--dist", "loadfile") if arguments.workers > 1 else ()
    command = [str(python), "-m", "pytest", "-p", "wheel_only", "-v", f"--junit-xml={report}", *shared]
    # Not PYTHONPATH of the caller: it may name a source tree.
    settings = {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}
    if arguments.quick:
        command += ["-m", "not slow and not gpu"]
        settings["SOFTKNEE_TESTS"] = "few"
    started = time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        tests = subprocess.Popen(
            [*command, *(f"tests/{name}" for name in files)],
            cwd=tree,
            env=os.environ | settings,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            tests.wait(arguments.limit * 60)
        except BaseException as error:
            os.killpg(tests.pid, signal.SIGKILL)  # with its workers
            tests.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
    result = {
        "python": versions[0],
        "torch": versions[1],
        "machine": f"{platform.system()} {platform.machine()}",
        "seconds": round(time.monotonic() - started),
        "log": str(log.relative_to(ROOT)),
    }
    return result | counted(report)


def counted(report: Path) -> dict[str, Any]:
    """Passed, failed and skipped tests of a report; the skips by their reason."""
    if not report.exists():
        return {"ended": False, "passed": 0, "failed": 0, "skipped": 0, "failures": [], "skipped for": {}}
    failures, reasons, passed = [], Counter[str](), 0
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failures.append(f"{case.get('classname', '')}::{case.get('name', '')}")
        elif (skip := case.find("skipped")) is not None:
            reasons[skip.get("message", "")] += 1
        else:
            passed += 1
    return {
        "ended": True,
        "passed": passed,
        "failed": len(failures),
        "skipped": reasons.total(),
        "failures": failures,
        "skipped for": dict(reasons.most_common()),
    }


def line_of(result: dict[str, Any]) -> str:
    """A line per version: what it was, and what became of the tests."""
    name = f"Python {result['python']}, torch {result['torch']}"
    if not result["ended"]:
        return f"{name}: did not end within {result['seconds']} s; see {result['log']}"
    counts = ", ".join(f"{result[kind]} {kind}" for kind in ("passed", "failed", "skipped"))
    return f"{name}: {counts} in {result['seconds']} s; see {result['log']}"


# -- the record -------------------------------------------------------------------------------------------------------


def record(result: dict[str, Any]) -> None:
    """Put a result in the place of the last one with the same versions, and renew the table."""
    kept = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else []
    kept = [earlier for earlier in kept if _pair(earlier) != _pair(result)] + [result]
    kept.sort(key=lambda entry: [int(part) for version in _pair(entry) for part in re.findall(r"\d+", version)[:3]])
    RECORD.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(kept)}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


BEGIN, END = "<!-- made by tools/versions/version_runs.py -->", "<!-- end -->"


def _pair(result: dict[str, Any]) -> tuple[str, str]:
    return result["torch"], result["python"]


def table(results: list[dict[str, Any]]) -> str:
    """The table of docs/versions.md."""
    rows = ["| torch | Python | machine | tests | passed | failed | skipped |", "|---|---|---|---|---:|---:|---:|"]
    for result in results:
        tests = ", ".join(result["only"]) or "the core suite"
        counts = (
            " | ".join(str(result[kind]) for kind in ("passed", "failed", "skipped"))
            if result["ended"]
            else "no end | | "
        )
        rows.append(f"| {result['torch']} | {result['python']} | {result['machine']} | {tests} | {counts} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
