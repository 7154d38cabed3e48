"""Chapters run one after another: a failure stops no other, a limit holds, and what is interrupted leaves nothing."""

import json
import signal
import time
from pathlib import Path

import nbformat
import pytest

from course_lib import runner
from course_lib.errors import ConfigError

SLEEP = "import os, pathlib, time; pathlib.Path('{pid}').write_text(str(os.getpid())); time.sleep(600)"


def write(path: Path, *cells: str) -> Path:
    """A notebook whose first cell is its parameters."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    book.cells[0].metadata["tags"] = ["parameters"]
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path.parent.mkdir(exist_ok=True)
    nbformat.write(book, path)
    return path


def printed(path: Path) -> str:
    outputs = [o for c in nbformat.read(path, as_version=4).cells for o in c.get("outputs", [])]
    return "".join(o.get("text", "") for o in outputs)


def running(word: str) -> list[str]:
    """Command lines of living processes that name this word."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if word in line and state not in "ZX":
            found.append(line)
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def test_chapters_run_in_turn_keep_what_is_done_and_outlive_a_failure(tmp_path):
    build = tmp_path / "build"
    one = write(tmp_path / "book/01_one.ipynb", "N = 1\nNAME = 'x'", "print('sum', N + 1, NAME, FLAG)")
    bad = write(tmp_path / "book/02_bad.ipynb", "N = 1", "print('before')", "1 / 0")
    broken = tmp_path / "book/03_broken.ipynb"
    broken.write_text("{no notebook")
    here = write(tmp_path / "book/04_here.ipynb", "N = 1", "import os; print(os.getcwd())")
    books = [one, bad, broken, here]
    told, begun = [], []
    parameters = {"N": 41, "NAME": "a 'quoted' {name}", "FLAG": True}
    outcomes = runner.execute(books, parameters, build=build, limit=120, report=told.append, starting=begun.append)
    assert told == outcomes and begun == books
    assert [o.state for o in outcomes] == ["done", "failed", "failed", "done"]
    assert [o.ok for o in outcomes] == [True, False, False, True]
    # parameters arrive with their types; a chapter runs where its notebook lies
    assert printed(outcomes[0].output) == "sum 42 a 'quoted' {name} True\n"
    assert str(one.parent) in printed(outcomes[3].output)
    # the error is named, the log kept, and what ran before the error can be seen
    assert "ZeroDivisionError: division by zero" in outcomes[1].error
    assert "1 / 0" in outcomes[1].log.read_text() and "before" in printed(outcomes[1].output)
    assert outcomes[2].error and outcomes[2].log.read_text()
    done = sorted(p.name for p in build.glob("*.done"))
    assert done == ["01_one.done", "04_here.done"]
    assert json.loads(one.read_text())["cells"][1]["outputs"] == [], "the source stays as it was"

    # again: what is done is kept, what failed is tried again
    again = runner.execute([one, bad], parameters, build=build, limit=120)
    assert [o.state for o in again] == ["kept", "failed"] and again[0].seconds == 0


def test_a_chapter_is_executed_anew_when_what_it_depends_on_changes(tmp_path, monkeypatch):
    """The stamp decides; whether it is obeyed is seen above, so no kernel is needed here."""
    root = tmp_path / "root"
    data = ("course_lib/data/claims/ch01.yaml", "course_lib/data/prompts.yaml", "evidence/x/h.json")
    for file in ("course_lib/a.py", *data):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text("one")
    monkeypatch.setattr(runner, "ROOT", root)
    book = write(tmp_path / "01_one.ipynb", "N = 1", "print(N)")
    stamps = [runner._stamp(book, {"N": 1})]

    def changed(what):
        stamps.append(runner._stamp(book, {"N": 1}))
        assert len(set(stamps)) == len(stamps), what

    def same(what):
        assert runner._stamp(book, {"N": 1}) == stamps[-1], what

    data = json.loads(book.read_text())
    data["cells"][1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "1"}]
    data["metadata"]["x"] = 1
    book.write_text(json.dumps(data))
    same("outputs are no source")
    (root / "notes.md").write_text("x")
    same("another file")
    for file in list(root.rglob("*.*")):
        if file.is_file() and file.suffix != ".md":
            file.write_text("two")
            changed(file)
    data["cells"][1]["source"] = "print(N + 1)"
    book.write_text(json.dumps(data))
    changed("source")
    monkeypatch.setenv("COURSE_LANGUAGE", "zh_CN")
    changed("language")
    assert runner._stamp(book, {"N": 2}) not in stamps


