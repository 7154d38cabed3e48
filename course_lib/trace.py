"""`Trace`: what one request got back, token by token. `Run`: the traces of one engine under one schedule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from course_lib.config import EngineConfig, Sampling, Schedule
from course_lib.errors import ConfigError, EvidenceMismatch
from course_lib.files import write_atomically


class Record(BaseModel):
    """A frozen value that is written to and read from JSON, and that refuses fields which it does not know.

    JSON has no nan and no infinity: they are written as the strings "NaN" and "-Infinity", and read back as they were.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), ser_json_inf_nan="strings")

    def save(self, path: str | Path) -> Path:
        """Write as JSON, whole or not at all."""
        return write_atomically(path, self.model_dump_json(indent=None))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote.

        Raises:
            EvidenceMismatch: the file is missing, damaged, or not of this kind.
        """
        try:
            data = json.loads(Path(path).read_text(encoding="utf8"))
        except OSError as e:
            raise EvidenceMismatch(f"{path}: cannot be read ({e.strerror})") from e
        except ValueError as e:
            raise EvidenceMismatch(f"{path}: damaged ({e}). Record it again.") from e
        return cls.from_data(data, path)

    @classmethod
    def from_data(cls, data: Any, source: str | Path) -> Self:
        """The value that plain JSON data describe; `source` is named when they do not."""
        try:
            return cls.model_validate(data)
        except (ValidationError, ConfigError) as e:
            first = e.errors()[0] if isinstance(e, ValidationError) else {"loc": (), "msg": str(e)}
            where = ".".join(str(p) for p in first["loc"]) or "the file"
            raise EvidenceMismatch(f"{source}: not a {cls.__name__} ({where}: {first['msg']}). Record it again.") from e


class Trace(Record):
    """One request's answer, of T tokens.

    Attributes:
        prompt: the text as it was given, before any chat template; empty where token ids were given.
        prompt_ids: the token ids that the model saw, template included.
        token_ids: T generated (or, when `scored`, given) token ids.
        tokens: T strings, each token's own text, for display; not for comparison.
        logprobs: T natural logarithms, the probability of each token in `token_ids`. -inf is a probability of zero, nan
            what a broken model gives; both are kept, for they are findings.
        top: for each token the most likely (id, logprob) pairs, best first. Empty tuples where an engine gives none.
        finish_reason: "length", "stop", or None.
        step_requests, step_tokens: for each token, how many requests and how many tokens in all the engine computed in
            the step that produced it. Empty where an engine does not say.
        scored: the tokens were given, not generated (teacher forcing).
    """

    prompt: str = ""
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    tokens: tuple[str, ...] = ()
    logprobs: tuple[float, ...] = ()
    top: tuple[tuple[tuple[int, float], ...], ...] = ()
    finish_reason: str | None = None
    step_requests: tuple[int, ...] = ()
    step_tokens: tuple[int, ...] = ()
    scored: bool = False

    @model_validator(mode="after")
    def _same_length(self) -> Trace:
        n = len(self.token_ids)
        for name in ("tokens", "logprobs", "top", "step_requests", "step_tokens"):
            if len(getattr(self, name)) not in (0, n):
                raise ValueError(f"{name} has {len(getattr(self, name))} entries for {n} tokens")
        return self

    @property
    def text(self) -> str:
        return "".join(self.tokens)

    def margins(self) -> list[float]:
        """T gaps in nats between the most likely and the second most likely token. nan where unknown."""
        return [t[0][1] - t[1][1] if len(t) > 1 else float("nan") for t in self.top]

    def slim(self, k: int = 2) -> Trace:
        """The same trace with only the k best alternatives for each token, to keep a record small."""
        return self.model_copy(update={"top": tuple(t[:k] for t in self.top)})


class Run(Record):
    """The traces of one engine under one schedule, in the order of the prompts, and what the engine really was.

    Attributes:
        resolved: what ran, not what was asked: number formats, attention backend, runner class, threads, blocks.
        seconds: wall time of the generation alone, engine start and warm-up excluded.
    """

    config: EngineConfig
    schedule: Schedule
    sampling: Sampling
    traces: tuple[Trace, ...]
    resolved: dict[str, Any]
    seconds: float
