"""papermill itself, on two chapters with other parameters than the stored ones. The rest is nbval's work."""

import nbformat
import pytest

from course_lib import runner


def outputs(path):
    cells = nbformat.read(path, as_version=4).cells
    return [o for c in cells if c.cell_type == "code" for o in c.outputs]


def test_a_chapter_runs_from_the_records_alone(tmp_path, monkeypatch):
    """No engine may start: without vLLM's packages in sight the chapter still shows every figure."""
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "cache"))  # no converted model, no logs of engines
    (outcome,) = runner.execute(runner.chapters([1]), {"PROFILE": "recorded"}, build=tmp_path, limit=300)
    assert outcome.state == "done", outcome.error
    assert not (tmp_path / "cache" / "logs").exists(), "an engine was started"
    figures = [o for o in outputs(outcome.output) if "image/png" in o.get("data", {})]
    assert len(figures) >= 3
    assert "RECORDED" in "".join(str(o) for o in outputs(outcome.output))


@pytest.mark.engine
def test_a_chapter_honours_its_parameters(tmp_path):
    """Fewer prompts and tokens than the stored run, live."""
    parameters = {"PROFILE": "live", "N_PROMPTS": 2, "MAX_TOKENS": 8}
    (outcome,) = runner.execute(runner.chapters([7]), parameters, build=tmp_path, limit=600)
    assert outcome.state == "done", outcome.error
    assert "LIVE" in "".join(str(o) for o in outputs(outcome.output))
