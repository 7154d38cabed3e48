"""What every chapter promises, read from the stored notebook; and that nbval would notice a changed verdict.

Prose holds no measured number: those stand in outputs, rendered from evidence, where they cannot go stale unseen.
"""

import copy
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from IPython.core.formatters import DisplayFormatter

from course_lib import notebook

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SECTIONS = [
    "Theory", "Predict", "Run", "Explain", "Claims", "Post-mortem", "Exercises", "Takeaways", "References",
]  # fmt: skip
MOST_LINES = 25
NOT_COMPARED = {"nbval-ignore-output", "nbval-skip"}

# Numbers in prose that nobody measured: arithmetic, definitions and made-up examples, quoted with enough words to find
# them. Anything that a run produced belongs into an output.
NOT_MEASURED: dict[str, list[str]] = {
    "04": ["has 1.2 digits", '"a difference of about 1e-6"'],
}

# What looks measured: 0.14, 12 %, 3e-5, 10⁻⁵, "5 of 8".
NUMBER = re.compile(
    r"(?<![\w.])\d+\.\d+(?!\.?\d|[BMK]\b)"
    r"|(?<![\w.])\d+(?:\.\d+)?\s?(?:%|per ?cent)"
    r"|\d(?:\.\d+)?e[-+]?\d+|10⁻[⁰¹²³⁴-⁹]+"
    r"|\b\d+ (?:out )?of (?:the |these )?\d+\b"
)
# Words that say where a number comes from.
SOURCED = re.compile(
    r"\]\(|https?://|arXiv|doi|[Ii]ssues? \d|PRs? \d|[Pp]ull requests? \d|#\d{3,}|lecture notes|\b(?:19|20)\d\d\b|et al"
)
# What is left out before numbers are looked for: code, formulas, comments, headings, versions, references to sections.
SILENT = re.compile(
    r"```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$\n]*\$|<!--.*?-->|^#.*$"
    r"|\b(?:vLLM|torch|PyTorch|transformers|Python|CUDA|Qwen|Llama|Gemma|GLM|version|IEEE|section|chapter) ?v?\d[\d.]*",
    re.S | re.M | re.I,
)


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def code(book) -> list:
    return [c for c in book.cells if c.cell_type == "code"]


def tags(cell) -> set[str]:
    return set(cell.metadata.get("tags", []))


def prose(book) -> list[tuple[str, str]]:
    """(section, Markdown) for each cell, cut at headings of the second level; "" is what comes before the first."""
    out, section = [], ""
    for cell in (c for c in book.cells if c.cell_type == "markdown"):
        first, *rest = re.split(r"^## (.+)$", cell.source, flags=re.M)
        out.append((section, first))
        for heading, text in zip(rest[::2], rest[1::2], strict=True):
            section = heading.split(":")[0].strip()
            out.append((section, text))
    return out


def measured(text: str, allowed: list[str] = ()) -> list[str]:
    """The sentences of prose with a number that looks measured and has no source."""
    for phrase in allowed:
        text = text.replace(phrase, "")
    text = re.sub(r"(?m)^\s*(?:[-*]|\d+\.|\*\*\d+\.\*\*)\s+", "\n\n", SILENT.sub(" ", text))
    sentences = [s for block in re.split(r"\n\s*\n", text) for s in re.split(r"(?<=[.!?])\s+(?=[A-Z*_\"(])", block)]
    sentences = [" ".join(s.split()) for s in sentences]
    return [s for s in sentences if NUMBER.search(s) and not SOURCED.search(s)]


# --- the scanner itself


