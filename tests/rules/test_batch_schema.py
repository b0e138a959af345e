"""Which columns of a table the service that wrote its files has added."""

from __future__ import annotations

import pytest

from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.dialects.registry import dialect_of
from spark_jobs.plan.batch import TableState
from spark_jobs.plan.columns import Column, Schema
from spark_jobs.rules.batch_schema import Stored, plan_batch


@pytest.mark.parametrize(("dialect", "of_service"), [("dms", True), ("debezium", False)])
def test_names_that_dms_adds_are_the_sources_own_elsewhere(dialect: str, of_service: bool) -> None:
    columns = tuple(Column(name, parse_type("string")) for name in ("id", "AR_H_NOTE"))
    row = dialect_of(TableSpec(table="s.t", keys=("id",), dialect=dialect))
    schema = plan_batch(row, (), Stored(data=Schema(columns), before=None), TableState(batch=1)).table_schema
    assert schema.is_technical("AR_H_NOTE") is of_service
