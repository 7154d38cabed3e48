"""The child's side: `python -m course_lib.engines.worker REPLY_FD`. Reads requests, keeps engines, writes replies."""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, Protocol

from course_lib.config import EngineConfig, Sampling, Schedule
from course_lib.errors import CourseError, PromptError
from course_lib.models import ModelFiles

PROGRESS_SECONDS = 0.5


class Cancelled(CourseError):
    """The parent gave the call up."""


Tick = Callable[[int], None]  # called with the number of tokens so far; raises Cancelled


class Backend(Protocol):
    """What an engine must do. Traces travel as dictionaries with `Trace`'s fields."""

    def __init__(self, config: EngineConfig, model: ModelFiles) -> None: ...
    def resolved(self) -> dict[str, Any]: ...
    def tokenise(self, prompts: list[str], chat: bool) -> list[list[int]]: ...
    def decode(self, ids: list[list[int]]) -> list[list[str]]: ...
    def generate(self, ids: list[list[int]], schedule: Schedule, sampling: Sampling, tick: Tick) -> list[dict]: ...
    def score(self, prompts: list[list[int]], answers: list[list[int]], top_k: int, tick: Tick) -> list[dict]: ...
    def close(self) -> None: ...


class Server:
    def __init__(self, reply_fd: int) -> None:
        os.set_inheritable(reply_fd, False)  # our death must close it, whoever we have started
        self.out = open(reply_fd, "w", encoding="utf8")  # noqa: SIM115 - open as long as the process lives
        self.inbox: queue.SimpleQueue[dict] = queue.SimpleQueue()
        self.cancelled: set[int] = set()
        self.engines: dict[str, Backend] = {}

    def listen(self) -> None:
        """Runs in a thread: a closed input means that the parent is gone, and then nobody needs us."""
        try:
            for line in sys.stdin:
                message = json.loads(line)
                if message["op"] == "cancel":
                    self.cancelled.add(message["id"])
                else:
                    self.inbox.put(message)
        finally:  # also after half a message, which an interrupted parent may leave
            os.killpg(0, signal.SIGKILL)

    def serve(self) -> None:
        threading.Thread(target=self.listen, daemon=True).start()
        while True:
            message = self.inbox.get()
            number, op = message.pop("id"), message.pop("op")
            try:
                reply = {"result": getattr(self, f"do_{op}")(tick=self.ticker(number), **message)}
            except CourseError as e:
                reply = {"error": {"kind": type(e).__name__, "message": str(e)}}
            except Exception as e:
                traceback.print_exc()
                reply = {"error": {"kind": "EngineFailed", "message": f"{type(e).__name__}: {e}"}}
            self.send(number, reply)

    def send(self, number: int, reply: dict) -> None:
        self.out.write(json.dumps({"id": number, **reply}) + "\n")
        self.out.flush()

    def ticker(self, number: int) -> Tick:
        last = time.monotonic()

        def tick(tokens: int) -> None:
            nonlocal last
            if number in self.cancelled:
                raise Cancelled("interrupted")
            if time.monotonic() - last > PROGRESS_SECONDS:
                last = time.monotonic()
                self.send(number, {"progress": tokens})

        return tick

    def do_open(self, key: str, config: dict, model: dict, tick: Tick) -> dict:
        settings, files = EngineConfig(**config), ModelFiles(**model)
        if key not in self.engines:
            if settings.engine == "vllm":
                from course_lib.engines.vllm.backend import VLLM

                self.engines[key] = VLLM(settings, files)
            else:
                from course_lib.engines.transformers.backend import Reference

                self.engines[key] = Reference(settings, files)
        return self.engines[key].resolved()

    def do_close(self, key: str, tick: Tick) -> None:
        if engine := self.engines.pop(key, None):
            engine.close()

    def do_tokenise(self, key: str, prompts: list[str], chat: bool, tick: Tick) -> list[list[int]]:
        return self.engines[key].tokenise(prompts, chat)

    def do_run(self, key: str, prompts: list, chat: bool, schedule: dict, sampling: dict, tick: Tick) -> dict:
        engine, how, plan = self.engines[key], Sampling(**sampling), Schedule(**schedule)
        texts = [p if isinstance(p, str) else "" for p in prompts]
        ids = [engine.tokenise([p], chat)[0] if isinstance(p, str) else p for p in prompts]
        check_room(ids, how.max_tokens, engine.resolved()["max_model_len"])
        start = time.perf_counter()
        traces = engine.generate(ids, plan, how, tick)
        seconds = time.perf_counter() - start
        for trace, text, prompt_ids in zip(traces, texts, ids, strict=True):
            trace |= {"prompt": text, "prompt_ids": prompt_ids}
        return {"traces": traces, "seconds": round(seconds, 4)}

    def do_score(self, key: str, prompts: list, answers: list, top_k: int, tick: Tick) -> list[dict]:
        engine = self.engines[key]
        check_room([p + a for p, a in zip(prompts, answers, strict=True)], 1, engine.resolved()["max_model_len"])
        traces = engine.score(prompts, answers, top_k, tick)
        for trace, prompt_ids in zip(traces, prompts, strict=True):
            trace |= {"prompt_ids": prompt_ids, "scored": True}
        return traces


def check_room(ids: list[list[int]], new: int, room: int) -> None:
    for i, prompt in enumerate(ids):
        if not prompt:
            raise PromptError(f"prompt {i} has no tokens")
        if len(prompt) + new > room:
            raise PromptError(
                f"prompt {i} has {len(prompt)} tokens and {new} more are asked for, but the context holds {room}; "
                "shorten it, ask for fewer, or raise max_model_len"
            )


if __name__ == "__main__":
    Server(int(sys.argv[1])).serve()
