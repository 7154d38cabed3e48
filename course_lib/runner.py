"""Execute chapters with papermill: one after another, each with a log and a time limit; a failure stops no other.

A chapter that was executed and has not changed since (nor its parameters, nor the library) is not executed again.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import course_lib
from course_lib.errors import ConfigError
from course_lib.files import write_atomically
from course_lib.i18n import language

ROOT = Path(course_lib.__file__).parents[1]
BUILD = ROOT / "build" / "run"


@dataclass(frozen=True)
class Outcome:
    """How one notebook went. `state` is "done", "failed", "timed out" or "kept" (done before, unchanged)."""

    name: str
    state: str
    seconds: float
    output: Path
    log: Path
    error: str = ""

    @property
    def ok(self) -> bool:
        return self.state in ("done", "kept")


def chapters(numbers: Iterable[int] = ()) -> list[Path]:
    """The notebooks of these chapters, or of all that exist.

    Raises:
        ConfigError: a chapter that does not exist; says which do.
    """
    found = {int(p.name[:2]): p for p in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))}
    if unknown := sorted(set(numbers) - found.keys()):
        raise ConfigError(f"there is no chapter {', '.join(map(str, unknown))}; there are {', '.join(map(str, found))}")
    return [found[n] for n in sorted(set(numbers) or found)]


def execute(
    notebooks: Iterable[Path],
    parameters: dict[str, Any] | None = None,
    *,
    build: Path = BUILD,
    limit: int = 1200,
    again: bool = False,
    report: Callable[[Outcome], None] | None = None,
    starting: Callable[[Path], None] | None = None,
) -> list[Outcome]:
    """Execute notebooks in turn; the executed copies, figures inside, lie under `build`.

    Args:
        limit: seconds that one notebook may take.
        again: execute also what was executed before and has not changed.
        report, starting: called for each notebook, after and before.
    """
    outcomes = []
    for notebook in notebooks:
        if starting:
            starting(notebook)
        outcome = _one(notebook, parameters or {}, build, limit, again)
        outcomes.append(outcome)
        if report:
            report(outcome)
    return outcomes


def _one(notebook: Path, parameters: dict[str, Any], build: Path, limit: int, again: bool) -> Outcome:
    output, log, note = build / notebook.name, build / f"{notebook.stem}.log", build / f"{notebook.stem}.done"
    stamp = _stamp(notebook, parameters)
    if not again and output.exists() and note.exists() and note.read_text() == stamp:
        return Outcome(notebook.name, "kept", 0.0, output, log)
    build.mkdir(parents=True, exist_ok=True)
    note.unlink(missing_ok=True)
    command = [
        sys.executable,
        "-m",
        "papermill",
        "--no-progress-bar",
        "--cwd",
        str(notebook.parent),
        str(notebook),
        str(output),
    ]
    for key, value in parameters.items():
        command += ["-y", json.dumps({key: value})]
    start = time.monotonic()
    state, error = "done", ""
    with log.open("w", encoding="utf8") as out:
        # a session of its own: Ctrl-C reaches us alone, and we end it; its kernel goes when its parent does
        child = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True, env=_environment()
        )
        try:
            if child.wait(timeout=limit):
                state = "failed"
        except subprocess.TimeoutExpired:
            state, error = "timed out", f"took longer than {limit} s"
        finally:
            if child.poll() is None:
                os.killpg(child.pid, 15)
                try:
                    child.wait(10)
                except subprocess.TimeoutExpired:
                    os.killpg(child.pid, 9)
                    child.wait()
    if state == "failed":
        lines = log.read_text(errors="replace").splitlines()
        error = next((line for line in reversed(lines) if line.strip()), "no log")
    if state == "done":
        write_atomically(note, stamp)
    return Outcome(notebook.name, state, round(time.monotonic() - start, 1), output, log, error)


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}


def _stamp(notebook: Path, parameters: dict[str, Any]) -> str:
    """Changes with the notebook's source, parameters, language, and with the library's code, data and records."""
    digest = hashlib.sha256(json.dumps([parameters, language()], sort_keys=True).encode())
    try:
        cells = json.loads(notebook.read_text(encoding="utf8"))["cells"]
        digest.update(json.dumps([[c["cell_type"], c["source"]] for c in cells]).encode())
    except (ValueError, KeyError, TypeError):  # no notebook: papermill will say so, in its log
        digest.update(notebook.read_bytes())
    for pattern in ("course_lib/**/*.py", "course_lib/data/**/*", "course_lib/locale/**/*.mo", "evidence/**/*.json"):
        for path in sorted(p for p in ROOT.glob(pattern) if p.is_file()):
            digest.update(path.read_bytes())
    return digest.hexdigest()
