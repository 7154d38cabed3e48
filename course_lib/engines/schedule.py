"""From a `Schedule` to arrivals: which request reaches the engine in which wave and at which step."""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.config import Schedule


@dataclass(frozen=True)
class Arrival:
    """One request. A wave's first step is 0; a wave starts when the one before it has finished."""

    prompt: int
    ids: list[int]
    step: int = 0
    watched: bool = True


def arrivals(ids: list[list[int]], schedule: Schedule) -> list[list[Arrival]]:
    """The waves of a schedule. `padded` fills up with the other prompts in turn, or with copies of a lone one."""
    everyone = [Arrival(i, prompt) for i, prompt in enumerate(ids)]
    if schedule.kind == "staggered":
        assert schedule.gap is not None
        return [[Arrival(a.prompt, a.ids, step=a.prompt * schedule.gap) for a in everyone]]
    if schedule.kind == "padded":
        assert schedule.size is not None
        return [[a, *_neighbours(everyone, a.prompt, schedule.size - 1)] for a in everyone]
    size = schedule.size or len(everyone)
    return [everyone[i : i + size] for i in range(0, len(everyone), size)]


def _neighbours(everyone: list[Arrival], prompt: int, count: int) -> list[Arrival]:
    others = [a for a in everyone if a.prompt != prompt] or everyone
    return [Arrival(a.prompt, a.ids, watched=False) for a in (others[i % len(others)] for i in range(count))]
