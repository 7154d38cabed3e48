"""Write the README's picture, book/_static/fork.png: of the answers that fork on a CPU, the one that forks first.

    .venv/bin/python tools/readme_picture.py

It starts no engine. The same records give the same file.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from course_lib import evidence  # noqa: E402
from course_lib.compare import divergence  # noqa: E402
from course_lib.plots import Picture, token_strip  # noqa: E402

SCHEDULES, FORMATS = ("alone", "among eight"), ("bf16", "fp16")
# experiment, one arm, the other, what to call them; the first that forks is drawn
CANDIDATES = [
    ("first-fork", "alone", "among eight", SCHEDULES),
    ("batch-1-vs-8", "bf16 alone", "bf16 in eights", SCHEDULES),
    ("batch-1-vs-8", "bf16 in eights", "fp16 in eights", FORMATS),
]


def picture() -> Picture:
    """The earliest fork among the answers that a CPU's record keeps in full."""
    for name, a, b, labels in CANDIDATES:
        for kind in evidence.recorded(name):
            if not kind.startswith("cpu"):
                continue
            found = evidence.load(name, kind)
            pairs = list(zip(found.traces(a), found.traces(b), strict=True))
            forks = [(first, i) for i, (s, t) in enumerate(pairs) if (first := divergence(s, t).first) is not None]
            if forks:
                return token_strip(*pairs[min(forks)[1]], labels, source=found)
    raise SystemExit("no record of a CPU holds a fork; `course record first-fork` makes one")


if __name__ == "__main__":
    drawn = picture()
    print(drawn.save(ROOT / "book" / "_static" / "fork.png").relative_to(ROOT))
    print(drawn.text)
