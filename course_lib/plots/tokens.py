"""Two answers, token by token: the strip that forks, the map of many forks, and who shared the steps."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import FancyBboxPatch, PathPatch, Rectangle
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator

from course_lib.compare import Comparison, Divergence, compare_runs, divergence
from course_lib.errors import ConfigError
from course_lib.i18n import N_
from course_lib.plots.style import (
    COLOURS,
    MONO,
    SMALL,
    Picture,
    _,
    badge,
    canvas,
    chart,
    drawing,
    families,
    glyphs,
    number,
    say,
    width_of,
)  # fmt: skip
from course_lib.trace import Run, Trace

if TYPE_CHECKING:
    from course_lib.evidence import Evidence

SIZE = 12
CELL = 0.602 * SIZE / 72  # width of a character in DejaVu Sans Mono, inches
HEIGHT, INSET, GAP, EDGE = 0.34, 0.06, 0.05, 0.25
STEM = 0.62  # room for the two connections at the fork

Box = tuple[str, str]  # text, colour of the face


def _tint(colour: str, share: float = 0.32) -> tuple[float, float, float]:
    """The colour, thinned with white."""
    r, g, b = to_rgb(colour)
    return 1 - share * (1 - r), 1 - share * (1 - g), 1 - share * (1 - b)


def _width(text: str) -> float:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text) * CELL + 2 * INSET


def _fit(texts: Sequence[str], room: float) -> int:
    """How many boxes fit side by side into `room` inches."""
    used = 0.0
    for n, text in enumerate(texts):
        used += _width(text) + GAP
        if used - GAP > room:
            return n
    return len(texts)


def _boxes(ax: Axes, x: float, y: float, texts: Sequence[str], face: object, first: str | None = None) -> float:
    """Draw boxes from x on, centred on y, the first one in full colour if it is given; returns where they end."""
    for i, text in enumerate(texts):
        strong = first if i == 0 else None
        style = "round,pad=0,rounding_size=0.05"
        edge = COLOURS["fork"] if strong else "none"
        ax.add_patch(
            FancyBboxPatch((x, y - HEIGHT / 2), _width(text), HEIGHT, boxstyle=style, fc=strong or face, ec=edge, lw=2)
        )
        marks = len(text) - len(text.lstrip("␣")) if text.strip("␣") else 0
        weight = "bold" if strong else "normal"
        font: dict[str, Any] = {"size": SIZE, "family": families(MONO), "va": "center_baseline", "weight": weight}
        if marks:  # a space that leads a word steps back
            ax.text(x + INSET, y, text[:marks], color=COLOURS["ink" if strong else "muted"], alpha=0.7, **font)
        ax.text(x + INSET + marks * CELL, y, text[marks:], **font)
        x += _width(text) + GAP
    return x


def _shown(trace: Trace) -> list[str]:
    return [glyphs(t) for t in trace.tokens] if trace.tokens else [str(i) for i in trace.token_ids]


def _common(tokens: list[str], room: float) -> list[str]:
    """The common tokens, with their middle left out where there is not room for all."""
    if _fit(tokens, room) == len(tokens):
        return tokens
    for head in (3, 2, 1, 0):
        left = tokens[:head]
        note = _("… {n} equal …")
        rest = room - sum(_width(t) + GAP for t in [*left, note.format(n=len(tokens))])
        if (tail := _fit(tokens[: head - 1 : -1] if head else tokens[::-1], rest)) or not head:
            return [*left, note.format(n=len(tokens) - head - tail), *tokens[len(tokens) - tail :]]
    raise AssertionError("unreachable")


def _caption(trace: Trace, at: int, margin: float | None) -> str:
    if at >= len(trace.token_ids):
        return _("ends here")
    if margin is None:
        return _("margin unknown")
    if margin == 0:
        return _("an exact tie with the runner-up")
    return _("ahead of the runner-up by {v} nat").format(v=number(margin))


@drawing
def token_strip(
    a: Trace, b: Trace, labels: tuple[str, str] = (N_("alone"), N_("among eight")), *,
    width: float = 11, lines: int = 3, source: Evidence | None = None,
) -> Picture:  # fmt: skip
    """Two answers to one prompt: what they share in grey, and where they fork, with each one's own way from there on.

    Args:
        width: inches.
        lines: at most so many lines; what does not fit is counted.
        source: adds the LIVE or RECORDED label.

    Raises:
        TraceMismatch: the traces answer different prompts.
    """
    d = divergence(a, b)
    names = (_(labels[0]), _(labels[1]))
    if d.first is None:
        return _one_strip(a, d, names, width, source)
    room = width - 2 * EDGE
    stem = _common(_shown(a)[: d.first], room * 0.48)
    knot = EDGE + sum(_width(t) + GAP for t in stem) + 0.08  # where the ways part
    start = knot + STEM
    ways = [_shown(t)[d.first :] or [_("■ end")] for t in (a, b)]
    rows = [_rows(way, [width - EDGE - start, *[room] * (lines - 1)]) for way in ways]
    spread = 0.36  # from the middle of the first line to either way
    middle = 0.85 + HEIGHT / 2 + spread
    more = [[way[i] for way in rows if i < len(way)] for i in range(1, max(map(len, rows)))]
    low = middle + spread + HEIGHT / 2 + 0.45
    figure, ax = canvas(width, low + sum(len(part) * (HEIGHT + GAP) + 0.2 for part in more))
    heading = _("Fork at token {n}").format(n=d.first) if d.first else _("Fork at the first token")
    ax.text(EDGE, 0.33, heading, size=14, weight="bold")
    badge(ax, source, at=(width - EDGE, 0.33))
    _boxes(ax, EDGE, middle, stem, COLOURS["common"])
    for side, key, trace, way, name, margin in (
        (-1, "a", a, rows[0], names[0], d.margin_a),
        (1, "b", b, rows[1], names[1], d.margin_b),
    ):
        y = middle + side * spread
        _branch(ax, knot, start - GAP, middle, y, COLOURS[key])
        _boxes(ax, start, y, way[0], _tint(COLOURS[key]), first=COLOURS[key])
        says, gap = _caption(trace, d.first, margin), width_of(name, SMALL, "bold") + 0.12
        x = max(EDGE, min(start, width - EDGE - gap - width_of(says, SMALL)))
        y += side * (HEIGHT / 2 + 0.18)
        ax.text(x, y, name, size=SMALL, va="center_baseline", weight="bold")
        ax.text(x + gap, y, says, size=SMALL, va="center_baseline")
    for part in range(1, 1 + len(more)):
        for key, way in (("a", rows[0]), ("b", rows[1])):
            if part < len(way):
                _boxes(ax, EDGE, low + HEIGHT / 2, way[part], _tint(COLOURS[key]))
                low += HEIGHT + GAP
        low += 0.2
    ax.plot([knot], [middle], "o", ms=11, color=COLOURS["fork"], zorder=5)
    return Picture(figure, _strip_says(d, names))


def _rows(way: list[str], rooms: Sequence[float]) -> list[list[str]]:
    """The boxes in lines; the last line ends with a count of those left out."""
    out: list[list[str]] = []
    for i, room in enumerate(rooms):
        n = _fit(way, room)
        if n < len(way) and i == len(rooms) - 1:
            n = _fit(way, room - _width("… +9999") - GAP)
            return [*out, [*way[:n], f"… +{len(way) - n}"]]
        out.append(way[:n])
        way = way[n:]
        if not way:
            break
    return out


def _branch(ax: Axes, x0: float, x1: float, y0: float, y1: float, colour: str) -> None:
    half = (x0 + x1) / 2
    path = Path([(x0, y0), (half, y0), (half, y1), (x1, y1)], [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
    ax.add_patch(PathPatch(path, fc="none", ec=colour, lw=4, capstyle="round"))


def _one_strip(trace: Trace, d: Divergence, names: tuple[str, str], width: float, source: Evidence | None) -> Picture:
    tokens = _shown(trace) or ["∅"]
    figure, ax = canvas(width, 1.5)
    ax.text(EDGE, 0.33, _("No fork: {n} of {n} tokens are equal").format(n=d.n_a), size=14, weight="bold")
    badge(ax, source, at=(width - EDGE, 0.33))
    _boxes(ax, EDGE, 0.8, _common(tokens, width - 2 * EDGE), COLOURS["common"])
    drift, value = _drift(d)
    text = f"{names[0]} = {names[1]}"
    ax.text(EDGE, 1.24, text, size=SMALL, va="center_baseline", weight="bold")
    after = EDGE + width_of(text, SMALL, "bold") + 0.12
    ax.text(after, 1.24, _(drift).format(v=value), size=SMALL, va="center_baseline")
    return Picture(figure, say(
        N_("No fork: {a} and {b} agree in {n} of {n} tokens; {drift}."),
        a=names[0], b=names[1], n=d.n_a, drift=say(drift, v=value),
    ))  # fmt: skip


def _drift(d: Divergence) -> tuple[str, str]:
    """What to say of the drift, and the value that goes into it."""
    if d.max_abs_dlogprob is None:
        return N_("logprobs unknown"), ""
    if d.max_abs_dlogprob == 0:
        return N_("no logprob differs"), ""
    return N_("largest |Δlogprob| {v} nat"), number(d.max_abs_dlogprob)


def _strip_says(d: Divergence, names: tuple[str, str]) -> str:
    ways = [
        say(N_("{name} ends"), name=name) if at is None
        else say(N_("{name} goes on with '{token}'"), name=name, token=token) if margin is None
        else say(N_("{name} goes on with '{token}' (margin {v} nat)"), name=name, token=token, v=number(margin))
        for name, at, token, margin in (
            (names[0], d.id_a, glyphs(d.token_a or str(d.id_a)), d.margin_a),
            (names[1], d.id_b, glyphs(d.token_b or str(d.id_b)), d.margin_b),
        )
    ]  # fmt: skip
    drift, value = _drift(d)
    drift = "" if d.first == 0 else say(N_("; before the fork: {drift}"), drift=say(drift, v=value))
    return say(N_("Equal tokens: {n}; then a fork: {a}, {b}{drift}."), n=d.first, a=ways[0], b=ways[1], drift=drift)


@drawing
def token_strips(
    pairs: Comparison | Sequence[tuple[Trace, Trace]], names: Sequence[str] = (), *,
    width: float = 9, title: str = "", source: Evidence | None = None,
) -> Picture:  # fmt: skip
    """The fork map: one line for each prompt, a cell for each token, grey until the answers fork.

    Args:
        pairs: what `compare_runs` gave (all that a record needs), or pairs of traces.
        names: of the prompts; numbers by default.
    """
    if not isinstance(pairs, Comparison):
        if not pairs:
            raise ConfigError("no pairs of traces to draw")
        pairs = compare_runs([a for a, _b in pairs], [b for _a, b in pairs])
    ds = pairs.divergences
    if len(names) not in (0, len(ds)):
        raise ConfigError(f"{len(names)} names for {len(ds)} prompts")
    figure, (ax,) = chart(width, 1.3 + 0.32 * len(ds))
    longest = max(1, *(max(d.n_a, d.n_b) for d in ds))
    for row, d in enumerate(ds):
        end = max(d.n_a, d.n_b)
        fork = end if d.first is None else d.first
        for x0, x1, colour in ((0, fork, COLOURS["common"]), (fork, end, COLOURS["b"])):
            ax.add_patch(Rectangle((x0, row - 0.38), x1 - x0, 0.76, fc=colour, ec="none"))
        if longest <= 150:
            ax.vlines(range(1, end), row - 0.38, row + 0.38, color=COLOURS["paper"], lw=0.8)
        if d.first is not None:
            ax.plot([fork], [row], "d", ms=9, mfc=COLOURS["fork"], mec=COLOURS["paper"], zorder=5, clip_on=False)
        note, colour = ("=", COLOURS["good"]) if d.first is None else (str(fork), COLOURS["fork"])
        ax.text(end + longest * 0.015, row, note, va="center", size=SMALL, color=colour, weight="bold")
    ax.set(xlim=(0, longest * 1.06), ylim=(len(ds) - 0.4, -0.6), xlabel=_("token (the first is 0)"))
    ax.set_yticks(range(len(ds)), names or [_("prompt {i}").format(i=i) for i in range(len(ds))])
    ax.grid(False)
    ax.tick_params(length=0)
    ax.spines[["left"]].set_visible(False)
    ax.set_title(title or _("{k} of {n} answers fork").format(k=pairs.forks, n=pairs.n))
    badge(ax, source)
    firsts = [(f, i) for i, f in enumerate(pairs.first_forks) if f is not None]
    if not firsts:
        return Picture(figure, say(N_("0 of {n} answers fork."), n=pairs.n))
    (early, at), (late, last) = min(firsts), max(firsts)
    return Picture(figure, say(
        N_("{k} of {n} answers fork, the earliest at token {early} (prompt {at}), the latest at token {late} "
           "(prompt {last})."),
        k=pairs.forks, n=pairs.n, early=early, at=at, late=late, last=last,
    ))  # fmt: skip


@drawing
def step_sizes(
    traces: Trace | Run | Sequence[Trace], labels: Sequence[str] = (), *, source: Evidence | None = None
) -> Picture:
    """How many requests, and how many tokens in all, the engine computed in the step that gave each token.

    Raises:
        ConfigError: no trace says so (only vLLM's own engine does).
    """
    given = [traces] if isinstance(traces, Trace) else list(traces.traces if isinstance(traces, Run) else traces)
    names = list(labels) or [_("prompt {i}").format(i=i) for i in range(len(given))]
    known = [(t, n) for t, n in zip(given, names, strict=True) if t.step_requests and t.step_tokens]
    if not known:
        raise ConfigError("the traces do not say who shared their steps; only the vLLM engine reports that")
    figure, (upper, lower) = chart(9, 4.6, rows=2, sharex=True)
    crowd = len(known) > 4
    looks = [(COLOURS["a"], "-"), (COLOURS["b"], "--"), (COLOURS["good"], "-."), (COLOURS["ink"], ":")]
    for i, (t, name) in enumerate(known):
        colour, line = (COLOURS["muted"], "-") if crowd else looks[i]
        x = range(len(t.token_ids))
        for ax, values in ((upper, t.step_requests), (lower, t.step_tokens)):
            ax.step(x, values, where="mid", color=colour, ls=line, lw=2, label=name, alpha=0.5 if crowd else 1)
            ax.plot([0], values[:1], "s", color=colour, ms=7)
    upper.set(ylabel=_("requests"), ylim=(0, max(max(t.step_requests) for t, _n in known) * 1.15))
    lower.set(ylabel=_("tokens"), xlabel=_("token (the first is 0)"), yscale="log")
    most = max(max(t.step_tokens) for t, _n in known)
    ticks = [v for v in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384) if v <= most * 1.5]
    ticks = ticks[:: max(1, len(ticks) // 5)]
    lower.set_yticks(ticks, [str(v) for v in ticks])
    lower.minorticks_off()
    lower.set_ylim(0.8, most * 1.6)
    upper.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    lower.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    lower.set_xlim(-0.8, max(len(t.token_ids) for t, _n in known))
    figure.align_ylabels()
    upper.set_title(_("Who shared the step"))
    badge(upper, source)
    if len(known) > 1 and not crowd:
        upper.legend(loc="center right")
    parts = [
        say(
            N_("{name}: {r0} to {r1} requests a step, {t0} tokens in the first step (prefill), {t1} in the last"),
            name=n, r0=min(t.step_requests), r1=max(t.step_requests), t0=t.step_tokens[0], t1=t.step_tokens[-1],
        )
        for t, n in known[:4]
    ]  # fmt: skip
    more = [_("… +{n}").format(n=len(known) - 4)] if crowd else []
    return Picture(figure, "; ".join(parts + more) + ".")
