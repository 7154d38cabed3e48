"""The web book. Sphinx reads the repository itself (`make book`): no chapter is copied, and none is executed."""

import re
import sys
from pathlib import Path

BOOK = Path(__file__).parent
ROOT = BOOK.parent
sys.path[:0] = [str(ROOT), str(BOOK / "_ext")]

import course_lib  # noqa: E402  (the two folders above come first)

project = "Same prompt, different tokens"
author = "the authors of the course"
project_copyright = "2026, the authors. Apache License 2.0"
version = release = course_lib.__version__
language = "en"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "ledger",
    "mathml",
]

# What is read, from the root of the repository. The rest is pruned, so that no walk enters .venv.
root_doc = "book/index"
include_patterns = ["book/**", "notebooks/*.ipynb", "labs/*.ipynb"]
exclude_patterns = [".*", "build", "course_lib", "evidence", "tests", "benchmarks", "tools", "**/.ipynb_checkpoints"]
locale_dirs = ["book/locale"]  # relative to the source folder; Sphinx says nothing if it is wrong
gettext_compact = False
gettext_uuid = False

nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

default_role = "py:obj"  # docstrings write `names` with one backtick
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {
    "members": True,
    "exclude-members": "model_config, model_fields, model_computed_fields, model_post_init",
}
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
python_maximum_signature_line_length = 90

html_math_renderer = "mathml"
html_theme = "sphinx_book_theme"
html_title = project
html_static_path = ["_static"]
html_extra_path = ["_root"]
html_css_files = ["book.css"]
html_js_files = ["ledger.js"]
html_show_sourcelink = False
html_theme_options = {
    "navbar_persistent": [],  # else there are two search buttons
    "use_fullscreen_button": False,
    "use_download_button": True,
    "show_toc_level": 2,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
copybutton_selector = "div.cell_input pre, div.highlight-bash pre, div.highlight-python pre"


def plain(app, what, name, obj, options, lines):
    """Docstrings are plain text: |x| is an absolute value, "s" may follow `a name`, attributes may share an entry."""
    attributes = False
    for i, line in enumerate(lines):
        attributes = line.strip() == "Attributes:" or (attributes and line[:1] in ("", " "))
        line = re.sub(r"(?<!`)(`[^`]+`)(?=\w)", r"\1\\ ", line.replace("|", "\\|"))
        if attributes and (shared := re.match(r" +\w+(, \w+)+:", line)):
            line = shared[0].replace(", ", ",") + line[shared.end() :]
        lines[i] = line


def setup(app):
    app.connect("autodoc-process-docstring", plain, priority=400)  # before napoleon
