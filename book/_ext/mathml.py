"""Formulas as MathML, which browsers draw themselves: no script, no font and no server is needed."""

from __future__ import annotations

import html
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)


def convert(node: nodes.Element, block: bool) -> str:
    """A formula's markup; what cannot be converted is shown as it is written, with a warning."""
    try:
        return tex2mathml(node.astext(), as_block=block)
    except MathError as e:
        logger.warning("formula '%s': %s", node.astext(), e, location=node, type="mathml")
        return html.escape(node.astext())


def inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(convert(node, block=False))
    raise nodes.SkipNode


def block(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", CLASS="formula"))
    self.body.append(convert(node, block=True))
    if node["number"]:
        self.body.append(f'<span class="eqno">({node["number"]})</span>')
    self.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
