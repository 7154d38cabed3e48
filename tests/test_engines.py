"""The real engines: what they return, how they fail, and that they leave nothing behind."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from course_lib import hardware
from course_lib.config import EngineConfig, Sampling, Schedule
from course_lib.engines import open_engine
from course_lib.engines.engine import environment
from course_lib.errors import ConfigError, EngineFailed, NotAvailableHere, PromptError
from course_lib.prompts import open_prompts

pytestmark = pytest.mark.engine


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def bits(run):
    return [(t.token_ids, t.logprobs) for t in run.traces]


def test_a_trace_says_everything_about_each_token(together):
    for trace in together.traces:
        n = len(trace.token_ids)
        assert 0 < n <= 24
        assert len(trace.tokens) == len(trace.logprobs) == len(trace.top) == len(trace.step_requests) == n
        assert all(lp <= 0 for lp in trace.logprobs)
        assert all(len(t) == 5 and t == tuple(sorted(t, key=lambda e: -e[1])) for t in trace.top)
        # greedy: the chosen token is the most likely one
        assert [t[0][0] for t in trace.top] == list(trace.token_ids)
    assert together.resolved["dtype"] == "bfloat16"
    assert together.resolved["threads"] >= 1


def test_schedules_decide_who_shares_a_step(alone, together):
    assert {n for t in alone.traces for n in t.step_requests} == {1}
    assert {n for t in together.traces for n in t.step_requests[:10]} == {4}
    # the first step computes the whole prompt, or the prompts of everybody
    assert alone.traces[0].step_tokens[0] == len(alone.traces[0].prompt_ids)
    assert together.traces[0].step_tokens[0] == sum(len(t.prompt_ids) for t in together.traces)


def test_staggered_requests_arrive_later(engine):
    run = engine.run(open_prompts(3), Schedule.staggered(4), Sampling(max_tokens=12, ignore_eos=True))
    assert run.traces[0].step_requests == (1,) * 4 + (2,) * 4 + (3,) * 4


def test_padded_returns_only_the_watched(engine):
    run = engine.run(open_prompts(2), Schedule.padded(3), Sampling(max_tokens=4))
    assert len(run.traces) == 2
    assert {n for t in run.traces for n in t.step_requests} == {3}


def test_rerun_is_bit_identical(engine, alone, together):
    assert bits(engine.run(open_prompts(4), Schedule.alone(), Sampling(max_tokens=24))) == bits(alone)
    assert bits(engine.run(open_prompts(4), Schedule.together(), Sampling(max_tokens=24))) == bits(together)


def test_a_seed_makes_sampling_repeatable_and_its_absence_does_not(engine):
    hot = Sampling(temperature=1.0, seed=7, max_tokens=16)
    a, b = (engine.run(open_prompts(2), Schedule.alone(), hot) for _ in range(2))
    assert bits(a) == bits(b)
    c, d = (engine.run(open_prompts(2), Schedule.alone(), hot.but(seed=None)) for _ in range(2))
    assert bits(c) != bits(d)


def test_scoring_keeps_the_tokens_and_agrees_with_generation(engine, together):
    scored = engine.score(together.traces)
    for given, back in zip(together.traces, scored, strict=True):
        assert back.token_ids == given.token_ids and back.scored and back.prompt_ids == given.prompt_ids
        assert max(abs(x - y) for x, y in zip(given.logprobs, back.logprobs, strict=True)) < 0.5


def test_token_ids_are_taken_as_prompts(engine, together):
    ids = [t.prompt_ids for t in together.traces]
    assert bits(engine.run(ids, Schedule.together(), Sampling(max_tokens=24))) == bits(together)


def test_transformers_reference_agrees_with_vllm_in_float32():
    reference = open_engine(EngineConfig(engine="transformers", dtype="float32"))
    run = reference.run(open_prompts(2), Schedule.alone(), Sampling(max_tokens=12))
    scored = open_engine(EngineConfig(dtype="float32")).score(run.traces)
    for a, b in zip(run.traces, scored, strict=True):
        assert max(abs(x - y) for x, y in zip(a.logprobs, b.logprobs, strict=True)) < 1e-3
    # generation and scoring of the reference itself agree, with padding too
    padded = reference.run(open_prompts(2), Schedule.together(), Sampling(max_tokens=12))
    assert [t.token_ids for t in padded.traces] == [t.token_ids for t in run.traces]
    with pytest.raises(ConfigError, match="greedy"):
        reference.run(open_prompts(1), sampling=Sampling(temperature=0.7))


def test_bad_prompts_are_refused_and_the_engine_lives(engine, together):
    for prompts, message in (
        ([], "no prompts"),
        (["  "], "prompt 0 is empty"),
        ("one string", "list"),
        ([[]], "no tokens"),
    ):
        with pytest.raises(PromptError, match=message):
            engine.run(prompts)
    with pytest.raises(PromptError, match="context holds 2048"):
        engine.run(["word " * 3000])
    assert bits(engine.run(open_prompts(4), Schedule.together(), Sampling(max_tokens=24))) == bits(together)


def test_an_engine_is_opened_once(engine):
    assert open_engine(EngineConfig()) is engine
    fp16 = open_engine(EngineConfig(dtype="float16"))
    assert fp16 is not engine and fp16.process is engine.process
    assert open_engine(EngineConfig(cpu_split_kv=False)).process is not engine.process


def test_closing_one_engine_leaves_its_neighbours_alone(engine, together):
    """They share a process, and in it vLLM's parallel state, which closing once took away from everybody."""
    assert open_engine() is engine  # used last, so it is not the one that makes room
    other = open_engine(EngineConfig(seed=21))
    assert other.process is engine.process
    other.close()
    assert not other.loaded and engine.loaded
    assert bits(engine.run(open_prompts(4), Schedule.together(), Sampling(max_tokens=24))) == bits(together)


