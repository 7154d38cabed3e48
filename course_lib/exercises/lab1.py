"""Lab 1, measuring: the learner hands in functions, and each is tried on small cases with a known answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_lib.exercises import Exercise
from course_lib.i18n import N_
from course_lib.measures import wilson

EMPTY = N_("Your function returns None. Replace the `...` in the cell above, run it, and then run this cell again.")

FORKS = [
    ([1, 2, 3], [1, 9, 3], 1),
    ([7], [8], 0),
    ([1, 2], [1, 2], None),
    ([1, 2], [1, 2, 3], 2),
    ([1, 2, 3], [1, 2], 2),
]
IDS = ([1, 2, 3, 4], [1, 2, 9, 4])
LOGPROBS = ([-1.0, -2.0, -0.5, -0.5], [-1.5, -2.25, -3.0, -0.5])
RATES = [(0, 8), (2, 8), (8, 8), (52, 164)]


def on(*arguments: Any, gives: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A test of a function: what it gives for these arguments."""
    return lambda function: gives(function(*arguments))


def near(target: float | list[float] | tuple[float, ...], by: float = 1e-3) -> Callable[[Any], bool]:
    """A test: a number, or a list of as many numbers, within `by` of the target."""
    if isinstance(target, (list, tuple)):
        return lambda value: (
            len(value) == len(target) and all(abs(v - t) <= by for v, t in zip(value, target, strict=True))
        )
    return lambda value: value is not None and abs(value - target) <= by


def _finds_forks(function: Callable[..., Any]) -> bool:
    return all(function(a, b) == fork for a, b, fork in FORKS)


def _intervals(function: Callable[..., Any]) -> bool:
    return all(near(wilson(k, n))(function(k, n)) for k, n in RATES)


def _normal(k: int, n: int) -> tuple[float, float]:
    rate, half = k / n, 1.96 * (k / n * (1 - k / n) / n) ** 0.5
    return rate - half, rate + half


# (largest drift in reruns, forks in reruns, drift of the effect, forks of the effect, prompts) -> a finding?
DECISIONS = [
    ((0.0, 0, 0.0, 0, 16), False),
    ((0.0, 0, 1e-7, 0, 16), True),
    ((0.05, 0, 0.02, 0, 16), False),
    ((0.05, 0, 0.2, 0, 16), True),
    ((0.05, 2, 0.04, 3, 16), False),
    ((0.05, 0, 0.04, 9, 16), True),
    ((0.05, 1, 0.04, 2, 16), False),
]


def _decides(function: Callable[..., Any]) -> bool:
    return all(function(*case) is finding for case, finding in DECISIONS)


EXERCISES = [
    Exercise(
        name="lab1-fork",
        right=_finds_forks,
        praise=N_("It finds a fork in the middle, at the start, at a shorter list's end, and None if there is none."),
        hint=N_("Walk through both lists at once. Then think of lists that are equal, and of one that ends early."),
        misconceptions=(
            (on([1, 2], [1, 9], gives=lambda v: v is None), EMPTY),
            (
                on([1, 2, 3], [1, 9, 3], gives=lambda v: v == 2),
                N_("You count from 1, or you return the first position after the fork. The first token is number 0."),
            ),
            (
                on([1, 2], [1, 2, 3], gives=lambda v: v is None),
                N_("[1, 2] and [1, 2, 3] differ: one answer stopped. `zip` ends silently with the shorter list."),
            ),
            (
                on([1, 2], [1, 2], gives=lambda v: v == 2),
                N_("Equal lists have no fork. Return None, so that nobody mistakes their length for one."),
            ),
        ),
    ),
    Exercise(
        name="lab1-drift",
        right=on(*IDS, *LOGPROBS, gives=near([-0.5, -0.25])),
        praise=N_("b minus a, token by token, and nothing from the fork on."),
        hint=N_("Use your first_fork. How many tokens do both answers have in common?"),
        misconceptions=(
            (on(*IDS, *LOGPROBS, gives=lambda v: v is None), EMPTY),
            (
                on(*IDS, *LOGPROBS, gives=near([-0.5, -0.25, -2.5, 0.0])),
                N_("You ran past the fork. There the two numbers belong to different tokens in different texts."),
            ),
            (
                on(*IDS, *LOGPROBS, gives=near([-0.5, -0.25, -2.5])),
                N_("At the fork the tokens themselves differ, so their logprobs are no pair. Stop one earlier."),
            ),
            (on(*IDS, *LOGPROBS, gives=near([0.5, 0.25])), N_("The sign is wrong: b is what changed, so b - a.")),
        ),
    ),
    Exercise(
        name="lab1-wilson",
        right=_intervals,
        praise=N_("It stays inside 0 to 1 and has a width even where nothing was seen."),
        hint=N_("The centre is (k + z²/2) / (n + z²). Try k = 0, n = 8: the upper end is nearly a third."),
        misconceptions=(
            (on(2, 8, gives=lambda v: v is None), EMPTY),
            (
                on(2, 8, gives=near(_normal(2, 8), 2e-3)),
                N_("That is the normal approximation, p ± z √(p(1-p)/n). For 0 of 8 it says that nothing ever forks."),
            ),
            (
                lambda f: near(wilson(2, 8, 0.9), 2e-3)(f(2, 8)),
                N_("Your z is 1.645, which leaves 5 % on each side. A 95 % interval leaves 2.5 %: z = 1.96."),
            ),
            (
                lambda f: near([100 * v for v in wilson(2, 8)], 0.2)(f(2, 8)),
                N_("You return per cent. Return the rates themselves, between 0 and 1."),
            ),
        ),
    ),
    Exercise(
        name="lab1-finding",
        right=_decides,
        praise=N_("Above the floor in drift, or in forks beyond what reruns allow: that is a finding, however small."),
        hint=N_("Two ways to exceed it: a larger drift, or a fork rate above the upper end of the reruns' interval."),
        misconceptions=(
            (on(0.0, 0, 1e-7, 0, 16, gives=lambda v: v is None), EMPTY),
            (
                lambda f: f(0.0, 0, 1e-7, 0, 16) is False and f(0.05, 0, 0.2, 0, 16) is True,
                N_("You use a tolerance. Where reruns are bit-identical the floor is zero, and 1e-7 is a finding."),
            ),
            (
                lambda f: f(0.0, 0, 1e-7, 0, 16) is False and f(0.05, 0, 0.04, 9, 16) is True,
                N_("You look at forks alone. A drift above the floor is a finding even where no token changes."),
            ),
            (
                on(0.05, 2, 0.04, 3, 16, gives=lambda v: v is True),
                N_("3 forks of 16 against 2 in reruns is well within the interval. Compare with its upper end."),
            ),
        ),
    ),
]  # fmt: skip
