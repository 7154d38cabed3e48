"""The ledger: what people say about vLLM's outputs, and what a recorded experiment says to it.

`data/claims.yaml` holds the claims. A verdict is never written there: it is computed from evidence, by an expression
over the findings of the claim's experiment (`bf16.forks > fp16.forks`).
"""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Mapping
from typing import Any, Literal, Self

import simpleeval
import yaml
from pydantic import model_validator

from course_lib import evidence as records
from course_lib.config import Frozen
from course_lib.errors import ConfigError, EvidenceMismatch
from course_lib.evidence import Evidence

Verdict = Literal["supported", "refuted", "conditional", "not observed here", "untested"]


class Claim(Frozen):
    """One checkable statement.

    Attributes:
        claim: the statement, in our words.
        source: who says it, and where.
        chapter: the chapter that tests it.
        scope: what the verdict holds for.
        experiment: decides it; or, when there is none, `untested` says why.
        supported_if, refuted_if: expressions over the experiment's findings. Neither true: "not observed here".
        conditional_if: it holds in some cases and not in others; goes before the other two.
        finding: one sentence on what was found, with {findings} filled in from the record.
    """

    id: str
    claim: str
    source: str
    chapter: int
    scope: str
    experiment: str | None = None
    supported_if: str | None = None
    refuted_if: str | None = None
    conditional_if: str | None = None
    finding: str = ""
    untested: str | None = None

    @model_validator(mode="after")
    def _decidable(self) -> Self:
        if (self.experiment is None) == (self.untested is None):
            raise ValueError(f"claim '{self.id}' needs either an experiment or a reason why it is untested")
        if self.experiment and not (self.supported_if or self.refuted_if or self.conditional_if):
            raise ValueError(f"claim '{self.id}' has an experiment but no expression that decides it")
        return self


class Judgement(Frozen):
    """A claim's verdict on one machine's evidence."""

    claim: Claim
    verdict: Verdict
    finding: str
    evidence: str = ""


@functools.cache
def ledger() -> dict[str, Claim]:
    """All claims, by id."""
    text = importlib.resources.files("course_lib").joinpath("data/claims.yaml").read_text("utf8")
    claims = [Claim(**row) for row in yaml.safe_load(text)]
    if twice := {c.id for c in claims if sum(d.id == c.id for d in claims) > 1}:
        raise ConfigError(f"claims.yaml names {', '.join(sorted(twice))} more than once")
    return {c.id: c for c in claims}


def evaluate(expression: str, findings: Mapping[str, Any]) -> Any:
    """An expression over findings, e.g. `bf16.forks > 0 and rerun.identical`.

    Raises:
        ConfigError: it names something that the experiment does not find, or does not parse.
    """
    try:
        return simpleeval.EvalWithCompoundTypes(names=dict(findings), functions={"max": max, "min": min, "abs": abs}).eval(expression)
    except (simpleeval.InvalidExpression, SyntaxError, AttributeError, TypeError, KeyError) as e:
        raise ConfigError(f"claim expression '{expression}': {e}; findings are {', '.join(findings)}") from e


def judge(claim: Claim | str, evidence: Evidence | None = None) -> Judgement:
    """The verdict on a claim from this evidence, or from the record of this machine's kind, or of any kind.

    Raises:
        EvidenceMismatch: the record is damaged or stale. A missing one makes the verdict "untested".
    """
    claim = ledger()[claim] if isinstance(claim, str) else claim
    if claim.experiment is None:
        return Judgement(claim=claim, verdict="untested", finding=claim.untested or "")
    if evidence is None:
        kinds = records.recorded(claim.experiment)
        if not kinds:
            return Judgement(claim=claim, verdict="untested", finding=f"no record of {claim.experiment} yet")
        here = records.hardware.kind()
        evidence = records.load(claim.experiment, here if here in kinds else kinds[0])
    if evidence.experiment != claim.experiment:
        raise EvidenceMismatch(f"claim '{claim.id}' is decided by {claim.experiment}, not by {evidence.experiment}")
    found = evidence.findings()
    verdict: Verdict = "not observed here"
    for candidate, expression in (
        ("conditional", claim.conditional_if),
        ("refuted", claim.refuted_if),
        ("supported", claim.supported_if),
    ):
        if expression and evaluate(expression, found):
            verdict = candidate  # type: ignore[assignment]
            break
    return Judgement(
        claim=claim,
        verdict=verdict,
        finding=claim.finding.format_map(found),
        evidence=f"{evidence.experiment} on {evidence.hardware['kind']}",
    )
