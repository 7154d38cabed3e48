"""What may change an output, in one frozen value: `EngineConfig`, `Schedule`, `Sampling`.

Nothing here imports vLLM or torch. A field that vLLM reads from the environment carries the variable's name, so that
`EngineConfig.env()` is the whole environment which an engine needs, and engines of equal environment share a process.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from course_lib.errors import ConfigError


class Frozen(BaseModel):
    """A frozen pydantic model whose complaints are `ConfigError`s that a reader can act on."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as e:
            raise ConfigError(_explain(type(self), e)) from None

    def but(self, **changes: Any) -> Self:
        """A copy with these fields changed, validated anew."""
        return type(self)(**{**self.model_dump(), **changes})

    def diff(self, other: Self) -> dict[str, tuple[Any, Any]]:
        """The fields in which two values differ: name -> (mine, the other's)."""
        mine, theirs = self.model_dump(), other.model_dump()
        return {k: (mine[k], theirs[k]) for k in mine if mine[k] != theirs[k]}

    def digest(self) -> str:
        """16 hex digits that name this value; equal values have equal digests.

        A field that is None does not count, so that a new field of that default leaves old records valid.
        """
        text = json.dumps(self.model_dump(mode="json", exclude_none=True), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _explain(cls: type[BaseModel], error: ValidationError) -> str:
    lines = []
    for e in error.errors():
        field = ".".join(str(part) for part in e["loc"]) or cls.__name__
        if not e["loc"]:
            lines.append(f"{cls.__name__}: {e['msg']}")
        elif e["type"] == "extra_forbidden":
            near = difflib.get_close_matches(field, cls.model_fields, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"known fields: {', '.join(cls.model_fields)}"
            lines.append(f"{cls.__name__} has no field '{field}'; {hint}")
        else:
            lines.append(f"{cls.__name__}.{field} = {e['input']!r}: {e['msg']}")
    return "\n".join(lines)


def _env(variable: str, default: Any = None, **kw: Any) -> Any:
    return Field(default, json_schema_extra={"env": variable}, **kw)


class EngineConfig(Frozen):
    """Everything about an engine that may change its output.

    Defaults follow vLLM except where an experiment needs a quiet background: eager execution, no prefix cache and
    `generation_config="vllm"`, so that two runs differ in nothing but what the experiment changes. `None` means
    "vLLM decides"; what it decided is in `Run.resolved`.
    """

    # which model, executed by what
    model: str = "smollm2-135m"
    revision: str | None = None
    engine: Literal["vllm", "transformers"] = "vllm"
    model_impl: Literal["auto", "vllm", "transformers"] = "auto"

    # number formats
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "bfloat16"
    kv_cache_dtype: Literal["auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2"] = "auto"
    head_dtype: Literal["model", "float32"] = "model"
    float32_matmul_precision: Literal["highest", "high", "medium"] | None = _env("VLLM_FLOAT32_MATMUL_PRECISION")
    nvidia_tf32_override: Literal[0, 1] | None = _env("NVIDIA_TF32_OVERRIDE")
    triton_f32_default: Literal["ieee", "tf32", "tf32x3"] | None = _env("TRITON_F32_DEFAULT")

    # kernels
    attention_backend: str | None = None
    enforce_eager: bool = True
    compilation: dict[str, Any] | None = None
    batch_invariant: bool | None = _env("VLLM_BATCH_INVARIANT")
    flashinfer_sampler: bool | None = _env("VLLM_USE_FLASHINFER_SAMPLER")
    v2_model_runner: bool | None = _env("VLLM_USE_V2_MODEL_RUNNER")
    cpu_split_kv: bool | None = _env("VLLM_CPU_ATTN_SPLIT_KV")
    cpu_threads: int | None = Field(None, ge=1)

    # scheduler and cache
    seed: int = 0
    max_num_seqs: int | None = Field(None, ge=1)
    max_num_batched_tokens: int | None = Field(None, ge=1)
    enable_chunked_prefill: bool | None = None
    enable_prefix_caching: bool = False
    block_size: int | None = Field(None, ge=1)
    num_gpu_blocks_override: int | None = Field(None, ge=1)

    # meaning of what comes back
    logprobs_mode: Literal["raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits"] = "raw_logprobs"
    generation_config: str = "vllm"

    # room
    max_model_len: int = Field(2048, ge=2)
    kv_cache_gib: float = Field(1.0, gt=0)
    gpu_memory_utilization: float = Field(0.25, gt=0, le=1)

    extra: dict[str, Any] = Field(default_factory=dict, description="passed to vllm.LLM as it is")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.engine == "transformers":
            if self.dtype == "auto":
                raise ValueError("the Transformers reference wants an explicit dtype")
            mute = EngineConfig.model_fields.keys() - {
                "engine",
                "model",
                "revision",
                "dtype",
                "max_model_len",
                "cpu_threads",
            }
            changed = sorted(
                k
                for k in mute
                if getattr(self, k) != EngineConfig.model_fields[k].get_default(call_default_factory=True)
            )
            if changed:
                raise ValueError(f"the Transformers reference has no {', '.join(changed)}; leave at the default")
        elif (
            self.max_num_batched_tokens
            and self.enable_chunked_prefill is False
            and self.max_num_batched_tokens < self.max_model_len
        ):
            raise ValueError("max_num_batched_tokens below max_model_len needs chunked prefill")
        return self

    def env(self) -> dict[str, str]:
        """The environment variables that this configuration asks for, as strings; unset fields are left out."""
        out = {}
        for name, field in type(self).model_fields.items():
            extra = field.json_schema_extra
            value = getattr(self, name)
            if isinstance(extra, dict) and value is not None:
                out[str(extra["env"])] = str(int(value)) if isinstance(value, bool) else str(value)
        if self.cpu_threads:
            out["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{self.cpu_threads - 1}" if self.cpu_threads > 1 else "0"
            out["OMP_NUM_THREADS"] = str(self.cpu_threads)
        return out


class Schedule(Frozen):
    """Who shares a step with whom.

    `groups` sends the prompts in consecutive groups of `size`: a group starts when the one before it has finished
    (1 is "each alone", None is "all together"). `padded` gives each prompt a group of its own, filled up to `size`
    with neighbours whose output is thrown away. `staggered` lets one request more arrive every `gap` steps.
    """

    kind: Literal["groups", "padded", "staggered"] = "groups"
    size: int | None = Field(None, ge=1)
    gap: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.kind == "padded" and self.size is None:
            raise ValueError("padded needs a size")
        if (self.kind == "staggered") != (self.gap is not None):
            raise ValueError("staggered, and only staggered, needs a gap")
        return self

    @classmethod
    def alone(cls) -> Schedule:
        return cls(size=1)

    @classmethod
    def together(cls) -> Schedule:
        return cls()

    @classmethod
    def groups(cls, size: int) -> Schedule:
        return cls(size=size)

    @classmethod
    def padded(cls, size: int) -> Schedule:
        return cls(kind="padded", size=size)

    @classmethod
    def staggered(cls, gap: int) -> Schedule:
        return cls(kind="staggered", gap=gap)


class Sampling(Frozen):
    """How tokens are drawn. Greedy by default, with the `top_k_logprobs` most likely alternatives reported."""

    temperature: float = Field(0.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0)
    seed: int | None = None
    repetition_penalty: float = Field(1.0, gt=0)
    max_tokens: int = Field(64, ge=1)
    ignore_eos: bool = False
    top_k_logprobs: int = Field(5, ge=2, le=20)
