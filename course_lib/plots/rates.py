"""How often, and how much: rates with their intervals, the batch sweep, and what each metric sees."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from course_lib.compare import Comparison
from course_lib.errors import ConfigError
from course_lib.i18n import N_
from course_lib.measures import wilson
from course_lib.plots.style import COLOURS, SMALL, Picture, _, chart, drawing, either, number, origin, say, zero_log

if TYPE_CHECKING:
    from course_lib.evidence import Evidence


@drawing
def sweep(
    live: Evidence | None, recorded: Evidence | None = None, pairs: Mapping[str, str] | None = None, *,
    xlabel: str = "", title: str = "",
) -> Picture:  # fmt: skip
    """Forks, with their Wilson interval, and the largest |Δlogprob| against the size of the batch.

    Args:
        live, recorded: evidence of the same experiment (`batch-sweep`), either may be missing.
        pairs: tick -> name of a comparison; by default every "n<number>", and the reruns as one.

    Raises:
        ConfigError: no evidence at all, or it has no such comparison.
    """
    sources = either(live, recorded)
    first = sources[0]
    ticks: dict[str, list[str]]
    if pairs:
        ticks = {tick: [name] for tick, name in pairs.items()}
    else:
        ticks = {n[1:]: [n] for n in first.comparisons if re.fullmatch(r"n\d+", n)}
        if reruns := [n for n in first.comparisons if n.endswith("rerun")]:
            ticks[_("rerun")] = reruns
    if not ticks or any(n not in first.comparisons for names in ticks.values() for n in names):
        raise ConfigError(f"{first.experiment} has no such comparisons; it has {', '.join(first.comparisons)}")
    rerun = len(ticks) - 1 if _("rerun") in ticks else None
    figure, (left, right) = chart(9.6, 4.2, columns=2)
    points = {}
    for e in sources:
        pooled = [_pooled([e.comparisons.get(n) for n in names]) for names in ticks.values()]
        points[e.label] = {i: p for i, p in enumerate(pooled) if p}
    place = zero_log(right.yaxis, [p[2] for found in points.values() for p in found.values() if p[2] is not None])
    for k, e in enumerate(sources):
        nudge, found, look = (k - (len(sources) - 1) / 2) * 0.22, points[e.label], origin(e.live)
        for alone in (False, True):  # a rerun is no batch size: no line leads to it
            if not (part := {i: p for i, p in found.items() if (i == rerun) == alone}):
                continue
            _with_intervals(left, [(i + nudge, p[0], p[1]) for i, p in part.items()], look, None if alone else e.label)
            drift = [(i + nudge, place(p[2])) for i, p in part.items() if p[2] is not None]
            right.plot([x for x, _y in drift], [y for _x, y in drift], **look)
    sizes = {p[1] for found in points.values() for i, p in found.items() if i != rerun}
    of = _("answers that fork, of {n}").format(n=sizes.pop()) if len(sizes) == 1 else _("answers that fork")
    left.set(ylim=(-0.04, 1.04), ylabel=of)
    left.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    right.set(ylabel=_("largest |Δlogprob|, nat"))
    for ax in (left, right):
        ax.set_xticks(range(len(ticks)), list(ticks))
        ax.set(xlabel=xlabel or _("requests together (against 1)"), xlim=(-0.5, len(ticks) - 0.5))
        ax.grid(axis="x", visible=False)
        if rerun:
            ax.axvline(rerun - 0.5, color=COLOURS["muted"], lw=1)
    left.set_title(title or _("Forks, with 95 % interval"))
    right.set_title(_("Drift before the fork"))
    figure.legend(loc="outside lower center", ncols=2)
    says = [
        f"{e.label}: "
        + "; ".join(
            say(N_("{tick}: {k} of {n} fork, drift {v}"), tick=tick, k=p[0], n=p[1], v=number(p[2]))
            for i, tick in enumerate(ticks)
            if (p := points[e.label].get(i))
        )
        for e in sources
    ]
    return Picture(figure, ". ".join(says) + ".")


def _pooled(comparisons: Sequence[Any]) -> tuple[int, int, float | None] | None:
    """Forks, answers, and largest drift of one comparison, or of several reruns together."""
    given = [c for c in comparisons if isinstance(c, Comparison)]
    if not given:
        return None
    drift = [c.max_abs_dlogprob for c in given if c.max_abs_dlogprob is not None]
    return sum(c.forks for c in given), sum(c.n for c in given), max(drift, default=None)


def _with_intervals(
    ax: Axes, points: Sequence[tuple[float, int, int]], look: dict[str, Any], label: str | None
) -> None:
    """k of n at each x, with Wilson's interval."""
    arms = [_arms(k, n) for _x, k, n in points]
    look = look | {"capsize": 5, "elinewidth": 1.8, "capthick": 1.8, "label": label, "clip_on": False}
    ax.errorbar([p[0] for p in points], [k / n for _x, k, n in points], yerr=list(zip(*arms, strict=True)), **look)


def _arms(k: int, n: int) -> tuple[float, float]:
    """How far Wilson's interval reaches below and above k of n."""
    low, high = wilson(k, n)
    return max(0.0, k / n - low), max(0.0, high - k / n)


