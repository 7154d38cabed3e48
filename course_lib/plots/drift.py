"""How far numbers drift, and what that does: drift against margin, forks as near ties, the ladder of number formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from course_lib.compare import Comparison, Divergence, Drift
from course_lib.errors import ConfigError, TraceMismatch
from course_lib.i18n import N_
from course_lib.plots.style import (
    COLOURS,
    SMALL,
    Picture,
    Place,
    _,
    badge,
    chart,
    drawing,
    either,
    number,
    origin,
    say,
    zero_log,
)  # fmt: skip

if TYPE_CHECKING:
    from course_lib.evidence import Evidence

RUNGS = {"vLLM fp32": "fp32", "vLLM fp16": "fp16", "vLLM bf16": "bf16", "Transformers bf16": "hf_bf16"}
INK, GREEN, FORK, PAPER = COLOURS["ink"], COLOURS["good"], COLOURS["fork"], COLOURS["paper"]


@drawing
def drift_and_margin(d: Drift, *, title: str = "", source: Evidence | None = None) -> Picture:
    """|Δlogprob| token by token, with the gap to the runner-up: a fork needs a gap no larger than about the drift.

    Args:
        d: a `Divergence`, or a `ScoreDelta`, which has no fork.

    Raises:
        TraceMismatch: the traces had no logprobs, or a record keeps only sums for this prompt.
    """
    if d.dlogprob is None:
        raise TraceMismatch("no Δlogprob for each token: a trace has no logprobs, or a record keeps only sums here")
    fork = d.first if isinstance(d, Divergence) else None
    drift = [(i, abs(v)) for i, v in enumerate(d.dlogprob) if v is not None]
    pairs = zip(d.margins_a or (), d.margins_b or (), strict=False)
    margin = [(i, min(m, n)) for i, (m, n) in enumerate(pairs) if m is not None and n is not None]
    figure, (ax,) = chart(9, 4.4)
    place = zero_log(ax.yaxis, [v for _i, v in drift + margin])
    if margin:
        (line,) = ax.plot([i for i, _v in margin], [place(v) for _i, v in margin], color=GREEN, lw=1.8)
        line.set(drawstyle="steps-mid", label=_("top-2 margin, the smaller of both"))
    kinds = ((False, "o", INK, _("drift |Δlogprob|")), (True, "v", PAPER, _("drift exactly 0")))
    for zero, marker, face, label in kinds:
        if points := [(i, place(v)) for i, v in drift if (v == 0) == zero]:
            ax.plot(*zip(*points, strict=True), marker, ms=6.5, mfc=face, mec=INK, mew=1.3, ls="none", label=label)
    if d.max_abs_dlogprob:
        label = _("largest drift {v}").format(v=number(d.max_abs_dlogprob))
        ax.axhline(d.max_abs_dlogprob, color=INK, ls=":", lw=1.8, label=label)
    end = max([fork or 0, *(i for i, _v in drift + margin)])
    ax.set(xlabel=_("token (the first is 0)"), ylabel=_("nat"), xlim=(-0.8, end + max(1.5, end * 0.04)))
    if isinstance(d, Divergence) and fork is not None:
        ax.axvline(fork, color=FORK, lw=2, zorder=1)
        heights = [place(m) for m in (d.margin_a, d.margin_b) if m is not None]
        label = _("margins at the fork")
        ax.plot([fork] * len(heights), heights, "d", ms=10, mfc=FORK, mec=PAPER, ls="none", zorder=6, label=label)
        ax.annotate(
            _("fork at token {n}").format(n=fork), (fork, 1), xycoords=("data", "axes fraction"), xytext=(0, 4),
            textcoords="offset points", color=FORK, weight="bold", size=SMALL, ha="right" if fork > end / 2 else "left",
        )  # fmt: skip
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    ax.grid(axis="x", visible=False)
    ax.set_title(title or _("Drift and margin"), pad=26)
    badge(ax, source, pad=26)
    figure.legend(loc="outside lower center", ncols=3, handletextpad=0.4, columnspacing=1.2)
    return Picture(figure, _drift_says(d, len(drift), fork))


def _drift_says(d: Drift, n: int, fork: int | None) -> str:
    if not n:
        text = say(N_("No token before the fork"))
    elif not d.max_abs_dlogprob:
        text = say(N_("Drift is exactly 0 at all {n} tokens"), n=n)
    else:
        text = say(
            N_("Drift is not 0 at {k} of {n} tokens, at most {v} nat"),
            k=d.positions_differing, n=n, v=number(d.max_abs_dlogprob),
        )  # fmt: skip
    if not isinstance(d, Divergence):
        return text + "."
    if fork is None:
        return text + say(N_("; no fork."))
    if d.margin_a is None and d.margin_b is None:
        return text + say(N_("; fork at token {fork}, margins unknown."), fork=fork)
    return text + say(
        N_("; fork at token {fork}, where the top-2 margins are {a} and {b} nat."),
        fork=fork, a=number(d.margin_a), b=number(d.margin_b),
    )  # fmt: skip


@drawing
def fork_scatter(comparison: Comparison, *, title: str = "", source: Evidence | None = None) -> Picture:
    """Every fork: the wider of its two top-2 margins, over the largest drift before it. Below the line: near ties.

    Raises:
        TraceMismatch: there are forks, but none with both figures.
    """
    forks = [(i, d) for i, d in enumerate(comparison.divergences) if not d.exact]
    known = [
        (i, d.max_abs_dlogprob or 0.0, [m for m in (d.margin_a, d.margin_b) if m is not None])
        for i, d in forks
        if (d.max_abs_dlogprob is not None or d.first == 0) and (d.margin_a is not None or d.margin_b is not None)
    ]
    if forks and not known:
        raise TraceMismatch("no fork has both a drift and a margin: the traces lack logprobs or alternatives")
    figure, (ax,) = chart(7.4, 5)
    values = [v for _i, x, ms in known for v in (x, *ms)]
    across, up = zero_log(ax.xaxis, values), zero_log(ax.yaxis, values)
    ends = [across.edge, ax.get_xlim()[1]]
    ax.plot(ends, ends, color=COLOURS["muted"], lw=2)
    ax.fill_between(ends, [up.edge] * 2, ends, color=GREEN, alpha=0.12, lw=0)
    for _i, x, ms in known:
        ax.plot([across(x)] * 2, [up(min(ms)), up(max(ms))], color=FORK, lw=1.2, alpha=0.6)
        ax.plot(across(x), up(max(ms)), "d", ms=10, mfc=FORK, mec=PAPER, zorder=4)
    for x, y, ha, va, text in (
        (0.98, 0.04, "right", "bottom", _("near ties:\nmargin below drift")),
        (0.02, 0.97, "left", "top", _("wide margins:\nlook for another cause")),
    ):
        ax.text(x, y, text, transform=ax.transAxes, ha=ha, va=va, size=SMALL, style="italic")
    ax.set(xlabel=_("largest |Δlogprob| before the fork, nat"), ylabel=_("top-2 margin at the fork, nat"))
    ax.set_title(title or _("Forks: {k} of {n}").format(k=len(forks), n=comparison.n))
    badge(ax, source)
    if not known:
        return Picture(figure, say(N_("None of {n} answers forks."), n=comparison.n))
    below = sum(max(ms) <= x for _i, x, ms in known)
    widest, steepest = max(max(ms) for _i, _x, ms in known), max(x for _i, x, _ms in known)
    return Picture(figure, say(
        N_("{k} of {n} answers fork; in {below} of {known} the wider margin is no larger than the drift before the "
           "fork. Widest margin {margin}, largest drift {drift} nat."),
        k=len(forks), n=comparison.n, below=below, known=len(known), margin=number(widest), drift=number(steepest),
    ))  # fmt: skip


@drawing
def ladder(
    live: Evidence | None, recorded: Evidence | None = None, pairs: Mapping[str, str] | None = None, *, title: str = ""
) -> Picture:
    """|Δlogprob| against the reference, by number format: every token, the mean and the largest; reruns at exactly 0.

    Args:
        live, recorded: evidence of the same experiment (`dtype-ladder`), either may be missing.
        pairs: label -> name of a comparison; by default the formats of `dtype-ladder`. Reruns come below, as one.

    Raises:
        ConfigError: no evidence at all, or it has no such comparison.
    """
    sources = either(live, recorded)
    first = sources[0]
    rows = {label: [name] for label, name in (pairs or RUNGS).items() if pairs or name in first.comparisons}
    if reruns := [n for n in first.comparisons if n.endswith("rerun")]:
        rows[_("rerun")] = reruns
    missing = sorted({n for names in rows.values() for n in names} - first.comparisons.keys())
    if missing or not rows:
        have = ", ".join(first.comparisons)
        raise ConfigError(f"{first.experiment} has no comparison {', '.join(missing)}; it has {have}")
    found = [(e, row, label, _spread(e, names)) for e in sources for row, (label, names) in enumerate(rows.items())]
    figure, (ax,) = chart(9, 1.7 + 0.62 * len(rows))
    place = zero_log(ax.xaxis, [v for *_rest, s in found for v in (*s[0], *s[1:]) if v is not None])
    lane = 0.8 / len(sources)
    for e, row, _label, spread in found:
        _lane(ax, place, row + (sources.index(e) - (len(sources) - 1) / 2) * lane, lane, spread, origin(e.live))
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set(ylim=(len(rows) - 0.45, -0.55), xlabel=_("|Δlogprob| against the reference, nat"))
    ax.grid(axis="y", visible=False)
    ax.set_title(title or _("Distance from the reference"))
    for e in sources:
        ax.plot([], [], **origin(e.live) | {"ls": "none"}, label=_("{source}: largest").format(source=e.label))
    ax.plot([], [], "|", ms=14, mew=3, color=INK, label=_("mean"))
    if any(points for *_rest, (points, _mean, _most) in found):
        ax.plot([], [], ".", ms=6, color=COLOURS["muted"], label=_("one token"))
    figure.legend(loc="outside lower center", ncols=2 if len(sources) > 1 else 3)
    parts = [
        _("{label}: mean {mean}, largest {most}").format(label=label, mean=number(mean), most=number(most))
        for e, _row, label, (_points, mean, most) in found
        if e is first
    ]
    return Picture(figure, f"{first.label}, |Δlogprob|: " + "; ".join(parts) + ".")


Spread = tuple[list[float], float | None, float | None]


def _spread(e: Evidence, names: list[str]) -> Spread:
    """|Δlogprob| of every token that is kept, the mean and the largest; of several comparisons, the worst."""
    kept = [c for n in names if (c := e.comparisons.get(n))]
    means = [c.mean_abs_dlogprob for c in kept if c.mean_abs_dlogprob is not None]
    most = [c.max_abs_dlogprob for c in kept if c.max_abs_dlogprob is not None]
    points = [abs(v) for c in kept for d in c.parts for v in d.dlogprob or () if v is not None]
    return points, max(means, default=None), max(most, default=None)


def _lane(ax: Axes, place: Place, y: float, lane: float, spread: Spread, look: dict[str, Any]) -> None:
    points, mean, most = spread
    golden = 0.6180339887  # spreads the points evenly, the same each time
    heights = [y + (i * golden % 1 - 0.5) * lane * 0.7 for i in range(len(points))]
    ax.plot([place(v) for v in points], heights, ".", ms=4, color=look["color"], alpha=0.35, mew=0, zorder=2)
    if mean is not None and most is not None:
        ax.plot([place(mean), place(most)], [y, y], color=look["color"], ls=look["ls"], lw=1.6, zorder=3)
        ax.plot([place(mean)], [y], "|", ms=13, mew=3, color=INK, zorder=4)
        ax.plot([place(most)], [y], **look | {"ls": "none", "zorder": 5})
