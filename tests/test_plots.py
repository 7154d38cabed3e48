"""Figures say what they show, show what they are given, and are fit for a slide. No engine runs here."""

import functools
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from course_lib import i18n, numerics, plots
from course_lib.compare import Comparison, compare_runs, compare_scores, divergence, score_delta
from course_lib.config import Sampling
from course_lib.errors import ConfigError, TraceMismatch
from course_lib.evidence import Evidence
from course_lib.plots import style
from course_lib.trace import Trace

ROOT = Path(__file__).parents[1]
WORDS = [
    "Once",
    " upon",
    " a",
    " time",
    ",",
    "\n",
    " the",
    " keeper",
    " of",
    " (",
    "$5",
    ")",
    "    ",
    " wrote",
    " $x",
    "你好",
]


def trace(
    n: int = 20, *, shift: float = 0.0, fork: int | None = None, margin: float = 0.5, stop: bool = False
) -> Trace:
    """A trace of n tokens; `shift` moves every logprob but the first, and `fork` gives other tokens from there on."""
    ids = [i if fork is None or i < fork else 1000 + i for i in range(n)]
    tops = [((t, -0.1), (5000, -0.1 - (margin if i == fork else 2.0))) for i, t in enumerate(ids)]
    return Trace(
        prompt_ids=(1, 2, 3), token_ids=tuple(ids), tokens=tuple(WORDS[t % len(WORDS)] for t in ids),
        logprobs=tuple(-0.1 - (shift if i else 0.0) for i in range(n)), top=tuple(tops),
        finish_reason="stop" if stop else "length",
        step_requests=(8,) * n, step_tokens=tuple(336 if i == 0 else 8 for i in range(n)),
    )  # fmt: skip


def bare(t: Trace, *names: str) -> Trace:
    return t.model_copy(update=dict.fromkeys(names or ("logprobs", "top", "tokens"), ()))


def evidence(comparisons: dict, live: bool) -> Evidence:
    where = {"kind": "cpu-avx2" if live else "h200"}
    return Evidence(
        experiment="sweep", definition="-", hardware=where, provenance={"time": "2026-12-01T10:00:00Z"},
        sampling=Sampling(), arms={}, comparisons=comparisons, seconds=1, live=live,
    )  # fmt: skip


def forks(*at: int | None, shift: float = 0.03) -> Comparison:
    return compare_runs([trace() for _ in at], [trace(shift=shift, fork=k, margin=0.02) for k in at])


def batch_sweep(live: bool) -> Evidence:
    reruns = {f"n{n}_rerun": forks(None, None, None, None, shift=0.0) for n in (1, 8)}
    return evidence({"n2": forks(None, 3, 7, None), "n8": forks(2, 3, 7, None, shift=0.25), **reruns}, live)


def dtype_ladder(live: bool) -> Evidence:
    def scores(shift: float):
        return compare_scores([trace(), trace()], [trace(shift=shift), trace(shift=shift * 2)])

    pairs = {"fp32": scores(1e-6), "fp16": scores(4e-3), "bf16": scores(3e-2), "bf16_rerun": scores(0.0)}
    return evidence({n: c if live else c.slim() for n, c in pairs.items()}, live)


