"""Faults of the store that a task hands to the driver."""

from __future__ import annotations

import pytest

from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from spark_jobs.tables.file_parts import fault_of, raise_fault


@pytest.mark.parametrize("kind", [RetriableError, FatalError])
def test_fault_is_raised_as_what_it_was(kind: type[GddlError]) -> None:
    error = kind("STORE_UNAVAILABLE", "it is away", where="s3://b", remedy="wait")
    with pytest.raises(kind) as caught:
        raise_fault(fault_of(error))
    assert str(caught.value) == str(error)


def test_no_fault_raises_nothing() -> None:
    raise_fault(())
