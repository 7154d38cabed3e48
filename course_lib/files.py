"""Files that are written whole or not at all, and the cache folder."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import platformdirs

from course_lib.errors import NotAvailableHere


def cache_dir() -> Path:
    """Where the converted model and the engines' logs live: $COURSE_CACHE, or the user's cache folder."""
    return Path(os.environ.get("COURSE_CACHE") or platformdirs.user_cache_dir("same-prompt"))


def write_atomically(path: str | Path, text: str) -> Path:
    """Write `text` next to `path` and move it into place, so that a reader never sees half a file.

    Raises:
        NotAvailableHere: the disk is full or the folder cannot be written.
    """
    path = Path(path)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf8", suffix=".part") as f:
            temporary = Path(f.name)
            f.write(text)
        os.chmod(temporary, 0o644)
        temporary.replace(path)
    except OSError as e:
        raise disk_error(path, e) from e
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
    return path


def disk_error(path: str | Path, e: OSError) -> NotAvailableHere:
    """The error to raise when `path` could not be written."""
    if e.errno == errno.ENOSPC:
        return NotAvailableHere(f"no space left to write {path}; free some, or set COURSE_CACHE to a roomier disk")
    return NotAvailableHere(f"cannot write {path}: {e.strerror}; is the folder yours?")
