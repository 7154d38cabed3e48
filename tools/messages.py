"""Collect what the library says to readers into course_lib/locale/course_lib.pot: `python tools/messages.py [--check]`.

Messages are what the code wraps in `_` or `N_`, and what readers see of the ledger of claims. Line numbers and dates
are left out, so that the file changes only when a message does.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import yaml
from babel.messages import Catalog
from babel.messages.extract import extract_from_file
from babel.messages.pofile import write_po

ROOT = Path(__file__).parents[1]
TEMPLATE = ROOT / "course_lib/locale/course_lib.pot"
OF_A_CLAIM = ("claim", "scope", "finding", "untested")


def collect() -> str:
    """The template, as text."""
    catalog = Catalog(fuzzy=False)
    for path in sorted((ROOT / "course_lib").rglob("*.py")):
        for _, message, *_ in extract_from_file("python", path, keywords={"_": None, "N_": None}):
            catalog.add(message, locations=[(path.relative_to(ROOT).as_posix(), 0)])
    for path in sorted((ROOT / "course_lib/data/claims").glob("*.yaml")):
        for row in yaml.safe_load(path.read_text("utf8")):
            for field in OF_A_CLAIM:
                if row.get(field):
                    catalog.add(row[field], locations=[(path.relative_to(ROOT).as_posix(), 0)])
    out = io.BytesIO()
    write_po(out, catalog, omit_header=True, include_lineno=False, sort_output=True, width=0)
    head = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    return head + out.getvalue().decode()


if __name__ == "__main__":
    now = collect()
    if "--check" in sys.argv:
        if not TEMPLATE.exists() or TEMPLATE.read_text("utf8") != now:
            sys.exit(f"{TEMPLATE.relative_to(ROOT)} is out of date: python tools/messages.py")
    else:
        TEMPLATE.parent.mkdir(exist_ok=True)
        TEMPLATE.write_text(now, "utf8")
        print(f"{TEMPLATE.relative_to(ROOT)}: {now.count('msgid') - 1} messages")
