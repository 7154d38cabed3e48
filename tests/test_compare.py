"""What the metrics say about traces whose difference is known: by hand, and against independent calculations."""

import itertools
import json
import math
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from course_lib import compare
from course_lib.compare import (
    Comparison,
    Divergence,
    ScoreComparison,
    ScoreDelta,
    changed_answers,
    compare_runs,
    compare_scores,
    div_index,
    divergence,
    noise_floor,
    perplexity,
    repetition,
    score_delta,
    unique_completions,
)
from course_lib.config import EngineConfig, Sampling, Schedule
from course_lib.errors import ConfigError, EvidenceMismatch, TraceMismatch
from course_lib.measures import bootstrap, compare_tops, edit_distance, mcnemar, ngram_overlap, wilson
from course_lib.trace import Run, Trace

NAN, INF = float("nan"), float("inf")
ids = st.lists(st.integers(0, 3), max_size=12)
any_ids = st.lists(st.one_of(st.integers(0, 3), st.integers(0, 2**40)), max_size=12)


def trace(token_ids, logprobs=None, top=None, **kw):
    """A trace with words t0, t1 … and, by default, a logprob of -0.5 and two alternatives for each token."""
    n = len(token_ids)
    top = [[(i, -0.5), (i + 1000, -1.5)] for i in token_ids] if top is None else top
    fields = {"prompt_ids": (1, 2, 3), "tokens": tuple(f"t{i} " for i in token_ids)} | kw
    return Trace(token_ids=token_ids, logprobs=[-0.5] * n if logprobs is None else logprobs, top=top, **fields)


def run(*traces):
    return Run(config=EngineConfig(), schedule=Schedule(), sampling=Sampling(), traces=traces, resolved={}, seconds=1.0)


def bare(token_ids):
    """What an endpoint gives that reports no logprobs."""
    return Trace(prompt_ids=(1,), token_ids=token_ids)


# --- one pair, by hand


def test_a_fork_by_hand():
    a = trace(
        [5, 6, 7, 8, 9],
        logprobs=[-0.1, -0.2, -0.3, -9, -9],
        top=[[(5, -0.1), (1, -3)], [(6, -0.2), (1, -2)], [(7, -0.3), (70, -0.35)], [(8, -9)], [(9, -9)]],
    )
    b = trace(
        [5, 6, 70, 8],
        logprobs=[-0.1, -0.25, -0.2, -1],
        top=[[(5, -0.1), (1, -3)], [(6, -0.25), (2, -2)], [(70, -0.2), (7, -0.4)], [(8, -1)]],
    )
    d = divergence(a, b)
    assert (d.n_a, d.n_b, d.first, d.exact, d.identical) == (5, 4, 2, False, False)
    assert (d.id_a, d.id_b, d.token_a, d.token_b) == (7, 70, "t7 ", "t70 ")
    assert (d.rank_of_b_in_a, d.rank_of_a_in_b) == (2, 2)
    assert d.dlogprob == pytest.approx((0, -0.05)) and d.positions_differing == 1
    assert d.max_abs_dlogprob == pytest.approx(0.05)
    assert d.mean_abs_dlogprob == pytest.approx(0.025) and d.mean_dlogprob == pytest.approx(-0.025)
    assert d.margins_a == pytest.approx((2.9, 1.8, 0.05)) and d.margins_b == pytest.approx((2.9, 1.75, 0.2))
    assert d.margin_a == pytest.approx(0.05) and d.margin_b == pytest.approx(0.2)
    assert d.edit_distance == 2 and d.edit_similarity == pytest.approx(1 - 2 / 5)  # 7 becomes 70, 9 goes
    assert d.ngram_overlap == 0  # 5 6 7 8, 6 7 8 9 against 5 6 70 8
    assert d.top_k_overlap == pytest.approx((1 + 1 / 3 + 1) / 3)
    assert d.top_1_agreement == pytest.approx(2 / 3)


def test_the_same_answer_is_identical():
    d = divergence(trace([4, 5, 6]), trace([4, 5, 6]))
    assert d.exact and d.identical and d.first is None
    assert (d.id_a, d.id_b, d.token_a, d.margin_a, d.rank_of_b_in_a) == (None,) * 5
    assert d.dlogprob == (0, 0, 0) and d.margins_a == d.margins_b == (1, 1, 1)
    assert (d.max_abs_dlogprob, d.mean_abs_dlogprob, d.positions_differing, d.kl_max, d.kl_mean) == (0,) * 5
    assert (d.edit_distance, d.edit_similarity, d.ngram_overlap, d.top_k_overlap, d.top_1_agreement) == (0, 1, 1, 1, 1)


