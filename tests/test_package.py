"""The wheel and the source distribution: both build, the wheel needs torch alone, and the tests go along.

The environment of these tests has everything, so the fresh one is furnished by hand: a new venv whose
site-packages holds links to torch and to what torch itself requires, and nothing else. That is what
`pip install torch` leaves behind, without downloading it again.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent
LONGEST_IMPORT = 0.5
FOLDERS = ("src", "tests", "papers", "docs", "tools", "benchmarks", "requirements")
FILES = ("conftest.py", "Makefile", "README.md", "CHANGELOG.md", "LICENSE", "MANIFEST.in", "pyproject.toml", "setup.py")


def output_of(*command: str | Path, code: int = 0, **options: str) -> str:
    """What a command prints on either stream; it must end with that exit code."""
    finished = subprocess.run(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1200,
        check=False,
        **options,  # type: ignore[arg-type]
    )
    assert finished.returncode == code, finished.stdout
    return finished.stdout


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution and the wheel made from it, of a copy, so that the checkout is left as it is."""
    pytest.importorskip("build", reason="the package 'build' is not installed")
    setuptools = importlib.metadata.version("setuptools")
    if int(setuptools.split(".")[0]) < 77:
        pytest.skip(f"setuptools {setuptools} is too old to build the wheel; it takes 77")
    source, target = tmp_path_factory.mktemp("checkout") / "softknee", tmp_path_factory.mktemp("built")
    source.mkdir()
    for name in (*FOLDERS, *FILES):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, source / name)
    output_of(sys.executable, "-m", "build", "--no-isolation", "--outdir", target, source, cwd=str(source))
    return target


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    (result,) = built.glob("*.whl")
    return result


