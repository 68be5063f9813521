"""The reference, from the docstrings. A public name without one, or a public method, ends the build with its name.

Public is what the rooms' `__all__` lists, or what a room without one defines. A docstring is Markdown as it stands:
paragraphs, `name: explanation` lines, doctests, and indented formulas, which stay as they are.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import sympy

ROOMS = {
    "softknee": "The front page: definitions by name, surgery in place, errors.",
    "softknee.nn": "Modules with fixed and learned parameters.",
    "softknee.design": "Engines that make definitions, and proofs.",
    "softknee.spec": "What a definition is made of.",
    "softknee.surgery": "Activations of a model: find, swap, train, harden, replace.",
    "softknee.train": "Many replicas at once, one loop for many processes, reproducibility as an aim.",
    "softknee.measure": "Measurements, scores, tests of differences, and records.",
    "softknee.wire": "Symbols as bits, and the boundary between two processes.",
    "softknee.lab": "The search for an activation; studies are run by the command.",
    "softknee.lab.deploy": "What replacing by ReLU buys: ONNX, int8, pruning, proofs.",
    "softknee.lab.fits": "Pictures of what a study learned.",
    "softknee.lab.language": "Language models: preferences and perplexity.",
    "softknee.lab.report": "The report of a study.",
    "softknee.lab.surface": "The surface of a random network.",
    "softknee.lab.vision_networks": "Networks of the papers, small enough to run.",
}
_ARGUMENT = re.compile(r"^(\*{0,2}[a-z_]\w*(?:, \*{0,2}[a-z_]\w*)*):\s+(.*)$")


class UndocumentedError(Exception):
    """Public names without a docstring."""


def write_reference(out: Path) -> None:
    """A page for every room, an index, and the page of the commands."""
    missing = [name for room in ROOMS for name in undocumented(room)]
    if missing:
        raise UndocumentedError("Public names without a docstring: " + ", ".join(missing) + ". Write one for each.")
    folder = out / "reference"
    folder.mkdir(parents=True, exist_ok=True)
    for room in ROOMS:
        (folder / f"{stem(room)}.md").write_text(page(room), encoding="utf-8")
    (folder / "commands.md").write_text(commands(), encoding="utf-8")
    (folder / "index.md").write_text(_index(), encoding="utf-8")


def stem(room: str) -> str:
    """The name of a room's page."""
    return room.removeprefix("softknee.").replace(".", "-")


def _short(room: str) -> str:
    return room.replace("softknee", "sk", 1) if not room.startswith("softknee.lab") else room


def public(room: str) -> Iterator[tuple[str, Any]]:
    """The names that a room lists, with what they are; rooms have pages of their own."""
    module = importlib.import_module(room)
    own = (name for name, value in vars(module).items() if getattr(value, "__module__", None) == room)
    for name in getattr(module, "__all__", None) or [name for name in own if not name.startswith("_")]:
        value = getattr(module, name)
        if not isinstance(value, ModuleType) and not name.startswith("__"):
            yield name, value


def undocumented(room: str) -> list[str]:
    """Every public name of a room, and every public method and property of its classes, that has no docstring."""
    missing = []
    module = importlib.import_module(room)
    if not inspect.getdoc(module):
        missing.append(room)
    for name, value in public(room):
        if not doc_of(value, name, module):
            missing.append(f"{room}.{name}")
        if inspect.isclass(value) and value.__module__.startswith("softknee"):
            missing += [
                f"{room}.{name}.{member_name}"
                for member_name, member in members(value)
                if not _member_doc(value, member_name, member)
            ]
    return missing


def _member_doc(kind: type, name: str, member: Any) -> str:
    """A method's docstring, or that of the method it takes the place of."""
    if own := inspect.getdoc(member):
        return own
    above = (vars(base).get(name) for base in kind.__mro__[1:])
    return next((text for inherited in above if inherited is not None and (text := inspect.getdoc(inherited))), "")


def doc_of(value: Any, name: str, module: ModuleType) -> str:
    """A docstring: of a class or function its own, of a value the text that stands below its assignment."""
    if inspect.isclass(value) or (callable(value) and not _is_data(value)):
        own = value.__dict__.get("__doc__") if inspect.isclass(value) else inspect.getdoc(value)
        made = inspect.isclass(value) and dataclasses.is_dataclass(value) and str(own).startswith(f"{value.__name__}(")
        return "" if made or not own else inspect.cleandoc(own)
    for home in {module.__name__, *_homes(module, name)}:
        text = _texts_below(home).get(name)
        if text:
            return text
    return ""


def _is_data(value: Any) -> bool:
    return not (inspect.isroutine(value) or inspect.isclass(value) or isinstance(value, functools.partial))