@drawing
def bars_with_intervals(
    rows: Mapping[str, tuple[int, int]] | None, recorded: Mapping[str, tuple[int, int]] | None = None, *,
    labels: tuple[str, str] = (N_("LIVE"), N_("RECORDED")), xlabel: str = "", title: str = "",
) -> Picture:  # fmt: skip
    """Rates k of n as bars with Wilson's 95 % interval; live ones full and blue, recorded ones hatched and orange.

    Args:
        rows, recorded: name -> (k, n). Either may be missing; names that only one has are drawn too.

    Raises:
        ConfigError: nothing to draw, or k is not between 0 and n.
    """
    given = [(live, label, kn) for live, label, kn in ((True, labels[0], rows), (False, labels[1], recorded)) if kn]
    if not given:
        raise ConfigError("no rates to draw")
    names = list(dict.fromkeys(n for _live, _label, kn in given for n in kn))
    figure, (ax,) = chart(9, 1.6 + (0.45 + 0.3 * (len(given) - 1)) * len(names))
    lane = 0.8 / len(given)
    says, widest = [], 0.0
    for g, (live, label, kn) in enumerate(given):
        look = origin(live)
        fill = {"fc": look["color"]} if live else {"fc": COLOURS["paper"], "hatch": "///"}
        for row, name in enumerate(names):
            if name not in kn:
                continue
            k, n = kn[name]
            low, high = wilson(k, n)
            y = row + (g - (len(given) - 1) / 2) * lane
            key = _(label) if name == next(iter(kn)) else None
            ax.barh(y, k / n, lane * 0.86, ec=look["color"], lw=1.8, label=key, **fill)
            arms = [[arm] for arm in _arms(k, n)]
            point = look | {"ls": "none", "ecolor": COLOURS["ink"], "capsize": 4, "elinewidth": 1.6, "zorder": 4}
            if live:
                point["mec"] = COLOURS["paper"]
            ax.errorbar(k / n, y, xerr=arms, clip_on=False, **point)
            widest = max(widest, high)
            ax.text(high + 0.02, y, _("{k} of {n}").format(k=k, n=n), va="center", size=SMALL)
            says.append(say(
                N_("{name} ({label}): {k} of {n}, {low:.0%} to {high:.0%}"),
                name=name, label=say(label), k=k, n=n, low=low, high=high,
            ))  # fmt: skip
    ax.set_yticks(range(len(names)), names)
    ax.set(ylim=(len(names) - 0.45, -0.55), xlabel=xlabel or _("share, with 95 % interval"))
    ax.set_xticks([i / 10 for i in range(11)], [f"{10 * i} %" for i in range(11)])
    ax.set_xlim(0, widest + 0.12 * max(widest, 0.3))
    ax.grid(axis="y", visible=False)
    ax.tick_params(axis="y", length=0, pad=9)
    if title:
        ax.set_title(title)
    figure.legend(loc="outside lower center", ncols=2)
    return Picture(figure, "; ".join(says) + ".")


@drawing
def metric_matrix(
    rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float | None]], *,
    neutral: float | Sequence[float] = 0.0, title: str = "",
) -> Picture:  # fmt: skip
    """What each metric (row) says of each perturbation (column): the number, on a shade that shows how much it sees.

    Args:
        values: one list for each row; None is unknown.
        neutral: what a metric says when nothing differs, for all rows or one for each: 0 for a distance, 1 for a match
            rate. A cell at that value is blank paper: the metric is blind there.

    Raises:
        ConfigError: `values` or `neutral` does not fit rows and columns.
    """
    calm = list(neutral) if isinstance(neutral, Sequence) else [neutral] * len(rows)
    fits = len(values) == len(calm) == len(rows) and all(len(r) == len(columns) for r in values)
    if not rows or not columns or not fits:
        raise ConfigError(f"values must be {len(rows)} lists of {len(columns)} numbers, one for each metric")
    shades = LinearSegmentedColormap.from_list("seen", ["#E0F2EC", "#00664B"])
    figure, (ax,) = chart(max(7, 2.4 + 1.35 * len(columns)), 1.5 + 0.5 * len(rows))
    blind = []
    for i, (name, cells) in enumerate(zip(rows, values, strict=True)):
        seen = [abs(v - calm[i]) if v is not None else 0.0 for v in cells]
        for j, value in enumerate(cells):
            share = seen[j] / max(seen) if max(seen) else 0.0
            face = shades(share) if seen[j] else COLOURS["paper"]
            hatch = None if seen[j] or value is None else "...."
            ax.add_patch(Rectangle((j - 0.48, i - 0.46), 0.96, 0.92, fc=face, ec=COLOURS["grid"], lw=1, hatch=hatch))
            text = _("unknown") if value is None else number(value)
            ax.text(
                j, i, text, ha="center", va="center", size=12, weight="bold" if seen[j] else "normal",
                color=COLOURS["paper"] if share > 0.6 else COLOURS["ink"] if seen[j] else COLOURS["muted"],
            )  # fmt: skip
            if value is not None and not seen[j]:
                blind.append(say(N_("{metric} to {what}"), metric=name, what=columns[j]))
    ax.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(rows)), rows)
    ax.tick_params(length=0, labeltop=True, labelbottom=False)
    ax.grid(False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    if title:
        ax.set_title(title, pad=14)
    cells_seen = sum(v is not None for r in values for v in r) - len(blind)
    listed = ", ".join(blind).replace("\n", " ") or say(N_("none"))
    return Picture(figure, say(
        N_("{seen} of {all} cells differ from nothing; blind: {blind}."),
        seen=cells_seen, all=len(rows) * len(columns), blind=listed,
    ))  # fmt: skip
