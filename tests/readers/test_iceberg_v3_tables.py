"""A table with `iceberg: 3`: readers of both formats find the same rows, after whatever happens to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg")

from tests.conftest import LocalPort
from tests.harness.engine_port import EngineName
from tests.readers.tracked_lake import SPEC, TrackedTable, require_alike

pytestmark = pytest.mark.timeout(900)
PLACES: tuple[EngineName, ...] = ("many",)
"""Where tables with row tracking are written."""


@pytest.fixture(params=PLACES)
def port(request: pytest.FixtureRequest) -> LocalPort:
    return LocalPort(request.param)


VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "hard": {}, "partitioned": {"partition_by": ("part",)}, "soft": {"delete": "soft"},
    "small": {"size": "small", "history": False},
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_readers_of_both_formats_find_the_same_rows(tmp_path: Path, port: LocalPort, variant: str) -> None:
    table = TrackedTable(tmp_path, port, replace(SPEC, **VARIANTS[variant]))
    kinds = ("replica", "history") if table.spec.history else ("replica",)
    for step, result in table.play():
        behind = [warning.message for warning in result.warnings if warning.code == "ICEBERG_BEHIND"]
        assert behind == [], step
        for kind in kinds:
            rows = require_alike(table, kind)
            if kind == "replica":
                alive = {row["id"] for row in rows if not row["_gddl"].get("deleted")}
                assert alive == table.live, step
