"""Two diagrams of the notes that this course grew from, redrawn: what is true in colour, what is not struck through."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from course_lib.i18n import N_
from course_lib.plots.style import COLOURS, Picture, _, canvas, drawing, say, wrap

SIZE, HEAD = 12, 13.5
LINE = SIZE * 1.32 / 72  # inches from line to line
PAD, INDENT, GAP = 0.14, 0.27, 0.07

# What an item says of its subject: it can change the answer, it cannot, or it is not so.
CAN, CANNOT, FALSE = "can", "cannot", "false"
_BADGES = {CAN: ("≠", COLOURS["bad"]), CANNOT: ("=", COLOURS["good"]), FALSE: ("×", COLOURS["muted"])}

Items = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class _Box:
    """A titled box of items; its height follows from its text, so text stays inside in every language."""

    title: str
    items: Items
    x: float
    y: float
    width: float
    columns: int = 1

    @property
    def column(self) -> float:
        return (self.width - PAD * (self.columns + 1)) / self.columns

    def wrapped(self) -> list[tuple[str, list[str]]]:
        return [(kind, wrap(text, self.column - INDENT, SIZE)) for kind, text in self.items]

    def split(self) -> list[list[tuple[str, list[str]]]]:
        """The items in columns: as many in each, the first ones fuller."""
        items, each = self.wrapped(), -(-len(self.items) // self.columns)
        return [items[i : i + each] for i in range(0, len(items), each)]

    @property
    def head(self) -> float:
        return len(wrap(self.title, self.width - 2 * PAD, HEAD, "bold")) * HEAD * 1.3 / 72

    @property
    def height(self) -> float:
        tallest = max(sum(len(lines) * LINE + GAP for _kind, lines in column) for column in self.split())
        return PAD + self.head + 0.08 + tallest + PAD * 0.6

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    def draw(self, ax: Axes, height: float | None = None) -> None:
        edge = COLOURS["live"]
        _plate(ax, self.x, self.y, self.width, height or self.height, COLOURS["paper"], edge, 1.6)
        y = self.y + PAD + HEAD * 0.95 / 72
        for line in wrap(self.title, self.width - 2 * PAD, HEAD, "bold"):
            ax.text(self.x + PAD, y, line, size=HEAD, weight="bold", color=edge)
            y += HEAD * 1.3 / 72
        for i, column in enumerate(self.split()):
            _items(ax, self.x + PAD + i * (self.column + PAD), self.y + PAD + self.head + 0.08, column)


def _plate(ax: Axes, x: float, y: float, width: float, height: float, face: str, edge: str, line: float) -> None:
    style = "round,pad=0,rounding_size=0.1"
    ax.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=style, fc=face, ec=edge, lw=line))


def _items(ax: Axes, x: float, y: float, items: list[tuple[str, list[str]]]) -> None:
    for kind, lines in items:
        badge, colour = _BADGES[kind]
        baseline = y + SIZE * 0.95 / 72
        ax.text(x + 0.08, baseline, badge, size=SIZE + 2, weight="bold", color=colour, ha="center")
        for line in lines:
            written = ax.text(x + INDENT, baseline, line, size=SIZE, color=COLOURS["muted" if kind == FALSE else "ink"])
            if kind == FALSE:
                end = ax.transData.inverted().transform(written.get_window_extent())[1, 0]
                ax.plot([x + INDENT, end], [baseline - SIZE * 0.27 / 72] * 2, color=COLOURS["muted"], lw=1.3)
            baseline += LINE
        y += len(lines) * LINE + GAP


def _arrow(ax: Axes, *points: tuple[float, float], both: bool = False) -> None:
    """An arrow along straight pieces."""
    for start, end in itertools.pairwise(points[:-1]):
        ax.plot(*zip(start, end, strict=True), color=COLOURS["ink"], lw=2, solid_capstyle="round")
    style = "<|-|>" if both else "-|>"
    arrow = FancyArrowPatch(
        points[-2], points[-1], arrowstyle=style, mutation_scale=16, lw=2, color=COLOURS["ink"], shrinkA=0, shrinkB=0
    )
    ax.add_patch(arrow)


def _label(ax: Axes, x: float, y: float, text: str, **style: object) -> None:
    ax.text(x, y, text, size=SIZE, style="italic", color=COLOURS["ink"], **style)  # type: ignore[arg-type]


def _legend(ax: Axes, x: float, y: float, width: float) -> None:
    items = [
        (CAN, _("can change the answer")),
        (CANNOT, _("cannot")),
        (FALSE, _("said in the notes; vLLM's code disagrees")),
    ]
    _items(ax, x, y, [(kind, wrap(text, width - INDENT, SIZE)) for kind, text in items])


@drawing
def request_path() -> Picture:
    """A request's way through vLLM: front end, scheduler, forward pass, sampler, and the KV cache beside them."""
    width, left, gap = 12.6, 0.2, 0.5
    column = (width - 2 * left - 2 * 0.15 - 2 * gap) / 3
    xs = [left + 0.15 + i * (column + gap) for i in range(3)]
    top = 0.5
    arrive = _Box(_("1  A request arrives"), [
        (CAN, _("chat template and special tokens decide the prompt's ids")),
        (CAN, _("the server fills unset sampling fields from generation_config.json")),
    ], xs[0], top, column)  # fmt: skip
    answer = _Box(_("5  Text goes back"), [
        (CANNOT, _("every step: new ids become text and are streamed")),
        (FALSE, _("at the stop, the sequence is taken from the cache and detokenised")),
    ], xs[2], top, column)  # fmt: skip
    upper = max(arrive.height, answer.height)
    y = top + upper + 1.2
    boxes = [
        _Box(_("2  Schedule a step"), [
            (CAN, _("who shares the step, and with how many tokens: prefill and decode mix")),
            (CANNOT, _("no sequence is padded to another's length")),
            (FALSE, _("a step is either prefill or decode")),
        ], xs[0], y, column),
        _Box(_("3  Forward pass"), [
            (CAN, _("rows = all tokens of the step; their number may choose the kernel and so the order of sums")),
            (CAN, _("number format: bf16, fp16, fp32, fp8")),
            (FALSE, _("loading weights needs use_deterministic_algorithms")),
        ], xs[1], y, column),
        _Box(_("4  Sample one id each"), [
            (CAN, _("temperature 0: the argmax, so a near tie can flip")),
            (CAN, _("no seed of its own: draws depend on the other requests")),
            (CANNOT, _("own seed: the same draws in any batch")),
        ], xs[2], y, column),
    ]  # fmt: skip
    lower = max(b.height for b in boxes)
    cache = _Box(_("KV cache in blocks (PagedAttention)"), [
        (CANNOT, _("the block table only forms addresses: any order of the blocks gives the same bits")),
        (CANNOT, _("K and V of a token are written once, in the step that consumes it")),
        (CAN, _("an fp8 cache rounds; a prefix hit leaves fewer rows to compute")),
        (FALSE, _("order of blocks → memory layout → order of sums")),
        (FALSE, _("K and V of a new token are written after it is sampled")),
    ], xs[0], y + lower + 0.6, width - 2 * (left + 0.15), columns=2)  # fmt: skip
    figure, ax = canvas(width, cache.bottom + 0.25)
    _plate(ax, left, 0.1, width - 2 * left, top + upper + 0.05, "#F4F7FA", COLOURS["grid"], 1)
    _plate(ax, left, y - 0.75, width - 2 * left, cache.bottom - y + 0.9, "#F4F7FA", COLOURS["grid"], 1)
    ax.text(left + 0.15, 0.36, _("front end (API server process)"), size=SIZE, color=COLOURS["muted"])
    ax.text(width / 2, y - 0.5, _("engine core (a process of its own)"), size=SIZE, color=COLOURS["muted"], ha="center")
    for box, height in ((arrive, upper), (answer, upper), *((b, lower) for b in boxes), (cache, None)):
        box.draw(ax, height)
    _legend(ax, xs[1] + 0.1, top + 0.35, column)
    ids, new = xs[0] + column * 0.35, xs[2] + column * 0.65
    _arrow(ax, (ids, top + upper), (ids, y))
    _label(ax, ids + 0.12, y - 0.87, _("token ids"))
    _arrow(ax, (new, y), (new, top + upper))
    _label(ax, new + 0.12, y - 0.87, _("new ids"))
    for a, b in itertools.pairwise(boxes):
        _arrow(ax, (a.right, y + lower / 2), (b.x, y + lower / 2))
    loop = (xs[2] + column * 0.2, xs[0] + column * 0.8)
    _arrow(ax, (loop[0], y), (loop[0], y - 0.3), (loop[1], y - 0.3), (loop[1], y))
    _label(ax, width / 2, y - 0.08, _("the next step consumes the new ids"), ha="center")
    _arrow(ax, (boxes[1].middle, y + lower), (boxes[1].middle, cache.y), both=True)
    _label(ax, boxes[1].middle + 0.15, y + lower + 0.36, _("write K and V of this step's tokens, then read"))
    return Picture(figure, say(N_(
        "A request's path: the front end makes token ids; every step the scheduler mixes prefill and decode tokens, "
        "the forward pass writes their K and V and computes logits, the sampler draws one id for each request, and the "
        "front end turns it into text. The order of physical KV blocks changes no number, sequences are not padded, "
        "and a token's K and V are written in the step that consumes it."
    )))  # fmt: skip


