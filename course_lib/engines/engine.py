"""`open_engine(config)`: the engine for a configuration, from the pool of those that already run."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Sequence
from typing import Any

from course_lib import hardware
from course_lib.config import EngineConfig, Sampling, Schedule
from course_lib.engines.process import EngineProcess
from course_lib.errors import NotAvailableHere, PromptError, TraceMismatch
from course_lib.models import ModelFiles, resolve_model
from course_lib.trace import Run, Trace

MOST_ENGINES = 3  # alive at once; the one not used for longest makes room

# What each engine process needs besides its configuration, so that two runs differ in nothing else.
_FIXED = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the scheduler runs in step with us: same requests, same batches
    "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION": "1",
    "VLLM_LOGGING_LEVEL": "INFO",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # else the sampler depends on whether FlashInfer can compile here
    "HF_HUB_OFFLINE": "1",  # the files are on disk by now
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
}

_processes: dict[str, EngineProcess] = {}
_engines: dict[str, Engine] = {}  # by digest, least recently used first


class Engine:
    """A model that answers prompts. Made by `open_engine`.

    It is loaded when it is opened. If it had to make room for another, or its process died, the next call loads it
    again, so a variable that holds an engine never goes stale.

    Attributes:
        config: what was asked for.
        resolved: what vLLM made of it: number formats, attention backend, runner, threads, blocks.
    """

    def __init__(self, config: EngineConfig) -> None:
        hardware.require(config)
        self.config = config
        self.model: ModelFiles = resolve_model(config.model, config.revision)
        self._key = config.digest()
        self._load()

    def _load(self) -> None:
        self.process = _process_for(self.config)
        while len(_engines) >= MOST_ENGINES or (_engines and not self._fits()):
            _make_room(keep=self.process)
        hardware.require_memory(self.config)
        self.resolved: dict[str, Any] = self.process.ask(
            "open", key=self._key, config=self.config.model_dump(mode="json"), model=self.model.model_dump(mode="json")
        )
        _engines[self._key] = self

    def _fits(self) -> bool:
        try:
            hardware.require_memory(self.config)
        except NotAvailableHere:
            return False
        return True

    @property
    def loaded(self) -> bool:
        return _engines.get(self._key) is self and self.process.alive

    def touch(self) -> None:
        """Count as used just now, so that others make room first."""
        _engines[self._key] = _engines.pop(self._key)

    def _ask(self, op: str, progress: Callable[[int], None] | None = None, **arguments: Any) -> Any:
        if not self.loaded:
            _engines.pop(self._key, None)
            self._load()
        self.touch()
        return self.process.ask(op, progress, key=self._key, **arguments)

    def run(
        self,
        prompts: Sequence[str] | Sequence[Sequence[int]],
        schedule: Schedule | None = None,
        sampling: Sampling | None = None,
        *,
        chat: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> Run:
        """Generate an answer to each prompt.

        Args:
            prompts: texts, or lists of token ids (a synthetic shape has no tokenizer and takes only ids).
            schedule: who shares a step with whom; all together by default.
            sampling: greedy, 64 tokens by default.
            chat: wrap each text as a user's message in the model's chat template.
            progress: called now and then with the number of tokens generated so far.

        Raises:
            PromptError: no prompts, an empty one, or one that does not fit.
            EngineFailed: the engine's process reported an error or died.
        """
        sent = _checked(prompts)
        schedule, sampling = schedule or Schedule.together(), sampling or Sampling()
        reply = self._ask(
            "run", progress, prompts=sent, chat=chat,
            schedule=schedule.model_dump(mode="json"), sampling=sampling.model_dump(mode="json"),
        )  # fmt: skip
        return Run(
            config=self.config,
            schedule=schedule,
            sampling=sampling,
            traces=tuple(Trace(**t) for t in reply["traces"]),
            resolved=self.resolved,
            seconds=reply["seconds"],
        )

    def score(
        self, traces: Sequence[Trace], *, top_k: int = 5, progress: Callable[[int], None] | None = None
    ) -> list[Trace]:
        """Teacher forcing: what this engine thinks of given answers, one prompt at a time.

        Returns traces with the same token ids, this engine's logprobs for them, and `scored=True`.
        """
        if not traces:
            raise PromptError("no traces to score")
        if any(not t.prompt_ids for t in traces):
            raise PromptError("a trace has no prompt ids: without them nothing can be scored")
        if empty := [i for i, t in enumerate(traces) if not t.token_ids]:
            raise TraceMismatch(f"trace {empty[0]} has no tokens to score")
        reply = self._ask(
            "score", progress, top_k=top_k,
            prompts=[list(t.prompt_ids) for t in traces], answers=[list(t.token_ids) for t in traces],
        )  # fmt: skip
        return [Trace(**t | {"prompt": given.prompt}) for t, given in zip(reply, traces, strict=True)]

    def tokenise(self, prompts: Sequence[str], *, chat: bool = True) -> list[list[int]]:
        """The token ids that `run` would send for these texts."""
        return self._ask("tokenise", prompts=_checked(prompts), chat=chat)

    def close(self) -> None:
        """Free the model's memory; its process stays for other engines of the same environment."""
        if self.loaded:
            self.process.ask("close", key=self._key)
            del _engines[self._key]


