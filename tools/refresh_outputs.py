"""Bring chapters' stored outputs up to date with the records, without running an engine.

    .venv/bin/python tools/refresh_outputs.py [1 7]

Executes each chapter from the records and takes over the outputs of the cells that nbval compares: by the chapter
contract they are the same live and recorded. Live outputs (tagged `nbval-ignore-output`) stay as they are. Run it after
a new record, or after a change of a claim or a figure; `make notebooks` runs everything live.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat

from course_lib import runner


def main() -> int:
    with tempfile.TemporaryDirectory() as build:
        outcomes = runner.execute(
            runner.chapters(map(int, sys.argv[1:])), {"PROFILE": "recorded"}, build=Path(build), report=print
        )
        if not all(o.ok for o in outcomes):
            return 1
        for outcome in outcomes:
            path = runner.ROOT / "notebooks" / outcome.name
            stored, fresh = nbformat.read(path, 4), nbformat.read(outcome.output, 4)
            cells = [c for c in fresh.cells if "injected-parameters" not in c.metadata.get("tags", [])]
            for old, new in zip(stored.cells, cells, strict=True):
                if old.source != new.source:
                    raise SystemExit(f"{path.name}: papermill's copy has other cells; nothing was written")
                if old.cell_type == "code" and "nbval-ignore-output" not in old.metadata.get("tags", []):
                    old.outputs = new.outputs
            nbformat.write(stored, path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
