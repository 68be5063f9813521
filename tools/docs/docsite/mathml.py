"""A Sphinx extension that writes mathematics as MathML: no script, no font and no network is needed to read it."""

from __future__ import annotations

import re
from html import escape
from typing import Any, cast

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)


def mathml(latex: str, *, display: bool) -> str:
    """One formula as a <math> element; the LaTeX is its alternative text, to be copied.

    >>> mathml("x^2", display=False).startswith('<math xmlns="http://www.w3.org/1998/Math/MathML" display="inline"')
    True
    """
    made = convert(_prepared(latex), display="block" if display else "inline")
    return made.replace(">", f' alttext="{escape(latex, quote=True)}">', 1)


def _prepared(latex: str) -> str:
    """LaTeX in the part of the language that the converter reads."""
    latex = re.sub(r"'+", lambda match: "^{" + r"\prime" * len(match[0]) + "}", latex)
    return latex.replace(r"\lvert", "|").replace(r"\rvert", "|").replace(r"\!", "")


def _visit_math(self: Any, node: nodes.math) -> None:
    self.body.append(f'<span class="math">{_checked(node, display=False)}</span>')
    raise nodes.SkipNode


def _visit_math_block(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math">{_checked(node, display=True)}</div>\n')
    raise nodes.SkipNode


def _checked(node: nodes.Element, *, display: bool) -> str:
    latex = node.astext()
    try:
        made = mathml(latex, display=display)
    except Exception as problem:  # whatever the converter raises, the page and the formula are what help
        logger.warning("The formula %r is not understood (%s).", latex, problem, location=cast(Any, node))
        return escape(latex)
    if left := re.findall(r"<m(?:i|o|text)>(\\[a-zA-Z]+)<", made):
        logger.warning("The formula %r has unknown commands: %s.", latex, ", ".join(left), location=cast(Any, node))
    return made


def setup(app: Sphinx) -> dict[str, Any]:
    """Takes the place of sphinx.ext.mathjax."""
    app.add_html_math_renderer("mathml", (_visit_math, None), (_visit_math_block, None))
    app.config.html_math_renderer = "mathml"  # type: ignore[attr-defined]
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