FIGURES = {
    "strip": lambda: plots.token_strip(trace(), trace(shift=0.03, fork=12, margin=0.02), source=batch_sweep(True)),
    "strip, long": lambda: plots.token_strip(trace(200), trace(200, shift=0.03, fork=120), source=batch_sweep(False)),
    "strip, no fork": lambda: plots.token_strip(trace(), trace(shift=0.03)),
    "strip, fork at 0": lambda: plots.token_strip(trace(), trace(fork=0)),
    "strip, one ends": lambda: plots.token_strip(trace(), trace(7, stop=True)),
    "strip, one token": lambda: plots.token_strip(trace(1), trace(1, fork=0)),
    "strip, no tokens": lambda: plots.token_strip(trace(0), trace(0)),
    "strip, ids only": lambda: plots.token_strip(bare(trace()), bare(trace(fork=4))),
    "strip, narrow": lambda: plots.token_strip(trace(), trace(fork=19), width=6, lines=1),
    "map": lambda: plots.token_strips(forks(None, 3, 0, 19), source=batch_sweep(True)),
    "map of traces": lambda: plots.token_strips([(trace(), trace(fork=5)), (trace(300), trace(4))], ["one", "two"]),
    "map, no fork": lambda: plots.token_strips(forks(None)),
    "steps": lambda: plots.step_sizes([trace(), trace(40)], ["alone", "among eight"]),
    "steps, one token": lambda: plots.step_sizes(trace(1)),
    "steps, many": lambda: plots.step_sizes([trace(n) for n in range(5, 12)]),
    "drift": lambda: plots.drift_and_margin(forks(12).divergences[0], source=batch_sweep(True)),
    "drift, no fork": lambda: plots.drift_and_margin(divergence(trace(), trace())),
    "drift, fork at 0": lambda: plots.drift_and_margin(divergence(trace(), trace(fork=0))),
    "drift, scores": lambda: plots.drift_and_margin(score_delta(trace(), trace(shift=0.01))),
    "drift, no margins": lambda: plots.drift_and_margin(divergence(*(bare(trace(fork=k), "top") for k in (None, 9)))),
    "forks": lambda: plots.fork_scatter(forks(3, 9, None, 0), source=batch_sweep(False)),
    "forks, none": lambda: plots.fork_scatter(forks(None)),
    "sweep": lambda: plots.sweep(batch_sweep(True), batch_sweep(False)),
    "sweep, record": lambda: plots.sweep(None, batch_sweep(False), {"two": "n2"}),
    "ladder": lambda: plots.ladder(dtype_ladder(True), dtype_ladder(False)),
    "ladder, record": lambda: plots.ladder(None, dtype_ladder(False)),
    "numbers": lambda: plots.number_line([numerics.FP32, numerics.BF16, numerics.FP16, numerics.E4M3], 1, 2),
    "row": lambda: plots.row_error([2, 8], {"bf16": [0, 4e-3], "fp32": [1e-6, 2e-6]}, source=batch_sweep(False)),
    "row, zeros": lambda: plots.row_error([2], {"bf16": [0.0], "my own": [0.0]}),
    "bars": lambda: plots.bars_with_intervals({"bf16": (5, 16), "fp32": (0, 16)}, {"bf16": (16, 16)}, title="Forks"),
    "matrix": lambda: plots.metric_matrix(
        ["exact match", "KL"], ["noise", "late\nflip"], [[1, 0], [2e-6, None]], neutral=[1, 0], title="What each sees"
    ),
    "path": plots.request_path,
    "sources": plots.divergence_sources,
}  # fmt: skip

