"""Which request reaches the engine in which wave and at which step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.config import Schedule
from course_lib.engines.schedule import arrivals


def ids(n):
    return [[i, i + 100] for i in range(n)]


def shape(waves):
    """Per wave, (prompt, step) of the watched, and the prompts of the neighbours."""
    return [([(a.prompt, a.step) for a in w if a.watched], [a.prompt for a in w if not a.watched]) for w in waves]


def test_alone():
    assert shape(arrivals(ids(3), Schedule.alone())) == [([(0, 0)], []), ([(1, 0)], []), ([(2, 0)], [])]


def test_together():
    assert shape(arrivals(ids(3), Schedule.together())) == [([(0, 0), (1, 0), (2, 0)], [])]


def test_groups_are_consecutive_and_the_last_may_be_smaller():
    waves = arrivals(ids(5), Schedule.groups(2))
    assert [[a.prompt for a in w] for w in waves] == [[0, 1], [2, 3], [4]]
    assert [[a.prompt for a in w] for w in arrivals(ids(2), Schedule.groups(8))] == [[0, 1]]


def test_padded_gives_each_prompt_a_wave_with_the_others_as_neighbours():
    assert shape(arrivals(ids(3), Schedule.padded(3))) == [
        ([(0, 0)], [1, 2]),
        ([(1, 0)], [0, 2]),
        ([(2, 0)], [0, 1]),
    ]


def test_padding_beyond_the_prompts_takes_them_in_turn():
    assert shape(arrivals(ids(3), Schedule.padded(6)))[1] == ([(1, 0)], [0, 2, 0, 2, 0])
    assert shape(arrivals(ids(1), Schedule.padded(3))) == [([(0, 0)], [0, 0])]
    assert shape(arrivals(ids(2), Schedule.padded(1))) == [([(0, 0)], []), ([(1, 0)], [])]


def test_staggered_adds_one_every_gap_steps():
    assert shape(arrivals(ids(4), Schedule.staggered(3))) == [([(0, 0), (1, 3), (2, 6), (3, 9)], [])]


schedules = st.one_of(
    st.integers(1, 9).map(Schedule.groups),
    st.just(Schedule.together()),
    st.integers(1, 9).map(Schedule.padded),
    st.integers(1, 9).map(Schedule.staggered),
)


@given(st.integers(1, 12), schedules)
def test_every_prompt_is_watched_once_in_order_and_with_its_own_ids(n, schedule):
    prompts = ids(n)
    waves = arrivals(prompts, schedule)
    assert [a.prompt for w in waves for a in w if a.watched] == list(range(n))
    assert all(a.ids == prompts[a.prompt] for w in waves for a in w)
    if schedule.kind == "groups":
        assert all(len(w) <= (schedule.size or n) for w in waves)
    if schedule.kind == "padded":
        assert [len(w) for w in waves] == [schedule.size] * n


@pytest.mark.parametrize("schedule", [Schedule.alone(), Schedule.groups(2), Schedule.padded(2), Schedule.staggered(2)])
def test_waves_start_at_step_0(schedule):
    assert all(w[0].step == 0 for w in arrivals(ids(3), schedule))