def test_an_answer_that_stops_early_forks_where_it_stops():
    short, long = trace([4, 5]), trace([4, 5, 6])
    d = divergence(short, long)
    assert (d.first, d.id_a, d.id_b, d.token_a, d.token_b) == (2, None, 6, None, "t6 ")
    assert (d.margin_a, d.margin_b, d.margins_a, d.margins_b) == (None, 1, (1, 1), (1, 1, 1))
    assert d.edit_distance == 1 and len(d.dlogprob) == 2 and d.top_k_overlap == 1
    assert divergence(long, short).first == 2


def test_a_fork_at_the_first_token_has_no_drift_but_a_distribution():
    a = trace([4], top=[[(4, math.log(0.6)), (5, math.log(0.4))]])
    b = trace([5], top=[[(5, math.log(0.5)), (4, math.log(0.5))]])
    d = divergence(a, b)
    assert d.first == 0 and d.dlogprob == () and d.positions_differing == 0
    assert d.max_abs_dlogprob is d.mean_abs_dlogprob is None
    assert d.kl_max == pytest.approx(0.6 * math.log(0.6 / 0.5) + 0.4 * math.log(0.4 / 0.5), abs=1e-5)


def test_empty_answers_compare():
    nothing, something = trace([]), trace([4])
    d = divergence(nothing, nothing)
    assert d.exact and d.identical and d.edit_similarity == 1 and d.ngram_overlap == 1
    assert d.dlogprob == () and d.max_abs_dlogprob is d.kl_max is d.margins_a is None
    d = divergence(nothing, something)
    assert (d.first, d.edit_distance, d.edit_similarity, d.id_b) == (0, 1, 0, 4)
    assert score_delta(nothing, nothing).perplexity_a is None and math.isnan(perplexity(nothing))


def test_what_is_not_reported_is_none():
    d = divergence(bare([4, 5]), bare([4, 6]))
    assert d.first == 1 and d.edit_distance == 1
    known = {"n_a", "n_b", "first", "id_a", "id_b", "edit_distance", "edit_similarity", "ngram_overlap"}
    assert set(d.model_dump(exclude_none=True)) == known
    assert not divergence(bare([4]), bare([4])).identical, "without logprobs nothing proves bit identity"
    # one side only: its own margins are known, nothing else is
    d = divergence(trace([4, 5], prompt_ids=(1,)), bare([4, 6]))
    assert d.margins_a == (1, 1) and d.margin_a == 1
    assert d.margins_b is d.margin_b is d.dlogprob is d.kl_max is d.rank_of_a_in_b is None


def test_nan_and_impossible_logprobs():
    a = trace([4, 5, 6, 7, 8], logprobs=[-1, NAN, -INF, -INF, -1])
    b = trace([4, 5, 6, 7, 8], logprobs=[-1, -1, -INF, -1, -9999])
    d = divergence(a, b)
    assert d.dlogprob == (0, None, 0, 9998, -9998)
    assert d.positions_differing == 3 and not d.identical
    assert d.max_abs_dlogprob == 9998 and d.mean_abs_dlogprob == 2 * 9998 / 4
    same = divergence(a, a)
    assert same.positions_differing == 0 and same.identical, "the same nan is the same bits"
    assert divergence(trace([4], logprobs=[NAN]), trace([4])).max_abs_dlogprob is None


def test_margins_of_short_lists_are_unknown():
    d = divergence(trace([4, 5, 6], top=[[(4, -1)], [], [(6, -1), (7, -INF)]]), trace([4, 5, 6]))
    assert d.margins_a == (None, None, 9998) and d.margins_b == (1, 1, 1)
    alike = trace([4, 5, 6], top=[[(4, -1)], [], [(6, -1), (7, -INF)]])
    d = divergence(alike, alike)
    assert d.margins_a == (None, None, 9998) and d.top_k_overlap == 1 and d.kl_max == 0


def test_margins_agree_with_the_trace():
    a = trace([4, 5], top=[[(4, -0.25), (5, -3.75), (6, -4)], [(5, -1.5), (9, -1.5)]])
    assert list(divergence(a, trace([4, 5])).margins_a) == a.margins()


# --- planted perturbations: each metric sees what it should and is blind to the rest

CALM = trace(range(40), logprobs=np.linspace(-1, -0.1, 40).tolist())


def changed(**kw):
    return Trace.model_validate(CALM.model_dump() | kw)


def test_blind_to_text_steps_and_reasons():
    steps = {"step_requests": (8,) * 40, "step_tokens": (99,) * 40}
    other = changed(tokens=("x",) * 40, finish_reason="stop", prompt="y", **steps)
    assert divergence(CALM, other).identical


def test_one_ulp_is_seen_and_counted_once():
    logprobs = list(CALM.logprobs)
    logprobs[7] = math.nextafter(logprobs[7], 0)
    d = divergence(CALM, changed(logprobs=logprobs))
    assert d.exact and not d.identical
    assert d.positions_differing == 1 and 0 < d.max_abs_dlogprob < 1e-15
    assert d.kl_max == 0, "the reported distributions are untouched"


