"""Constraints that another writer added to a replica are kept; a row that violates one fails the table with a code.

Only Spark writes such a table, whatever the engine of its tier.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.result import JobResult
from tests.conftest import LocalPort
from tests.harness.asked import options_of
from tests.harness.lake import Lake, spec_of
from tests.one_task.test_declines import add_commit, meta

SPEC = spec_of(settle="0s")


class World:
    """A table of what has landed, and what is done to it."""

    def __init__(self, port: LocalPort, files: Lake) -> None:
        self.port, self.lake, self.files = port, Lake(files.root), files
        self.path = self.files.layout(SPEC).replica
        assert self.run().error is None

    def run(self, action: str = "run") -> JobResult:
        return self.lake.results(self.port, self.lake.job([SPEC], options_of(action)))[SPEC.table]

    def change(self, number: int, *rows: tuple[str, int, str | None]) -> None:
        self.files.change(SPEC, number, rows)

    @property
    def rows(self) -> dict[int, str]:
        return self.files.replica(SPEC)

    def constrain(self, kind: str) -> None:
        """As `ALTER TABLE` of Spark or another writer leaves it."""
        if kind == "not null":
            self._nullable(False)
            return
        settings = {**self._metadata()["configuration"], "delta.constraints.short": "v IS NOT NULL AND length(v) < 10"}
        protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}
        add_commit(self.path, meta(self.path, configuration=settings), protocol)

    def release(self, kind: str) -> None:
        if kind == "not null":
            self._nullable(True)
            return
        settings = self._metadata()["configuration"]
        del settings["delta.constraints.short"]
        add_commit(self.path, meta(self.path, configuration=settings))

    def refuses_null(self) -> bool:
        return not next(field for field in DeltaTable(self.path).schema().fields if field.name == "v").nullable

    def _nullable(self, nullable: bool) -> None:
        schema = json.loads(self._metadata()["schemaString"])
        next(field for field in schema["fields"] if field["name"] == "v")["nullable"] = nullable
        add_commit(self.path, meta(self.path, schemaString=json.dumps(schema)))

    def _metadata(self) -> dict[str, Any]:
        return dict(meta(self.path)["metaData"])


@pytest.mark.parametrize("kind", ["not null", "check"])
def test_a_row_that_violates_one_fails_the_table(tmp_path: Path, kind: str) -> None:
    files = Lake(tmp_path)
    files.change(SPEC, 1, [("I", 0, "load 0"), ("I", 1, "new"), ("I", 2, "load 2")])
    world = World(LocalPort("many"), files)
    world.constrain(kind)
    world.change(2, ("I", 8, "good"), ("I", 9, None))
    for _ in range(2):
        failed = world.run()
        assert failed.error is not None
        assert failed.error.code == "CONSTRAINT_VIOLATED"
        assert world.rows == {0: "load 0", 1: "new", 2: "load 2"}
    world.release(kind)
    assert world.run().error is None
    assert world.rows == {0: "load 0", 1: "new", 2: "load 2", 8: "good", 9: None}


@pytest.mark.deep
def test_not_null_is_not_lost_when_the_table_is_replaced(tmp_path: Path) -> None:
    """The first change after a load gives the sequence its type, for which the table gets another schema."""
    files = Lake(tmp_path)
    files.load(SPEC)
    world = World(LocalPort("many"), files)
    world.constrain("not null")
    world.change(1, ("U", 1, "new"))
    failed = world.run()
    assert failed.error is not None
    assert failed.error.code == "NOT_NULL_UNSUPPORTED"
    assert "ALTER COLUMN v DROP NOT NULL" in failed.error.message
    assert world.refuses_null()
    assert world.rows[1] == "load 1"
    world.release("not null")
    assert world.run().error is None
    world.constrain("not null")
    assert world.run(action="rebuild").error is None
    assert world.refuses_null(), "the schema stays, and so does NOT NULL"
    assert world.rows == {0: "load 0", 1: "new", 2: "load 2"}