# What each line of text must hold: the true numbers.
SAYS = {
    "strip": ("Equal tokens: 12", "'␣×4' (margin 2 nat)", "',' (margin 0.02 nat)", "|Δlogprob| 0.03 nat"),
    "strip, long": ("Equal tokens: 120", "'␣of' (margin 2 nat)"),
    "strip, no fork": ("20 of 20 tokens", "0.03 nat"),
    "strip, fork at 0": ("Equal tokens: 0",),
    "strip, one ends": ("Equal tokens: 7", "among eight ends"),
    "strip, no tokens": ("0 of 0 tokens",),
    "strip, ids only": ("Equal tokens: 4", "'4'", "'1004'", "logprobs unknown"),
    "map": ("3 of 4 answers fork", "token 0 (prompt 2)", "token 19 (prompt 3)"),
    "map of traces": ("2 of 2 answers fork", "token 4 (prompt 1)"),
    "map, no fork": ("0 of 1 answers fork",),
    "steps": ("alone: 8 to 8 requests a step, 336 tokens in the first step (prefill), 8 in the last",),
    "steps, many": ("… +3",),
    "drift": ("not 0 at 11 of 12 tokens", "at most 0.03 nat", "fork at token 12", "2 and 0.02 nat"),
    "drift, no fork": ("exactly 0 at all 20 tokens; no fork",),
    "drift, fork at 0": ("No token before the fork; fork at token 0",),
    "drift, scores": ("not 0 at 19 of 20 tokens, at most 0.01 nat.",),
    "drift, no margins": ("fork at token 9, margins unknown",),
    "forks": ("3 of 4 answers fork; in 0 of 3", "Widest margin 2, largest drift 0.03"),
    "forks, none": ("None of 1 answers",),
    "sweep": (
        "LIVE on cpu-avx2: 2: 2 of 4 fork, drift 0.03; 8: 3 of 4 fork, drift 0.25; rerun: 0 of 8 fork, drift 0.",
        "RECORDED on h200, 2026-12-01: 2: 2 of 4",
    ),
    "sweep, record": ("two: 2 of 4 fork",),
    "ladder": ("LIVE on cpu-avx2", "vLLM fp16: mean 0.0057, largest 0.008", "rerun: mean 0, largest 0"),
    "numbers": ("fp32 8,388,609, bf16 129, fp16 1,025, e4m3 9",),
    "row": ("bf16 differs at M = 8, at most 0.004", "fp32 differs at M = 2, 8, at most 2e-06"),
    "row, zeros": ("bf16 is exactly 0 at every M",),
    "bars": ("bf16 (LIVE): 5 of 16, 14% to 56%", "fp32 (LIVE): 0 of 16, 0% to 19%", "bf16 (RECORDED): 16 of 16"),
    "matrix": ("2 of 4 cells", "blind: exact match to noise."),
    "path": ("order of physical KV blocks changes no number", "in the step that consumes it"),
    "sources": ("Not among them: order of physical KV blocks, padding",),
}


Boxes = list[tuple[str, Bbox]]


@functools.cache
def texts(picture: plots.Picture) -> Boxes:
    """What is written in a figure, and where in pixels. Ticks beyond an axis's limits exist, but are not drawn."""
    picture.figure.draw_without_rendering()
    out: Boxes = []
    hidden = {t for ax in picture.figure.axes for t in ax.findobj(Text) if not ax.axison and t not in ax.texts}
    for axis in (a for ax in picture.figure.axes for a in (ax.xaxis, ax.yaxis)):
        low, high = sorted(axis.get_view_interval())
        outside = [t for t in (*axis.get_major_ticks(), *axis.get_minor_ticks()) if not low <= t.get_loc() <= high]
        hidden |= {label for t in outside for label in (t.label1, t.label2)}
    for t in picture.figure.findobj(Text):
        if t.get_visible() and t.get_text().strip() and t not in hidden:
            out.append((t.get_text(), t.get_window_extent()))
    return out


def collisions(picture: plots.Picture, slack: float = 2) -> list[tuple[str, str]]:
    def hit(a, b) -> bool:
        return min(a.x1, b.x1) - max(a.x0, b.x0) > slack and min(a.y1, b.y1) - max(a.y0, b.y0) > slack

    return [(s, t) for (s, a), (t, b) in itertools.combinations(texts(picture), 2) if hit(a, b)]


@pytest.fixture(scope="module")
def drawn() -> dict[str, plots.Picture]:
    return {name: make() for name, make in FIGURES.items()}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_says_its_numbers_in_one_line(drawn, name: str):
    text = drawn[name].text
    assert "\n" not in text and text == text.strip() and text.endswith(".")
    for part in SAYS.get(name, ()):
        assert part in text


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_fit_for_a_slide(drawn, name: str):
    picture = drawn[name]
    width, height = picture.figure.get_size_inches()
    assert 5 <= width <= 13 and 1.2 <= height <= 8.5
    png = picture.png()
    assert png.startswith(b"\x89PNG") and 3_000 < len(png) < 250_000
    assert to_hex(picture.figure.get_facecolor()) == "#ffffff"
    assert not collisions(picture)
    box = picture.figure.bbox
    for text, extent in texts(picture):
        assert extent.x0 >= -2 and extent.x1 <= box.x1 + 2 and extent.y0 >= -2 and extent.y1 <= box.y1 + 2, text
    sizes = {t.get_fontsize() for t in picture.figure.findobj(Text) if t.get_text().strip()}
    assert min(sizes) >= 11


