"""Compare what two runs gave, token ids first and never text.

Up to and including the first id that differs, both sides answer the same context, and what they report there can be
compared number by number. After it nothing can. "a" is the reference and "b" what changed; differences are b - a, in
nats. What is unknown is None, counts in no mean and no maximum, and survives JSON. A probability of zero is a logprob
of -9999, as vLLM's server reports it, so that differences stay finite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, Self

import numpy as np

from course_lib.errors import TraceMismatch
from course_lib.measures import (
    IMPOSSIBLE,
    Floats,
    bootstrap,
    compare_tops,
    edit_distance,
    first_difference,
    mcnemar,
    ngram_overlap,
    ngrams,
    wilson,
)
from course_lib.trace import Record, Run, Trace

Traces = Run | Sequence[Trace]

BLOCK = 2**15  # positions worked on at once
PER_POSITION = {"dlogprob", "margins_a", "margins_b"}


class Drift(Record):
    """How far b's numbers are from a's where both have the same context.

    Attributes:
        dlogprob: Δlogprob of each token that both gave; None in it where either is nan.
        max_abs_dlogprob, mean_abs_dlogprob, mean_dlogprob: over those; a steady offset shows in the signed mean.
        positions_differing: how many of those logprobs are not equal bit by bit.
        margins_a, margins_b: `Trace.margins`, the fork included, as are all below.
        top_1_agreement: share of positions with the same most likely token.
        top_k_overlap: mean Jaccard index of the two sets of reported ids.
        kl_mean, kl_max: KL(a‖b) in nats, a lower bound: `measures.compare_tops` says how.

    Without logprobs on both sides the first five are None; without `top` the others are, each margin by its own side.
    """

    dlogprob: tuple[float | None, ...] | None
    max_abs_dlogprob: float | None
    mean_abs_dlogprob: float | None
    mean_dlogprob: float | None
    positions_differing: int | None
    margins_a: tuple[float | None, ...] | None
    margins_b: tuple[float | None, ...] | None
    top_1_agreement: float | None
    top_k_overlap: float | None
    kl_mean: float | None
    kl_max: float | None

    def slim(self) -> Self:
        """The same without the values per position, to keep a record small."""
        return self.model_copy(update=dict.fromkeys(PER_POSITION))

    @property
    def identical(self) -> bool:
        """All logprobs are bit-identical. False where there are none: nothing is proved."""
        return self.positions_differing == 0


class Divergence(Drift):
    """Two answers to one prompt, of n_a and n_b tokens.

    Attributes:
        first: index of the first token id that differs, the fork; where one answer is the beginning of the other, the
            shorter length, for one stopped there and the other went on. None if the ids are the same.
        id_a, id_b, token_a, token_b: at the fork. None past an answer's end, and for a token without a text.
        margin_a, margin_b: gap between the two most likely tokens at the fork.
        rank_of_b_in_a, rank_of_a_in_b: the other's token among the reported ones at the fork, 1 being the most likely;
            None if not among them. vLLM's check_logprobs_close asks that neither be None.
        edit_distance: Levenshtein distance of the ids; None where a fork is followed by more than 31,000 tokens and so
            many edits that counting takes long (`measures.edit_distance`).
        edit_similarity: 1 - edit_distance / the longer length; 1 for two empty answers.
        ngram_overlap: by `ngram_overlap`, n = 4.
    """

    n_a: int
    n_b: int
    first: int | None
    id_a: int | None
    id_b: int | None
    token_a: str | None
    token_b: str | None
    margin_a: float | None
    margin_b: float | None
    rank_of_b_in_a: int | None
    rank_of_a_in_b: int | None
    edit_distance: int | None
    edit_similarity: float | None
    ngram_overlap: float

    @property
    def exact(self) -> bool:
        """The same token ids."""
        return self.first is None

    @property
    def identical(self) -> bool:
        """The same ids and bit-identical logprobs, the exact zero. False without logprobs: nothing is proved."""
        return self.exact and self.positions_differing == 0


class ScoreDelta(Drift):
    """Two opinions on the same n tokens (teacher forcing), so no fork. A perplexity that is not finite is None."""

    n: int
    perplexity_a: float | None
    perplexity_b: float | None


def divergence(a: Trace, b: Trace) -> Divergence:
    """Compare two answers to the same prompt.

    Raises:
        TraceMismatch: the prompts differ; says where.
    """
    _same_prompt(a, b)
    first = first_difference(a.token_ids, b.token_ids)
    n_a, n_b = len(a.token_ids), len(b.token_ids)
    common = n_a if first is None else first
    drift = _drift(a, b, common)
    id_a, token_a, margin_a, ranks_a = _at(common, a, drift["margins_a"])
    id_b, token_b, margin_b, ranks_b = _at(common, b, drift["margins_b"])
    edits = edit_distance(a.token_ids[common:], b.token_ids[common:])
    return Divergence(
        **drift, n_a=n_a, n_b=n_b, first=first, id_a=id_a, id_b=id_b, token_a=token_a, token_b=token_b,
        margin_a=margin_a, margin_b=margin_b, rank_of_b_in_a=ranks_a.get(id_b), rank_of_a_in_b=ranks_b.get(id_a),
        edit_distance=edits, edit_similarity=None if edits is None else 1 - edits / max(n_a, n_b, 1),
        ngram_overlap=1.0 if first is None else ngram_overlap(a.token_ids, b.token_ids),
    )  # fmt: skip


def score_delta(a: Trace, b: Trace) -> ScoreDelta:
    """Compare what two engines, or two configurations of one, think of the same tokens.

    Raises:
        TraceMismatch: prompts or token ids differ, or logprobs are missing.
    """
    _same_prompt(a, b)
    if (fork := first_difference(a.token_ids, b.token_ids)) is not None:
        raise TraceMismatch(f"token ids differ from index {fork} on; score the same answer on both sides")
    if not (_has_logprobs(a) and _has_logprobs(b)):
        raise TraceMismatch("a trace has no logprobs to compare; ask the engine or server for them")
    perplexities = {"perplexity_a": _finite(perplexity(a)), "perplexity_b": _finite(perplexity(b))}
    return ScoreDelta(**_drift(a, b, len(a.token_ids)), n=len(a.token_ids), **perplexities)


class Pairs(Record):
    """What `Comparison` and `ScoreComparison` share: a tuple with one `Drift` for each prompt.

    A mean is a mean over prompts, each with its own mean, so that an answer which forks late does not count more.
    """

    @property
    def parts(self) -> tuple[Any, ...]:
        return getattr(self, next(iter(type(self).model_fields)))

    @property
    def n(self) -> int:
        return len(self.parts)

    @property
    def identical(self) -> bool:
        """All ids the same and all logprobs bit-identical: the exact zero."""
        return all(d.identical for d in self.parts)

    @property
    def max_abs_dlogprob(self) -> float | None:
        return _pool(max, self.parts, "max_abs_dlogprob")

    @property
    def mean_abs_dlogprob(self) -> float | None:
        return _pool(fmean, self.parts, "mean_abs_dlogprob")

    def mean_abs_dlogprob_interval(self, confidence: float = 0.95) -> tuple[float, float] | None:
        """Bootstrap interval, drawn over prompts; None without logprobs."""
        return _pool(lambda means: bootstrap(means, confidence=confidence), self.parts, "mean_abs_dlogprob")

    @property
    def kl_mean(self) -> float | None:
        return _pool(fmean, self.parts, "kl_mean")

    @property
    def kl_max(self) -> float | None:
        return _pool(max, self.parts, "kl_max")

    def figures(self) -> dict[str, Any]:
        """The numbers that claims speak of, by name."""
        means = ("mean_abs_dlogprob", "mean_dlogprob", "kl_mean", "top_1_agreement", "top_k_overlap")
        return {
            "n": self.n, "identical": self.identical,
            "positions_differing": _pool(sum, self.parts, "positions_differing"),
            "max_abs_dlogprob": self.max_abs_dlogprob, "kl_max": self.kl_max,
            **{name: _pool(fmean, self.parts, name) for name in means},
        }  # fmt: skip

    def table(self) -> list[dict[str, Any]]:
        """One row for each prompt, for display: all but the values per position."""
        return [{"prompt": i, **d.model_dump(exclude=PER_POSITION)} for i, d in enumerate(self.parts)]

    def slim(self, keep: int = 0) -> Self:
        """The same with the values per position for `keep` prompts only; what the methods say does not change."""
        parts = self.parts[:keep] + tuple(d.slim() for d in self.parts[keep:])
        return self.model_copy(update={next(iter(type(self).model_fields)): parts})


class Comparison(Pairs):
    """Two runs over the same prompts."""

    divergences: tuple[Divergence, ...]

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
        """Wilson interval; prompts count as independent."""
        return wilson(self.forks, self.n, confidence)

    @property
    def exact_match_rate(self) -> float:
        return 1 - self.fork_rate

    def figures(self) -> dict[str, Any]:
        """The numbers that claims speak of, by name; `max_fork_margin` is the widest margin, in a, that forked."""
        forks = {"forks": self.forks, "fork_rate": self.fork_rate, "first_fork": _pool(min, self.divergences, "first")}
        return super().figures() | forks | {"max_fork_margin": _pool(max, self.divergences, "margin_a")}


class ScoreComparison(Pairs):
    """Two runs that scored the same tokens."""

    deltas: tuple[ScoreDelta, ...]


def compare_runs(a: Traces, b: Traces) -> Comparison:
    """Compare two runs, or lists of traces, prompt by prompt in their order.

    Raises:
        TraceMismatch: no traces, different numbers of them, or different prompts; says which.
    """
    return Comparison(divergences=tuple(_in_pairs(divergence, a, b)))


def compare_scores(a: Traces, b: Traces) -> ScoreComparison:
    """`score_delta` prompt by prompt; raises TraceMismatch as `compare_runs` and `score_delta` do."""
    return ScoreComparison(deltas=tuple(_in_pairs(score_delta, a, b)))


class NoiseFloor(Record):
    """What n answers repeated with nothing changed showed.

    Attributes:
        fork_rate_high: upper end of the 95 % Wilson interval. No fork in n still leaves about 4 / n possible.
        max_abs_dlogprob: None if no rerun reports logprobs.
    """

    n: int
    forks: int
    fork_rate_high: float
    max_abs_dlogprob: float | None

    def exceeds(self, comparison: Comparison) -> bool:
        """Whether a comparison shows more than reruns do: a larger Δlogprob, or forks beyond `fork_rate_high`."""
        drift, floor = comparison.max_abs_dlogprob, self.max_abs_dlogprob
        return (drift is not None and floor is not None and drift > floor) or comparison.fork_rate > self.fork_rate_high


def noise_floor(reruns: Sequence[Comparison]) -> NoiseFloor:
    """Pool reruns. Raises ConfigError if there are none: without a floor no difference is a finding."""
    n, forks = sum(r.n for r in reruns), sum(r.forks for r in reruns)
    high = wilson(forks, n)[1]
    return NoiseFloor(n=n, forks=forks, fork_rate_high=high, max_abs_dlogprob=_pool(max, reruns, "max_abs_dlogprob"))


class Answers(Record):
    """What became of n answers. One that cannot be read is wrong, and equal to another such.

    Attributes:
        right_a, right_b, right_to_wrong, wrong_to_right: None without the truth.
        mcnemar_p: exact two-sided p value of the two changes being equally likely (McNemar 1947); 1 if there are none.
    """

    n: int
    changed: int
    right_a: int | None = None
    right_b: int | None = None
    right_to_wrong: int | None = None
    wrong_to_right: int | None = None
    mcnemar_p: float | None = None


def changed_answers(
    a: Traces, b: Traces, extract: Callable[[str], str | None], truth: Sequence[str] | None = None
) -> Answers:
    """Where texts changed, did the answers? `extract` reads the answer from a text; None says that it cannot.

    Raises:
        TraceMismatch: as `compare_runs`; or a trace has no text; or there are not as many truths as prompts.
    """
    read = _in_pairs(lambda s, t: (extract(_text(s)), extract(_text(t))), a, b)
    changed = sum(x != y for x, y in read)
    if truth is None:
        return Answers(n=len(read), changed=changed)
    if len(truth) != len(read):
        raise TraceMismatch(f"{len(truth)} right answers for {len(read)} prompts")
    right = [(x == t, y == t) for (x, y), t in zip(read, truth, strict=True)]
    worse, better, both = right.count((True, False)), right.count((False, True)), right.count((True, True))
    return Answers(
        n=len(read), changed=changed, right_a=both + worse, right_b=both + better,
        right_to_wrong=worse, wrong_to_right=better, mcnemar_p=mcnemar(worse, better),
    )  # fmt: skip


def perplexity(trace: Trace) -> float:
    """exp(-mean logprob). nan without tokens or logprobs, or where one is nan; inf for an impossible token."""
    with np.errstate(over="ignore"):
        return float(np.exp(-np.mean(trace.logprobs))) if trace.logprobs else float("nan")


def repetition(answer: Trace | Sequence[int], n: int = 4) -> float:
    """Share of n-grams that came before: 1 - distinct / all; 0 for fewer than n tokens.

    seq-rep-n of Welleck et al. (arXiv:1908.04319), which is 1 - distinct-n of Li et al. (arXiv:1510.03055).
    """
    ids = answer.token_ids if isinstance(answer, Trace) else answer
    grams = ngrams(ids, n, max(ids, default=0))
    return 1 - len(np.unique(grams)) / len(grams) if len(grams) else 0.0


def unique_completions(traces: Sequence[Trace]) -> int:
    """How many different answers N traces of one prompt hold, by ids. It grows with N, so say N beside it."""
    _one_prompt(traces)
    return len({t.token_ids for t in traces})


def div_index(traces: Sequence[Trace]) -> int | None:
    """Where N traces of one prompt first are not all equal (Div_Index of arXiv:2506.09501); None if they stay equal."""
    _one_prompt(traces)
    forks = (first_difference(traces[0].token_ids, t.token_ids) for t in traces)
    return min((f for f in forks if f is not None), default=None)


def _same_prompt(a: Trace, b: Trace) -> None:
    p, q = a.prompt_ids, b.prompt_ids
    i = first_difference(p, q)
    if i is None and (p or a.prompt == b.prompt):
        return
    if i is None:
        what = f"there are no prompt ids, and the texts differ: {a.prompt[:40]!r} against {b.prompt[:40]!r}"
    else:
        id_a, id_b = (f"id {ids[i]}" if i < len(ids) else "no more" for ids in (p, q))
        what = f"prompts of {len(p)} and {len(q)} tokens differ at index {i}: {id_a} against {id_b}"
    raise TraceMismatch(f"{what}. Compare the inputs before the outputs: chat template, BOS, tokenizer revision")


def _one_prompt(traces: Sequence[Trace]) -> None:
    if not traces:
        raise TraceMismatch("no traces")
    for trace in traces[1:]:
        _same_prompt(traces[0], trace)


def _in_pairs(compare: Callable[[Trace, Trace], Any], a: Traces, b: Traces) -> list[Any]:
    first, second = (x.traces if isinstance(x, Run) else x for x in (a, b))
    if not first or len(first) != len(second):
        raise TraceMismatch(f"{len(first)} traces against {len(second)}; give the same prompts to both sides")
    found = []
    for i, (s, t) in enumerate(zip(first, second, strict=True)):
        try:
            _same_prompt(s, t)
            found.append(compare(s, t))
        except TraceMismatch as e:
            raise TraceMismatch(f"prompt {i}: {e}") from None
    return found


def _text(trace: Trace) -> str:
    if trace.token_ids and not trace.tokens:
        raise TraceMismatch("a trace has token ids but no text to read an answer from")
    return trace.text


def _has_logprobs(trace: Trace) -> bool:
    return len(trace.logprobs) == len(trace.token_ids)


def _drift(a: Trace, b: Trace, common: int) -> dict[str, Any]:
    """The fields of `Drift` for traces whose first `common` ids are the same."""
    dlogprob = differing = None
    if _has_logprobs(a) and _has_logprobs(b):
        x, y = (np.fromiter(t.logprobs[:common], float, common) for t in (a, b))
        differing = int(np.count_nonzero(x.view(np.int64) != y.view(np.int64)))
        dlogprob = np.maximum(y, IMPOSSIBLE) - np.maximum(x, IMPOSSIBLE)
    size = None if dlogprob is None else np.abs(dlogprob)
    top_a, top_b = a.top[: common + 1], b.top[: common + 1]
    blocks = [compare_tops(top_a[i : i + BLOCK], top_b[i : i + BLOCK]) for i in range(0, common + 1, BLOCK)]
    margins_a, margins_b, same, overlap, kl = (np.concatenate(column) for column in zip(*blocks, strict=True))
    return {
        "dlogprob": _tuple(dlogprob), "positions_differing": differing, "max_abs_dlogprob": _over(np.max, size),
        "mean_abs_dlogprob": _over(np.mean, size), "mean_dlogprob": _over(np.mean, dlogprob),
        "margins_a": _tuple(margins_a) if a.top else None, "margins_b": _tuple(margins_b) if b.top else None,
        "top_1_agreement": _over(np.mean, same), "top_k_overlap": _over(np.mean, overlap),
        "kl_mean": _over(np.mean, kl), "kl_max": _over(np.max, kl),
    }  # fmt: skip


def _at(i: int, trace: Trace, margins: tuple[float | None, ...] | None) -> tuple[Any, Any, Any, dict[Any, int]]:
    """A trace's id, token and margin at position i, and the rank of each reported id. None past its end."""
    if i >= len(trace.token_ids):
        return None, None, None, {}
    ranks = {t[0]: rank for rank, t in enumerate(trace.top[i], 1)} if trace.top else {}
    return trace.token_ids[i], trace.tokens[i] if trace.tokens else None, margins[i] if margins else None, ranks


def _tuple(values: Floats | None) -> tuple[float | None, ...] | None:
    if values is None or not np.isnan(values).any():
        return None if values is None else tuple(values.tolist())
    return tuple(None if v != v else v for v in values.tolist())


def _over(statistic: Callable[[Floats], Any], values: Floats | None) -> float | None:
    """A statistic of the values that are known; None without any."""
    known = values[~np.isnan(values)] if values is not None else np.empty(0)
    return float(statistic(known)) if known.size else None


def _pool(statistic: Callable[[list[Any]], Any], parts: Sequence[Any], name: str) -> Any:
    """A statistic of one attribute over the parts that have it; None without any."""
    known = [value for part in parts if (value := getattr(part, name)) is not None]
    return statistic(known) if known else None


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
