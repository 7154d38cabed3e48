"""Configurations refuse what cannot be, say what would do, and know what differs between two of them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib import hardware
from course_lib.config import EngineConfig, Sampling, Schedule
from course_lib.errors import ConfigError, CourseError

# for each field that vLLM reads from the environment: values, and what the variable holds then
ENVIRONMENT = {
    "float32_matmul_precision": ("VLLM_FLOAT32_MATMUL_PRECISION", {"highest": "highest", "medium": "medium"}),
    "nvidia_tf32_override": ("NVIDIA_TF32_OVERRIDE", {0: "0", 1: "1"}),
    "triton_f32_default": ("TRITON_F32_DEFAULT", {"ieee": "ieee", "tf32x3": "tf32x3"}),
    "batch_invariant": ("VLLM_BATCH_INVARIANT", {True: "1", False: "0"}),
    "flashinfer_sampler": ("VLLM_USE_FLASHINFER_SAMPLER", {True: "1", False: "0"}),
    "v2_model_runner": ("VLLM_USE_V2_MODEL_RUNNER", {True: "1", False: "0"}),
    "cpu_split_kv": ("VLLM_CPU_ATTN_SPLIT_KV", {True: "1", False: "0"}),
}

configs = st.builds(
    EngineConfig,
    dtype=st.sampled_from(["auto", "bfloat16", "float16", "float32"]),
    seed=st.integers(0, 2**31),
    cpu_threads=st.none() | st.integers(1, 64),
    batch_invariant=st.none() | st.booleans(),
    block_size=st.none() | st.sampled_from([16, 32, 128]),
    enforce_eager=st.booleans(),
    kv_cache_gib=st.floats(0.1, 64),
    extra=st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=2),
)


# --- what cannot be


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: EngineConfig(dytpe="float16"), "EngineConfig has no field 'dytpe'; did you mean dtype"),
        (lambda: EngineConfig(max_seqs=1), "did you mean .*max_num_seqs"),
        (lambda: EngineConfig(qqq=1), "no field 'qqq'; known fields: model, revision, engine"),
        (lambda: Schedule(sise=8), "Schedule has no field 'sise'; did you mean size"),
        (lambda: Sampling(temprature=0.7), "Sampling has no field 'temprature'; did you mean temperature"),
        (lambda: EngineConfig().but(dtyp="float16"), "did you mean dtype"),
    ],
)
def test_an_unknown_field_is_named_with_its_neighbours(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(
    "fields",
    [
        {"dtype": "fp16"},
        {"engine": "sglang"},
        {"kv_cache_dtype": "int8"},
        {"nvidia_tf32_override": 2},
        {"cpu_threads": 0},
        {"max_num_seqs": 0},
        {"block_size": -16},
        {"max_model_len": 1},
        {"kv_cache_gib": 0},
        {"kv_cache_gib": float("nan")},
        {"gpu_memory_utilization": 1.01},
        {"logprobs_mode": "raw"},
        {"seed": None},
        {"seed": 1.5},
        {"extra": [1]},
    ],
)
def test_an_impossible_value_is_named(fields):
    (name,) = fields
    with pytest.raises(ConfigError, match=rf"EngineConfig\.{name}.* = "):
        EngineConfig(**fields)


def test_all_mistakes_are_told_at_once_and_every_error_is_the_course_s():
    with pytest.raises(CourseError) as e:
        EngineConfig(dytpe="float16", seed="x", max_model_len=0)
    assert len(str(e.value).splitlines()) == 3
    assert isinstance(e.value, ValueError)


def test_small_steps_need_chunked_prefill():
    with pytest.raises(ConfigError, match="needs chunked prefill"):
        EngineConfig(max_num_batched_tokens=512, enable_chunked_prefill=False)
    EngineConfig(max_num_batched_tokens=512, enable_chunked_prefill=True)
    EngineConfig(max_num_batched_tokens=2048, enable_chunked_prefill=False)


def test_a_configuration_cannot_be_changed_in_place():
    with pytest.raises(Exception, match="frozen"):
        EngineConfig().dtype = "float16"


# --- the reference


@pytest.mark.parametrize(
    "fields",
    [
        {"kv_cache_dtype": "fp8"},
        {"seed": 1},
        {"batch_invariant": True},
        {"enforce_eager": False},
        {"block_size": 16},
        {"extra": {"a": 1}},
        {"attention_backend": "FLASH_ATTN"},
        {"logprobs_mode": "raw_logits"},
    ],
)
def test_the_transformers_reference_refuses_what_it_would_ignore(fields):
    (name,) = fields
    with pytest.raises(ConfigError, match=f"Transformers reference has no {name}"):
        EngineConfig(engine="transformers", **fields)


def test_the_transformers_reference_takes_what_it_honours():
    EngineConfig(engine="transformers", dtype="float32", model="a/b", revision="c", max_model_len=64, cpu_threads=1)
    with pytest.raises(ConfigError, match="explicit dtype"):
        EngineConfig(engine="transformers", dtype="auto")


# --- equality, digest, difference


@given(configs, configs)
def test_digests_are_equal_exactly_when_configurations_are(a, b):
    assert (a.digest() == b.digest()) == (a == b)
    assert a.digest() == EngineConfig(**json.loads(a.model_dump_json())).digest()
    assert len(a.digest()) == 16


@given(configs, configs)
def test_the_difference_is_what_changes_one_into_the_other(a, b):
    changes = a.diff(b)
    assert a.but(**{k: theirs for k, (_, theirs) in changes.items()}) == b
    assert {k: (y, x) for k, (x, y) in changes.items()} == b.diff(a)
    assert (not changes) == (a == b)


def test_a_field_that_is_none_does_not_count_and_its_opposites_do():
    class Later(EngineConfig):
        new: int | None = None

    assert Later().digest() == EngineConfig().digest()
    assert Later(new=0).digest() != EngineConfig().digest()
    switches = [EngineConfig(batch_invariant=x).digest() for x in (None, True, False)]
    assert len(set(switches)) == 3


def test_a_digest_does_not_depend_on_how_a_value_was_written():
    assert EngineConfig(kv_cache_gib=1).digest() == EngineConfig(kv_cache_gib=1.0).digest()
    assert EngineConfig(extra={"a": 1, "b": 2}).digest() == EngineConfig(extra={"b": 2, "a": 1}).digest()
    assert EngineConfig().but().digest() == EngineConfig().digest()


def test_but_leaves_the_original_and_checks_the_copy():
    a = EngineConfig()
    b = a.but(dtype="float16", seed=3)
    assert (a.dtype, b.dtype, b.seed) == ("bfloat16", "float16", 3)
    assert a.diff(b) == {"dtype": ("bfloat16", "float16"), "seed": (0, 3)}
    with pytest.raises(ConfigError, match="dtype"):
        a.but(dtype="half")


# --- environment


def test_every_field_with_a_variable_is_in_this_table():
    carried = {n for n, f in EngineConfig.model_fields.items() if f.json_schema_extra}
    assert carried == ENVIRONMENT.keys()


@pytest.mark.parametrize("field", ENVIRONMENT)
def test_a_field_reaches_its_variable_and_no_other(field):
    variable, values = ENVIRONMENT[field]
    assert EngineConfig().env() == {}
    for value, text in values.items():
        assert EngineConfig(**{field: value}).env() == {variable: text}


def test_threads_are_bound_and_counted():
    assert EngineConfig(cpu_threads=1).env() == {"VLLM_CPU_OMP_THREADS_BIND": "0", "OMP_NUM_THREADS": "1"}
    assert EngineConfig(cpu_threads=4).env() == {"VLLM_CPU_OMP_THREADS_BIND": "0-3", "OMP_NUM_THREADS": "4"}


def test_a_stray_copy_of_each_variable_is_kept_from_the_engine():
    """What a configuration may set, the caller's environment may not."""
    everything = EngineConfig(cpu_threads=2, **{f: next(iter(v)) for f, (_, v) in ENVIRONMENT.items()})
    assert everything.env().keys() <= hardware.NUMERIC_VARIABLES
    assert len(everything.env()) == len(ENVIRONMENT) + 2


