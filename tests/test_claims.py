"""Verdicts follow from records by expressions that can do nothing but compare, and the whole ledger can be judged."""

import re
from types import SimpleNamespace

import pytest

from course_lib import claims, evidence, experiments
from course_lib.claims import Claim, evaluate, judge, judge_on, ledger
from course_lib.config import Sampling
from course_lib.errors import ConfigError, EvidenceMismatch
from course_lib.evidence import Evidence

FOUND = {
    "bf16": SimpleNamespace(forks=5, n=8, identical=False, max_abs_dlogprob=0.5, kl_mean=None),
    "fp16": SimpleNamespace(forks=0, n=8, identical=False, max_abs_dlogprob=0.1, kl_mean=None),
}
RECORDS = [(name, kind) for name in experiments.names() for kind in evidence.recorded(name)]
BASE = {"id": "x", "claim": "c", "source": "s", "chapter": 1, "scope": "w", "experiment": "rerun"}


class Found(Evidence):
    """Evidence whose findings are given by hand."""

    given: dict

    def findings(self):
        return {k: SimpleNamespace(**v) for k, v in self.given.items()}


def found(missing=None, experiment="rerun", **given):
    return Found(
        experiment=experiment, definition="d", hardware={"kind": "l4"}, provenance={"time": "2026-12-01T10:00:00Z"},
        sampling=Sampling(), arms={}, comparisons={}, missing=missing or {}, seconds=1, given=given,
    )  # fmt: skip


# --- expressions


@pytest.mark.parametrize(
    "expression, value",
    [
        ("bf16.forks > fp16.forks", True),
        ("bf16.forks / bf16.n", 0.625),
        ("not bf16.identical and fp16.forks == 0", True),
        ("max(bf16.max_abs_dlogprob, fp16.max_abs_dlogprob)", 0.5),
        ("min(1, 2) + abs(-3)", 4),
        ("bf16.forks if bf16.identical else -1", -1),
        ("bf16.kl_mean == None", True),
        ("0 < fp16.max_abs_dlogprob < 0.2", True),
    ],
)
def test_an_expression_compares_findings(expression, value):
    assert evaluate(expression, FOUND) == value


@pytest.mark.parametrize(
    "expression",
    [
        "fp32.forks > 0",  # no such pair
        "bf16.fork > 0",  # no such figure
        "bf16.kl_mean > 0",  # unknown, so nothing to compare
        "bf16.forks / fp16.forks > 1",  # divides by zero
        "bf16.forks >",
        "",
        "bf16.forks > 0; bf16.n",
        "bf16.forks = 0",  # meant ==
    ],
)
def test_an_expression_that_decides_nothing_is_an_error_that_names_it(expression):
    with pytest.raises(ConfigError, match=re.escape(f"claim expression '{expression}'") + ".*findings are bf16, fp16"):
        evaluate(expression, FOUND)


@pytest.mark.parametrize(
    "expression",
    [
        "bf16.__class__",
        "bf16.__class__.__mro__[1].__subclasses__()",
        "bf16.__dict__",
        "().__class__",
        "__import__('os').system('true')",
        "open('x')",
        "eval('1')",
        "list(range(9))",
        "dict()",
        "print(1)",
        "(lambda: 1)()",
        "[x for x in (1, 2)]",
        "'{0.__class__}'.format(bf16)",
        "'a'.format_map(bf16)",
        "9 ** 9 ** 9 ** 9",
        "'x' * 10 ** 9",
    ],
)
def test_an_expression_can_do_nothing_else(expression):
    with pytest.raises(ConfigError):
        evaluate(expression, FOUND)


# --- verdicts


@pytest.mark.parametrize(
    "rules, verdict",
    [
        ({"supported_if": "p.forks > 0"}, "supported"),
        ({"refuted_if": "p.forks > 0"}, "refuted"),
        ({"supported_if": "p.forks > 9"}, "not observed here"),
        ({"supported_if": "p.forks > 9", "refuted_if": "p.forks > 8"}, "not observed here"),
        ({"supported_if": "p.forks > 0", "refuted_if": "p.forks > 1"}, "refuted"),
        ({"supported_if": "p.forks > 0", "refuted_if": "p.forks > 0", "conditional_if": "p.n > 0"}, "conditional"),
        ({"supported_if": "p.forks > 0", "conditional_if": "p.n > 99"}, "supported"),
    ],
)
def test_a_verdict_follows_from_the_findings(rules, verdict):
    claim = Claim(**BASE, finding="{p.forks} of {p.n}", **rules)
    judgement = judge_on(claim, found(p={"forks": 3, "n": 8}))
    assert (judgement.verdict, judgement.finding) == (verdict, "3 of 8")
    assert judgement.evidence == "RECORDED on l4, 2026-12-01"


def test_evidence_of_another_experiment_decides_nothing():
    with pytest.raises(EvidenceMismatch, match="claim 'x' is decided by rerun, not by answers"):
        judge_on(Claim(**BASE, supported_if="True"), found(experiment="answers"))


