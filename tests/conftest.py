"""Fixtures that tests share. Engines are real; one default engine serves all tests that need no other."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from course_lib.config import Sampling, Schedule
from course_lib.engines import Engine, open_engine
from course_lib.prompts import open_prompts
from course_lib.trace import Run

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def engine() -> Engine:
    return open_engine()


@pytest.fixture(scope="session")
def alone(engine: Engine) -> Run:
    return engine.run(open_prompts(4), Schedule.alone(), Sampling(max_tokens=24))


@pytest.fixture(scope="session")
def together(engine: Engine) -> Run:
    return engine.run(open_prompts(4), Schedule.together(), Sampling(max_tokens=24))


@pytest.fixture
def script(tmp_path: Path):
    """Start Python code in a process of its own, with the library on its path."""

    def start(code: str, **kwargs) -> subprocess.Popen:
        file = tmp_path / "script.py"
        file.write_text(code)
        return subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE, text=True, cwd=ROOT, **kwargs)

    return start


@pytest.fixture
def eventually():
    """Wait until a condition holds; fail when it does not within the time."""

    def wait(condition, seconds: float, what: str) -> float:
        start = time.monotonic()
        while not condition():
            assert time.monotonic() - start < seconds, f"{what}: not within {seconds} s"
            time.sleep(0.05)
        return time.monotonic() - start

    return wait