def test_the_sign_of_zero_is_a_bit():
    d = divergence(trace([1], logprobs=[0.0]), trace([1], logprobs=[-0.0]))
    assert d.positions_differing == 1 and d.max_abs_dlogprob == 0


def test_a_steady_offset_shows_in_the_signed_mean_and_noise_does_not():
    offset = divergence(CALM, changed(logprobs=[x - 0.25 for x in CALM.logprobs]))
    assert offset.mean_dlogprob == pytest.approx(-0.25) and offset.mean_abs_dlogprob == pytest.approx(0.25)
    noise = divergence(CALM, changed(logprobs=[x + 0.25 * (-1) ** i for i, x in enumerate(CALM.logprobs)]))
    assert noise.mean_dlogprob == pytest.approx(0) and noise.mean_abs_dlogprob == pytest.approx(0.25)


def test_a_flip_of_the_best_token_without_a_fork():
    top = [list(t) for t in CALM.top]
    top[3] = [(1003, -0.5), (3, -0.5)]
    d = divergence(CALM, changed(top=top))
    assert d.exact and d.top_1_agreement == pytest.approx(39 / 40) and d.top_k_overlap == 1 and d.max_abs_dlogprob == 0


def test_what_follows_the_fork_counts_in_edits_and_ngrams_only():
    late = changed(token_ids=[*range(30), 900, *range(31, 40)])
    early = changed(token_ids=[*range(30), 900, *range(901, 910)], logprobs=[*CALM.logprobs[:30], *[-7.0] * 10])
    d, e = divergence(CALM, late), divergence(CALM, early)
    assert d.first == e.first == 30 and d.edit_distance == 1 and e.edit_distance == 10
    assert d.ngram_overlap == pytest.approx(33 / 37) and e.ngram_overlap == pytest.approx(27 / 37)
    assert d.dlogprob == e.dlogprob == (0,) * 30 and d.kl_max == e.kl_max


def test_an_inserted_token_and_a_moved_passage():
    inserted = trace([77, *range(40)])
    d = divergence(CALM, inserted)
    assert d.first == 0 and d.edit_distance == 1 and d.ngram_overlap == pytest.approx(2 * 37 / 75)
    moved = trace([*range(20, 40), *range(20)])
    d = divergence(CALM, moved)
    assert d.edit_distance == 40 and d.ngram_overlap == pytest.approx(34 / 37), "n-grams do not mind the order"


# --- prompts


def test_different_prompts_are_refused_with_the_place():
    with pytest.raises(TraceMismatch, match=r"3 and 3 tokens differ at index 1: id 2 against id 9.*chat template, BOS"):
        divergence(trace([1]), trace([1], prompt_ids=(1, 9, 3)))
    with pytest.raises(TraceMismatch, match="3 and 2 tokens differ at index 2: id 3 against no more"):
        divergence(trace([1]), trace([1], prompt_ids=(1, 2)))
    assert divergence(trace([1], prompt="a"), trace([1], prompt="b")).identical, "with ids, the text does not count"
    with pytest.raises(TraceMismatch, match="no prompt ids, and the texts differ: 'a' against 'b'"):
        divergence(trace([1], prompt_ids=(), prompt="a"), trace([1], prompt_ids=(), prompt="b"))


# --- runs


def test_runs_by_hand():
    a = run(trace([1, 2, 3]), trace([4, 5]), trace([6, 7]))
    b = run(trace([1, 2, 9]), trace([4, 5], logprobs=[-0.5, -0.75]), trace([6, 7]))
    c = compare_runs(a, b)
    assert (c.n, c.forks, c.first_forks, c.identical) == (3, 1, [2, None, None], False)
    assert c.fork_rate == pytest.approx(1 / 3) and c.exact_match_rate == pytest.approx(2 / 3)
    assert c.fork_rate_interval() == wilson(1, 3)
    assert c.max_abs_dlogprob == 0.25 and c.mean_abs_dlogprob == pytest.approx((0 + 0.125 + 0) / 3)
    low, high = c.mean_abs_dlogprob_interval()
    assert 0 <= low <= c.mean_abs_dlogprob <= high <= 0.125
    assert c.kl_max == c.divergences[0].kl_max > 0 and c.kl_mean == pytest.approx(c.divergences[0].kl_mean / 3)
    assert compare_runs(a, a).identical and compare_runs(a.traces, list(a.traces)).identical
    rows = c.table()
    assert [r["prompt"] for r in rows] == [0, 1, 2] and rows[0]["token_b"] == "t9 " and "dlogprob" not in rows[0]
    figures = c.figures()
    assert (figures["n"], figures["forks"], figures["first_fork"], figures["max_fork_margin"]) == (3, 1, 2, 1)
    assert figures["positions_differing"] == 1 and figures["identical"] is False
    assert json.loads(json.dumps(figures)) == figures


