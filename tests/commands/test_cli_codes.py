"""`gddl codes` prints what the register says, without the links of the page."""

from __future__ import annotations

import json

import pytest

from airflow_gddl.cli import context
from airflow_gddl.cli.main import invoke
from airflow_gddl.contract.codes import REGISTER


@pytest.mark.parametrize("asked", ["SEQUENCE_WIDTH", "sequence_width"])
def test_a_code_is_printed_with_its_kind_and_its_remedy(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["codes", asked], context.real()) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("SEQUENCE_WIDTH (fatal): ")
    assert ("](" in shown, "codes.md" in shown) == (False, True)


def test_all_codes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["codes", "--json"], context.real()) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["code"] for one in found] == sorted(REGISTER)
    assert [one for one in found if "](" in one["means"] + one["remedy"]] == []


def test_an_unknown_code_names_near_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["codes", "TABLE_BUSI"], context.real()) == 2
    assert "TABLE_BUSY" in capsys.readouterr().err