def test_an_engine_that_made_room_comes_back(engine, together):
    for seed in (11, 12, 13):
        open_engine(EngineConfig(seed=seed))
    assert not engine.loaded
    assert bits(engine.run(open_prompts(4), Schedule.together(), Sampling(max_tokens=24))) == bits(together)


def test_stray_variables_do_not_reach_the_engine(monkeypatch):
    monkeypatch.setenv("VLLM_CPU_ATTN_SPLIT_KV", "0")
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert not {"VLLM_CPU_ATTN_SPLIT_KV", "NVIDIA_TF32_OVERRIDE"} & environment(EngineConfig()).keys()
    assert environment(EngineConfig(cpu_split_kv=True))["VLLM_CPU_ATTN_SPLIT_KV"] == "1"


def test_what_vllm_refuses_comes_back_as_one_error(engine):
    start = time.monotonic()
    with pytest.raises(EngineFailed, match=r"(?s)no_such_argument.*last lines of"):
        open_engine(EngineConfig(extra={"no_such_argument": 1}))
    assert time.monotonic() - start < 10


@pytest.mark.skipif(hardware.has_gpu(), reason="the refusal is the CPU's")
def test_batch_invariant_mode_is_refused_on_a_cpu():
    with pytest.raises(NotAvailableHere, match="needs a GPU"):
        open_engine(EngineConfig(batch_invariant=True))


def test_a_killed_engine_is_reported_and_replaced():
    config = EngineConfig(seed=1)
    victim = open_engine(config)
    threading.Timer(1.0, os.kill, (victim.process.pid, signal.SIGKILL)).start()
    start = time.monotonic()
    with pytest.raises(EngineFailed, match=r"(?s)SIGKILL.*memory.*last lines of"):
        victim.run(open_prompts(1), sampling=Sampling(max_tokens=1500, ignore_eos=True))
    assert time.monotonic() - start < 10
    again = victim.run(open_prompts(1), sampling=Sampling(max_tokens=2))  # the next call starts a new process
    assert len(again.traces[0].token_ids) == 2


