"""The one visual language: colours, fonts, scales and marks, and `Picture`, which every figure function returns.

Figures are made without pyplot, so nothing leaks and a reader's own matplotlib settings change nothing here.
"""

from __future__ import annotations

import base64
import functools
import io
import math
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import matplotlib.style
from matplotlib import font_manager, ft2font
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from course_lib import i18n
from course_lib.errors import ConfigError

if TYPE_CHECKING:
    from course_lib.evidence import Evidence

P = ParamSpec("P")

# Okabe and Ito's palette: eight colours that stay apart for colour-blind readers.
COLOURS: dict[str, str] = {
    "live": "#0072B2", "recorded": "#E69F00",
    "good": "#009E73", "bad": "#D55E00", "fork": "#D55E00",
    "a": "#56B4E9", "b": "#CC79A7",
    "muted": "#6E6E6E", "ink": "#222222", "common": "#E4E4E4", "grid": "#D9D9D9", "paper": "#FFFFFF",
}  # fmt: skip

SANS, MONO = "DejaVu Sans", "DejaVu Sans Mono"  # matplotlib brings these along
_HAN = (
    "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei",
    "PingFang SC", "Hiragino Sans GB", "Microsoft YaHei", "SimHei", "Arial Unicode MS",
)  # fmt: skip
SMALL, DPI = 11, 110


@functools.cache
def families(first: str = SANS) -> list[str]:
    """`first`, and behind it whatever installed fonts can draw Chinese."""
    installed = set(font_manager.get_font_names())
    return [first, *(f for f in _HAN if f in installed)]


@functools.cache
def _drawable() -> frozenset[int]:
    return frozenset().union(*(ft2font.FT2Font(font_manager.findfont(f)).get_charmap() for f in families(MONO)))


def _(message: str) -> str:
    """A message for inside a figure: in the reader's language, or in English where no installed font can draw that."""
    text = i18n._(message)
    return text if all(ord(c) in _drawable() or c == "\n" for c in text) else message


def say(message: str, **values: Any) -> str:
    """A sentence for `Picture.text`, in the reader's language. Mark the message with `N_`."""
    return i18n._(message).format(**values)


def _settings() -> dict[str, Any]:
    ink, muted = COLOURS["ink"], COLOURS["muted"]
    return {
        "font.family": families(), "font.size": 12, "text.color": ink, "axes.labelcolor": ink,
        "figure.facecolor": COLOURS["paper"], "savefig.facecolor": COLOURS["paper"], "figure.dpi": DPI,
        "axes.titlesize": 13, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlepad": 10,
        "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": muted,
        "axes.grid": True, "axes.axisbelow": True, "grid.color": COLOURS["grid"], "grid.linewidth": 0.8,
        "xtick.color": muted, "ytick.color": muted, "xtick.labelcolor": ink, "ytick.labelcolor": ink,
        "xtick.labelsize": SMALL, "ytick.labelsize": SMALL,
        "legend.frameon": False, "legend.fontsize": SMALL, "hatch.linewidth": 1.2,
        "text.parse_math": False,  # a dollar sign in a token is a dollar sign
    }  # fmt: skip


def drawing(function: Callable[P, Picture]) -> Callable[P, Picture]:
    """Draw under our settings, whatever the reader's are."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Picture:
        with matplotlib.style.context(["default", _settings()]):
            return function(*args, **kwargs)

    return wrapped


@dataclass(frozen=True, repr=False)
class Picture:
    """A figure, and the one line that says the same to nbval, to a terminal and to readers who cannot see it."""

    figure: Figure
    text: str

    def __repr__(self) -> str:
        return self.text

    def png(self) -> bytes:
        out = io.BytesIO()
        self._write(out, "png")
        return out.getvalue()

    def save(self, path: str | Path) -> Path:
        """Write as PNG, SVG or PDF, by the file's ending; the text goes along as its description."""
        path = Path(path)
        if (kind := path.suffix.removeprefix(".").lower()) not in ("png", "svg", "pdf"):
            raise ConfigError(f"{path.name}: a figure is saved as .png, .svg or .pdf")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._write(path, kind)
        return path

    def _write(self, where: Any, kind: str) -> None:
        # nothing that changes from day to day or version to version, so that stored outputs stay the same
        notes: dict[str, dict[str, Any]] = {
            "png": {"Software": None, "Description": self.text},
            "svg": {"Date": None, "Description": self.text},
            "pdf": {"CreationDate": None, "Subject": self.text},
        }
        with matplotlib.style.context(["default", _settings()]):
            self.figure.savefig(where, format=kind, dpi=DPI, metadata=notes[kind])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, str], dict[str, Any]]:
        data = {"image/png": base64.b64encode(self.png()).decode(), "text/plain": self.text}
        return data, {"image/png": {"alt": self.text}}


