"""The parent's side of an engine process: start, ask, interrupt, and never leave an orphan.

Messages are JSON lines: requests on the child's standard input, replies on a pipe of their own, logs in a file.
Every request has a number and every reply repeats it, so an answer to an interrupted call is never taken for the
next one's. The child exits when its standard input closes, which the kernel does for us even on `kill -9`.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import course_lib
from course_lib import errors
from course_lib.files import cache_dir, disk_error

GRACE_SECONDS = 5  # for a child to come back from a cancelled call before it is ended
KEEP_LOGS = 20


class EngineProcess:
    """One child process that can hold several engines of the same environment."""

    def __init__(self, env: dict[str, str], title: str) -> None:
        self.log = _new_log(title)
        self._lock = threading.Lock()
        self._number = 0
        self._replies: queue.SimpleQueue[dict | None] = queue.SimpleQueue()
        read, write = os.pipe()
        with self.log.open("wb") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "course_lib.engines.worker", str(write)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(write,),
                env=env | {"PYTHONPATH": _python_path(env)},
                start_new_session=True,  # Jupyter's interrupt must reach us, not the engine
            )
        os.close(write)
        threading.Thread(target=self._read, args=(read,), daemon=True).start()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    def _read(self, fd: int) -> None:
        try:
            with open(fd, encoding="utf8") as lines:
                for line in lines:
                    self._replies.put(json.loads(line))
        except ValueError:
            pass  # cut off: it died in the middle of a reply
        finally:
            self._replies.put(None)

    def ask(self, op: str, progress: Callable[[int], None] | None = None, **arguments: Any) -> Any:
        """Send one request and wait for its reply; `progress` is told how many tokens exist so far.

        Raises:
            CourseError: what the child reported, as the same named error.
            EngineFailed: it died; the message says how, with the last lines of its log.
        """
        with self._lock:
            self._number += 1
            number = self._number
            try:
                self._send({"id": number, "op": op, **arguments})
                return self._await(number, progress)
            except KeyboardInterrupt:
                self._cancel(number)
                raise

    def _await(self, number: int, progress: Callable[[int], None] | None, deadline: float | None = None) -> Any:
        while True:
            try:
                reply = self._replies.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise TimeoutError from None
            if reply is None:
                raise errors.EngineFailed(self._obituary())
            if reply["id"] != number:
                continue  # the late answer to a call that was interrupted
            if "progress" in reply:
                if progress:
                    progress(reply["progress"])
                continue
            if "error" in reply:
                kind = getattr(errors, reply["error"]["kind"], errors.EngineFailed)
                text = reply["error"]["message"]
                raise kind(f"{text}\n{self.tail()}" if kind is errors.EngineFailed else text)
            return reply["result"]

    def _cancel(self, number: int) -> None:
        """Ask the child to drop the call; end it if it does not answer, or if the reader insists."""
        try:
            self._send({"id": number, "op": "cancel"})
            self._await(number, None, time.monotonic() + GRACE_SECONDS)
        except errors.CourseError:
            pass  # it dropped the call, or it is dead: both are what was wanted
        except (TimeoutError, KeyboardInterrupt):
            self.kill()

    def _send(self, message: dict) -> None:
        try:
            assert self._child.stdin is not None
            self._child.stdin.write((json.dumps(message) + "\n").encode())
            self._child.stdin.flush()
        except OSError:
            raise errors.EngineFailed(self._obituary()) from None

    def tail(self, lines: int = 12) -> str:
        """The last lines of the engine's log, and where the rest is."""
        text = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        return "\n".join([f"--- last lines of {self.log}", *text[-lines:]])

    def _obituary(self) -> str:
        try:
            code = self._child.wait(timeout=GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            code = self._child.wait()
        if code == -signal.SIGKILL:
            how = "was killed (SIGKILL); most often the machine ran out of memory: choose a smaller model or cache"
        elif code < 0:
            how = f"crashed ({signal.Signals(-code).name})"
        else:
            how = f"ended by itself with exit code {code}"
        return f"the engine's process {how}\n{self.tail()}"

    def kill(self) -> None:
        """End the child and whatever it started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def close(self) -> None:
        """Let the child end by closing its input; end it if it does not."""
        try:
            if self._child.stdin:
                self._child.stdin.close()
            self._child.wait(timeout=GRACE_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            self.kill()


def _python_path(env: dict[str, str]) -> str:
    """The child must find the same course_lib that its parent runs, installed or not."""
    here = str(Path(course_lib.__file__).parents[1])
    return os.pathsep.join([here, *filter(None, [env.get("PYTHONPATH")])])


def _new_log(title: str) -> Path:
    folder = cache_dir() / "logs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in sorted(folder.glob("*.log"), key=lambda p: p.stat().st_mtime)[:-KEEP_LOGS]:
            old.unlink(missing_ok=True)
        fd, name = tempfile.mkstemp(prefix=f"{time.strftime('%Y%m%d-%H%M%S')}-{title}-", suffix=".log", dir=folder)
        os.close(fd)
    except OSError as e:
        raise disk_error(folder, e) from e
    return Path(name)
