"""`course` on the command line: what it prints, how it fails, and that it starts quickly."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from course_lib import claims, cli, evidence, experiments

ROOT = Path(__file__).parents[1]


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def course(capsys, monkeypatch):
    """Call the entry point here, wide enough that no line is broken."""
    monkeypatch.setattr(cli, "console", Console(highlight=False, width=300))

    def call(*arguments: str) -> Done:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["course", *arguments])
        try:
            cli.main()
            code = 0
        except SystemExit as e:
            code = e.code or 0
        return Done(code, *capsys.readouterr())

    return call


def process(*arguments: str, **env: str) -> subprocess.CompletedProcess:
    """The same as a process, on a narrow terminal."""
    return subprocess.run(
        [sys.executable, "-m", "course_lib.cli", *arguments],
        capture_output=True, text=True, cwd=ROOT, timeout=120, env=os.environ | {"COLUMNS": "80"} | env,
    )  # fmt: skip


def fails(done: Done | subprocess.CompletedProcess, *words: str) -> None:
    """Exit code 1 and one line that says what was wrong; no traceback."""
    assert done.returncode == 1, done.stdout + done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert all(w in done.stderr for w in words), done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_show_lists_every_experiment(course):
    done = course("show")
    assert done.returncode == 0 and not done.stderr
    for name in experiments.names():
        assert name in done.stdout
        assert all(kind in done.stdout for kind in evidence.recorded(name))


def test_show_prints_every_pair_of_a_record(course):
    done = course("show", "rerun")
    assert done.returncode == 0, done.stderr
    found = evidence.load("rerun", None if evidence.hardware.kind() in evidence.recorded("rerun") else "h200")
    assert found.label in done.stdout
    for pair, comparison in found.comparisons.items():
        (line,) = [line for line in done.stdout.splitlines() if f" {pair} " in line]
        assert str(comparison.figures()["forks"]) in line
    assert "RECORDED on h200" in course("show", "rerun", "--hardware", "h200").stdout


def test_show_can_print_every_record(course):
    for name in experiments.names():
        for kind in evidence.recorded(name)[:1]:
            done = course("show", name, "--hardware", kind)
            assert done.returncode == 0 and kind in done.stdout, done.stderr


def test_claims_prints_verdict_and_evidence(course):
    done = course("claims", "--chapter", "1")
    assert done.returncode == 0, done.stderr
    rows = [c for c in claims.ledger().values() if c.chapter == 1]
    words = " ".join(done.stdout.split())
    for claim in rows:
        assert claim.claim.split(".")[0][:30] in words
        assert all(j.verdict in words for j in claims.judge(claim))
    assert "RECORDED on h200" in words
    assert course("claims", "--chapter", "99").returncode == 0


def test_doctor_says_what_is_here(course):
    done = course("doctor")
    if not evidence.engine_installed():
        fails(done, "ConfigError", "make setup")
        return
    assert done.returncode == 0, done.stderr
    assert evidence.hardware.kind() in done.stdout and "torch" in done.stdout
    assert "model smollm2-135m: 7ef915c9bf9d" in done.stdout
    assert done.stdout.splitlines()[-1] == "ready"


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["show", "rerunn"], ["ConfigError", "no experiment is called 'rerunn'; there is rerun"]),
        (["show", "rerun", "--hardware", "z80"], ["EvidenceMismatch", "no record of rerun on z80", "h200"]),
        (["record", "rerun", "--model", "shape:llama-135m"], ["ConfigError", "--to FOLDER"]),
        (["record", "nothing"], ["ConfigError", "no experiment is called 'nothing'"]),
        (["run", "one"], ["ConfigError", "'one' is not a chapter number"]),
        (["run", "99"], ["ConfigError", "there is no chapter 99; there are"]),
        (["run", "-p", "MAX_TOKENS"], ["ConfigError", "write NAME=VALUE"]),
        (["run", "-p", "a b=1"], ["ConfigError", "write NAME=VALUE"]),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_1(course, arguments, words):
    fails(course(*arguments), *words)


def test_a_damaged_record_is_one_line(tmp_path):
    (tmp_path / "rerun").mkdir()
    (tmp_path / "rerun/h200.json").write_text("{")
    fails(process("show", "rerun", COURSE_EVIDENCE=str(tmp_path)), "EvidenceMismatch", "h200.json", "git")


def test_another_model_s_record_never_replaces_the_default_s(course):
    before = {p: p.stat().st_mtime_ns for p in evidence.folder().rglob("*.json")}
    fails(course("record", "--model", "shape:llama-135m"), "--to FOLDER")
    assert {p: p.stat().st_mtime_ns for p in evidence.folder().rglob("*.json")} == before


def test_an_unknown_command_and_option_are_usage_errors(course):
    for arguments in (["shwo"], ["show", "--frobnicate"], ["run", "--limit", "soon"]):
        done = course(*arguments)
        assert done.returncode == 2 and "Usage" in done.stderr and "Traceback" not in done.stderr


# --- quick to start


def imported(code: str) -> tuple[list[str], float]:
    """Heavy modules that some code imports, and the seconds that it took."""
    heavy = ["torch", "transformers", "vllm", "matplotlib", "scipy", "IPython", "openai", "ray"]
    report = f"\nimport sys, json; print(json.dumps([m for m in {heavy} if m in sys.modules]))"
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code + report], capture_output=True, text=True, cwd=ROOT, check=True)
    return json.loads(done.stdout.splitlines()[-1]), time.perf_counter() - start


def test_importing_the_library_costs_nothing():
    modules, _ = imported("import course_lib")
    assert modules == []
    # best of three against an empty interpreter, as other work may be running
    base, ours = (min(imported(code)[1] for _ in range(3)) for code in ("pass", "import course_lib"))
    assert ours - base < 0.3


def test_no_room_imports_an_engine():
    rooms = "claims, config, engines, evidence, experiments, hardware, models, trace"
    modules, _ = imported(f"from course_lib import {rooms}")
    assert not {"torch", "transformers", "vllm", "IPython", "ray"} & set(modules)


def test_a_chapter_s_imports_start_no_engine():
    modules, _ = imported("from course_lib.notebook import banner, check\nfrom course_lib import evidence, plots")
    assert not {"torch", "transformers", "vllm"} & set(modules)


def test_help_is_quick_and_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['course', '--help']\n"
        "from course_lib import cli\ntry:\n    cli.main()\nexcept SystemExit as e:\n    assert not e.code"
    )
    modules, _ = imported(code)
    assert modules == []
    done = process("--help")
    for command in ("doctor", "run", "lab", "record", "show", "claims"):
        assert f" {command} " in done.stdout
