"""Another language is one catalogue away: what the library says can be translated, and all of it is collected."""

import importlib.util
import string
from pathlib import Path

import pytest

from course_lib import exercises, i18n, notebook
from course_lib.claims import Claim, judge_on
from course_lib.exercises import answer
from course_lib.i18n import N_, _

pofile, mofile = (pytest.importorskip(f"babel.messages.{m}") for m in ("pofile", "mofile"))

ROOT = Path(__file__).parents[1]
TEMPLATE = ROOT / "course_lib/locale/course_lib.pot"
RECORDED = "RECORDED: no engine runs in this chapter; every figure comes from a record. This machine: {device}."
WORDS = {
    "Right. {praise}": "正确。{praise}",
    "Not answered yet. Hint: {hint}": "尚未作答。提示：{hint}",
    "Not quite. {why}": "不完全对。{why}",
    RECORDED: "已录制：{device}。",
    "Record of {name}: {kinds}": "{name} 的记录：{kinds}",
    "none yet": "尚无",
    "supported": "成立",
    "{p.forks} forks.": "{p.forks} 处分叉。",
    "yes": "是",
}


@pytest.fixture
def chinese(tmp_path, monkeypatch):
    """A small compiled catalogue in a folder of its own, and a reader who wants it."""
    catalog = i18n_catalogue(WORDS)
    folder = tmp_path / "zh_CN" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    with (folder / "course_lib.mo").open("wb") as f:
        mofile.write_mo(f, catalog)
    monkeypatch.setattr(i18n, "LOCALES", tmp_path)
    monkeypatch.setenv("COURSE_LANGUAGE", "zh_CN")
    return catalog


def i18n_catalogue(words):
    from babel.messages import Catalog

    catalog = Catalog(locale="zh_CN")
    for message, translation in words.items():
        catalog.add(message, translation)
    return catalog


@pytest.fixture
def exercise(monkeypatch):
    one = exercises.Exercise(
        name="one", right=exercises.one_of(1), praise="Praise.", hint="Hint.",
        misconceptions=((lambda v: v == 2, "Two."),),
    )  # fmt: skip
    monkeypatch.setattr(exercises, "exercises", lambda: {"one": one})


def test_check_speaks_the_reader_s_language(chinese, exercise):
    assert answer("one", 1).text == "正确。Praise."  # what is not translated stays as it is
    assert answer("one", ...).text == "尚未作答。提示：Hint."
    assert answer("one", 2).text == "不完全对。Two."
    assert answer("one", 3).text == "No. Hint: Hint."


def test_the_banner_speaks_the_reader_s_language(chinese, monkeypatch):
    shown = []
    monkeypatch.setattr(notebook, "display", shown.append)
    notebook.banner("no-such-record", profile="recorded")
    assert repr(shown[0]).startswith("已录制：") and repr(shown[0]).endswith("no-such-record 的记录：尚无")
    assert "已录制" in shown[0].data


def test_a_finding_is_translated_before_its_figures_are_filled_in(chinese):
    from test_claims import BASE, found

    claim = Claim(**BASE, supported_if="p.forks > 0", finding="{p.forks} forks.")
    judgement = judge_on(claim, found(p={"forks": 3}))
    assert judgement.finding == "3 处分叉。"
    assert "[成立] 3 处分叉。" in repr(notebook._Verdicts([[judgement]]))


def test_table_cells_are_translated(chinese):
    assert notebook._cell(True) == "是" and notebook._cell(False) == "no"


def test_the_language_can_change_at_any_time(chinese, monkeypatch):
    assert _("yes") == "是"
    monkeypatch.delenv("COURSE_LANGUAGE")
    assert _("yes") == "yes" and i18n.language() == "en"
    monkeypatch.setenv("COURSE_LANGUAGE", "")
    assert i18n.language() == "en"
    monkeypatch.setenv("COURSE_LANGUAGE", "fr")
    assert _("yes") == "yes", "without a catalogue it stays English"


def test_the_empty_message_is_not_the_catalogue_s_header(chinese):
    assert _("") == "" and N_("yes") == "yes"


def test_the_template_holds_every_message():
    spec = importlib.util.spec_from_file_location("messages", ROOT / "tools/messages.py")
    messages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(messages)
    now = messages.collect()
    assert TEMPLATE.read_text("utf8") == now, "out of date: python tools/messages.py"


def test_the_template_is_complete_in_kind():
    with TEMPLATE.open("rb") as f:
        ids = {m.id for m in pofile.read_po(f) if m.id}
    assert WORDS.keys() - {"{p.forks} forks."} <= ids
    for e in exercises.exercises().values():
        assert {e.praise, e.hint, *(says for _, says in e.misconceptions)} <= ids, f"{e.name}: mark its texts with N_"
    assert all(v in ids for v in notebook._VERDICTS.values())
    assert "/" + "work" not in TEMPLATE.read_text("utf8")


def test_a_translation_keeps_the_fields_that_are_filled_in():
    def fields(text):
        return sorted(name for _, name, _, _ in string.Formatter().parse(text) if name)

    for path in (ROOT / "course_lib/locale").glob("*/LC_MESSAGES/*.po"):
        with path.open("rb") as f:
            catalog = pofile.read_po(f)
        assert not [m.id for m in catalog if m.id and m.string and fields(m.id) != fields(m.string)], path