@pytest.mark.parametrize(
    "text",
    [
        "The drift is small: max 0.14 nat.",
        "On this machine 5 of 8 prompts fork.",
        "On this machine 5 out of the 8 prompts fork.",
        "About 12 % of the outputs differ, a lot.",
        "It is 12% slower.",
        "They differ by 3e-5 at most.",
        "They differ by 10⁻⁵ at most.",
        "- first\n- then 0.5 nat",
        "He (2025) says so. Here it is 0.25.",
    ],
)
def test_the_scanner_sees_a_measured_number(text):
    assert len(measured(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "Take 16 prompts of 64 tokens, 8 at a time.",
        "Set `temperature=0.7` and compare.",
        "```\nmax 0.14\n```",
        "### 2.3 A heading with 50 %",
        "At $\\epsilon = 0.5$ it holds.",
        "A server lost 12 % ([vLLM issue](https://example.org/1)).",
        "It was 0.3 in vLLM issue 5404.",
        "The lecture notes say 0.5 (2.4).",
        "vLLM 0.32 and Python 3.11 were used.",
        "Two of the three agree.",
        "1. First.\n2. Second.",
        "Half of them, <!-- 0.5 --> as one sees.",
    ],
)
def test_the_scanner_lets_everything_else_pass(text):
    assert measured(text) == []


def test_an_allowed_phrase_is_let_pass_and_no_more():
    text = "bf16 has 2.4 digits. The drift is 2.4 nat."
    assert measured(text, ["2.4 digits"]) == ["The drift is 2.4 nat."]


# --- every chapter


@pytest.fixture(params=NOTEBOOKS, ids=lambda p: p.stem[:2])
def path(request) -> Path:
    return request.param


def test_there_are_chapters():
    assert NOTEBOOKS
    assert len({p.name[:2] for p in NOTEBOOKS}) == len(NOTEBOOKS)


def test_title_and_sections_stand_in_order(path):
    book = read(path)
    first = book.cells[0]
    assert first.cell_type == "markdown" and first.source.startswith(f"# {int(path.name[:2])}. ")
    assert re.search(r"you will be able to", first.source, re.I)
    assert all(re.search(word, first.source, re.I) for word in (r"time", r"needs")), "time, and what it needs"
    assert list(dict.fromkeys(section for section, _ in prose(book)))[1:] == SECTIONS


def test_parameters_come_first_and_are_used(path):
    cells = code(read(path))
    assert "parameters" in tags(cells[0]) and sum("parameters" in tags(c) for c in cells) == 1
    names = re.findall(r"^(\w+) *=", cells[0].source, re.M)
    assert "PROFILE" in names and 'PROFILE = "auto"' in cells[0].source
    rest = "\n".join(c.source for c in cells[1:])
    assert [n for n in names if not re.search(rf"\b{n}\b", rest)] == [], "a parameter that does nothing"


def test_a_banner_says_live_or_recorded_before_any_result(path):
    cells = code(read(path))
    banner = next(i for i, c in enumerate(cells) if re.search(r"^banner\(", c.source, re.M))
    assert banner <= 3 and "profile=PROFILE" in cells[banner].source
    assert all(not c.outputs for c in cells[:banner])


def test_it_has_verdicts_predictions_and_exercises_unanswered(path):
    cells = code(read(path))
    source = "\n".join(c.source for c in cells)
    number = int(path.name[:2])
    assert re.search(rf"^verdicts\({number}\b", source, re.M) and "predict(" in source
    checks = re.findall(r"^check\(\"(ch\d\d)-[\w-]+\", (.*)\)$", source, re.M)
    assert 3 <= len(checks) <= 6 and {c for c, _ in checks} == {f"ch{number:02}"}
    assert {answer for _, answer in checks} == {"..."}


def test_outputs_are_stored_and_none_is_an_error(path):
    cells = code(read(path))
    assert all(c.execution_count for c in cells if c.source.strip()), "executed from top to bottom"
    assert [c.execution_count for c in cells] == sorted(c.execution_count for c in cells)
    outputs = [o for c in cells for o in c.outputs]
    assert len(outputs) >= 8
    assert not [o for o in outputs if o.output_type == "error"]
    assert not [o for o in outputs if o.output_type == "stream" and o.name == "stderr"], "no warnings, no logs"


def test_most_cells_are_compared(path):
    cells = code(read(path))
    left_out = [c for c in cells if tags(c) & NOT_COMPARED]
    assert len(left_out) < len(cells) / 2
    verdicts = [c for c in cells if re.search(r"^verdicts\(", c.source, re.M) and "on=" not in c.source]
    assert verdicts and not any(tags(c) & NOT_COMPARED for c in verdicts), "verdicts from records are compared"


