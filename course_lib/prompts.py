"""The prompts that the experiments share: 32 open ones, and 40 questions with one short right answer each."""

from __future__ import annotations

import functools
import importlib.resources
from dataclasses import dataclass

import yaml


@dataclass(frozen=True)
class Question:
    """`text` asks, `answer` is right; `accept` holds every spelling that counts, in lower case."""

    text: str
    answer: str
    accept: tuple[str, ...]

    def right(self, reply: str) -> bool:
        """Whether the reply names the answer as a word of its own."""
        words = " ".join("".join(c if c.isalnum() else " " for c in reply.lower()).split())
        return any(f" {a} " in f" {words} " for a in self.accept)


@functools.cache
def _data() -> dict:
    return yaml.safe_load(importlib.resources.files("course_lib").joinpath("data/prompts.yaml").read_text("utf8"))


def open_prompts(n: int = 32) -> tuple[str, ...]:
    """The first n open prompts: explain, tell, list, write, in turn. They were chosen before any of them was run."""
    return tuple(_data()["open"][:n])


def questions(n: int = 40) -> tuple[Question, ...]:
    """The first n questions with a right answer, easy enough for a 135M model to get some of them."""
    rows = _data()["questions"][:n]
    return tuple(Question(q, str(a[0]), tuple(str(x).lower() for x in a)) for q, a in rows)
