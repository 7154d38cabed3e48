"""Number formats drawn: which numbers there are, and how a row of a matrix product changes with the rows beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from course_lib.errors import ConfigError
from course_lib.i18n import N_
from course_lib.numerics import FloatFormat, round_to, ulps_between
from course_lib.plots.style import COLOURS, Picture, _, badge, chart, drawing, number, say, zero_log

if TYPE_CHECKING:
    from course_lib.evidence import Evidence

MOST_TICKS = 600  # more than that are a solid band on any screen

# Each format keeps its colour and its marker in every figure.
LOOKS = {
    "fp32": (COLOURS["ink"], "s"), "tf32": (COLOURS["muted"], "p"), "bf16": (COLOURS["b"], "o"),
    "fp16": (COLOURS["a"], "^"), "e4m3": (COLOURS["good"], "D"), "e5m2": (COLOURS["bad"], "X"),
}  # fmt: skip


def _count(fmt: FloatFormat, lo: float, hi: float) -> int:
    """How many numbers a format has from lo to hi."""
    lo, hi = max(lo, -fmt.max), min(hi, fmt.max)
    if lo > hi:
        return 0
    ends = round_to([lo, hi], fmt)
    return int(ulps_between(lo, hi, fmt)) + 1 - int(ends[0] < lo) - int(ends[1] > hi)


@drawing
def number_line(formats: Sequence[FloatFormat], lo: float, hi: float, *, title: str = "") -> Picture:
    """The numbers that each format has between lo and hi, one line each.

    Raises:
        ConfigError: no formats, or lo is not below hi.
    """
    if not formats or not lo < hi:
        raise ConfigError(f"a number line needs formats and lo < hi, not {len(formats)} formats from {lo} to {hi}")
    counts = {f.name: _count(f, lo, hi) for f in formats}
    figure, (ax,) = chart(9, 1.2 + 0.62 * len(formats))
    for row, f in enumerate(formats):
        colour = LOOKS.get(f.name, (COLOURS["ink"], ""))[0]
        ax.axhline(row, color=COLOURS["grid"], lw=1, zorder=0)
        if counts[f.name] > MOST_TICKS:
            ax.fill_between([max(lo, -f.max), min(hi, f.max)], row - 0.28, row + 0.28, color=colour, alpha=0.85, lw=0)
        else:
            ax.vlines(f.values(lo, hi), row - 0.28, row + 0.28, color=colour, lw=1.6 if counts[f.name] < 200 else 0.8)
        ax.annotate(
            f"{counts[f.name]:,}", (1, row), xycoords=("axes fraction", "data"), xytext=(10, 0),
            textcoords="offset points", va="center", size=12, weight="bold",
        )  # fmt: skip
    ax.set_yticks(range(len(formats)), [f.name for f in formats])
    ax.tick_params(axis="y", length=0, labelsize=12)
    pad = (hi - lo) * 0.01
    ax.set(xlim=(lo - pad, hi + pad), ylim=(len(formats) - 0.5, -0.5))
    ax.spines[["left"]].set_visible(False)
    ax.grid(False)
    ax.set_title(title or _("Numbers from {lo:g} to {hi:g}, and how many").format(lo=lo, hi=hi))
    listed = ", ".join(f"{name} {n:,}" for name, n in counts.items())
    return Picture(figure, say(N_("Numbers from {lo:g} to {hi:g}: {listed}."), lo=lo, hi=hi, listed=listed))


@drawing
def row_error(
    sizes: Sequence[int], errors: Mapping[str, Sequence[float]], *, title: str = "", source: Evidence | None = None
) -> Picture:
    """One row of a matrix product: its largest difference from M = 1 when M rows are multiplied; zeros seen as such.

    Args:
        sizes: M, ascending.
        errors: name (a number format, as a rule) -> one largest absolute difference for each M.

    Raises:
        ConfigError: nothing to draw, or a list of another length than `sizes`.
    """
    if not sizes or not errors:
        raise ConfigError("no sizes or no errors to draw")
    if wrong := [n for n, e in errors.items() if len(e) != len(sizes)]:
        raise ConfigError(f"{wrong[0]} has {len(errors[wrong[0]])} errors for {len(sizes)} sizes")
    figure, (ax,) = chart(9, 4.2)
    place = zero_log(ax.yaxis, [v for e in errors.values() for v in e])
    spare = iter([(COLOURS["ink"], "v"), (COLOURS["bad"], "P"), (COLOURS["muted"], "*")] * len(errors))
    x = range(len(sizes))
    for i, (name, values) in enumerate(errors.items()):
        colour, marker = LOOKS[name] if name in LOOKS else next(spare)
        nudge = (i - (len(errors) - 1) / 2) * 0.08  # so that zeros of several formats stay apart
        at, heights = [k + nudge for k in x], [place(v) for v in values]
        ax.plot(at, heights, "-", color=colour, lw=1.4, alpha=0.6)
        faces = [(k, h) for k, h, v in zip(at, heights, values, strict=True) if v > 0]
        zeros = [(k, h) for k, h, v in zip(at, heights, values, strict=True) if v == 0]
        ax.plot([], [], marker, ls="-", color=colour, ms=8, label=name)
        if faces:
            ax.plot(*zip(*faces, strict=True), marker, ls="none", ms=8, color=colour)
        if zeros:
            ax.plot(*zip(*zeros, strict=True), marker, ls="none", ms=8, mfc=COLOURS["paper"], mec=colour, mew=1.8)
    ax.set_xticks(x, [str(m) for m in sizes])
    ax.set(xlabel=_("rows in the product, M"), ylabel=_("max |difference| from M = 1"))
    ax.grid(axis="x", visible=False)
    ax.set_title(title or _("The same row, among more rows"))
    badge(ax, source)
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    parts = []
    for name, values in errors.items():
        other = [m for m, v in zip(sizes, values, strict=True) if v != 0]
        if other:
            at_m = ", ".join(map(str, other))
            parts.append(say(N_("{name} differs at M = {m}, at most {v}"), name=name, m=at_m, v=number(max(values))))
        else:
            parts.append(say(N_("{name} is exactly 0 at every M"), name=name))
    return Picture(figure, "; ".join(parts) + ".")