def test_a_cell_fits_a_screen(path):
    for cell in code(read(path)):
        assert len(cell.source.splitlines()) <= MOST_LINES, cell.source.splitlines()[0]


def test_a_figure_says_in_words_what_it_shows(path):
    figures = [o for c in code(read(path)) for o in c.outputs if "image/png" in o.get("data", {})]
    assert figures
    for figure in figures:
        words = figure.data.get("text/plain", "")
        assert len(words.split()) >= 5 and not words.startswith("<"), words


def test_nothing_of_one_machine_is_stored(path):
    text = path.read_text()
    folders = "|".join(["wo" + "rk", "ro" + "ot", "home", "tmp", "opt", "Users"])
    assert not re.findall(rf"(?<![\w.\-/*}}])/(?:{folders})/\w[^\"\\ ]*", text)
    book = read(path)
    assert set(book.metadata) <= {"kernelspec", "language_info"}
    assert book.metadata.kernelspec.name == "python3"
    assert not [c for c in book.cells if "execution" in c.metadata or "papermill" in c.metadata]


def test_prose_holds_no_measured_number(path):
    """References and what an exercise supposes are left out. A post-mortem names its source once for a cell."""
    found = []
    for section, text in prose(read(path)):
        if section in ("References", "Exercises") or (section == "Post-mortem" and SOURCED.search(text)):
            continue
        found += [f"{section}: {s}" for s in measured(text, NOT_MEASURED.get(path.name[:2], []))]
    assert not found, "\n".join(found)


def test_an_allowed_phrase_still_stands_in_its_chapter():
    for number, phrases in NOT_MEASURED.items():
        (path,) = (p for p in NOTEBOOKS if p.name.startswith(number))
        text = "\n".join(c.source for c in read(path).cells if c.cell_type == "markdown")
        assert [p for p in phrases if p not in text] == []


# --- nbval


@pytest.fixture(scope="module")
def nbval(tmp_path_factory):
    """Run nbval on notebooks; what it printed, by name."""

    def run(books: dict) -> tuple[int, str]:
        folder = tmp_path_factory.mktemp("nbval")
        for name, book in books.items():
            nbformat.write(book, folder / f"{name}.ipynb")
        done = subprocess.run(
            [
                sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "-q", "-p", "no:cacheprovider",
                "--nbval-sanitize-with", str(ROOT / "tests/nbval-sanitize.cfg"), "-c", "/dev/null", str(folder),
            ],
            capture_output=True, text=True, cwd=folder,
        )  # fmt: skip
        return done.returncode, done.stdout

    return run


def test_nbval_notices_a_changed_verdict_and_nothing_else(nbval, monkeypatch):
    """A chapter's verdicts as they are now, the same with one verdict altered, and with one figure altered."""
    shown = []
    monkeypatch.setattr(notebook, "display", shown.append)
    notebook.verdicts(1)
    data, _ = DisplayFormatter().format(shown[0])
    output = nbformat.v4.new_output("display_data", data=data)
    small = nbformat.v4.new_notebook(metadata=read(NOTEBOOKS[0]).metadata)
    small.cells = [
        nbformat.v4.new_code_cell("from course_lib.notebook import verdicts", execution_count=1),
        nbformat.v4.new_code_cell("verdicts(1)", execution_count=2, outputs=[output]),
    ]

    def altered(pattern: str, by: str):
        other = copy.deepcopy(small)
        stored = other.cells[1].outputs[0].data
        stored["text/plain"] = re.sub(pattern, by, data["text/plain"], count=1)
        assert stored["text/plain"] != data["text/plain"]
        return other

    verdict = altered(r"\[(refuted|supported|conditional)\](?=.*RECORDED)", "[not observed here]")
    figure = altered(r"(?<=\] )(\D*)\d+", r"\g<1>98765")
    returned, out = nbval({"same": small, "verdict": verdict, "figure": figure})
    assert returned == 1, out
    assert set(re.findall(r"FAILED (\w+)\.ipynb::Cell (\d)", out)) == {("verdict", "1"), ("figure", "1")}, out
    assert "2 failed, 4 passed" in out, "what was not altered passes"