@drawing
def divergence_sources() -> Picture:
    """Where along the way from prompt to answer two runs can come to differ, and where they cannot."""
    width, left, gap, top = 11.6, 0.2, 0.32, 0.2
    column = (width - 2 * left - 3 * gap) / 4
    contents: list[tuple[str, Items]] = [
        (_("1  Inputs"), [
            (CAN, _("version of tokenizer or chat template")),
            (CAN, _("BOS added twice")),
            (CAN, _("weights of another revision")),
            (CAN, _("order in which the prompt is put together")),
            (CAN, _("sampling defaults from generation_config")),
        ]),
        (_("2  Scheduler, cache"), [
            (CAN, _("number of tokens in the step: alone or among eight")),
            (CAN, _("chunks, prefix hits, preemption: same tokens, other steps")),
            (CANNOT, _("what the neighbours say")),
            (CANNOT, _("order of physical blocks")),
            (FALSE, _("sequences are padded to one length")),
            (FALSE, _("scheduling order → memory layout → sums")),
        ]),
        (_("3  Forward pass"), [
            (CAN, _("order of sums: kernel, splits, threads, GPU, version")),
            (CAN, _("number format; fp8 or 4-bit weights, fp8 cache")),
            (CAN, _("compilation: other, fused kernels")),
            (CANNOT, _("the same steps again")),
            (FALSE, _("atomics make dense kernels random")),
        ]),
        (_("4  Sampler"), [
            (CAN, _("temperature, top_p, penalties")),
            (CAN, _("no seed: draws depend on the other requests")),
            (CAN, _("a near tie: the least drift flips the argmax")),
            (CANNOT, _("a seed of its own: the same draws in any batch")),
            (FALSE, _("a seed holds for a single sequence only")),
        ]),
    ]  # fmt: skip
    boxes = [_Box(title, items, left + i * (column + gap), top, column) for i, (title, items) in enumerate(contents)]
    upper = max(b.height for b in boxes)
    seen = _Box(_("What you see"), [
        (CAN, _("logprobs drift, often from the first tokens on")),
        (CAN, _("tokens fork where the top-2 margin is below the drift")),
        (CAN, _("a fork changes the answer, or only its wording")),
        (CANNOT, _("GPU memory: the pool is allocated at start")),
        (FALSE, _("errors must build up before a token flips")),
        (FALSE, _("use of GPU memory shows it")),
    ], left, top + upper + 0.5, width * 0.66, columns=2)  # fmt: skip
    figure, ax = canvas(width, seen.bottom + 0.2)
    for box in boxes:
        box.draw(ax, upper)
    seen.draw(ax)
    for a, b in itertools.pairwise(boxes):
        _arrow(ax, (a.right, top + 0.32), (b.x, top + 0.32))
    last, low = boxes[-1].middle, top + upper
    _arrow(ax, (last, low), (last, low + 0.25), (seen.middle, low + 0.25), (seen.middle, seen.y))
    _legend(ax, seen.right + 0.3, seen.y + 0.35, width - left - seen.right - 0.3)
    return Picture(figure, say(N_(
        "Sources of divergence, in order: inputs (tokenizer, template, BOS, defaults), scheduler (tokens in the step), "
        "forward pass (order of sums, number format, compilation), sampler (draws without a seed, near ties). Not "
        "among them: order of physical KV blocks, padding of sequences, content of the neighbours, atomics in dense "
        "kernels, use of GPU memory."
    )))  # fmt: skip