def _homes(module: ModuleType, name: str) -> Iterator[str]:
    """The modules that a name was imported from."""
    tree = ast.parse(inspect.getsource(module))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            base = module.__name__.split(".") if module.__file__ and module.__file__.endswith("__init__.py") else []
            yield ".".join([*base[: len(base) - node.level + 1], node.module or ""])


@functools.cache
def _texts_below(home: str) -> dict[str, str]:
    tree = ast.parse(inspect.getsource(importlib.import_module(home)))
    texts = {}
    for assignment, after in zip(tree.body, tree.body[1:], strict=False):
        text = after.value if isinstance(after, ast.Expr) else None
        if (
            isinstance(assignment, ast.Assign | ast.AnnAssign)
            and isinstance(text, ast.Constant)
            and isinstance(text.value, str)
        ):
            targets = assignment.targets if isinstance(assignment, ast.Assign) else [assignment.target]
            texts |= {target.id: text.value for target in targets if isinstance(target, ast.Name)}
    return texts


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class of ours defines or takes from another of ours."""
    # A function of the formula language has the two methods that `Primitive` speaks of, and SymPy's own.
    if issubclass(kind, enum.Enum | BaseException | sympy.Function) or getattr(kind, "_is_protocol", False):
        return
    seen: set[str] = set()
    for home in kind.__mro__:
        if not home.__module__.startswith("softknee"):
            continue
        for name, value in vars(home).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            inner = value.__func__ if isinstance(value, staticmethod | classmethod) else value
            shown = isinstance(value, property | functools.cached_property) or inspect.isfunction(inner)
            # What torch or SymPy asks a class for has its meaning there.
            if shown and not _foreign(kind, name):
                yield name, value


def _foreign(kind: type, name: str) -> bool:
    others = [base for base in kind.__mro__ if not base.__module__.startswith("softknee") and base is not object]
    return any(name in vars(base) for base in others)


# -- pages ------------------------------------------------------------------------------------------------


def page(room: str) -> str:
    """The page of a room."""
    module = importlib.import_module(room)
    first = dict(public(room))
    parts = [f"# {_short(room)}\n\n{_markdown(inspect.getdoc(module) or '')}\n"]
    if room == "softknee":
        parts[0] = "# sk\n\n`import softknee as sk`: the names of the front page. The rooms have pages of their own.\n"
    for name in sorted(first, key=lambda name: (inspect.isclass(first[name]), name.lower())):
        parts.append(_entry(room, name, first[name], module))
    return "\n".join(parts)


def _entry(room: str, name: str, value: Any, module: ModuleType) -> str:
    label = f"{_short(room)}.{name}"
    if room != "softknee" and any(value is front for _, front in public("softknee")):
        return f"## {name}\n\nOn the front page: [`sk.{name}`](softknee.md#{_anchor(name)}).\n"
    text = _markdown(doc_of(value, name, module))
    if inspect.isclass(value):
        kind = "exception" if issubclass(value, BaseException) else "class"
        body = [text]
        if value.__module__.startswith("softknee") and not _is_zoo(value):
            body += [_member(value, member_name, member) for member_name, member in members(value)]
        return _directive(kind, f"{label}{_signature(value)}", "\n\n".join(body), heading=name)
    if _is_data(value):
        return _directive("data", label, text, heading=name)
    return _directive("function", f"{label}{_signature(value)}", text, heading=name)


def _anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w-]", "", heading.lower())


def _is_zoo(value: type) -> bool:
    """The modules of the zoo have the methods of Pointwise, which are listed once."""
    return value.__module__ == "softknee.nn.zoo"


def _directive(kind: str, head: str, body: str, *, heading: str = "") -> str:
    title = f"## {heading}\n\n" if heading else ""
    longest = max(map(len, re.findall(r"`{3,}", body)), default=2)
    fence = "`" * (longest + 1)
    return f"{title}{fence}{{py:{kind}}} {head}\n\n{body.strip()}\n{fence}\n"


def _member(kind: type, name: str, member: Any) -> str:
    text = _markdown(_member_doc(kind, name, member))
    if isinstance(member, property | functools.cached_property):
        return _directive("property", name, text)
    inner = member.__func__ if isinstance(member, staticmethod | classmethod) else member
    bound = not isinstance(member, staticmethod)
    return _directive("method", f"{name}{_signature(inner, drop_first=bound)}", text)


def _signature(value: Any, *, drop_first: bool = False) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)" if not inspect.isclass(value) else ""
    if inspect.isclass(value) and issubclass(value, BaseException):
        return ""
    parameters = list(signature.parameters.values())[1 if drop_first else 0 :]
    plain = [
        parameter.replace(annotation=_type(parameter.annotation), default=_default(parameter.default))
        for parameter in parameters
    ]
    text = str(inspect.Signature(plain, return_annotation=_type(signature.return_annotation)))
    text = re.sub(r"-> '([^']*)'$", r"-> \1", re.sub(r": '([^']*)'(?=[,)=\s])", r": \1", text))
    return text.replace("\n", " ")


class _Shown:
    """A default as it is written in a signature."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _default(value: Any) -> Any:
    if value is inspect.Parameter.empty:
        return value
    text = repr(value)
    return _Shown("..." if "<" in text or len(text) > 40 else text)


