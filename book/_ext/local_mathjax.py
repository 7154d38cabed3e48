"""MathJax from this book's own files: fetched from npm once, when the first page with a formula is built."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

# Version 3 holds all its fonts in one file; version 4 asks a server for rare characters.
PACKAGE, MEMBER = "mathjax@3.2.2", "package/es5/tex-svg.js"
CACHE = Path(__file__).parents[2] / "build" / "vendor" / f"{PACKAGE}-{Path(MEMBER).name}"
TARGET = "vendor/mathjax.js"


def fetch() -> Path:
    """The script, from the cache or from npm.

    Raises:
        ExtensionError: there is no npm, or it could not get the package.
    """
    if CACHE.exists():
        return CACHE
    if not (npm := shutil.which("npm")):
        raise ExtensionError(f"a page holds a formula, and {PACKAGE} comes from npm: install Node.js with npm first")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([npm, "pack", "--silent", PACKAGE], cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise ExtensionError(f"`npm pack {PACKAGE}` failed: {done.stderr.strip()[-500:]}")
        with tarfile.open(next(Path(folder).glob("*.tgz"))) as tar:
            script = tar.extractfile(MEMBER)
            assert script is not None
            CACHE.parent.mkdir(parents=True, exist_ok=True)
            part = CACHE.with_suffix(".part")
            part.write_bytes(script.read())
            part.replace(CACHE)
    return CACHE


def add(app: Sphinx, error: Exception | None) -> None:
    """Put MathJax beside the pages if one of them needs it."""
    if error is None and app.builder.format == "html" and any(app.env.get_domain("math").data["has_equations"].values()):
        target = Path(app.outdir) / "_static" / TARGET
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(fetch(), target)


def setup(app: Sphinx) -> dict[str, Any]:
    app.setup_extension("sphinx.ext.mathjax")
    app.config.mathjax_path = TARGET
    app.connect("build-finished", add)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