def test_what_is_done_is_done_again_on_request_or_when_its_output_is_gone(tmp_path):
    """With a notebook that papermill cannot read: whether it was tried shows without a kernel."""
    book = tmp_path / "01_one.ipynb"
    book.write_text("{no notebook")

    def done_before():
        (tmp_path / "build").mkdir(exist_ok=True)
        (tmp_path / "build/01_one.ipynb").write_text("output")
        (tmp_path / "build/01_one.done").write_text(runner._stamp(book, {}))

    def state(**options):
        return runner.execute([book], build=tmp_path / "build", limit=60, **options)[0].state

    done_before()
    assert state() == "kept"
    assert state(again=True) == "failed"
    done_before()
    (tmp_path / "build/01_one.ipynb").unlink()
    assert state() == "failed"
    assert not (tmp_path / "build/01_one.done").exists()


def test_a_limit_ends_the_kernel_too(tmp_path, eventually):
    pid = tmp_path / "pid"
    book = write(tmp_path / "01_slow.ipynb", "N = 1", SLEEP.format(pid=pid))
    for limit in (5, 20, 60):  # a busy machine may need more for the kernel to start
        start = time.monotonic()
        (outcome,) = runner.execute([book], build=tmp_path / "build", limit=limit)
        if pid.exists():
            break
    assert (outcome.state, outcome.error) == ("timed out", f"took longer than {limit} s")
    assert not outcome.ok and time.monotonic() - start < limit + 12
    eventually(lambda: not alive(int(pid.read_text())), 5, "the kernel ends")
    eventually(lambda: not running(str(book)), 5, "papermill ends")
    assert not (tmp_path / "build/01_slow.done").exists() and outcome.log.exists()


def test_ctrl_c_leaves_no_process_and_nothing_that_looks_done(tmp_path, script, eventually):
    pid = tmp_path / "pid"
    slow = write(tmp_path / "01_slow.ipynb", "N = 1", SLEEP.format(pid=pid))
    write(tmp_path / "02_next.ipynb", "N = 1", f"open(r'{tmp_path}/next', 'w')")
    parent = script(
        f"from pathlib import Path\nfrom course_lib import runner\nhere = Path(r'{tmp_path}')\ntry:\n"
        "    runner.execute(sorted(here.glob('*.ipynb')), build=here / 'build')\n"
        "except KeyboardInterrupt:\n    print('interrupted')\n"
    )
    eventually(lambda: pid.exists() and pid.read_text(), 60, "the notebook runs")
    parent.send_signal(signal.SIGINT)
    out, _ = parent.communicate(timeout=20)
    assert out == "interrupted\n"
    eventually(lambda: not alive(int(pid.read_text())), 5, "the kernel ends")
    eventually(lambda: not running(str(slow)), 5, "papermill ends")
    assert not list((tmp_path / "build").glob("*.done")) and not (tmp_path / "next").exists()


def test_chapters_are_found_by_number():
    everything = runner.chapters()
    assert everything == sorted(everything) and everything
    number = int(everything[-1].name[:2])
    assert runner.chapters([number, number]) == [everything[-1]]
    with pytest.raises(ConfigError, match=rf"there is no chapter 77, 99; there are .*{number}"):
        runner.chapters([number, 99, 77])
