"""Labs: skeletons in step with solutions, a friendly start, solutions that pass, wrong answers that are recognised."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import nbclient
import nbformat
import pytest
from nbformat import NotebookNode

from course_lib.exercises import answer
from course_lib.measures import first_difference, wilson

ROOT = Path(__file__).parents[1]
SOLUTIONS = sorted((ROOT / "labs" / "solutions").glob("L*.ipynb"))


@pytest.fixture(scope="module")
def make_labs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_labs", ROOT / "tools" / "make_labs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def executed(path: Path) -> NotebookNode:
    """The notebook after a run in which no cell may raise."""
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": ROOT}}
    ).execute()
    return notebook


def replies(notebook: NotebookNode) -> dict[str, str]:
    """What each check said, by exercise."""
    found = {}
    for cell in notebook.cells:
        if cell.cell_type == "code" and (name := re.match(r'check\("([^"]+)"', cell.source)):
            found[name[1]] = "".join(o.get("data", {}).get("text/plain", "") for o in cell.outputs)
    return found


@pytest.mark.parametrize("solution", SOLUTIONS, ids=lambda p: p.stem)
def test_skeleton_is_in_step(make_labs: ModuleType, solution: Path) -> None:
    skeleton = ROOT / "labs" / solution.name
    assert skeleton.exists(), "run tools/make_labs.py"
    assert skeleton.read_text("utf8") == make_labs.text(solution), "run tools/make_labs.py"


@pytest.mark.parametrize("solution", SOLUTIONS, ids=lambda p: p.stem)
def test_skeleton_gives_nothing_away(solution: Path) -> None:
    skeleton = nbformat.read(ROOT / "labs" / solution.name, as_version=4)
    todo = [c for c in skeleton.cells if "todo" in c.metadata.get("tags", [])]
    assert todo
    for cell in todo:
        assert re.search(r"\.\.\.  # TODO: \w", cell.source)
    for cell in skeleton.cells:
        assert "SOLUTION" not in cell.source
        assert not cell.get("outputs")


@pytest.mark.parametrize("solution", SOLUTIONS, ids=lambda p: p.stem)
def test_skeleton_fails_its_checks_in_a_friendly_way(solution: Path) -> None:
    said = replies(executed(ROOT / "labs" / solution.name))
    first = next(iter(said.values()))
    assert first.startswith("Not quite. Your function returns None"), first
    assert all(text and not text.startswith("Right") for text in said.values()), said


@pytest.mark.parametrize("solution", SOLUTIONS, ids=lambda p: p.stem)
def test_solution_passes_every_check(solution: Path) -> None:
    said = replies(executed(solution))
    assert said
    assert {name: text for name, text in said.items() if not text.startswith("Right. ")} == {}


@pytest.mark.parametrize("solution", SOLUTIONS, ids=lambda p: p.stem)
def test_stored_solution_was_executed(solution: Path) -> None:
    stored = nbformat.read(solution, as_version=4)
    assert all(text.startswith("Right. ") for text in replies(stored).values())
    assert not any(o.output_type == "error" for c in stored.cells for o in c.get("outputs", []))


@pytest.mark.parametrize(
    "source",
    ["    return 1\n", "    # BEGIN SOLUTION x\n    return 1\n", "    return 1\n    # END SOLUTION\n"],
)
def test_solution_cell_without_its_marks_is_refused(make_labs: ModuleType, source: str) -> None:
    cell = nbformat.v4.new_code_cell(f"def f():\n{source}", metadata={"tags": ["solution"]})
    with pytest.raises(ValueError, match="solution"):
        make_labs.skeleton(nbformat.v4.new_notebook(cells=[cell]))


# Wrong answers that learners give, and what they should hear.


def one_based(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False), 1) if x != y), None)


def trusts_zip(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)


def length_if_equal(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def past_the_fork(ids_a, ids_b, logprobs_a, logprobs_b):
    return [y - x for x, y in zip(logprobs_a, logprobs_b, strict=False)]


def with_the_fork(ids_a, ids_b, logprobs_a, logprobs_b):
    fork = first_difference(ids_a, ids_b)
    return past_the_fork(ids_a, ids_b, logprobs_a[: fork + 1], logprobs_b[: fork + 1])


def a_minus_b(ids_a, ids_b, logprobs_a, logprobs_b):
    fork = first_difference(ids_a, ids_b)
    return past_the_fork(ids_a, ids_b, logprobs_b[:fork], logprobs_a[:fork])


def normal(k, n):
    p = k / n
    half = 1.96 * (p * (1 - p) / n) ** 0.5
    return p - half, p + half


def ninety(k, n):
    return wilson(k, n, 0.9)


def per_cent(k, n):
    return tuple(100 * v for v in wilson(k, n))


def tolerant(floor_drift, floor_forks, drift, forks, n):
    return drift > max(floor_drift, 1e-3) or forks / n > wilson(floor_forks, n)[1]


def forks_only(floor_drift, floor_forks, drift, forks, n):
    return forks / n > wilson(floor_forks, n)[1]


def any_more_forks(floor_drift, floor_forks, drift, forks, n):
    return drift > floor_drift or forks > floor_forks


@pytest.mark.parametrize(
    ("exercise", "wrong", "says"),
    [
        ("lab1-fork", one_based, "count from 1"),
        ("lab1-fork", trusts_zip, "ends silently"),
        ("lab1-fork", length_if_equal, "Equal lists have no fork"),
        ("lab1-drift", past_the_fork, "ran past the fork"),
        ("lab1-drift", with_the_fork, "Stop one earlier"),
        ("lab1-drift", a_minus_b, "b - a"),
        ("lab1-wilson", normal, "normal approximation"),
        ("lab1-wilson", ninety, "1.645"),
        ("lab1-wilson", per_cent, "per cent"),
        ("lab1-finding", tolerant, "tolerance"),
        ("lab1-finding", forks_only, "forks alone"),
        ("lab1-finding", any_more_forks, "within the interval"),
    ],
)
def test_wrong_answers_are_recognised(exercise: str, wrong, says: str) -> None:
    reply = answer(exercise, wrong)
    assert (reply.kind, says in reply.text) == ("misconception", True), reply


@pytest.mark.parametrize("exercise", ["lab1-fork", "lab1-drift", "lab1-wilson", "lab1-finding"])
def test_an_answer_that_is_no_function_gets_the_hint(exercise: str) -> None:
    assert answer(exercise, 3).kind == "wrong"
    assert answer(exercise, ...).kind == "open"