def test_no_orphan_when_the_parent_is_killed(script, eventually):
    parent = script(
        "from course_lib.engines import open_engine\nfrom course_lib.config import Sampling\n"
        "e = open_engine()\nprint(e.process.pid, flush=True)\n"
        "e.run(['Go on.'], sampling=Sampling(max_tokens=1900, ignore_eos=True))\n"
    )
    pid = int(parent.stdout.readline())
    assert running(pid)
    time.sleep(0.5)  # in the middle of generation
    parent.kill()
    eventually(lambda: not running(pid), 5, "the engine's process should have gone with its parent")


def test_an_interrupted_call_leaves_no_stale_answer(script):
    child = script(
        """
import json, os, signal, threading, time
from course_lib.engines import open_engine
from course_lib.config import Sampling
e = open_engine()
first = e.run(["Say hello."], sampling=Sampling(max_tokens=3))
pid = e.process.pid
threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
start = time.monotonic()
try:
    e.run(["Tell a very long story."], sampling=Sampling(max_tokens=1900, ignore_eos=True))
    interrupted = False
except KeyboardInterrupt:
    interrupted = True
took = time.monotonic() - start
after = e.run(["Say hello."], sampling=Sampling(max_tokens=3))
print(json.dumps([interrupted, took, e.process.pid == pid, first.traces == after.traces]))
"""
    )
    out, _ = child.communicate(timeout=120)
    interrupted, took, same_process, same_answer = json.loads(out)
    assert interrupted and took < 7
    assert same_process, "the engine should survive an interrupt"
    assert same_answer


def test_progress_is_told(engine):
    seen = []
    engine.run(open_prompts(1), sampling=Sampling(max_tokens=80, ignore_eos=True), progress=seen.append)
    assert seen == sorted(seen) and 0 < seen[-1] <= 80


def test_synthetic_shapes_run_from_token_ids_and_repeat():
    shape = open_engine(EngineConfig(model="shape:llama-135m", kv_cache_gib=0.5))
    prompts = [[5, 6, 7, 8], [9, 10, 11]]
    a, b = (shape.run(prompts, sampling=Sampling(max_tokens=6, ignore_eos=True)) for _ in range(2))
    assert bits(a) == bits(b)
    assert len(set(a.traces[0].logprobs)) > 1, "seeded weights must not give a flat distribution"
    with pytest.raises(NotAvailableHere, match="no tokenizer"):
        shape.run(["text"])
    shape.close()
    fresh = open_engine(EngineConfig(model="shape:llama-135m", kv_cache_gib=0.5))
    assert bits(fresh.run(prompts, sampling=Sampling(max_tokens=6, ignore_eos=True))) == bits(a)


def test_what_is_no_prompt_is_refused(engine, together):
    for prompts in ([None], [["a"]], [[1.7]]):
        with pytest.raises(PromptError, match=r"prompt 0 is .*give a text, or a list of token ids"):
            engine.run(prompts)
    with pytest.raises(PromptError, match="no prompt ids"):
        engine.score([together.traces[0].model_copy(update={"prompt_ids": ()})])


def test_an_engine_that_dies_in_the_middle_of_a_reply_is_reported(tmp_path, monkeypatch):
    """The child is replaced by a script that writes half a reply: no way to make a real one die just there."""
    from course_lib.engines import process

    code = """import os, signal, sys
sys.stdin.readline()
os.write(int(sys.argv[3]), b'{"id": 1, "resu')
os.kill(os.getpid(), signal.SIGKILL)
"""
    (tmp_path / "fake").write_text(f"#!{sys.executable}\n{code}")
    (tmp_path / "fake").chmod(0o755)
    monkeypatch.setattr(process.sys, "executable", str(tmp_path / "fake"))
    child = process.EngineProcess({"PATH": os.environ["PATH"]}, "fake")
    start = time.monotonic()
    with pytest.raises(EngineFailed, match="SIGKILL"):
        child.ask("run")
    assert time.monotonic() - start < 10


def test_the_reference_has_a_process_of_its_own(engine):
    """vLLM sets torch's thread count for its whole process, and the reference must not inherit it."""
    assert open_engine(EngineConfig(engine="transformers", dtype="float32")).process is not engine.process
