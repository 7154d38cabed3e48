"""`course`: the command line. Each command calls one function of the library and prints what it returns."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from course_lib.errors import ConfigError, CourseError

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Same prompt, different tokens: the course's tool.")
console = Console(highlight=False)


def main() -> None:
    """Entry point: an expected error is one clear message and exit code 1, not a traceback."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # leave in order, so that papermill and engines go too
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    try:
        app()
    except CourseError as e:
        Console(stderr=True).print(f"[red]{type(e).__name__}[/]: {escape(str(e))}", highlight=False, soft_wrap=True)
        sys.exit(1)


@app.command()
def doctor(
    warm: Annotated[bool, typer.Option(help="Convert the model and start an engine once, to fill caches.")] = False,
) -> None:
    """Say what this machine is, whether the course can run on it, and what is missing."""
    from course_lib import evidence, hardware
    from course_lib.files import cache_dir
    from course_lib.models import DEFAULT_MODEL, resolve_model

    machine = hardware.describe()
    table = Table("what", "here", show_header=False)
    table.add_row(
        "hardware", f"{machine['kind']}: {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB"
    )
    table.add_row(
        "GPU",
        ", ".join(f"{g['name']}, {g['memory_gib']} GiB" for g in machine["gpus"]) or "none; everything runs on the CPU",
    )
    table.add_row("versions", ", ".join(f"{k} {v}" for k, v in machine["versions"].items()))
    table.add_row("cache", str(cache_dir()))
    console.print(table)
    if not evidence.engine_installed():
        raise ConfigError("vLLM is not installed in this environment: run `make setup`. Records can be read without it")
    console.print(f"model {DEFAULT_MODEL}: {resolve_model().weights_hash[:12]}… in {resolve_model().path}")
    if warm:
        from course_lib.config import EngineConfig, Sampling
        from course_lib.engines import open_engine

        for config in (EngineConfig(), EngineConfig(engine="transformers", dtype="float32")):
            run = open_engine(config).run(["Say hello."], sampling=Sampling(max_tokens=4))
            console.print(f"{run.resolved['engine']}: {run.traces[0].text!r}")
    console.print("ready")


@app.command()
def run(
    chapters: Annotated[list[str] | None, typer.Argument(help="Chapter numbers; all by default.")] = None,
    profile: Annotated[str, typer.Option(help="auto, live or recorded.")] = "auto",
    parameter: Annotated[list[str] | None, typer.Option("-p", help="NAME=VALUE for the parameters cell.")] = None,
    limit: Annotated[int, typer.Option(help="Seconds that one chapter may take.")] = 1200,
    again: Annotated[bool, typer.Option(help="Execute also what has not changed since it was executed.")] = False,
) -> None:
    """Execute chapters with papermill into build/run; go on where an earlier run stopped."""
    from course_lib import runner

    numbers = [_whole_number(c) for text in chapters or [] for c in text.replace(",", " ").split()]
    todo = runner.chapters(numbers)

    def starting(notebook: Path) -> None:
        console.print(f"[dim]{todo.index(notebook) + 1}/{len(todo)}[/] {notebook.stem} …")

    def report(outcome: runner.Outcome) -> None:
        colour = "green" if outcome.ok else "red"
        took = "" if outcome.state == "kept" else f" in {outcome.seconds:.0f} s"
        console.print(
            f"    [{colour}]{outcome.state}[/]{took}"
            + (f": {escape(outcome.error)}\n    log: {outcome.log}" if outcome.error else "")
        )

    outcomes = runner.execute(
        todo,
        {"PROFILE": profile, **_parameters(parameter or [])},
        limit=limit,
        again=again,
        report=report,
        starting=starting,
    )
    failed = [o for o in outcomes if not o.ok]
    console.print(f"{len(outcomes) - len(failed)} of {len(outcomes)} chapters executed; they lie in {runner.BUILD}")
    if failed:
        raise typer.Exit(1)


def _whole_number(text: str) -> int:
    if not text.isdigit():
        raise ConfigError(f"'{text}' is not a chapter number; say for example `course run 1 7`")
    return int(text)


