"""Tables of which this engine declines to write: by features, and by settings that stand for features."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from spark_jobs.tables.places import DeclinedError
from spark_jobs.tables.replayed_log import ReplayedLog
from spark_jobs.tables.snapshots import require_known

_PLAIN: dict[str, Any] = {
    "reader_features": frozenset(), "writer_features": frozenset(), "properties": {}, "schema": "",
    "has_files_elsewhere": False,
}  # fmt: skip


@pytest.mark.parametrize(("given", "others", "what"), [
    ({}, set(), None),
    ({"writer_features": {"appendOnly", "invariants"}}, set(), None),
    ({"reader_features": {"columnMapping"}}, set(), "features columnMapping"),
    ({"writer_features": {"identityColumns"}}, set(), "features identityColumns"),
    ({"reader_features": {"deletionVectors"}, "writer_features": {"deletionVectors"}}, {"deletionVectors"}, None),
    ({"properties": {"delta.appendOnly": "true"}}, set(), "property delta.appendOnly"),
    ({"properties": {"delta.constraints.c": "id > 0"}}, set(), "property delta.constraints.c"),
    ({"properties": {"delta.columnMapping.mode": "name"}}, set(), "property delta.columnMapping.mode"),
    ({"properties": {"delta.appendOnly": "False", "delta.columnMapping.mode": "none"}}, set(), None),
    ({"properties": {"delta.enableTypeWidening": "true"}}, set(), "property delta.enableTypeWidening"),
    ({"properties": {"delta.enableTypeWidening": "true"}}, {"typeWidening"}, None),
])  # fmt: skip
def test_unknown_features_are_declined(given: dict[str, Any], others: set[str], what: str | None) -> None:
    log = cast("ReplayedLog", SimpleNamespace(**_PLAIN | given))
    if what is None:
        require_known(log, frozenset(others))
        return
    with pytest.raises(DeclinedError, match=what):
        require_known(log, frozenset(others))