def chart(width: float, height: float, rows: int = 1, columns: int = 1, **grid: Any) -> tuple[Figure, list[Axes]]:
    """An empty figure with its axes, row by row."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)  # type: ignore[union-attr, call-arg]
    return figure, list(figure.subplots(rows, columns, squeeze=False, **grid).flat)


def canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """An empty figure for a diagram, whose coordinates are inches from the upper left corner."""
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set(xlim=(0, width), ylim=(height, 0))
    return figure, axes


# Measured here or read from a record: told apart by colour, by marker, by line and by label.


def origin(live: bool) -> dict[str, Any]:
    """Line and marker of live and of recorded figures."""
    if live:
        return {"color": COLOURS["live"], "marker": "o", "ms": 8, "ls": "-", "lw": 2}
    hollow = {"marker": "D", "ms": 8, "mfc": COLOURS["paper"], "mew": 2}
    return {"color": COLOURS["recorded"], "ls": "--", "lw": 2, **hollow}


def badge(ax: Axes, source: Evidence | None, at: tuple[float, float] | None = None, pad: float = 10) -> None:
    """Say where a figure's numbers come from: at the right of the title, or ending at a point of a diagram."""
    if source is None:
        return
    mark, colour = ("●", COLOURS["live"]) if source.live else ("◇", "#8A5F00")  # orange is too pale for letters
    look: dict[str, Any] = {"size": SMALL, "weight": "bold", "color": colour}
    if at:
        ax.text(*at, f"{mark} {source.label}", ha="right", **look)
    else:
        ax.set_title(f"{mark} {source.label}", loc="right", pad=pad, fontdict=look)


def either(live: Evidence | None, recorded: Evidence | None) -> list[Evidence]:
    """Those that are there, the live one first.

    Raises:
        ConfigError: neither is.
    """
    sources = [e for e in (live, recorded) if e is not None]
    if not sources:
        raise ConfigError("nothing to draw: give live evidence, a record, or both")
    return sources


# Axes on which an exact zero is seen to be one.


@dataclass(frozen=True)
class Place:
    """Where a value goes on an axis with a band for zeros, which ends at `edge`."""

    zero: float
    edge: float

    def __call__(self, value: float) -> float:
        return self.zero if value == 0 else value


def zero_log(axis: Axis, values: Iterable[float]) -> Place:
    """Make an axis logarithmic, with a band at its foot for exact zeros."""
    positive = [v for v in values if v > 0 and math.isfinite(v)] or [1e-6, 1e-1]
    low, high = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)) + 0.15)
    high = max(high, low + 1)
    step = max(1, math.ceil((high - low) / 5))
    gap = max(1.0, (high - low) * 0.16)
    place = Place(10.0 ** (low - gap), 10.0 ** (low - 0.4 * gap))
    which = "y" if axis is axis.axes.yaxis else "x"
    axis.axes.set(**{f"{which}scale": "log", f"{which}lim": (10.0 ** (low - 1.6 * gap), 10.0 ** (high + 0.1))})
    exponents = range(low, high + 1, step)
    axis.set_major_locator(FixedLocator([place.zero, *(10.0**e for e in exponents)]))
    axis.set_minor_locator(NullLocator())
    axis.set_ticklabels([_("exactly 0"), *(power(e) for e in exponents)])
    span = axis.axes.axhspan if which == "y" else axis.axes.axvspan
    span(10.0 ** (low - 1.6 * gap), place.edge, color=COLOURS["grid"], alpha=0.45, lw=0, zorder=0)
    return place


def power(exponent: int) -> str:
    """10⁻³ for -3."""
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


# Text that fits, and text that can be drawn.


@functools.cache
def _ruler() -> RendererAgg:
    return RendererAgg(8, 8, 10 * 72)


@functools.lru_cache(4096)
def width_of(text: str, size: float = 12, weight: str = "normal", family: str = SANS) -> float:
    """How wide a line of text is, in inches."""
    font = font_manager.FontProperties(family=families(family), size=size, weight=weight)
    return _ruler().get_text_width_height_descent(text, font, False)[0] / (10 * 72)


def wrap(text: str, width: float, size: float = 12, weight: str = "normal") -> list[str]:
    """Lines no wider than `width` inches. Han characters may be parted anywhere, other text at spaces."""
    lines = [""]
    for piece in re.findall(r"\s+|[⺀-鿿＀-￯]|[^\s⺀-鿿＀-￯]+", text):
        if lines[-1].strip() and width_of((lines[-1] + piece).rstrip(), size, weight) > width:
            lines.append("")
        lines[-1] += piece if lines[-1] or piece.strip() else ""
    return [line.rstrip() for line in lines]


def glyphs(token: str, most: int = 18) -> str:
    """A token as it can be drawn: spaces, ends of line and tabs are seen, what no font has becomes its code point."""
    shown = token.replace("\r", "").replace("\n", "↵").replace("\t", "→")
    if not shown.strip(" ") and len(shown) > 3:
        shown = f"␣×{len(shown)}"
    shown = shown.replace(" ", "␣") or "∅"
    shown = "".join(c if _seen(c) else f"U+{ord(c):04X}" for c in shown)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def _seen(c: str) -> bool:
    return ord(c) in _drawable() and unicodedata.category(c)[0] not in "CM"


def number(value: float | None) -> str:
    """Two digits, for a label or a sentence: 0.14, 1.2e-05, 0; a dash for what is unknown."""
    return "–" if value is None or math.isnan(value) else f"{value:.2g}"
