"""A table without keys that is loaded again: the newest full load replaces the one before, whatever brought it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import TableSpec
from tests.conftest import LocalPort
from tests.debezium.probing import text
from tests.debezium.test_snapshots import event, snapshot
from tests.debezium.topic import Topic, warnings_of
from tests.harness.asked import options_of
from tests.harness.lake import Lake
from tests.harness.landing import write

KEYLESS = TableSpec(table="s.t", keys=(), sequence_by=("seq",), settle="0s")
SIZES = (10, 11, 9, 9)
"""Rows of the source at each full load."""


@dataclass
class Loaded:
    """A table of files whose source has `rows`; equal ones among them."""

    lake: Lake
    rows: int = 0
    loads: int = 0
    files: int = 0

    def load(self, rows: int, name: str = "LOAD00000001.parquet") -> None:
        self.loads += 1
        values = [f"load {self.loads}, {min(number, rows - 2)}" for number in range(rows)]
        write(self.lake.landing(KEYLESS), name, pa.table({"id": pa.array(range(rows), pa.int32()), "v": values}))
        self.rows = rows

    def change(self) -> None:
        self.files, self.rows = self.files + 1, self.rows + 1
        self.lake.change(KEYLESS, self.files, [("I", 100, "equal")])

    def empty(self) -> None:
        for path in self.lake.landing(KEYLESS).iterdir():
            path.unlink()

    def run(self, action: str = "run", **given: object) -> JobResult:
        return self.lake.done(KEYLESS, options_of(action, **given))

    def is_right(self, *codes: str) -> None:
        assert set(warnings_of(self.run())) <= set(codes)
        verified = self.run("verify")
        assert (verified.status, verified.details["verdict"]) == ("succeeded", "equal")
        assert len(self.lake.rows(self.lake.layout(KEYLESS).replica)) == self.rows


def rewritten(table: Loaded, rows: int) -> None:
    table.load(rows)


def rewritten_after_changes(table: Loaded, rows: int) -> None:
    table.change()
    table.is_right("GENERATIONS_INFERRED", "ORDER_NOT_TOTAL")
    table.load(rows)


def new_names_after_changes(table: Loaded, rows: int) -> None:
    table.change()
    table.is_right("GENERATIONS_INFERRED")
    table.empty()
    table.load(rows, f"LOAD{table.loads:08X}.parquet")


def new_names(table: Loaded, rows: int) -> None:
    """Files could as well be the rest of the load before: nothing is guessed, and the remedy does it."""
    if table.rows:
        table.empty()
    first = not table.rows
    table.load(rows, f"LOAD{table.loads + 1:08X}.parquet")
    if not first:
        refused = table.lake.result(KEYLESS).error
        assert refused is not None
        assert (refused.code, "gddl reload --from-files" in refused.message) == ("GENERATIONS_UNKNOWN", True)
        table.run("reload", confirmed=True)


def reloaded(table: Loaded, rows: int) -> None:
    table.load(rows)
    if table.lake.ledger(KEYLESS).state.batch:
        table.run("reload", confirmed=True)


def rebuilt(table: Loaded, rows: int) -> None:
    table.load(rows)
    table.run()
    table.run("rebuild")


def failed_over(table: Loaded, rows: int) -> None:
    """The lake is copied, and the service loads the table into another landing root."""
    if not table.rows:
        table.load(rows)
        return
    other = table.lake.root.with_name(f"{table.lake.root.name}-copy")
    shutil.copytree(table.lake.root, other)
    table.lake = replace(table.lake, root=other)
    table.load(rows)
    refused = table.lake.result(KEYLESS).error
    assert refused is not None
    assert refused.code == "LANDING_MOVED"
    table.run("reload", confirmed=True)


WAYS = (
    rewritten, rewritten_after_changes, new_names_after_changes, new_names, reloaded, rebuilt, failed_over,
)  # fmt: skip


@pytest.mark.deep_on_many
@pytest.mark.parametrize("again", WAYS, ids=lambda way: way.__name__)
def test_files_of_a_service(engine: LocalPort, tmp_path: Path, again: Callable[[Loaded, int], None]) -> None:
    table = Loaded(Lake(tmp_path / "lake", port=engine.everywhere()))
    for rows in SIZES:
        if not table.rows and "changes" in again.__name__:
            table.load(rows)
        else:
            again(table, rows)
        table.is_right("GENERATIONS_INFERRED")
        table.is_right()
    table.change()
    table.is_right()


def texts(topic: Topic) -> Counter[str]:
    return Counter(v for (v,) in topic.replica("v"))


@pytest.mark.deep_on_many
@pytest.mark.parametrize("how", ["in the topic", "in an emptied topic", "and reloaded", "and rebuilt"])
def test_snapshots_of_a_connector(engine: LocalPort, tmp_path: Path, how: str) -> None:
    topic = Topic(engine, tmp_path, keys=[])
    for number, rows in enumerate(SIZES, start=1):
        if how == "in an emptied topic":
            topic.empty()
        taken = [event(e["op"], {"v": "equal"}, e["source"]["lsn"], e["source"]["snapshot"]) for e in
                 snapshot(100 * number, range(rows))]  # fmt: skip
        topic.land(text(*taken))
        if how != "and reloaded" or number == 1:
            topic.run()
        if number > 1 and how.startswith("and"):
            topic.run(action="rebuild") if how == "and rebuilt" else topic.run(action="reload", confirmed=True)
        assert texts(topic) == {"equal": rows}
        topic.land(text(event("c", {"v": "change"}, 100 * number + 10)))
        topic.land(text(*taken))
        assert set(warnings_of(topic.run())) <= {"BATCH_LATE", "EQUAL_ROWS_UNDECIDED"}
        assert texts(topic) == {"equal": rows, "change": 1}
        assert topic.run(action="verify").details["verdict"] == "equal"


@pytest.mark.deep_on_many
def test_much_smaller_load_is_held_and_equal_to_nothing(engine: LocalPort, tmp_path: Path) -> None:
    table = Loaded(Lake(tmp_path, port=engine.everywhere()))
    table.load(10)
    table.run()
    table.load(4)
    for status in ("succeeded", "skipped"):
        held = table.run()
        assert (held.status, [(one.code, one.count) for one in held.warnings]) == (status, [("SWEEP_HELD", 6)])
    verified = table.lake.result(KEYLESS, options_of("verify"))
    assert verified.error is not None
    assert (verified.status, verified.details["verdict"], verified.error.code) == ("failed", "held", "SWEEP_HELD")
    assert "gddl release sweep --table s.t" in verified.error.message
    table.run("release", held="sweep")
    table.is_right()