@pytest.mark.parametrize("name", ["path", "sources"])
def test_no_arrow_of_a_diagram_crosses_text(drawn, name: str):
    picture = drawn[name]
    boxes = texts(picture)
    (ax,) = picture.figure.axes
    lines = [a for a in ax.get_children() if isinstance(a, Line2D) and to_hex(a.get_color()) == style.COLOURS["ink"]]
    ends = [ax.transData.transform(line.get_xydata()) for line in lines]
    ends += [ax.transData.transform(a._posA_posB) for a in ax.get_children() if isinstance(a, FancyArrowPatch)]
    assert len(ends) >= 6
    for (x0, y0), (x1, y1) in ends:
        for x, y in zip(np.linspace(x0, x1, 200), np.linspace(y0, y1, 200), strict=True):
            assert not [t for t, b in boxes if b.x0 - 3 < x < b.x1 + 3 and b.y0 - 3 < y < b.y1 + 3]


@pytest.mark.parametrize("name", ["path", "sources"])
def test_a_diagram_has_room_for_longer_words(monkeypatch, name: str):
    monkeypatch.setattr(i18n, "_", lambda m: m + " und noch mehr" * (len(m) > 40))
    assert not collisions(FIGURES[name]())


def test_what_is_false_is_struck_through_and_grey(drawn):
    for name, false in (
        ("path", "order of blocks → memory layout → order of sums"),
        ("sources", "sequences are padded"),
    ):
        (ax,) = drawn[name].figure.axes
        (text,) = [t for t in ax.texts if t.get_text().startswith(false)]
        extent = text.get_window_extent()
        strikes = [ax.transData.transform(a.get_xydata()) for a in ax.lines if a.get_color() == style.COLOURS["muted"]]
        assert text.get_color() == style.COLOURS["muted"]
        ends = [(s[0, 0] - extent.x0, s[1, 0] - extent.x1) for s in strikes if extent.y0 < s[0, 1] < extent.y1]
        assert any(abs(left) < 3 and abs(right) < 3 for left, right in ends)


def test_live_and_recorded_differ_in_colour_marker_line_and_label(drawn):
    live, recorded = style.origin(True), style.origin(False)
    assert all(live[k] != recorded[k] for k in ("color", "marker", "ls"))
    labels = [t for t, _box in texts(drawn["sweep"])]
    assert "LIVE on cpu-avx2" in labels and "RECORDED on h200, 2026-12-01" in labels


def test_an_exact_zero_has_a_place_of_its_own(drawn):
    ax = drawn["drift"].figure.axes[0]
    assert ax.get_yscale() == "log" and "exactly 0" in [t for t, _box in texts(drawn["drift"])]
    (zeros,) = [line for line in ax.lines if line.get_label() == "drift exactly 0"]
    dots = next(line for line in ax.lines if line.get_label() == "drift |Δlogprob|")
    assert list(zeros.get_xdata()) == [0]  # `trace` shifts every logprob but the first
    assert max(zeros.get_ydata()) < min(dots.get_ydata())


def test_a_notebook_gets_png_text_and_alt(drawn):
    data, metadata = drawn["drift"]._repr_mimebundle_()
    assert data["text/plain"] == repr(drawn["drift"]) == drawn["drift"].text == metadata["image/png"]["alt"]
    assert data["image/png"].startswith("iVBOR")
    json.dumps([data, metadata])


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_saved_figure_is_the_same_each_time(drawn, tmp_path: Path, ending: str):
    one, two = (drawn["row"].save(tmp_path / f"{i}" / f"figure.{ending}") for i in (1, 2))
    assert one.stat().st_size > 1000
    if ending == "png":
        assert one.read_bytes() == two.read_bytes()


