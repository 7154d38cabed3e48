"""Compare what two runs gave, token ids first and never text.

Up to and including the first id that differs, both sides answer the same context, and what they report there can be
compared number by number. After it nothing can. Unknown values are None, so that every result survives JSON; in means
and maxima they do not count. A probability of zero counts as a logprob of -9999, as in vLLM's own server, so that
differences stay finite. "a" is the reference and "b" what changed; differences are b - a, in nats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from course_lib.errors import ConfigError, TraceMismatch
from course_lib.trace import Record, Run, Trace

Floats = NDArray[np.float64]

ZERO = -9999.0  # the logprob of an impossible token
TAIL = 1e-6  # a rest of probability below this is rounding of float32 logprobs, not a finding
EDIT_BUDGET = 10**9  # cells of the edit distance's table: some 0.2 s
BLOCK = 2**15  # positions worked on at once


class Divergence(Record):
    """Two answers to one prompt, of n_a and n_b tokens.

    Attributes:
        first: index of the first token id that differs, the fork. If one answer begins with the whole other one, the
            other's length: one stopped there and the other went on. None if the ids are the same.
        id_a, id_b, token_a, token_b: at the fork; None where an answer has ended, or for a token without a text.
        margin_a, margin_b: gap between the two most likely tokens at the fork.
        rank_of_b_in_a, rank_of_a_in_b: at the fork, the place of the other's token among the reported ones; 1 is the
            most likely, None is not among them (the rule of vLLM's check_logprobs_close).
        edit_distance: Levenshtein distance of the ids. None if above 10⁹ divided by the longer answer's length after
            the fork, too far to count in a moment; up to 31,000 tokens it is always there.
        edit_similarity: 1 - edit_distance / the longer length; 1 for two empty answers.
        ngram_overlap: see `ngram_overlap`, n = 4.
        dlogprob: one Δlogprob for each position before the fork; None where either is nan.
        max_abs_dlogprob, mean_abs_dlogprob: over those; None without any.
        positions_differing: of those positions, how many logprobs are not equal bit by bit.
        margins_a, margins_b: as `Trace.margins`, up to and including the fork.
        top_k_overlap: mean Jaccard index of the two sets of reported ids, up to and including the fork.
        kl_mean, kl_max: KL(a‖b) in nats, up to and including the fork: a lower bound, see `kl_lower_bound`.

    What a trace does not report makes the fields that need it None: logprobs the Δ, `top` the margins, overlap and KL.
    """

    n_a: int
    n_b: int
    first: int | None
    id_a: int | None = None
    id_b: int | None = None
    token_a: str | None = None
    token_b: str | None = None
    margin_a: float | None = None
    margin_b: float | None = None
    rank_of_b_in_a: int | None = None
    rank_of_a_in_b: int | None = None
    edit_distance: int | None
    edit_similarity: float | None
    ngram_overlap: float
    dlogprob: tuple[float | None, ...] | None
    max_abs_dlogprob: float | None
    mean_abs_dlogprob: float | None
    positions_differing: int | None
    margins_a: tuple[float | None, ...] | None
    margins_b: tuple[float | None, ...] | None
    top_k_overlap: float | None
    kl_mean: float | None
    kl_max: float | None

    @property
    def exact(self) -> bool:
        """The same token ids."""
        return self.first is None

    @property
    def identical(self) -> bool:
        """The same ids and bit-identical logprobs: the exact zero. False where logprobs are missing: nothing is proved."""
        return self.exact and self.positions_differing == 0

    def slim(self) -> Divergence:
        """The same without the values per position, to keep a record small; figures and properties stay."""
        return self.model_copy(update={"dlogprob": None, "margins_a": None, "margins_b": None})


def divergence(a: Trace, b: Trace) -> Divergence:
    """Compare two answers to the same prompt.

    Raises:
        TraceMismatch: the prompts differ; says where.
    """
    _same_prompt(a, b)
    first = first_difference(a.token_ids, b.token_ids)
    common = len(a.token_ids) if first is None else first
    dlogprob, differing = _dlogprob(a.logprobs[:common], b.logprobs[:common]) if _reported(a, b) else (None, None)
    margins_a, margins_b, kl, overlap = _tops(a.top[: common + 1], b.top[: common + 1])
    distance = _edit_distance(a.token_ids[common:], b.token_ids[common:])
    longer = max(len(a.token_ids), len(b.token_ids))
    fork_a, fork_b = _fork(a, first), _fork(b, first)
    return Divergence(
        n_a=len(a.token_ids), n_b=len(b.token_ids), first=first,
        id_a=fork_a[0], id_b=fork_b[0], token_a=fork_a[1], token_b=fork_b[1],
        margin_a=margins_a[common] if margins_a and common < len(margins_a) else None,
        margin_b=margins_b[common] if margins_b and common < len(margins_b) else None,
        rank_of_b_in_a=fork_a[2].get(fork_b[0]), rank_of_a_in_b=fork_b[2].get(fork_a[0]),
        edit_distance=distance,
        edit_similarity=None if distance is None else 1 - distance / max(longer, 1),
        ngram_overlap=1.0 if first is None else ngram_overlap(a.token_ids, b.token_ids),
        dlogprob=_plain(dlogprob),
        max_abs_dlogprob=_over(np.nanmax, dlogprob), mean_abs_dlogprob=_over(np.nanmean, dlogprob),
        positions_differing=differing,
        margins_a=margins_a, margins_b=margins_b,
        top_k_overlap=_over(np.nanmean, overlap), kl_mean=_over(np.nanmean, kl), kl_max=_over(np.nanmax, kl),
    )  # fmt: skip


class Comparison(Record):
    """Two runs over the same prompts, one `Divergence` for each prompt."""

    divergences: tuple[Divergence, ...]

    @property
    def n(self) -> int:
        return len(self.divergences)

    @property
    def first_forks(self) -> list[int | None]:
        return [d.first for d in self.divergences]

    @property
    def forks(self) -> int:
        """How many prompts got different ids."""
        return sum(not d.exact for d in self.divergences)

    @property
    def fork_rate(self) -> float:
        return self.forks / self.n

    def fork_rate_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Wilson interval of `fork_rate`; prompts count as independent."""
        return wilson(self.forks, self.n, confidence)

    @property
    def exact_match_rate(self) -> float:
        return 1 - self.fork_rate

    @property
    def identical(self) -> bool:
        """All ids the same and all logprobs bit-identical: the exact zero."""
        return all(d.identical for d in self.divergences)

    @property
    def positions_differing(self) -> int | None:
        return _pool(sum, self.divergences, "positions_differing")

    @property
    def max_abs_dlogprob(self) -> float | None:
        return _pool(max, self.divergences, "max_abs_dlogprob")

    @property
    def mean_abs_dlogprob(self) -> float | None:
        """The mean over prompts of each prompt's mean, so that a prompt which forks late does not count more."""
        return _pool(_mean, self.divergences, "mean_abs_dlogprob")

    def mean_abs_dlogprob_interval(self, confidence: float = 0.95) -> tuple[float, float] | None:
        """Bootstrap interval of `mean_abs_dlogprob`, drawn over prompts."""
        return _pool(lambda v: bootstrap(v, confidence=confidence), self.divergences, "mean_abs_dlogprob")

    @property
    def kl_mean(self) -> float | None:
        return _pool(_mean, self.divergences, "kl_mean")

    @property
    def kl_max(self) -> float | None:
        return _pool(max, self.divergences, "kl_max")

    def figures(self) -> dict[str, Any]:
        """The numbers that claims speak of, by name."""
        forks = [d for d in self.divergences if not d.exact]
        margins = [m for d in forks for m in (d.margin_a, d.margin_b) if m is not None]
        return {
            "n": self.n,
            "forks": self.forks,
            "fork_rate": self.fork_rate,
            "first_fork": min((d.first for d in forks if d.first is not None), default=None),
            "max_fork_margin": max(margins, default=None),
            "positions_differing": self.positions_differing,
            "max_abs_dlogprob": self.max_abs_dlogprob,
            "mean_abs_dlogprob": self.mean_abs_dlogprob,
            "kl_mean": self.kl_mean,
            "kl_max": self.kl_max,
            "identical": self.identical,
        }

    def table(self) -> list[dict[str, Any]]:
        """One row for each prompt, for display."""
        columns = ("first", "token_a", "token_b", "margin_a", "margin_b", "max_abs_dlogprob", "kl_max", "edit_similarity")
        return [{"prompt": i, **{c: getattr(d, c) for c in columns}} for i, d in enumerate(self.divergences)]

    def slim(self, keep: int = 0) -> Comparison:
        """The same, with the values per position for the first `keep` prompts only."""
        kept = self.divergences
        return Comparison(divergences=kept[:keep] + tuple(d.slim() for d in kept[keep:]))


def compare_runs(a: Run | Sequence[Trace], b: Run | Sequence[Trace]) -> Comparison:
    """Compare two runs, or two lists of traces, prompt by prompt in their order.

    Raises:
        TraceMismatch: no traces, different numbers of them, or different prompts; says which.
    """
    return Comparison(divergences=tuple(_in_pairs(divergence, a, b)))


class ScoreDelta(Record):
    """Two opinions on the same n tokens (teacher forcing), so without a fork. Fields as in `Divergence`.

    Attributes:
        mean_dlogprob: signed; beside `mean_abs_dlogprob` it tells a steady offset from noise.
        top_1_agreement: share of positions with the same most likely token.
        perplexity_a, perplexity_b: None without tokens, or if not finite.
    """

    n: int
    dlogprob: tuple[float | None, ...] | None
    max_abs_dlogprob: float | None
    mean_abs_dlogprob: float | None
    mean_dlogprob: float | None
    positions_differing: int
    top_1_agreement: float | None
    top_k_overlap: float | None
    kl_mean: float | None
    kl_max: float | None
    perplexity_a: float | None
    perplexity_b: float | None

    @property
    def identical(self) -> bool:
        """All logprobs are bit-identical."""
        return self.positions_differing == 0


def score_delta(a: Trace, b: Trace) -> ScoreDelta:
    """Compare what two engines, or two configurations, think of the same tokens.

    Raises:
        TraceMismatch: prompts or token ids differ, or logprobs are missing.
    """
    _same_prompt(a, b)
    if (fork := first_difference(a.token_ids, b.token_ids)) is not None:
        raise TraceMismatch(f"token ids differ from index {fork} on; score one answer's tokens with both engines")
    if not _reported(a, b):
        raise TraceMismatch("a trace has no logprobs; ask the engine for them (Sampling.top_k_logprobs)")
    dlogprob, differing = _dlogprob(a.logprobs, b.logprobs)
    _, _, kl, overlap = _tops(a.top, b.top)
    agree = [s[0][0] == t[0][0] for s, t in zip(a.top, b.top, strict=False) if s and t]
    return ScoreDelta(
        n=len(a.token_ids), dlogprob=_plain(dlogprob),
        max_abs_dlogprob=_over(np.nanmax, dlogprob), mean_abs_dlogprob=_over(np.nanmean, dlogprob),
        mean_dlogprob=_over(np.nanmean, dlogprob, signed=True), positions_differing=differing,
        top_1_agreement=_mean(agree) if agree else None, top_k_overlap=_over(np.nanmean, overlap),
        kl_mean=_over(np.nanmean, kl), kl_max=_over(np.nanmax, kl),
        perplexity_a=_finite(perplexity(a)), perplexity_b=_finite(perplexity(b)),
    )  # fmt: skip


class ScoreComparison(Record):
    """Two runs that scored the same tokens, one `ScoreDelta` for each prompt."""

    deltas: tuple[ScoreDelta, ...]

    @property
    def identical(self) -> bool:
        return all(d.identical for d in self.deltas)

    def figures(self) -> dict[str, Any]:
        """The numbers that claims speak of, by name: sums, maxima, and means over prompts."""
        ways: dict[str, Callable[[list], Any]] = {
            "positions_differing": sum, "max_abs_dlogprob": max, "mean_abs_dlogprob": _mean, "mean_dlogprob": _mean,
            "top_1_agreement": _mean, "top_k_overlap": _mean, "kl_mean": _mean, "kl_max": max,
            "perplexity_a": _mean, "perplexity_b": _mean,
        }  # fmt: skip
        pooled = {name: _pool(way, self.deltas, name) for name, way in ways.items()}
        return {"n": len(self.deltas), "tokens": sum(d.n for d in self.deltas), **pooled, "identical": self.identical}

    def table(self) -> list[dict[str, Any]]:
        """One row for each prompt, for display."""
        return [{"prompt": i, **d.model_dump(exclude={"dlogprob"})} for i, d in enumerate(self.deltas)]

    def slim(self, keep: int = 0) -> ScoreComparison:
        """The same, with the values per position for the first `keep` prompts only."""
        rest = tuple(d.model_copy(update={"dlogprob": None}) for d in self.deltas[keep:])
        return ScoreComparison(deltas=self.deltas[:keep] + rest)


def compare_scores(a: Run | Sequence[Trace], b: Run | Sequence[Trace]) -> ScoreComparison:
    """`score_delta` prompt by prompt. Raises TraceMismatch as `compare_runs` and `score_delta` do."""
    return ScoreComparison(deltas=tuple(_in_pairs(score_delta, a, b)))