def _parameters(pairs: list[str]) -> dict[str, Any]:
    import yaml

    out = {}
    for pair in pairs:
        name, found, value = pair.partition("=")
        if not found or not name.isidentifier():
            raise ConfigError(f"-p {pair}: write NAME=VALUE, for example -p MAX_TOKENS=16")
        try:
            out[name] = json.loads(json.dumps(yaml.safe_load(value)))
        except (yaml.YAMLError, TypeError) as e:
            raise ConfigError(f"-p {pair}: not a number, text or list: {str(e).splitlines()[0]}") from e
    return out


@app.command()
def lab(arguments: Annotated[list[str] | None, typer.Argument(help="Passed on to JupyterLab.")] = None) -> None:
    """Open JupyterLab on the chapters."""
    from course_lib import runner

    raise typer.Exit(
        subprocess.call(
            [
                sys.executable,
                "-m",
                "jupyterlab",
                "--notebook-dir",
                str(runner.ROOT),
                "--LabApp.default_url=/lab/tree/notebooks",
                *(arguments or []),
            ]
        )
    )


@app.command()
def record(
    experiments: Annotated[list[str] | None, typer.Argument(help="Names; all by default.")] = None,
    model: Annotated[str, typer.Option(help="A model other than the default; needs --to.")] = "",
    to: Annotated[Path | None, typer.Option(help="Write here instead of evidence/.")] = None,
) -> None:
    """Run experiments in full on this machine and keep their records."""
    from course_lib import evidence
    from course_lib import experiments as registry

    if model and to is None:
        raise ConfigError("another model's record must not replace the default model's: say where with --to FOLDER")
    for name in experiments or registry.names():
        exp = registry.experiment(name)
        if exp.needs_gpu and not experiments and not evidence.hardware.has_gpu():
            console.print(f"[bold]{name}[/]: left out, it needs a GPU")
            continue
        console.print(f"[bold]{name}[/]: {exp.question}")
        found = evidence.run(
            exp.on(model=model) if model else exp, progress=lambda line: console.print(f"  [dim]{escape(line)}[/]")
        )
        path = evidence.save(found, to and to / name / f"{found.hardware['kind']}.json")
        console.print(f"  {path} ({found.seconds:.0f} s)")


@app.command()
def show(
    experiment: Annotated[str, typer.Argument(help="The experiment's name; without it, what there is.")] = "",
    hardware: Annotated[str, typer.Option(help="Whose record; this machine's kind by default.")] = "",
) -> None:
    """Show a record: what each pair of arms found."""
    from course_lib import evidence, experiments

    if not experiment:
        overview = Table("experiment", "question", "records")
        for name in experiments.names():
            overview.add_row(name, experiments.experiment(name).question, ", ".join(evidence.recorded(name)) or "–")
        console.print(overview)
        return
    kinds = evidence.recorded(experiments.experiment(experiment).name)
    found = evidence.load(
        experiment, hardware or (None if evidence.hardware.kind() in kinds or not kinds else kinds[0])
    )
    console.print(f"[bold]{experiment}[/]: {experiments.experiment(experiment).question}\n{found.label}")
    table: Table | None = None
    for name, comparison in found.comparisons.items():
        figures = comparison.figures()
        if table is None or [c.header for c in table.columns][1:] != list(figures):
            if table:
                console.print(table)
            table = Table("pair", *figures)
        table.add_row(
            name, *(f"{v:.3g}" if isinstance(v, float) else "–" if v is None else str(v) for v in figures.values())
        )
    console.print(table)


@app.command()
def claims(
    chapter: Annotated[int | None, typer.Option(help="Only this chapter's claims.")] = None,
) -> None:
    """Print the ledger: each claim, its verdict, and the evidence for it."""
    from course_lib import claims as ledger

    colours = {"supported": "green", "refuted": "red"}
    table = Table("claim", "verdict", "what we found", "evidence", show_lines=True)
    for claim in ledger.ledger().values():
        if chapter is None or claim.chapter == chapter:
            for j in ledger.judge(claim):
                verdict = f"[{colours.get(j.verdict, 'yellow')}]{j.verdict}[/]"
                table.add_row(
                    f"{escape(claim.claim)}\n[dim]{escape(claim.source)}[/]", verdict, escape(j.finding), j.evidence
                )
    console.print(table)


if __name__ == "__main__":
    main()
