"""Measures on token ids and on lists of logprobs, and the two intervals. `compare` applies them to traces.

Arrays throughout; a position whose value cannot be known is nan.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from itertools import chain, compress, count
from operator import itemgetter, ne
from typing import Any

import numpy as np
from numpy.typing import NDArray

from course_lib.errors import ConfigError

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
Top = Sequence[Sequence[tuple[int, float]]]
"""For each position the most likely (id, logprob) pairs, best first, as in `Trace.top`."""

IMPOSSIBLE = -9999.0  # what vLLM's server reports for a probability of zero
TAIL = 1e-6  # less probability than this outside the reported tokens is float32 rounding, not a finding
EDIT_CELLS = 10**9  # how much of an edit distance's table may be filled: about 0.2 s


def first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    """Index of the first difference; the shorter length if one begins with the other; None if they are the same."""
    first = next(compress(count(), map(ne, a, b)), min(len(a), len(b)))
    return None if first == len(a) == len(b) else first


def edit_distance(a: Sequence[int], b: Sequence[int]) -> int | None:
    """Levenshtein distance: the fewest insertions, deletions and substitutions of ids that turn a into b.

    None if it is above 10⁹ / the longer length, since counting further takes long; up to 31,000 ids it never is.
    """
    if not (a and b):
        return max(len(a), len(b))
    from rapidfuzz.distance import Levenshtein

    most = EDIT_CELLS // max(len(a), len(b))
    edits = Levenshtein.distance(a, b, score_cutoff=most)
    return edits if edits <= most else None


def ngram_overlap(a: Sequence[int], b: Sequence[int], n: int = 4) -> float:
    """Dice coefficient of the two multisets of n-grams, 2 |A ∩ B| / (|A| + |B|); this is ROUGE-N's F1 (Lin 2004).

    From 0 to 1, and blind to the order of passages. Where both are shorter than n, 1 if they are the same, else 0.
    """
    if len(a) < n and len(b) < n:
        return float(tuple(a) == tuple(b))
    largest = max(chain(a, b))
    (grams_a, times_a), (grams_b, times_b) = (np.unique(ngrams(x, n, largest), return_counts=True) for x in (a, b))
    _, i, j = np.intersect1d(grams_a, grams_b, assume_unique=True, return_indices=True)
    return 2 * int(np.minimum(times_a[i], times_b[j]).sum()) / int(times_a.sum() + times_b.sum())


def ngrams(ids: Sequence[int], n: int, largest: int) -> NDArray[np.uint64]:
    """One number for each n-gram of ids from 0 to `largest`, the same for the same n-gram.

    Packed bits where they fit into 64, as for n = 4 and vocabularies up to 65,536. Else a hash of 64 bits, under which
    two of a million different n-grams hardly ever meet.
    """
    if n < 1:
        raise ConfigError(f"n is {n}; an n-gram has at least one token")
    bits = max(int(largest).bit_length(), 1)
    base = 1 << bits if bits * n <= 64 else 0x9E3779B97F4A7C15
    array = np.fromiter(ids, np.uint64, len(ids))
    keys = np.zeros(max(len(ids) - n + 1, 0), np.uint64)
    for i in range(n):
        keys = keys * np.uint64(base) + array[i : i + len(keys)]
    return keys


def top_arrays(top: Top) -> tuple[Ids, Floats]:
    """Lists of (id, logprob) pairs as two arrays (longest list or 2, positions), filled up with -1 and -inf."""
    lengths = np.fromiter(map(len, top), int, len(top))
    there = np.arange(lengths.max(initial=2)) < lengths[:, None]
    ids, logprobs = np.full(there.shape, -1), np.full(there.shape, -np.inf)
    pairs = chain.from_iterable
    np.place(ids, there, np.fromiter(map(itemgetter(0), pairs(top)), np.int64, lengths.sum()))
    np.place(logprobs, there, np.fromiter(map(itemgetter(1), pairs(top)), float, lengths.sum()))
    return np.ascontiguousarray(ids.T), np.ascontiguousarray(logprobs.T)


def compare_tops(top_a: Top, top_b: Top) -> tuple[Floats, ...]:
    """Position by position: margins of a, of b, whether the best token is the same, Jaccard index of the ids, KL(a‖b).

    The last three go as far as both sides do. The KL, in nats, is a lower bound, as only the most likely tokens are
    known: merging outcomes never raises a KL (data-processing inequality), so each token that both sides report
    counts by itself, and all others together as one outcome. Of tokens that only a reports, their sum in a is known,
    and in b it is at most what b's list leaves over, and at most b's smallest reported probability for each; the least
    KL under that is a bound too. So it is with tokens that only b reports, and the larger bound stands. Exact where the
    lists hold all tokens. nan where probabilities add up to more than 1, as of logits.
    """
    n = min(len(top_a), len(top_b))
    if top_a == top_b:  # as in most reruns, and then there is little to do
        best, second = (np.fromiter((t[i][1] if len(t) > i else np.nan for t in top_a), float, n) for i in (0, 1))
        margins, same = _gap(best, second), np.where(np.fromiter(map(bool, top_a), bool, n), 1.0, np.nan)
        return margins, margins, same, same, same - 1
    a, b = top_arrays(top_a), top_arrays(top_b)
    (ids_a, log_a), (ids_b, log_b) = ((ids[:, :n], logprobs[:, :n]) for ids, logprobs in (a, b))
    there_a, there_b = ids_a >= 0, ids_b >= 0
    in_b, in_a, log_ab = np.zeros_like(there_a), np.zeros_like(there_b), np.zeros_like(log_a)
    for j in range(len(ids_b)):
        hit = (ids_a == ids_b[j]) & there_a
        np.copyto(log_ab, log_b[j], where=hit)
        in_b |= hit
        in_a[j] = hit.any(0)
    n_a, n_b, both = there_a.sum(0), there_b.sum(0), in_b.sum(0)
    with np.errstate(all="ignore"):
        p, q = np.exp(log_a), np.exp(log_b)
        floor = np.maximum(log_a, -100)  # p log(p/q) - p + q from logarithms, finite for probabilities of zero too
        gap = floor - np.maximum(log_ab, -100)
        shared = np.where(in_b, np.exp(floor) * (gap + np.expm1(-gap)), 0).sum(0)
        only_p, only_q = np.where(in_b, 0, p).sum(0), np.where(in_a, 0, q).sum(0)
        sum_p, sum_q = p.sum(0), q.sum(0)
        rest_p, rest_q = np.maximum(1 - sum_p + only_p, TAIL), np.maximum(1 - sum_q + only_q, TAIL)
        # the most that b can give to what only a reports, and that least for the KL; and the other way round
        most_q = np.minimum(rest_q - only_q, (n_a - both) * np.where(there_b, q, np.inf).min(0))
        most_p = np.minimum(rest_p - only_p, (n_b - both) * np.where(there_a, p, np.inf).min(0))
        room_q, room_p = np.minimum(only_p / rest_p * rest_q, most_q), np.minimum(only_q / rest_q * rest_p, most_p)
        kl = shared + np.maximum(
            _term(only_p, room_q) + _term(rest_p - only_p, rest_q - room_q),
            _term(room_p, only_q) + _term(rest_p - room_p, rest_q - only_q),
        )
        kl[(sum_p > 1.001) | (sum_q > 1.001)] = np.nan
        known = (n_a > 0) & (n_b > 0)
        same, jaccard, kl = (np.where(known, x, np.nan) for x in (ids_a[0] == ids_b[0], both / (n_a + n_b - both), kl))
    margins_a, margins_b = (np.where(ids[1] >= 0, _gap(logs[0], logs[1]), np.nan) for ids, logs in (a, b))
    return margins_a, margins_b, same, jaccard, kl


def _term(p: Floats, q: Floats) -> Floats:
    """One outcome's part of a KL, p log(p/q) - p + q: never negative, and the sum is the KL. Less than TAIL is TAIL."""
    p, q = np.maximum(p, TAIL), np.maximum(q, TAIL)
    return np.maximum(p * np.log(p / q) - p + q, 0)  # rounding may leave -1e-17


