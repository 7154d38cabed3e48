"""Claims that arithmetic decides: no experiment, no record, the same verdict everywhere."""

import pytest

from course_lib import claims, facts_of_arithmetic
from course_lib.claims import Claim
from course_lib.errors import ConfigError

BASE = {"id": "x", "claim": "c", "source": "s", "chapter": 4, "scope": "arithmetic"}


def computed(**fields):
    return Claim(**BASE, computed="formats", **fields)


@pytest.mark.parametrize(
    "rule, verdict",
    [
        ({"supported_if": "fp16.mantissa_bits == 10"}, "supported"),
        ({"refuted_if": "tf32.exponent_bits > fp16.exponent_bits"}, "refuted"),
        ({"supported_if": "bf16.max < 1", "refuted_if": "bf16.max < 1"}, "not observed here"),
        ({"supported_if": "True", "conditional_if": "e4m3.max < bf16.max"}, "conditional"),
    ],
)
def test_arithmetic_decides_without_a_record(tmp_path, monkeypatch, rule, verdict):
    monkeypatch.setenv("COURSE_EVIDENCE", str(tmp_path))
    [judgement] = claims.judge(computed(finding="{fp16.significant_digits:.2f} digits", **rule))
    assert (judgement.verdict, judgement.finding, judgement.evidence) == (verdict, "3.31 digits", "computed")


@pytest.mark.parametrize("second", [{"experiment": "rerun"}, {"untested": "why"}])
def test_a_claim_is_decided_in_one_way_only(second):
    with pytest.raises(ConfigError, match="needs one of"):
        computed(supported_if="True", **second)


def test_a_claim_is_decided_somehow():
    with pytest.raises(ConfigError, match="needs one of"):
        Claim(**BASE)
    with pytest.raises(ConfigError, match="no expression that decides it"):
        computed()


@pytest.mark.parametrize("name", ["format", "np", "__doc__"])
def test_only_a_function_meant_for_it_computes(name):
    with pytest.raises(ConfigError, match="none of formats, orders"):
        Claim(**BASE, computed=name, supported_if="True")


def test_an_expression_about_nothing_found_is_an_error():
    with pytest.raises(ConfigError, match="fp12"):
        claims.judge(computed(supported_if="fp12.max > 0"))


def test_every_computation_of_the_ledger_runs():
    for claim in claims.ledger().values():
        if claim.computed:
            [judgement] = claims.judge(claim)
            assert judgement.verdict != "not observed here", claim.id
            assert "{" not in judgement.finding


def test_the_order_of_a_sum_matters_more_with_fewer_digits():
    found = facts_of_arithmetic.orders()
    assert found["fp32"].relative < found["fp16"].relative < found["bf16"].relative
    assert min(f.results for f in found.values()) > 1