def test_a_figure_of_unknown_kind_is_refused(drawn, tmp_path: Path):
    with pytest.raises(ConfigError, match=r"\.png, \.svg or \.pdf"):
        drawn["row"].save(tmp_path / "figure.bmp")


def test_drawing_leaves_no_trace_in_matplotlib():
    code = (
        "import sys, matplotlib\n"
        "matplotlib.rcParams['font.size'] = 77\n"
        "look = lambda: {k: matplotlib.rcParams[k] for k in matplotlib.rcParams if k != 'backend'}\n"
        "before = look()\n"
        "from course_lib import plots\n"
        "p = plots.request_path(); p.png()\n"
        "assert look() == before\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert max(t.get_fontsize() for t in p.figure.axes[0].texts) < 20\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=60)


def test_a_translation_is_drawn_only_where_a_font_has_it(monkeypatch):
    monkeypatch.setattr(i18n, "_", lambda m: "\U000f0000" + m)  # no font has this one
    picture = plots.row_error([2], {"bf16": [0.0]})
    assert picture.figure.axes[0].get_xlabel() == "rows in the product, M"
    assert picture.text.startswith("\U000f0000")


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (" the", "␣the"), ("\n\n", "↵↵"), ("        ", "␣×8"), ("\t", "→"), ("", "∅"), ("\u200b", "U+200B"),
        ("жук", "жук"), ("🙂", "U+1F642"), ("x" * 40, "x" * 17 + "…"),
    ],
)  # fmt: skip
def test_any_token_can_be_drawn(token: str, shown: str):
    assert style.glyphs(token) == shown


def test_the_elided_prefix_is_counted(drawn):
    boxes = [t for t, _box in texts(drawn["strip, long"])]
    (note,) = [t for t in boxes if "equal" in t]
    assert 100 < int(note.split()[1]) < 120


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (TraceMismatch, lambda: plots.drift_and_margin(divergence(bare(trace()), bare(trace())))),
        (TraceMismatch, lambda: plots.fork_scatter(compare_runs([bare(trace())], [bare(trace(fork=3))]))),
        (TraceMismatch, lambda: plots.token_strip(trace(), trace().model_copy(update={"prompt_ids": (9,)}))),
        (ConfigError, lambda: plots.token_strips([])),
        (ConfigError, lambda: plots.token_strips(forks(3), names=["a", "b"])),
        (ConfigError, lambda: plots.step_sizes(bare(trace(), "step_requests"))),
        (ConfigError, lambda: plots.sweep(None, None)),
        (ConfigError, lambda: plots.sweep(batch_sweep(True), pairs={"x": "n99"})),
        (ConfigError, lambda: plots.ladder(None)),
        (ConfigError, lambda: plots.ladder(dtype_ladder(True), pairs={"x": "n99"})),
        (ConfigError, lambda: plots.ladder(evidence({}, True))),
        (ConfigError, lambda: plots.number_line([], 0, 1)),
        (ConfigError, lambda: plots.number_line([numerics.BF16], 2, 1)),
        (ConfigError, lambda: plots.row_error([1, 2], {"bf16": [0.0]})),
        (ConfigError, lambda: plots.row_error([], {})),
        (ConfigError, lambda: plots.bars_with_intervals({})),
        (ConfigError, lambda: plots.bars_with_intervals({"x": (3, 2)})),
        (ConfigError, lambda: plots.metric_matrix(["a"], ["b"], [[1, 2]])),
        (ConfigError, lambda: plots.metric_matrix(["a"], ["b"], [[1]], neutral=[1, 1])),
    ],
)
def test_what_cannot_be_drawn_is_refused_by_name(error: type[Exception], call):
    with pytest.raises(error):
        call()
