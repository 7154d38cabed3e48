"""What the library says to a reader goes through `_`, so that a translation needs no change of code.

The language is $COURSE_LANGUAGE (`make run LANGUAGE=zh_CN` sets it); English where there is no catalogue. Text that is
defined before it is shown is marked with `N_` and translated by `_` when it is shown.
"""

from __future__ import annotations

import functools
import gettext
import os
from pathlib import Path

DOMAIN = "course_lib"
LOCALES = Path(__file__).parent / "locale"


@functools.cache
def _catalogue(language: str, folder: Path) -> gettext.NullTranslations:
    return gettext.translation(DOMAIN, folder, languages=[language], fallback=True)


def language() -> str:
    """The reader's language, e.g. "en" or "zh_CN"."""
    return os.environ.get("COURSE_LANGUAGE") or "en"


def _(message: str) -> str:
    """The message in the reader's language."""
    return _catalogue(language(), LOCALES).gettext(message) if message else ""


def N_(message: str) -> str:
    """Mark a message for translation and leave it as it is."""
    return message
