"""Traces and runs survive a file as they were, and a file that is not one of them is refused with a reason."""

import json
import math
import os
import subprocess
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.config import EngineConfig, Sampling, Schedule
from course_lib.errors import EvidenceMismatch, NotAvailableHere
from course_lib.files import write_atomically
from course_lib.trace import Run, Trace

TRACE = Trace(
    prompt='¿Qué? 你好 \u2028 "quoted"',
    prompt_ids=(1, 2),
    token_ids=(3, 4),
    tokens=("三", "\n"),
    logprobs=(-0.1, -1.7e-9),
    top=(((3, -0.1), (4, -2.5)), ((4, -1.7e-9), (3, -20.0))),
    finish_reason="stop",
    step_requests=(8, 8),
    step_tokens=(40, 8),
)
RUN = Run(
    config=EngineConfig(dtype="float16", extra={"a": [1, {"b": None}]}),
    schedule=Schedule.padded(4),
    sampling=Sampling(seed=7),
    traces=(TRACE, TRACE.slim(1)),
    resolved={"threads": 2, "runner": "x"},
    seconds=1.25,
)


@pytest.mark.parametrize("value", [TRACE, RUN, Trace(prompt_ids=(), token_ids=())], ids=["trace", "run", "empty"])
def test_what_is_saved_is_what_is_loaded(tmp_path, value):
    path = value.save(tmp_path / "deep" / "file.json")
    back = type(value).load(path)
    assert back == value and type(back) is type(value)
    assert json.loads(path.read_text())  # strict enough for others to read


@given(st.lists(st.floats(max_value=0.0, allow_nan=False), max_size=8))
def test_every_bit_of_a_logprob_survives(logprobs):
    n = len(logprobs)
    trace = Trace(prompt_ids=(1,), token_ids=(5,) * n, logprobs=logprobs, top=[[(5, x)] for x in logprobs])
    back = Trace.from_data(json.loads(trace.model_dump_json()), "memory")
    assert [x.hex() for x in back.logprobs] == [float(x).hex() for x in logprobs]
    assert back.top == trace.top


def test_nan_and_impossible_tokens_survive_in_strict_json(tmp_path):
    """A broken model gives nan and a masked token -inf. Both are findings, and neither may turn into null."""
    odd = [math.nan, -math.inf, -1.0]
    trace = Trace(prompt_ids=(1,), token_ids=(5, 6, 7), logprobs=odd, top=[[(5, x), (6, -math.inf)] for x in odd])
    path = trace.save(tmp_path / "t.json")

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    json.loads(path.read_text(), parse_constant=refuse)
    back = Trace.load(path)
    assert repr(back.logprobs) == repr(tuple(odd)) and repr(back.top) == repr(trace.top)
    run = RUN.model_copy(update={"traces": (trace,)})
    assert repr(Run.load(run.save(tmp_path / "r.json")).traces[0].logprobs) == repr(tuple(odd))


@pytest.mark.parametrize("field", ["tokens", "logprobs", "top", "step_requests", "step_tokens"])
def test_lists_of_another_length_are_refused(field):
    whole = TRACE.model_dump()
    with pytest.raises(ValueError, match=f"{field} has 1 entries for 2 tokens"):
        Trace(**whole | {field: whole[field][:1]})
    assert Trace(**whole | {field: ()}).token_ids == (3, 4)  # not reported at all is fine


@pytest.mark.parametrize(
    "content, message",
    [
        ("{", "damaged"),
        ("", "damaged"),
        (b"\xff\xfe\x00", "damaged"),
        ("[]", "not a Trace"),
        ("null", "not a Trace"),
        ("{}", "not a Trace .prompt_ids: Field required"),
        ('{"prompt_ids": [1], "token_ids": [1], "logprob": [0]}', "not a Trace .logprob: Extra inputs"),
        ('{"prompt_ids": [1], "token_ids": ["x"]}', "not a Trace .token_ids.0: .*integer"),
        ('{"prompt_ids": [1], "token_ids": [1, 2], "logprobs": [0]}', "logprobs has 1 entries for 2 tokens"),
        ('{"prompt_ids": [1], "token_ids": [1], "logprobs": [null]}', "logprobs.0"),
    ],
)
def test_a_file_that_is_no_trace_is_named_with_the_reason(tmp_path, content, message):
    path = tmp_path / "some.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(EvidenceMismatch, match=rf"some\.json: .*{message}.*[Rr]ecord it again"):
        Trace.load(path)


def test_a_run_with_a_field_of_another_version_is_refused(tmp_path):
    data = json.loads(RUN.model_dump_json())
    data["config"]["from_the_future"] = 1
    (tmp_path / "r.json").write_text(json.dumps(data))
    with pytest.raises(EvidenceMismatch, match=r"r\.json: not a Run .*from_the_future"):
        Run.load(tmp_path / "r.json")


def test_a_cut_file_is_refused_at_every_length(tmp_path):
    text = TRACE.model_dump_json()
    for end in range(0, len(text), 7):
        (tmp_path / "t.json").write_text(text[:end])
        with pytest.raises(EvidenceMismatch, match="damaged"):
            Trace.load(tmp_path / "t.json")


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(EvidenceMismatch, match=r"gone\.json: cannot be read \(No such file"):
        Trace.load(tmp_path / "gone.json")
    with pytest.raises(EvidenceMismatch, match="cannot be read"):
        Trace.load(tmp_path)


def test_margins_text_and_slim():
    assert TRACE.text == "三\n"
    assert TRACE.margins() == pytest.approx([2.4, 20.0])
    assert all(math.isnan(m) for m in TRACE.slim(1).margins())
    assert TRACE.slim(1).logprobs == TRACE.logprobs


# --- files


def test_a_file_is_replaced_whole_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "a" / "b.txt"
    write_atomically(path, "one")
    assert write_atomically(path, "two") == path
    assert path.read_text() == "two" and os.listdir(path.parent) == ["b.txt"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_writer_that_fails_half_way_leaves_the_old_file(tmp_path):
    path = write_atomically(tmp_path / "f", "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "x" * 100_000 + "\ud800")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["f"]


@contextmanager
def mounted(folder, options):
    folder.mkdir(exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True)
    if done.returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_full_disk_is_named_and_the_old_file_stays(tmp_path):
    with mounted(tmp_path / "disk", "size=64k") as disk:
        path = write_atomically(disk / "record.json", "old")
        with pytest.raises(NotAvailableHere, match=r"no space left to write .*record\.json; .*COURSE_CACHE"):
            write_atomically(path, "x" * 200_000)
        assert path.read_text() == "old" and os.listdir(disk) == ["record.json"]


def test_a_read_only_folder_is_named_and_the_old_file_stays(tmp_path):
    with mounted(tmp_path / "disk", "size=64k") as disk:
        path = write_atomically(disk / "record.json", "old")
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        with pytest.raises(NotAvailableHere, match=r"cannot write .*record\.json: Read-only file system"):
            write_atomically(path, "new")
        with pytest.raises(NotAvailableHere, match="Read-only"):
            TRACE.save(disk / "new folder" / "t.json")
        assert path.read_text() == "old" and os.listdir(disk) == ["record.json"]


def test_a_file_where_a_folder_should_be_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotAvailableHere, match=r"cannot write .*file"):
        write_atomically(tmp_path / "file" / "x", "text")
