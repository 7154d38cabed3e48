"""Every exercise can be answered, every misconception can be met, and no answer breaks a notebook."""

import itertools

import numpy as np
import pytest

from course_lib import exercises
from course_lib.errors import ConfigError
from course_lib.exercises import answer, close_to, one_of

ALL = exercises.exercises()
CHAPTERS = {n: e for n, e in ALL.items() if n.startswith("ch")}

# For tests that are neither `one_of` nor `close_to`: values to try. Add to it what a new exercise needs.
TRIES = [
    *range(-20, 300),
    *(10.0**k for k in range(-9, 10)),
    *("".join(c) for n in range(6) for c in itertools.combinations("abcde", n)),
    *("".join(c) for n in (6, 7, 8) for c in itertools.combinations("abcdefgh", n)),
    *([*p] for p in itertools.permutations(range(6))),
]

STRANGE = [
    None, True, "", "x", "🙂" * 1000, b"\x00", -1, 0, 10**400, float("nan"), float("inf"), 1j, [], [None], {}, {1: 2},
    set(), object(), len, lambda *a: 1 / 0, np.array([1, 2]), np.float32(1), np.array("x"), range(3), iter([]), "1e999",
]  # fmt: skip


def examples(test) -> list:
    """Values on which a test may hold: those that it was made of, else whatever might."""
    held = dict(zip(test.__code__.co_freevars, (c.cell_contents for c in test.__closure__ or ()), strict=True))
    if "plain" in held:
        return held["plain"]
    return [held["target"]] if "target" in held else TRIES


def replies(name: str, test) -> list[exercises.Reply]:
    return [answer(name, value) for value in examples(test)]


@pytest.mark.parametrize("name", ALL)
def test_an_exercise_has_a_hint_and_praise_and_says_who_it_is(name):
    e = ALL[name]
    assert e.name == name and name[:2] in ("ch", "la")
    texts = [e.hint, e.praise, *(says for _, says in e.misconceptions)]
    assert all(len(t) > 15 and t.strip() == t for t in texts)
    assert len(set(texts)) == len(texts), "each misconception has something of its own to say"


@pytest.mark.parametrize("name", ALL)
def test_unanswered_is_open_and_gives_the_hint(name):
    reply = answer(name, ...)
    assert reply.kind == "open" and ALL[name].hint in reply.text


@pytest.mark.parametrize("name", ALL)
def test_a_strange_answer_is_no_error_and_not_right(name):
    for value in STRANGE:
        kind = answer(name, value).kind
        assert kind in ("wrong", "misconception", "right")
        if not isinstance(value, (int, float, np.number, str)):
            assert kind != "right", value


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_right_answer_is_right(name):
    found = replies(name, CHAPTERS[name].right)
    assert any(r.kind == "right" for r in found), "no value in TRIES is right: add one"
    assert any(CHAPTERS[name].praise in r.text for r in found)


@pytest.mark.parametrize("name, i", [(n, i) for n, e in CHAPTERS.items() for i in range(len(e.misconceptions))])
def test_a_misconception_is_met_by_its_own_words(name, i):
    """Not hidden by the right answer or by one that is tried before it."""
    recognises, says = CHAPTERS[name].misconceptions[i]
    assert any(r.kind == "misconception" and says in r.text for r in replies(name, recognises)), "never met"


def test_an_unknown_exercise_is_met_with_its_neighbours():
    name = next(iter(ALL))
    with pytest.raises(ConfigError, match=f"no exercise is called '{name}x'; there is .*{name}"):
        answer(name + "x", 1)


def test_close_to():
    assert close_to(10)(10.1) and close_to(10)("9.9") and not close_to(10)(11)
    assert close_to(0)(0) and not close_to(0)(1e-9)
    assert not close_to(1)(float("nan"))


def test_one_of():
    assert one_of("Yes", 2)(" yES ") and one_of("Yes", 2)(2) and not one_of("Yes")("y")
    assert one_of(2)(2.0) and not one_of(2)("2")
