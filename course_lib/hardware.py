"""What this machine is and what it can do, found out without importing torch or vLLM."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib.errors import NotAvailableHere
from course_lib.models import SHAPES

if TYPE_CHECKING:
    from course_lib.config import EngineConfig

# Variables that change numbers. An engine's process gets them from its configuration and from nowhere else.
NUMERIC_VARIABLES = frozenset({
    "VLLM_BATCH_INVARIANT", "VLLM_FLOAT32_MATMUL_PRECISION", "NVIDIA_TF32_OVERRIDE", "TRITON_F32_DEFAULT",
    "VLLM_USE_FLASHINFER_SAMPLER", "VLLM_USE_V2_MODEL_RUNNER", "VLLM_CPU_ATTN_SPLIT_KV", "VLLM_CPU_OMP_THREADS_BIND",
    "VLLM_CPU_NUM_OF_RESERVED_CPU", "VLLM_CPU_KVCACHE_SPACE", "VLLM_ENABLE_V1_MULTIPROCESSING", "OMP_NUM_THREADS",
    "CUBLAS_WORKSPACE_CONFIG",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "MKL_NUM_THREADS",
    "MKL_CBWR", "TORCHDYNAMO_DISABLE", "VLLM_KV_CACHE_LAYOUT", "VLLM_MARLIN_USE_ATOMIC_ADD",
})  # fmt: skip

_CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd")
_PARAMETERS = {"shape:llama-8b": 8.0e9, "shape:llama-1b": 1.24e9}
_BRANDS = ("nvidia", "tesla", "geforce", "quadro")
_PACKAGES = ("vllm", "vllm-cpu", "torch", "triton", "transformers", "numpy")


@functools.cache
def gpus() -> tuple[dict[str, Any], ...]:
    """The NVIDIA GPUs: name, memory in GiB, driver. COURSE_DEVICE=cpu hides them."""
    if os.environ.get("COURSE_DEVICE") == "cpu":
        return ()
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return ()
    rows = [[part.strip() for part in line.split(",")] for line in lines if line.count(",") == 2]
    return tuple({"name": n, "memory_gib": round(float(m) / 1024, 1), "driver": d} for n, m, d in rows)


def has_gpu() -> bool:
    return bool(gpus())


@functools.cache
def describe() -> dict[str, Any]:
    """This machine: `kind` (names its records), CPU, instruction sets, cores, memory in GiB, GPUs, versions."""
    cpu = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"model name\s*: (.*)", cpu)
    flags = re.search(r"(?:flags|Features)\s*: (.*)", cpu)
    return {
        "kind": kind(),
        "cpu": model.group(1).strip() if model else platform.processor() or platform.machine(),
        "isa": [f for f in _CPU_FLAGS if flags and f in flags.group(1).split()],
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpus": list(gpus()),
        "python": platform.python_version(),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Installed versions of the packages that decide numbers."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def kind() -> str:
    """The hardware class that names a record: "h200", "l4", "rtx-4090"; "cpu-avx512bf16", "cpu-avx2", "cpu"."""
    if has_gpu():
        # up to the first word with a digit: "NVIDIA GeForce RTX 4090" is "rtx-4090", "NVIDIA H100 80GB HBM3" is "h100"
        words = [w for w in re.findall(r"[a-z0-9]+", gpus()[0]["name"].lower()) if w not in _BRANDS]
        end = next((i + 1 for i, w in enumerate(words) if re.search(r"\d", w)), len(words))
        return "-".join(words[:end]) or "gpu"
    cpu = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    for flag, name in (
        ("amx_bf16", "cpu-amx"),
        ("avx512_bf16", "cpu-avx512bf16"),
        ("avx512f", "cpu-avx512"),
        ("avx2", "cpu-avx2"),
    ):
        if re.search(rf"\b{flag}\b", cpu):
            return name
    return "cpu"


def free_memory_gib() -> float:
    """Memory that a new process could take, GiB: the GPU's where there is one, else the host's."""
    if has_gpu():
        query = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
        return (
            float(subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout.split()[0])
            / 1024
        )
    found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    return int(found.group(1)) / 2**20 if found else float("inf")


def require_gpu(what: str) -> None:
    """Raises NotAvailableHere when there is no NVIDIA GPU."""
    if not has_gpu():
        raise NotAvailableHere(f"{what} needs an NVIDIA GPU, and this machine has none; the recorded run shows it")


def require(config: EngineConfig) -> None:
    """Refuse, before anything is loaded, what this machine is known not to do.

    Raises:
        NotAvailableHere: batch-invariant kernels, or an fp8 cache on a processor without it.
    """
    if config.batch_invariant and not has_gpu():
        raise NotAvailableHere("batch_invariant needs a GPU: on a CPU vLLM 0.32 crashes at start with it")
    if (
        config.kv_cache_dtype.startswith("fp8")
        and not has_gpu()
        and not {"avx512f", "amx_bf16"} & set(describe()["isa"])
    ):
        raise NotAvailableHere("an fp8 cache needs a GPU, or a CPU with AVX-512 or AMX; this one has neither")


def require_memory(config: EngineConfig) -> None:
    """Refuse a synthetic shape that does not fit into the memory that is free now.

    Raises:
        NotAvailableHere: it does not fit; says what it needs.
    """
    if config.model in SHAPES:
        weights = _PARAMETERS.get(config.model, 0.15e9) * (4 if config.dtype == "float32" else 2) / 2**30
        need, have = weights * 1.1 + config.kv_cache_gib + 1, free_memory_gib()
        if need > have:
            raise NotAvailableHere(f"{config.model} in {config.dtype} needs {need:.0f} GiB and {have:.0f} are free")
