"""The ledger: what people say about vLLM's outputs, and what a recorded experiment says to it.

`data/claims/*.yaml` hold the claims, a file for each chapter. A verdict is never written there: an expression over the
findings of the claim's experiment decides it (`bf16.forks > fp16.forks`), or over what arithmetic alone says.
"""

from __future__ import annotations

import ast
import functools
import importlib.resources
import re
from collections.abc import Mapping
from typing import Any, Literal, Self

import simpleeval
import yaml
from pydantic import model_validator

from course_lib import evidence as records
from course_lib import facts_of_arithmetic
from course_lib.config import Frozen
from course_lib.errors import ConfigError, EvidenceMismatch
from course_lib.evidence import Evidence
from course_lib.i18n import _

Verdict = Literal["supported", "refuted", "conditional", "not observed here", "untested"]


class Claim(Frozen):
    """One checkable statement.

    Attributes:
        claim: the statement, in our words.
        source: who says it, and where.
        chapter: the chapter that tests it.
        scope: what the verdict holds for.
        experiment: decides it; or `computed` names a function of `facts_of_arithmetic` that does, and needs no record;
            or, when there is neither, `untested` says why.
        supported_if, refuted_if: expressions over what was found. Neither true: "not observed here".
        conditional_if: it holds in some cases and not in others; goes before the other two.
        finding: one sentence on what was found, with {findings} filled in from the record.
    """

    id: str
    claim: str
    source: str
    chapter: int
    scope: str
    experiment: str | None = None
    computed: str | None = None
    supported_if: str | None = None
    refuted_if: str | None = None
    conditional_if: str | None = None
    finding: str = ""
    untested: str | None = None

    @model_validator(mode="after")
    def _decidable(self) -> Self:
        if [self.experiment, self.computed, self.untested].count(None) != 2:
            raise ValueError(f"claim '{self.id}' needs one of: experiment, computed, untested")
        if self.computed and self.computed not in facts_of_arithmetic.__all__:
            known = ", ".join(facts_of_arithmetic.__all__)
            raise ValueError(f"claim '{self.id}' is computed by '{self.computed}', which is none of {known}")
        if self.untested is None and not (self.supported_if or self.refuted_if or self.conditional_if):
            raise ValueError(f"claim '{self.id}' has no expression that decides it")
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
    files = importlib.resources.files("course_lib").joinpath("data/claims").iterdir()
    rows = [row for file in sorted(files, key=lambda f: f.name) for row in yaml.safe_load(file.read_text("utf8"))]
    claims = {row["id"]: Claim(**row) for row in rows}
    if len(claims) < len(rows):
        raise ConfigError(f"the ledger names a claim twice: {sorted(r['id'] for r in rows)}")
    return claims


_FUNCTIONS = {"max": max, "min": min, "abs": abs}


def evaluate(expression: str, findings: Mapping[str, Any]) -> Any:
    """An expression over findings, e.g. `bf16.forks > 0 and rerun.identical`.

    Raises:
        ConfigError: it names something that the experiment does not find, or does not parse.
    """
    try:
        parsed = ast.parse(expression.strip(), mode="eval")  # one expression: simpleeval would skip "=" and ";"
        return simpleeval.SimpleEval(names=dict(findings), functions=_FUNCTIONS).eval(expression, parsed.body)
    except (simpleeval.InvalidExpression, SyntaxError, AttributeError, TypeError, LookupError, ArithmeticError) as e:
        raise ConfigError(f"claim expression '{expression}': {e}; findings are {', '.join(findings)}") from e


def judge(claim: Claim | str) -> list[Judgement]:
    """The verdicts on a claim: one for each kind of hardware that has a record of its experiment.

    Arithmetic gives one verdict for all. A claim without a record is "untested", and its finding says why.

    Raises:
        EvidenceMismatch: a record is damaged or stale.
    """
    claim = ledger()[claim] if isinstance(claim, str) else claim
    if claim.computed:
        return [_decide(claim, getattr(facts_of_arithmetic, claim.computed)(), "computed")]
    if claim.experiment is None:
        return [Judgement(claim=claim, verdict="untested", finding=claim.untested or "")]
    kinds = records.recorded(claim.experiment)
    if not kinds:
        return [Judgement(claim=claim, verdict="untested", finding=f"no record of {claim.experiment} yet")]
    return [judge_on(claim, records.load(claim.experiment, kind)) for kind in kinds]


def judge_on(claim: Claim, evidence: Evidence) -> Judgement:
    """The verdict on a claim from this evidence.

    Raises:
        EvidenceMismatch: the evidence is of another experiment than the claim's.
    """
    if evidence.experiment != claim.experiment:
        raise EvidenceMismatch(f"claim '{claim.id}' is decided by {claim.experiment}, not by {evidence.experiment}")
    expressions = " ".join(filter(None, (claim.supported_if, claim.refuted_if, claim.conditional_if, claim.finding)))
    for pair, reason in evidence.missing.items():
        if re.search(rf"\b{re.escape(pair)}\.", expressions):
            return Judgement(claim=claim, verdict="untested", finding=reason, evidence=evidence.label)
    return _decide(claim, evidence.findings(), evidence.label)


def _decide(claim: Claim, found: Mapping[str, Any], label: str) -> Judgement:
    verdict: Verdict = "not observed here"
    if claim.conditional_if and evaluate(claim.conditional_if, found):
        verdict = "conditional"
    elif claim.refuted_if and evaluate(claim.refuted_if, found):
        verdict = "refuted"
    elif claim.supported_if and evaluate(claim.supported_if, found):
        verdict = "supported"
    try:
        finding = _(claim.finding).format_map({pair: _InWords(figures) for pair, figures in found.items()})
    except (KeyError, AttributeError, TypeError, ValueError) as e:
        raise ConfigError(f"claim '{claim.id}' has the finding '{claim.finding}': {e!r}") from e
    return Judgement(claim=claim, verdict=verdict, finding=finding, evidence=label)


class _InWords:
    """A pair's findings as a sentence says them: yes and no for true and false."""

    def __init__(self, figures: Any) -> None:
        self._figures = figures

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._figures, name)
        return (_("yes") if value else _("no")) if isinstance(value, bool) else value