# --- schedules and sampling


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"kind": "padded"}, "padded needs a size"),
        ({"kind": "staggered"}, "needs a gap"),
        ({"kind": "groups", "gap": 2}, "only staggered, needs a gap"),
        ({"kind": "padded", "size": 2, "gap": 2}, "only staggered"),
        ({"size": 0}, r"Schedule\.size = 0"),
        ({"kind": "staggered", "gap": 0}, r"Schedule\.gap = 0"),
        ({"kind": "random"}, r"Schedule\.kind = 'random'"),
    ],
)
def test_impossible_schedules(fields, message):
    with pytest.raises(ConfigError, match=message):
        Schedule(**fields)


def test_short_names_of_schedules():
    assert Schedule.alone() == Schedule.groups(1) == Schedule(size=1)
    assert Schedule.together() == Schedule() and Schedule().size is None
    assert Schedule.padded(4) == Schedule(kind="padded", size=4)
    assert Schedule.staggered(2) == Schedule(kind="staggered", gap=2)
    assert len({s.digest() for s in (Schedule(), Schedule.alone(), Schedule.padded(1), Schedule.staggered(1))}) == 4


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"top_p": 0},
        {"top_p": 1.1},
        {"top_k": -1},
        {"max_tokens": 0},
        {"repetition_penalty": 0},
        {"top_k_logprobs": 1},
        {"top_k_logprobs": 21},
    ],
)
def test_impossible_sampling(fields):
    (name,) = fields
    with pytest.raises(ConfigError, match=rf"Sampling\.{name} = "):
        Sampling(**fields)
    assert Sampling().temperature == 0


# --- hardware classes


@pytest.mark.parametrize(
    "card, kind",
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 3090 Ti", "rtx-3090"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000"),
    ],
)
def test_cards_whose_numbers_may_differ_have_records_of_their_own(monkeypatch, card, kind):
    monkeypatch.setattr(hardware, "gpus", lambda: ({"name": card, "memory_gib": 80.0, "driver": "1"},))
    assert hardware.kind() == kind