def test_equal_ids_with_other_numbers_are_not_identical():
    a, b = run(trace([1, 2])), run(trace([1, 2], logprobs=[-0.5, -0.5 + 1e-16]))
    c = compare_runs(a, b)
    assert c.exact_match_rate == 1 and not c.identical


def test_runs_without_logprobs_have_forks_only():
    c = compare_runs([bare([1, 2])], [bare([1, 3])])
    assert c.forks == 1 and not c.identical
    assert c.max_abs_dlogprob is c.mean_abs_dlogprob is c.kl_mean is c.kl_max is c.mean_abs_dlogprob_interval() is None
    assert c.figures()["positions_differing"] is None


@pytest.mark.parametrize("fun", [compare_runs, compare_scores])
def test_runs_that_do_not_match_are_refused(fun):
    one, two = trace([1]), trace([2], prompt_ids=(7,))
    with pytest.raises(TraceMismatch, match="1 traces against 2"):
        fun(run(one), run(one, one))
    with pytest.raises(TraceMismatch, match="0 traces against 0"):
        fun([], [])
    with pytest.raises(TraceMismatch, match="prompt 1: prompts of 3 and 1 tokens differ at index 0: id 1 against id 7"):
        fun(run(one, one), run(one, two))


# --- teacher forcing


def test_scores_by_hand():
    a = trace([1, 2], logprobs=[math.log(0.5), math.log(0.25)], top=[[(1, -0.1), (3, -3)], [(2, -0.5), (3, -1)]])
    b = trace([1, 2], logprobs=[math.log(0.25), math.log(0.25)], top=[[(1, -0.1), (4, -3)], [(3, -0.5), (2, -1)]])
    s = score_delta(a, b)
    assert s.n == 2 and s.dlogprob == pytest.approx((-math.log(2), 0)) and s.positions_differing == 1
    assert s.max_abs_dlogprob == pytest.approx(math.log(2)) and s.mean_dlogprob == pytest.approx(-math.log(2) / 2)
    assert s.top_1_agreement == 0.5 and s.top_k_overlap == pytest.approx((1 / 3 + 1) / 2)
    assert s.perplexity_a == pytest.approx(math.sqrt(8)) and s.perplexity_b == pytest.approx(4)
    assert not s.identical and score_delta(a, a).identical
    c = compare_scores(run(a, a), run(b, a))
    figures = c.figures()
    assert figures["max_abs_dlogprob"] == s.max_abs_dlogprob and figures["mean_dlogprob"] == s.mean_dlogprob / 2
    assert figures["kl_max"] == s.kl_max > 0 and figures["top_1_agreement"] == 0.75 and not c.identical
    assert [r["prompt"] for r in c.table()] == [0, 1] and c.table()[0]["perplexity_b"] == pytest.approx(4)


def test_scores_need_the_same_tokens_and_logprobs():
    with pytest.raises(TraceMismatch, match="token ids differ from index 1 on"):
        score_delta(trace([1, 2]), trace([1, 3]))
    with pytest.raises(TraceMismatch, match="no logprobs"):
        score_delta(bare([1]), bare([1]))
    with pytest.raises(TraceMismatch, match="prompt"):
        score_delta(trace([1]), trace([1], prompt_ids=(9,)))


def test_perplexity():
    assert perplexity(trace([1, 2], logprobs=[-1, -3])) == pytest.approx(math.exp(2))
    assert perplexity(trace([1], logprobs=[0])) == 1
    assert math.isnan(perplexity(bare([1]))) and math.isnan(perplexity(trace([1], logprobs=[NAN])))
    assert perplexity(trace([1], logprobs=[-INF])) == perplexity(trace([1], logprobs=[-9999])) == INF
    assert score_delta(trace([1], logprobs=[-INF]), trace([1])).perplexity_a is None


# --- KL from lists of the most likely


def kl(a, b):
    """The bound for one position from two lists of (id, probability)."""
    one, two = ([[(i, math.log(p) if p else -INF) for i, p in side]] for side in (a, b))
    return float(compare_tops(one, two)[4][0])


