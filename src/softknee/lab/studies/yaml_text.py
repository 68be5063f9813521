"""YAML with the plain meaning of its words: what a recipe is written in.

PyYAML follows YAML 1.1, where `1e-3` is text, `on` is true and `1:30` is 90. Here plain words mean what they do in
JSON: null, true, false, whole numbers and numbers; all else is text. A key that stands twice, an alias (a few lines of
them can stand for gigabytes) and a text that is nested too deeply are refused.

>>> load("rate: 1e-3\\nname: on")
{'rate': 0.001, 'name': 'on'}
"""

from __future__ import annotations

import functools
import re
from typing import Any

from ...errors import MissingToolError, RecipeError

_DEEPEST = 20
_PLAIN = (
    ("null", re.compile(r"^(?:null|~|)$"), ["n", "~", ""]),
    ("bool", re.compile(r"^(?:true|false)$"), list("tf")),
    ("int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789")),
    (
        "float",
        re.compile(r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$"),
        list("-+.0123456789"),
    ),
)


def load(text: str) -> Any:
    """What the text says, as Python's own values."""
    yaml, loader, _ = _tools()
    try:
        return yaml.load(text, Loader=loader)
    except RecipeError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        said = " ".join(part for part in (error.context, error.problem) if part)
        raise RecipeError(f"The text is no YAML{place}: {said}. Look at the line and the one before it.") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a whole number of thousands of digits
        raise RecipeError(f"The text is no YAML: {' '.join(str(error).split())}.") from error


def dump(value: Any) -> str:
    """The text that `load` reads as that value."""
    yaml, _, dumper = _tools()
    return yaml.dump(value, Dumper=dumper, sort_keys=False, default_flow_style=None, allow_unicode=True, width=110)


@functools.cache
def _tools() -> tuple[Any, Any, Any]:
    """PyYAML with a loader and a dumper of ours."""
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise MissingToolError(
            "Recipes are read with PyYAML, which is not installed. Install it with: pip install 'softknee[lab]'"
        ) from error

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers: Any = {}  # noqa: RUF012 - PyYAML keeps its table as an attribute of the class
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                mark = self.peek_event().start_mark
                raise RecipeError(f"Line {mark.line + 1} has an alias (*name); a recipe has none: write the value out.")
            self.depth += 1
            if self.depth > _DEEPEST:
                raise RecipeError(f"The text is nested more than {_DEEPEST} levels deep, which no recipe is.")
            found = super().compose_node(parent, index)
            self.depth -= 1
            return found

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen: dict[Any, int] = {}
            for key, _ in node.value:
                line = key.start_mark.line + 1
                if not isinstance(key, yaml.ScalarNode):
                    raise RecipeError(f"Line {line} has a list or a section as a key; a key is a word.")
                if key.value in seen:
                    raise RecipeError(
                        f"The key {key.value!r} stands twice, at lines {seen[key.value]} and {line}; keep one of them."
                    )
                seen[key.value] = line
            return super().construct_mapping(node, deep)

    class Dumper(yaml.SafeDumper):
        yaml_implicit_resolvers: Any = {}  # noqa: RUF012

        def ignore_aliases(self, data: Any) -> bool:
            return True

    for kind in (Loader, Dumper):
        for tag, pattern, first in _PLAIN:
            kind.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", pattern, first)
    Dumper.add_representer(tuple, lambda dumper, data: dumper.represent_list(data))
    return yaml, Loader, Dumper