@pytest.fixture(scope="session")
def unpacked(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the source distribution unpacks to."""
    (archive,) = built.glob("*.tar.gz")
    place = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(archive) as files:
        files.extractall(place, filter="data")
    (folder,) = place.iterdir()
    return folder


@pytest.fixture(scope="session")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment with torch and the wheel."""
    home = tmp_path_factory.mktemp("fresh")
    venv.create(home, with_pip=False, symlinks=os.name != "nt")
    interpreter = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    place = Path(output_of(interpreter, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    for distribution in required_by("torch"):
        for entry in top_level_entries(distribution):
            link = place / entry.name
            if not link.exists():
                link.symlink_to(entry)
    # pip of the test environment installs into the fresh one, which has none. Its dependencies are in place. Of 300
    # files these tests import some thirty: Python compiles those by itself.
    output_of(
        *(sys.executable, "-m", "pip", "--python", interpreter, "--disable-pip-version-check"),
        *("install", "--no-deps", "--no-index", "--no-compile", "--ignore-installed", wheel),
    )
    return interpreter


def required_by(name: str) -> dict[str, None]:
    """The distribution and all it requires here, in turn; extras and other platforms are left out."""
    result: dict[str, None] = {}
    waiting = [name]
    while waiting:
        one = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        try:
            requirements = importlib.metadata.requires(one) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        if one not in result:
            result[one] = None
            plain = [requirement for requirement in requirements if "extra ==" not in requirement]
            waiting += [re.split(r"[^\w.-]", requirement, maxsplit=1)[0] for requirement in plain]
    return result


def top_level_entries(distribution: str) -> set[Path]:
    """The folders and files of a distribution directly inside site-packages."""
    files = importlib.metadata.files(distribution) or []
    entries = {Path(str(file.locate())).parts for file in files if ".." not in file.parts}
    base = Path(str(importlib.metadata.distribution(distribution).locate_file("")))
    return {base / parts[len(base.parts)] for parts in entries if len(parts) > len(base.parts)}


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "softknee/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0] for name in names} == {"softknee", "softknee-0.1.0.dist-info"}
    sources = {path for ending in ("py", "h", "in", "cu", "json") for path in (ROOT / "src").rglob(f"*.{ending}")}
    assert {str(path.relative_to(ROOT / "src")) for path in sources} <= set(names)


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        return message_from_bytes(archive.read("softknee-0.1.0.dist-info/METADATA"))


def test_wheel_requires_torch_alone(wheel: Path) -> None:
    needed = [item for item in metadata_of(wheel).get_all("Requires-Dist", []) if "extra ==" not in item]
    assert needed == ["torch>=2.6"]


def test_the_long_description_leads_to_the_repository(wheel: Path) -> None:
    """On the page of an index nothing relative leads anywhere; here, what it names is a file of the repository."""
    metadata = metadata_of(wheel)
    addresses = dict(item.split(", ") for item in metadata.get_all("Project-URL", []))
    assert {"Repository", "Documentation", "Changelog", "Issues"} <= set(addresses)
    assert metadata["Description-Content-Type"] == "text/markdown"
    text = metadata.get_payload()
    assert isinstance(text, str)
    targets = re.findall(r"""\]\(([^)]+)\)|(?:href|src|srcset)="([^"]+)\"""", text)
    links = [markdown or html for markdown, html in targets]
    assert len(links) > 40
    repository = re.escape(addresses["Repository"])
    for link in [*links, *addresses.values()]:
        match = re.fullmatch(rf"{repository}(?:/(blob|raw)/main/([^#]+)(?:#.*)?|/issues)?", link)
        assert match, link
        if match[2]:
            assert (ROOT / match[2]).is_file(), link


def test_the_source_distribution_holds_the_checkout(unpacked: Path) -> None:
    """All that a test may read, and nothing that Python makes of it."""
    here = {
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and ".egg-info" not in str(path)
    }
    there = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    assert (here | set(FILES)) - there == set()
    assert not [name for name in there if name.endswith(".pyc")]


def test_tests_run_from_the_source_distribution(unpacked: Path) -> None:
    """Of the core, of the documentation, and of the rules about the source itself; with its own source, no other."""
    files = ("test_formula_sheet.py", "test_deploy_docs.py", "test_versions.py")
    program = "import softknee, pytest, sys; print(softknee.__file__); sys.exit(pytest.main(sys.argv[1:]))"
    environment = os.environ | {"PYTHONPATH": str(unpacked / "src")}
    options = ("-q", "-n", "0", "-p", "no:cacheprovider")
    said = output_of(
        *(sys.executable, "-c", program, *options, *(f"tests/{file}" for file in files)),
        cwd=str(unpacked),
        env=environment,  # type: ignore[arg-type]
    )
    assert said.startswith(str(unpacked / "src"))
    assert " passed" in said


def test_it_works_where_torch_is_all_there_is(python: Path) -> None:
    program = """
import importlib.util, sys
for absent in ("numpy", "typer", "rich", "sklearn", "pytest"):
    assert importlib.util.find_spec(absent) is None, absent
import torch
before = set(sys.modules)
import softknee as sk
added = {name.partition(".")[0] for name in set(sys.modules) - before}
assert "sympy" not in added, "SymPy is imported eagerly"
assert not torch.cuda.is_initialized()
assert "srelu" in sk.names()
x = torch.linspace(-1, 1, 5, requires_grad=True)
sk.get("srelu")(x, delta=0.5).sum().backward()
assert x.grad is not None
print(sk.nn.make("smelu", beta=0.5, learn="beta"))
"""
    assert "smelu" in output_of(python, "-I", "-W", "ignore", "-c", program).lower()


def test_importing_does_not_touch_numpy_or_transformers_even_where_they_are() -> None:
    """In the environment of the tests, which has both; torch may load NumPy, and does when surgery asks it for more."""
    program = """
import sys
import torch

refused = {"numpy", "transformers"}

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in refused:
            raise AssertionError(f"softknee imports {name}")

apart = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "numpy"}
sys.meta_path.insert(0, Refuse())
import softknee
print(softknee.names()[0])
refused.discard("numpy")
sys.modules |= apart
softknee.calibrate_, softknee.surgery.name_of
"""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path}
    assert output_of(sys.executable, "-c", program, env=environment).strip()  # type: ignore[arg-type]


def test_importing_adds_little_to_torch(python: Path) -> None:
    """Time on the processor, which others may have; one process of four, as the first may fill the disk's caches."""
    program = """
import time
import torch
start = time.process_time()
import softknee
print(time.process_time() - start)
"""
    seconds: list[float] = []
    while len(seconds) < 4 and min(seconds, default=LONGEST_IMPORT + 1) > LONGEST_IMPORT:
        seconds.append(float(output_of(python, "-I", "-W", "ignore", "-c", program)))
    assert min(seconds) <= LONGEST_IMPORT, seconds


def test_the_command_without_its_extra_names_it(python: Path) -> None:
    command = python.parent / "softknee"
    assert "pip install 'softknee[lab]'" in output_of(command, "--version", code=2)
