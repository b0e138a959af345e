"""What is said where several sources of a table fail."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from spark_jobs.batch.turns import Turns


def raised(**faults: Exception) -> GddlError:
    run: Any = SimpleNamespace(spec=SimpleNamespace(table="s.t"))
    with pytest.raises(GddlError) as caught:
        Turns(run=run, totals=cast("Any", None), faults=faults).require_all()
    return caught.value


def test_equal_faults_are_said_once_with_their_place() -> None:
    one, other = (FatalError("A", what, where="f", remedy="mend") for what in ("s.t: bad", "bad"))
    found = raised(a=one, b=other)
    assert (found.what, found.where, found.remedy) == ("sources a, b of s.t: bad", "f", "mend")


def test_faults_are_told_apart_by_their_places() -> None:
    """A fault without a remedy has none among them."""
    found = raised(a=RetriableError("A", "bad", where="f"), b=FatalError("B", "worse", where="g", remedy="mend"),
                   c=ValueError("odd"))  # fmt: skip
    assert found.what == "source a of s.t: bad (f); source b: [B] worse (g); source c: ValueError: odd"
    assert (found.code, found.where, found.remedy, type(found)) == ("A", "", "mend", FatalError)
    found = raised(a=FatalError("A", "bad", remedy="one"), b=FatalError("A", "bad", remedy="two"))
    assert found.remedy == "a: one; b: two"