def test_kl_by_hand():
    whole = 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)
    assert kl([(1, 0.5), (2, 0.5)], [(1, 0.9), (2, 0.1)]) == pytest.approx(whole, abs=1e-5)
    # one shared token and the tail
    assert kl([(1, 0.6)], [(1, 0.3)]) == pytest.approx(0.6 * math.log(2) + 0.4 * math.log(0.4 / 0.7))
    # nothing shared: a's token has at most what b's leaves over
    assert kl([(1, 0.9)], [(2, 0.9)]) == pytest.approx(0.9 * math.log(0.9 / 0.1) + 0.1 * math.log(0.1 / 0.9))
    # a's second token has at most b's smallest, 0.2; then 0.1 against 0.4 is left
    shared, second, rest = 0.5 * math.log(0.5 / 0.4), 0.4 * math.log(0.4 / 0.2), 0.1 * math.log(0.1 / 0.4)
    assert kl([(1, 0.5), (2, 0.4)], [(1, 0.4), (3, 0.2)]) == pytest.approx(shared + second + rest)


def test_kl_of_the_same_is_zero_and_of_near_is_near():
    assert kl([(1, 0.7), (2, 0.2)], [(1, 0.7), (2, 0.2)]) == 0
    assert kl([(2, 0.3), (1, 0.3)], [(1, 0.3), (2, 0.3)]) == 0
    # a token of 1 - 1e-9 whose float32 logprob moves by one ulp: the difference is rounding, not a tail
    assert kl([(1, 1 - 1e-9)], [(1, 1 - 6e-8)]) < 1e-12


def test_kl_is_unknown_for_empty_lists_and_for_logits():
    assert math.isnan(kl([], [(1, 0.5)])) and math.isnan(kl([(1, 0.5)], []))
    assert math.isnan(kl([(1, 2.5)], [(1, 0.5)])) and math.isnan(kl([(1, 0.5)], [(2, 9)]))


def test_kl_with_impossible_tokens_is_finite():
    # impossible in a: 0.9 as it was, then 0.1 against 0.05 for the rest
    assert kl([(1, 0.9), (2, 0.0)], [(1, 0.9), (2, 0.05)]) == pytest.approx(0.1 * math.log(0.1 / 0.05))
    assert 80 < kl([(1, 0.9)], [(2, 1.0), (1, 0.0)]) < 100, "impossible in b: very large"


@given(seed=st.integers(0, 2**32), size=st.integers(2, 30), k=st.integers(1, 8), j=st.integers(1, 8), far=st.booleans())
@settings(max_examples=300, deadline=None)
def test_kl_never_exceeds_the_truth(seed, size, k, j, far):
    from scipy.stats import entropy

    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=rng.choice([0.3, 2, 6]), size=size)
    other = rng.normal(scale=3, size=size) if far else logits + rng.normal(scale=0.1, size=size)
    p, q = (np.exp(x - x.max()) / np.exp(x - x.max()).sum() for x in (logits, other))
    best_p, best_q = ([(int(i), float(x[i])) for i in np.argsort(-x)[:n]] for x, n in ((p, k), (q, j)))
    true, bound = entropy(p, q), kl(best_p, best_q)
    assert 0 <= bound <= true + 1e-6
    merged = [i for i, _ in best_p if i in dict(best_q)]
    coarse = [[*x[merged], max(1 - x[merged].sum(), 1e-300)] for x in (p, q)]
    assert bound >= entropy(*coarse) - 5e-5, "at least as good as one tail for all that is not shared"
    full_p, full_q = ([(i, float(x[i])) for i in np.argsort(-x)] for x in (p, q))
    assert kl(full_p, full_q) == pytest.approx(true, abs=5e-5), "exact with the whole vocabulary"


def test_lists_of_different_lengths_side_by_side():
    rows_a = [[(1, -0.1), (2, -3), (3, -4)], [], [(1, -0.1)]]
    rows_b = [[(1, -0.1)], [(1, -0.1)], [(1, -0.2), (2, -2)]]
    margins_a, margins_b, same, jaccard, bound = compare_tops(rows_a, rows_b)
    assert np.array_equal(margins_a, [2.9, NAN, NAN], equal_nan=True)
    assert np.array_equal(margins_b, [NAN, NAN, 1.8], equal_nan=True)
    assert np.array_equal(same, [1, NAN, 1], equal_nan=True) and np.allclose(jaccard, [1 / 3, NAN, 0.5], equal_nan=True)
    alone = [compare_tops([x], [y])[4][0] for x, y in zip(rows_a, rows_b, strict=True)]
    assert np.array_equal(bound, alone, equal_nan=True), "a position does not depend on its neighbours"


def test_blocks_make_no_difference(monkeypatch):
    rng = np.random.default_rng(5)
    a, b = (
        trace(range(50), top=[[(i, -0.1 - rng.random()), (i + 9, -4.0), (99, -5.0)][: 1 + i % 3] for i in range(50)])
        for _ in "ab"
    )
    whole = divergence(a, b)
    monkeypatch.setattr(compare, "BLOCK", 7)
    assert divergence(a, b) == whole


# --- properties