@pytest.mark.parametrize("where", ["supported_if", "refuted_if", "conditional_if", "finding"])
def test_a_claim_about_a_missing_pair_is_untested_with_the_reason(where):
    text = "{fp8.forks}" if where == "finding" else "fp8.forks > 0"
    claim = Claim(**{**BASE, "supported_if": "p.n > 0", where: text})
    judgement = judge_on(claim, found(missing={"fp8": "needs AVX-512"}, p={"n": 8}))
    assert (judgement.verdict, judgement.finding) == ("untested", "needs AVX-512")


def test_a_missing_pair_does_not_touch_one_whose_name_ends_alike():
    claim = Claim(**BASE, supported_if="n2_n8.forks == 0", finding="{n2_n8.forks}")
    assert judge_on(claim, found(missing={"n8": "why"}, n2_n8={"forks": 0})).verdict == "supported"


def test_a_finding_that_cannot_be_written_names_its_claim():
    for text in ("{q.forks}", "{p.fork}", "{p.kl:.2g}"):
        with pytest.raises(ConfigError, match="claim 'x' has the finding"):
            judge_on(Claim(**BASE, supported_if="True", finding=text), found(p={"forks": 1, "kl": None}))


def test_without_a_record_a_claim_is_untested_and_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_EVIDENCE", str(tmp_path))
    (judgement,) = judge(Claim(**BASE, supported_if="True"))
    assert (judgement.verdict, judgement.finding, judgement.evidence) == ("untested", "no record of rerun yet", "")
    (judgement,) = judge(Claim(**{**BASE, "experiment": None}, untested="nobody has one"))
    assert (judgement.verdict, judgement.finding) == ("untested", "nobody has one")


def test_there_is_a_verdict_for_each_recorded_machine():
    claim = Claim(**BASE, supported_if="alone_2.identical")
    judgements = judge(claim)
    assert len(judgements) == len(evidence.recorded("rerun")) > 1
    assert {j.verdict for j in judgements} == {"supported"}
    assert len({j.evidence for j in judgements}) == len(judgements)


@pytest.mark.parametrize(
    "fields, message",
    [
        ({}, "claim 'x' has no expression that decides it"),
        ({"finding": "f"}, "no expression"),
        ({"experiment": None}, "needs one of"),
        ({"untested": "why", "supported_if": "True"}, "needs one of"),
        ({"suported_if": "True"}, "no field 'suported_if'; did you mean supported_if"),
        ({"supported_if": "True", "verdict": "supported"}, "no field 'verdict'"),
    ],
)
def test_a_row_that_cannot_be_decided_is_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        Claim(**BASE | fields)


def test_an_id_is_given_once(tmp_path, monkeypatch):
    folder = tmp_path / "data" / "claims"
    folder.mkdir(parents=True)
    row = "- {id: a, claim: c, source: s, chapter: 1, scope: w, untested: u}\n"
    (folder / "ch01.yaml").write_text(row)
    (folder / "ch02.yaml").write_text(row)
    monkeypatch.setattr(claims.importlib.resources, "files", lambda package: tmp_path)
    with pytest.raises(ConfigError, match="names a claim twice"):
        ledger.__wrapped__()


# --- the ledger


@pytest.mark.parametrize("id_", ledger())
def test_a_claim_has_a_source_a_scope_and_a_known_experiment(id_):
    claim = ledger()[id_]
    assert claim.id == id_ and 1 <= claim.chapter <= 30
    assert len(claim.source) > 5 and len(claim.scope) > 5 and claim.claim.endswith(".")
    if claim.experiment:
        assert claim.experiment in experiments.names()
        assert claim.finding, "a verdict without a figure says little"
        pairs = experiments.experiment(claim.experiment).pairs
        used = {
            name
            for text in (claim.supported_if, claim.refuted_if, claim.conditional_if)
            for name in re.findall(r"\b([a-z]\w*)\.", text or "")
        }
        assert used and used <= pairs.keys(), used - pairs.keys()
        assert set(re.findall(r"\{(\w+)", claim.finding)) <= pairs.keys()


@pytest.mark.parametrize("id_", ledger())
def test_a_claim_can_be_judged_wherever_it_is_shown(id_):
    judgements = judge(id_)
    assert judgements
    for judgement in judgements:
        assert judgement.verdict in claims.Verdict.__args__
        assert "{" not in judgement.finding and "}" not in judgement.finding
        assert judgement.finding or judgement.verdict != "untested", "untested for which reason?"
        assert "None" not in judgement.finding and "nan" not in judgement.finding.split(), judgement.finding


@pytest.mark.parametrize("name, kind", RECORDS)
def test_every_record_decides_the_claims_of_its_experiment(name, kind):
    record = evidence.load(name, kind)
    for claim in ledger().values():
        if claim.experiment == name:
            assert judge_on(claim, record).evidence == record.label
