"""SIGKILL at each write of adopt and release; a run meanwhile, and the command once more.

Files of a baseline, of the old job and of landings are as in `test_takeovers`, which ends a process by an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_gddl.contract.actions import Verify
from airflow_gddl.contract.spec import JobOptions, TableSpec
from tests.adopt.dying import died
from tests.adopt.taking_over import (
    AFTER,
    BEFORE,
    SCHEMA,
    Landed,
    adopting,
    release,
    table_of,
    values,
    without_gddl,
)
from tests.harness.lake import Lake, spec_of

pytestmark = pytest.mark.timeout(1500)


@dataclass(frozen=True)
class Table:
    lake: Lake
    spec: TableSpec
    source: Landed

    def done(self, options: JobOptions | None = None) -> None:
        self.lake.done(self.spec, options)

    def write(self, state: int) -> None:
        """The old job brings its table to the state of a file."""
        write_deltalake(self.lake.layout(self.spec).replica, table_of(self.source.states[state]), mode="overwrite")

    def verified(self) -> None:
        assert self.lake.done(self.spec, JobOptions(action=Verify())).details["verdict"] == "equal"


def started(root: Path) -> Table:
    lake, spec, source = Lake(root), spec_of(history=True), Landed.of("7")
    source.land(lake, spec, range(5), BEFORE)
    source.land(lake, spec, range(5, len(source.files)), AFTER)
    table = Table(lake, spec, source)
    table.write(4)
    return table


def adopted(table: Table) -> None:
    table.done(adopting())
    table.done()


def is_adopted(table: Table) -> None:
    table.verified()
    table.done()
    assert table.lake.replica(table.spec) == values(table.source.states[-1])
    table.verified()


def is_released(table: Table) -> None:
    delta = DeltaTable(table.lake.layout(table.spec).replica)
    assert [field.name for field in delta.schema().fields] == SCHEMA.names
    assert len(list(without_gddl(delta))) == len(delta.file_uris())
    assert table.lake.replica(table.spec) == values(table.source.states[-1])


def unprepared(table: Table) -> None:
    """The old job alone has the table."""
    del table


@dataclass(frozen=True)
class Command:
    """Attributes:
    writes: parts of the paths at which it dies at least, in their order.
    meanwhile: codes of a run between death and repetition; null: it loads, or finds nothing.
    """

    options: JobOptions
    before: Callable[[Table], None]
    afterwards: Callable[[Table], None]
    writes: Sequence[str]
    meanwhile: frozenset[str | None]


_ADOPTING = ("/adoption.json", "/t__changes/_delta_log/", "/t/_delta_log/", "/commits/", "/adoption.json")
"""What is begun, its rows in the change table, its mark in the replica, the ledger's commit, and what had begun."""
_RELEASING = ("/commits/", "/t/_delta_log/", "/t__history/", "/tombstones/", "/t__changes/")
"""The ledger, the replica without our column, and our tables."""
_NOT_YET = frozenset({"TABLE_NOT_OURS", "LEDGER_MISSING", None})
COMMANDS: Mapping[str, Command] = {
    "adopt": Command(adopting(), unprepared, is_adopted, _ADOPTING, _NOT_YET),
    "release": Command(release(), adopted, is_released, _RELEASING, _NOT_YET),
}


@pytest.mark.deep
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", COMMANDS)
def test_command_that_dies_at_a_write_is_repeated(name: str, after: bool, tmp_path: Path) -> None:
    command, number, codes, writes = COMMANDS[name], 0, set[str | None](), list[str]()
    while True:
        table = started(tmp_path / str(number))
        command.before(table)
        path = died(table.lake.job([table.spec], command.options), number, after=after)
        if path is None:
            break
        writes.append(path)
        between = table.lake.run(table.spec).result  # type: ignore[union-attr] - one task declines none of these
        codes.add(None if between.error is None else between.error.code)
        again = table.lake.result(table.spec, command.options)
        assert again.error is None or again.error.code == "ADOPT_REFUSED", (number, again.error)  # it was done
        command.afterwards(table)
        number += 1
    command.afterwards(table)
    remaining = iter(writes)
    assert all(any(part in path for path in remaining) for part in command.writes), writes
    assert codes <= command.meanwhile