def levenshtein(a, b):
    """The textbook table."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row = row, [i]
        for j, y in enumerate(b, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (x != y)))
    return row[-1]


@given(a=any_ids, b=any_ids)
@settings(max_examples=200, deadline=None)
def test_a_pair_agrees_with_plain_python_and_with_its_mirror_image(a, b):
    d, e = divergence(trace(a), trace(b)), divergence(trace(b), trace(a))
    fork = next((i for i, (x, y) in enumerate(itertools.zip_longest(a, b)) if x != y), None)
    assert d.first == e.first == fork and d.exact == (a == b)
    assert d.edit_distance == e.edit_distance == levenshtein(a, b)
    assert d.ngram_overlap == e.ngram_overlap and d.top_k_overlap == e.top_k_overlap
    assert 0 <= d.edit_similarity <= 1 and (d.edit_similarity == 1) == (a == b)
    assert d.margins_a == e.margins_b and (d.id_a, d.id_b) == (e.id_b, e.id_a)


@given(a=any_ids, b=any_ids, n=st.integers(1, 5))
@settings(max_examples=200, deadline=None)
def test_ngrams_agree_with_a_counter(a, b, n):
    x, y = (Counter(tuple(s[i : i + n]) for i in range(len(s) - n + 1)) for s in (a, b))
    total = sum(x.values()) + sum(y.values())
    assert ngram_overlap(a, b, n) == pytest.approx(2 * sum((x & y).values()) / total if total else float(a == b))
    assert repetition(a, n) == repetition(trace(a), n) == pytest.approx(1 - len(x) / sum(x.values()) if x else 0)


@given(a=ids, b=ids, c=ids)
@settings(max_examples=100, deadline=None)
def test_edit_distance_is_a_metric(a, b, c):
    assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)
    assert (edit_distance(a, b) == 0) == (a == b)


@given(pairs=st.lists(st.tuples(st.floats(-50, 0), st.floats(-50, 0)), max_size=20))
@settings(max_examples=100, deadline=None)
def test_drift_is_antisymmetric(pairs):
    n = list(range(len(pairs)))
    a, b = (trace(n, logprobs=[p[i] for p in pairs]) for i in (0, 1))
    d, e = divergence(a, b), divergence(b, a)
    assert d.dlogprob == tuple(y - x for x, y in pairs) == tuple(-x for x in e.dlogprob)
    assert d.max_abs_dlogprob == e.max_abs_dlogprob and d.positions_differing == e.positions_differing
    assert d.identical == (d.positions_differing == 0)
    if pairs:
        # a mean of floats may exceed their maximum by its rounding
        assert d.mean_abs_dlogprob <= d.max_abs_dlogprob * (1 + 1e-12)
        assert d.mean_dlogprob == pytest.approx(-e.mean_dlogprob)


def test_edit_distance_gives_up_when_far_and_says_so():
    assert edit_distance(range(31_000), range(50_000, 81_000)) == 31_000
    far = edit_distance(range(40_000), range(50_000, 90_000))
    assert far is None
    near = list(range(40_000))
    near[100], near[-1] = -5, -6
    assert edit_distance(range(40_000), near) == 2
    assert edit_distance(range(40_000), []) == 40_000
    d = divergence(trace(range(40_000), top=()), trace(range(50_000, 90_000), top=()))
    assert d.edit_distance is d.edit_similarity is None and d.ngram_overlap == 0


def test_repetition_and_bad_n():
    assert repetition([1, 2, 3, 4, 5]) == 0 and repetition([7] * 10) == pytest.approx(1 - 1 / 7)
    assert repetition([1, 2] * 4, n=2) == pytest.approx(1 - 2 / 7) and repetition([], 4) == 0
    with pytest.raises(ConfigError, match="n is 0"):
        repetition([1, 2], 0)


# --- many answers to one prompt


def test_unique_completions_and_div_index():
    group = [trace([1, 2, 3]), trace([1, 2, 3], logprobs=[-9, -9, -9]), trace([1, 2, 4]), trace([1, 2])]
    assert unique_completions(group) == 3 and div_index(group) == 2
    assert unique_completions(group[:2]) == 1 and div_index(group[:2]) is None and div_index(group[:1]) is None
    assert div_index([*group, trace([5])]) == 0
    for fun in (unique_completions, div_index):
        with pytest.raises(TraceMismatch, match="no traces"):
            fun([])
        with pytest.raises(TraceMismatch, match="prompts"):
            fun([trace([1]), trace([1], prompt_ids=(4,))])


# --- answers


def answer(text):
    return trace([1], tokens=(text,))


def read(text):
    return text.split("=")[1] if "=" in text else None


def test_changed_answers_by_hand():
    a = [answer(t) for t in ("x=1", "so x=2", "x=3", "?", "x=5", "none")]
    b = [answer(t) for t in ("y=1", "x=9", "x=4", "x=4", "?", "neither")]
    plain = changed_answers(a, b, read)
    assert (plain.n, plain.changed, plain.mcnemar_p, plain.right_a) == (6, 4, None, None)
    judged = changed_answers(run(*a), run(*b), read, truth=["1", "2", "4", "4", "5", "6"])
    assert (judged.right_a, judged.right_b, judged.right_to_wrong, judged.wrong_to_right) == (3, 3, 2, 2)
    assert judged.changed == 4 and judged.mcnemar_p == 1


def test_mcnemar_by_hand():
    assert mcnemar(0, 0) == 1 and mcnemar(3, 3) == 1
    assert mcnemar(0, 5) == mcnemar(5, 0) == pytest.approx(2 / 2**5)
    assert mcnemar(1, 9) == pytest.approx(2 * (1 + 10) / 2**10)


def test_answers_need_text_and_as_many_truths():
    with pytest.raises(TraceMismatch, match="prompt 0: a trace has token ids but no text"):
        changed_answers([bare([1])], [bare([1])], read)
    with pytest.raises(TraceMismatch, match="2 right answers for 1 prompts"):
        changed_answers([answer("=1")], [answer("=1")], read, truth=["1", "2"])


# --- noise floor and intervals


def test_the_noise_floor_of_reruns():
    quiet = compare_runs([trace([1, 2])] * 8, [trace([1, 2])] * 8)
    floor = noise_floor([quiet, quiet])
    assert (floor.n, floor.forks, floor.max_abs_dlogprob) == (16, 0, 0)
    z2 = 1.959963984540054**2
    assert floor.fork_rate_high == pytest.approx(z2 / (16 + z2))  # Wilson's upper end for none in n
    assert not floor.exceeds(quiet)
    drift = compare_runs([trace([1, 2])], [trace([1, 2], logprobs=[-0.5, math.nextafter(-0.5, 0)])])
    assert floor.exceeds(drift), "above a floor of exactly zero, one ulp is a finding"
    assert not noise_floor([quiet, drift]).exceeds(drift), "and not above a floor that holds it"
    # forks without drift before them: one in sixteen may be chance, eight in eight is not
    one = compare_runs([trace([1, 2])] * 16, [*[trace([1, 2])] * 15, trace([3, 2])])
    assert not floor.exceeds(one)
    assert floor.exceeds(compare_runs([trace([1, 2])] * 8, [trace([3, 2])] * 8))


def test_the_noise_floor_without_logprobs_or_reruns():
    calm = compare_runs([bare([1])] * 20, [bare([1])] * 20)
    floor = noise_floor([calm])
    assert floor.max_abs_dlogprob is None and not floor.exceeds(calm)
    assert floor.exceeds(compare_runs([bare([1])] * 2, [bare([2])] * 2))
    with pytest.raises(ConfigError, match="0 of 0 is no rate"):
        noise_floor([])


@given(n=st.integers(1, 500), share=st.floats(0, 1), confidence=st.sampled_from([0.8, 0.95, 0.99]))
@settings(max_examples=60, deadline=None)
def test_wilson_agrees_with_its_formula(n, share, confidence):
    from statistics import NormalDist

    k, z = round(n * share), NormalDist().inv_cdf((1 + confidence) / 2)
    centre, half = (k + z * z / 2) / (n + z * z), z / (n + z * z) * math.sqrt(k * (n - k) / n + z * z / 4)
    low, high = wilson(k, n, confidence)
    assert (low, high) == pytest.approx((centre - half, centre + half), abs=1e-9)
    assert 0 <= low <= k / n <= high + 1e-12 and high <= 1


@pytest.mark.parametrize("k, n", [(0, 0), (3, 2), (-1, 5)])
def test_wilson_refuses_what_is_no_rate(k, n):
    with pytest.raises(ConfigError, match=f"{k} of {n}"):
        wilson(k, n)


def test_bootstrap():
    values = np.random.default_rng(0).normal(10, 1, 400)
    low, high = bootstrap(values)
    assert (low, high) == pytest.approx((values.mean() - 1.96 * 0.05, values.mean() + 1.96 * 0.05), abs=0.02)
    assert bootstrap(values) == (low, high) != bootstrap(values, seed=1), "repeatable"
    wide = bootstrap(values, confidence=0.99)
    assert wide[0] < low and high < wide[1]
    low, high = bootstrap(values, statistic=np.median)
    assert low < np.median(values) < high
    assert bootstrap([2.5, 2.5, 2.5]) == bootstrap([2.5]) == (2.5, 2.5)
    # BCa is undefined where nearly all resamples give one value: percentiles instead
    assert bootstrap([0.0] * 30 + [1.0], statistic=np.median) == (0, 0)
    for bad in ([], [1, NAN], [1, INF]):
        with pytest.raises(ConfigError, match="finite values"):
            bootstrap(bad)


# --- records


def awkward():
    top_a = [[(4, -1)], [], [(6, -1), (7, -INF)], [(7, -0.1), (8, -3)]]
    top_b = [[(4, -1), (5, -2)], [(5, -1)], [(6, -INF), (7, -1)], [(8, NAN), (7, -3)]]
    return trace([4, 5, 6, 7], logprobs=[-1, NAN, -INF, -1], top=top_a), trace([4, 5, 6, 8], top=top_b)


def test_records_survive_json(tmp_path):
    a, b = awkward()
    results = divergence(a, b), compare_runs([a, a], [b, a]), score_delta(a, a), compare_scores([a], [a])
    for value in (*results, noise_floor([results[1]]), changed_answers([a], [b], str.strip, ["t"])):
        path = value.save(tmp_path / "x.json")
        assert "NaN" not in path.read_text() and "Infinity" not in path.read_text()
        assert type(value).load(path) == value
        plain = json.dumps(value.model_dump(mode="json"), allow_nan=False)
        assert type(value).from_data(json.loads(plain), "x") == value
    with pytest.raises(EvidenceMismatch, match="not a ScoreDelta"):
        ScoreDelta.load(divergence(a, b).save(tmp_path / "d.json"))


def test_a_record_of_either_kind_is_told_apart():
    either = TypeAdapter(Comparison | ScoreComparison)
    a, b = awkward()
    for value in (compare_runs([a], [b]), compare_scores([b], [b])):
        assert either.validate_python(json.loads(value.model_dump_json())) == value


def test_slim_keeps_every_figure():
    a, b = awkward()
    c = compare_runs([a, a, b], [b, a, b])
    slim = c.slim(1)
    assert slim.divergences[0] == c.divergences[0]
    assert slim.divergences[1].dlogprob is slim.divergences[2].margins_b is None
    assert slim.figures() == c.figures() and slim.table() == c.table() and slim.identical == c.identical
    scores = compare_scores([a, b], [a, b])
    assert scores.slim().deltas[1].dlogprob is None and scores.slim().figures() == scores.figures()
    assert isinstance(slim, Comparison) and isinstance(slim.divergences[1], Divergence)
    long = compare_runs([CALM] * 4, [changed(logprobs=[-0.123456789] * 40)] * 4)
    assert len(long.slim().model_dump_json()) < len(long.model_dump_json()) / 3


# --- speed


def test_importing_is_quick():
    heavy = {"torch", "vllm", "matplotlib", "scipy", "rapidfuzz"}
    code = f"import course_lib.compare, sys; print({heavy} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


@pytest.fixture(scope="module")
def million():
    """Two million-token traces with the same ids and other numbers at every position, and the parts to build more."""
    n, rng = 1_000_000, np.random.default_rng(0)
    ids = rng.integers(0, 49_152, n)
    made = []
    for noise in (0, 1e-3):
        best = -0.1 - np.arange(n) % 7 / 10 + noise * rng.random(n)
        top = tuple(zip(zip(ids.tolist(), best.tolist()), zip((ids ^ 1).tolist(), (best - 2).tolist())))  # noqa: B905
        made.append((tuple(ids.tolist()), tuple(best.tolist()), top))
    return made


def quickly(ids, logprobs, top):
    """A trace whose fields are not validated, which takes longer than the comparison."""
    return Trace.model_construct(prompt_ids=(1,), token_ids=ids, logprobs=logprobs, top=top)


def seconds(work):
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def test_a_million_tokens_take_about_a_second(million):
    a, b = (quickly(*parts) for parts in million)
    took, d = seconds(lambda: divergence(a, b))
    assert d.exact and d.positions_differing > 990_000 and 0 < d.max_abs_dlogprob < 1e-3 and d.kl_max > 0
    assert took < 3
    # forked early, and other tokens from then on, some of them edited
    forked = (*a.token_ids[:10], *(i + 1 if k % 5000 == 0 else i for k, i in enumerate(a.token_ids[10:])))
    took, d = seconds(lambda: divergence(a, quickly(forked, *million[1][1:])))
    assert d.first == 10 and d.edit_distance == 200 and d.ngram_overlap > 0.99
    assert took < 3


def test_a_thousand_answers_of_a_thousand_tokens_take_about_a_second(million):
    cuts = [slice(i, i + 1000) for i in range(0, 1_000_000, 1000)]
    a, b = ([quickly(*(part[cut] for part in parts)) for cut in cuts] for parts in million)
    for t in b:
        object.__setattr__(t, "token_ids", (*t.token_ids[:500], *(i + 1 for i in t.token_ids[500:])))
    took, c = seconds(lambda: compare_runs(a, b))
    assert c.forks == 1000 and set(c.first_forks) == {500}
    assert took < 4