def open_engine(config: EngineConfig | None = None) -> Engine:
    """The engine for this configuration: one that already runs, or a new one.

    Raises:
        NotAvailableHere: the model or what it needs is not to be had here.
        EngineFailed: vLLM refused the configuration or died while loading.
    """
    config = config or EngineConfig()
    engine = _engines.get(config.digest())
    if engine is None or not engine.loaded:
        return Engine(config)
    engine.touch()
    return engine


def _make_room(keep: EngineProcess) -> None:
    """Close the engine that was not used for longest, and its process if no other engine needs it."""
    key, oldest = next(iter(_engines.items()))
    oldest.close()
    _engines.pop(key, None)
    if oldest.process is not keep and all(e.process is not oldest.process for e in _engines.values()):
        oldest.process.close()


def _process_for(config: EngineConfig) -> EngineProcess:
    """A process with this configuration's environment. A compiled engine gets one of its own: after others it fails."""
    shared = config.engine, sorted(_numeric_environment(config).items())
    key = repr(shared) if config.enforce_eager else config.digest()
    if key not in _processes or not _processes[key].alive:
        _processes[key] = EngineProcess(environment(config), title=config.engine)
    return _processes[key]


def environment(config: EngineConfig) -> dict[str, str]:
    """The whole environment of an engine's process: ours, without the variables that only a configuration may set."""
    ours = {
        k: v for k, v in os.environ.items() if k not in hardware.NUMERIC_VARIABLES and k != "PYTHONDONTWRITEBYTECODE"
    }
    return ours | _FIXED | _numeric_environment(config)


def _numeric_environment(config: EngineConfig) -> dict[str, str]:
    env = config.env()
    if not hardware.has_gpu():
        env["CUDA_VISIBLE_DEVICES"] = ""  # with COURSE_DEVICE=cpu there is one, and it must stay out of it
    if config.enforce_eager and not hardware.has_gpu():
        env["TORCHDYNAMO_DISABLE"] = "1"  # eager vLLM still compiles a helper of its sampler, for 12 seconds
    return env


def shutdown_engines() -> None:
    """End every engine process. Called at exit; a killed parent does not need it, the children notice."""
    _engines.clear()
    for process in _processes.values():
        process.close()
    _processes.clear()


atexit.register(shutdown_engines)


def _checked(prompts: Sequence[Any]) -> list[Any]:
    if isinstance(prompts, str):
        raise PromptError("prompts is one string; give a list of prompts, even for one")
    if not len(prompts):
        raise PromptError("no prompts were given")
    for i, p in enumerate(prompts):
        if isinstance(p, str) and not p.strip():
            raise PromptError(f"prompt {i} is empty")
        if not isinstance(p, str) and not (isinstance(p, Sequence) and all(isinstance(t, int) for t in p)):
            raise PromptError(f"prompt {i} is {p!r:.60}; give a text, or a list of token ids")
    return [p if isinstance(p, str) else list(p) for p in prompts]