def _gap(best: Floats, second: Floats) -> Floats:
    return np.maximum(best, IMPOSSIBLE) - np.maximum(second, IMPOSSIBLE)


def wilson(k: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a rate seen k times in n (JASA 1927).

    Raises:
        ConfigError: not 0 <= k <= n, or n is 0.
    """
    if not 0 <= k <= n or n == 0:
        raise ConfigError(f"{k} of {n} is no rate; there must be at least one trial, and no more hits than trials")
    from scipy.stats import binomtest

    interval = binomtest(k, n).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)


def bootstrap(
    values: Sequence[float], statistic: Callable[..., Any] = np.mean, confidence: float = 0.95, seed: int = 0
) -> tuple[float, float]:
    """Bootstrap interval of a statistic: BCa (Efron 1987), or percentiles where BCa is undefined.

    A single value, or values all the same, give an interval without width: about the spread they say nothing.

    Raises:
        ConfigError: no values, or one that is not finite.
    """
    data = np.asarray(values, float)
    if not data.size or not np.isfinite(data).all():
        raise ConfigError(f"a bootstrap needs finite values, not {list(values)[:8]}")
    if (data == data[0]).all():
        return float(statistic(data)), float(statistic(data))
    from scipy import stats

    options: dict[str, Any] = {"confidence_level": confidence, "batch": max(1, 10**7 // data.size)}
    with warnings.catch_warnings(action="ignore"):
        for method in ("BCa", "percentile"):
            found = stats.bootstrap((data,), statistic, method=method, rng=seed, **options)
            if np.isfinite(found.confidence_interval).all():
                break
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def mcnemar(worse: int, better: int) -> float:
    """Exact two-sided p value of changes for worse and better being equally likely (McNemar 1947); 1 for 0, 0."""
    from scipy.stats import binomtest

    return float(binomtest(worse, worse + better).pvalue) if worse + better else 1.0
