"""The exercises' answers: one file per chapter or lab, each a list of `Exercise`. `check` in a notebook asks here.

A wrong answer that shows a known misconception is met by name; any other gets the hint.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from course_lib.errors import ConfigError
from course_lib.i18n import _


@dataclass(frozen=True)
class Exercise:
    """One question.

    Attributes:
        name: what the notebook calls it, e.g. "ch05-first-fork".
        right: whether an answer is right.
        praise: what a right answer shows.
        misconceptions: (recognises, says) pairs, tried in order on a wrong answer.
        hint: for every other wrong answer, and for none at all.
    """

    name: str
    right: Callable[[Any], bool]
    praise: str
    hint: str
    misconceptions: tuple[tuple[Callable[[Any], bool], str], ...] = ()


@dataclass(frozen=True)
class Reply:
    """What `check` answers."""

    kind: Literal["open", "right", "misconception", "wrong"]
    text: str


@functools.cache
def exercises() -> dict[str, Exercise]:
    """All exercises, by name."""
    modules = [importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)]
    return {e.name: e for m in modules for e in m.EXERCISES}


def answer(name: str, value: Any) -> Reply:
    """The reply to an answer. `...` means "not answered yet". An answer of the wrong type is wrong, not an error.

    Raises:
        ConfigError: no exercise has this name.
    """
    if name not in exercises():
        near = difflib.get_close_matches(name, exercises(), n=3) or sorted(exercises())
        raise ConfigError(f"no exercise is called '{name}'; there is {', '.join(near)}")
    exercise = exercises()[name]
    if value is ...:
        return Reply("open", _("Not answered yet. Hint: {hint}").format(hint=_(exercise.hint)))
    if _holds(exercise.right, value):
        return Reply("right", _("Right. {praise}").format(praise=_(exercise.praise)))
    for recognises, says in exercise.misconceptions:
        if _holds(recognises, value):
            return Reply("misconception", _("Not quite. {why}").format(why=_(says)))
    return Reply("wrong", _("No. Hint: {hint}").format(hint=_(exercise.hint)))


def _holds(test: Callable[[Any], bool], value: Any) -> bool:
    try:
        return bool(test(value))
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError):
        return False


def close_to(target: float, relative: float = 0.02) -> Callable[[Any], bool]:
    """A test: the answer is a number within `relative` of the target."""
    return lambda value: abs(float(value) - target) <= relative * abs(target)


def one_of(*accepted: Any) -> Callable[[Any], bool]:
    """A test: the answer is one of these; text is compared without case and spaces at the ends."""
    plain = [a.strip().lower() if isinstance(a, str) else a for a in accepted]
    return lambda value: (value.strip().lower() if isinstance(value, str) else value) in plain