def _type(annotation: Any) -> Any:
    if annotation is inspect.Parameter.empty or isinstance(annotation, str):
        return annotation
    name = getattr(annotation, "__name__", None)
    text = name if inspect.isclass(annotation) and name and "[" not in str(annotation) else str(annotation)
    return re.sub(r"\b(?:typing|collections\.abc|torch|pathlib|softknee[\w.]*)\.", "", text)


# -- docstrings -------------------------------------------------------------------------------------------


def _markdown(text: str) -> str:
    """A docstring as Markdown: doctests and indented lines fenced, `name: text` lines as a list."""
    out: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.splitlines()
        if not lines:
            continue
        if lines[0].strip() == "Args:" and len(lines) > 1:
            lines = inspect.cleandoc("\n".join(["", *lines[1:]])).splitlines()
        if any(line.lstrip().startswith(">>>") for line in lines):
            first = next(i for i, line in enumerate(lines) if line.lstrip().startswith(">>>"))
            if first:
                out.append(_prose(lines[:first]))
            out.append("```pycon\n" + inspect.cleandoc("\n".join(lines[first:])) + "\n```")
        elif all(line.startswith("    ") for line in lines):
            out.append("```text\n" + inspect.cleandoc("\n".join(lines)) + "\n```")
        else:
            out.append(_prose(lines))
    return "\n\n".join(out)


def _prose(lines: list[str]) -> str:
    if not any(_ARGUMENT.match(line) for line in lines):
        # Indented lines inside a paragraph are laid out by hand.
        indented = [line.startswith("  ") for line in lines]
        if any(indented) and not lines[0].lstrip().startswith(("-", "*")):
            first = indented.index(True)
            laid_out = inspect.cleandoc("\n".join(lines[first:]))
            before = "\n".join(lines[:first])
            return f"{_escaped(before)}\n\n```text\n{laid_out}\n```" if before else f"```text\n{laid_out}\n```"
        return _escaped("\n".join(lines))
    out: list[str] = []
    for line in lines:
        if match := _ARGUMENT.match(line):
            out.append(f"- **{match[1].replace('*', chr(92) + '*')}**: {_escaped(match[2])}")
        else:
            out.append(("  " if out and out[-1].startswith(("-", "  ")) else "") + _escaped(line.strip()))
    return "\n".join(out)


def _escaped(text: str) -> str:
    """Signs that Markdown would read as its own, outside code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if i % 2 else re.sub(r"([*_$<|])", r"\\\1", part) for i, part in enumerate(parts))


def _index() -> str:
    rows = "\n".join(f"| [`{_short(room)}`]({stem(room)}.md) | {words} |" for room, words in ROOMS.items())
    entries = "\n".join([*(stem(room) for room in ROOMS), "commands"])
    return f"""# Reference

Every public name, from its docstring. The build of this site fails on a name without one, and the examples run in the
tests.

| | |
|---|---|
{rows}
| [`softknee`](commands.md) on the command line | Every command and its options. |

```{{toctree}}
:hidden:
:titlesonly:

{entries}
```
"""


def commands() -> str:
    """The page of the commands, from the parser itself."""
    import typer

    from softknee.app.commands import app

    parts = ["# Commands\n\n`pip install 'softknee[lab]'` brings them; `softknee COMMAND --help` says the same.\n"]
    root = typer.main.get_command(app)
    _command(root, "softknee", parts)
    return "\n".join(parts)


def _command(command: Any, path: str, parts: list[str]) -> None:
    inner = getattr(command, "commands", None)
    if inner:
        for name, sub in inner.items():
            _command(sub, f"{path} {name}", parts)
        return
    about = _escaped(inspect.cleandoc(command.help or "").replace("\f", ""))
    rows = []
    for param in command.params:
        words = getattr(param, "help", None) or ""
        option = param.param_type_name == "option"
        names = ", ".join(f"`{opt}`" for opt in param.opts) if option else f"`{param.name.upper()}`"
        default = getattr(param, "default", None)
        shown = (
            f" Default: `{default}`." if isinstance(default, str | int | float) and default not in ("", False) else ""
        )
        rows.append(f"| {names} | {_escaped(' '.join(words.split()))}{shown} |")
    table = "\n| | |\n|---|---|\n" + "\n".join(rows) + "\n" if rows else ""
    parts.append(f"## {path}\n\n{about}\n{table}")
