"""What an adoption proves where it is asked to, before anything is written: that the table is what its source or the
newest of its files say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from airflow_gddl.contract.actions import Adopt
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.actions.adopt_checks import NAMED, few, named
from spark_jobs.actions.landed_changes import LandedChanges, LandedEvents, is_delete
from spark_jobs.batch.table_run import TableRun
from spark_jobs.dialects.protocol import Dialect
from spark_jobs.ledger.adoption import Adoption
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.planned_batch import PlannedFile, TableState
from spark_jobs.plan.table_schema import Column, Schema, TableSchema
from spark_jobs.rules.arrays import by_name, compare_rows, flat, shared_codes, sortable, table_codes
from spark_jobs.rules.baseline_rows import sequence_of
from spark_jobs.rules.batch_schema import Stored, plan_batch
from spark_jobs.rules.fold import carried_names
from spark_jobs.rules.order import gddl_fields, keys_json
from spark_jobs.rules.other_table import ALIVE, states_of
from spark_jobs.rules.stored_columns import change_schema
from spark_jobs.rules.texts import rows_json
from spark_jobs.source_tables import opened, url_of
from spark_jobs.tables.engine import TableContext
from spark_jobs.verification import Columns, differences_of, state_of

NOT_PROVED_CODE = "ADOPT_NOT_PROVED"


def schema_of_tables(dialect: Dialect, adoption: Adoption) -> TableSchema:
    """Schema of the tables after an adoption: the replica's columns, whatever files bring later."""
    known = TableState(
        sequence_by=adoption.sequence_by, sequence_type=adoption.sequence_type, max_sequence=adoption.max_sequence
    )
    columns = map(Column, adoption.columns, map(parse_type, adoption.types))
    stored = Stored(data=Schema(tuple(columns)), before=Schema(()))
    return plan_batch(dialect, (), stored, known).table_schema


@dataclass(frozen=True, kw_only=True)
class Proof:
    """Compares a table that is to be adopted with its newest files, or with the source.

    Attributes:
        context: of the table as the other job keeps it, with its columns to begin with.
        ledger: the one that has nothing yet.
    """

    run: TableRun
    context: TableContext
    ledger: Ledger
    adoption: Adoption

    def carry_out(self) -> dict[str, Any]:
        """What was proved, of what was asked: `source`, `files`.

        Raises:
            FatalError: `ADOPT_NOT_PROVED`; as `source_tables.url_of`, `opened` and `differences_of`.
            RetriableError: `SOURCE_UNREACHABLE`.
        """
        asked, proved = self.run.job.options.asked(Adopt), dict[str, Any]()
        if asked.prove_files:
            proved["files"] = self._of_files(self.adoption.files[-asked.prove_files :])
        if asked.source_connection:
            proved["source"] = self._of_source(asked.source_connection)
        return proved

    @property
    def _landed(self) -> LandedChanges:
        return LandedChanges(self.run, self.context, TableState(keys=self.run.spec.keys))

    @cached_property
    def _later(self) -> LandedEvents | None:
        """Events of the files after the cut; of those too that have landed meanwhile."""
        known = {file.path for file in self.adoption.files}
        files = self.run.discover(self.ledger, wait="idle").waiting
        return self._landed.events([file for file in files if file.path not in known])

    def _of_source(self, connection: str) -> dict[str, Any]:
        schema = schema_of_tables(self.context.dialect, self.adoption)
        url = url_of(connection, self.run.runtime.environ)
        with opened(url, *self.run.spec.name_in_source.split(".", 1)) as table:
            found = differences_of(self.context, schema, table)
        later = self._after_files(found.columns) if found.keys else {}
        by_files, wrong = 0, {}
        for key, hashes in found.keys.items():
            if key in later and later[key] in (hashes[0], _UNKNOWN):
                by_files += 1
            else:
                wrong[key] = state_of(hashes)
        if wrong:
            states = [f"{', '.join(key)} ({state})" for key, state in sorted(wrong.items())]
            what = (
                f"{len(wrong)} keys of the table differ from the source, with the files after the cut applied or not: "
                f"{few(states)}"
            )
            raise self._refused(
                what,
                "repeat it: changes of the last seconds may not have landed yet. Keys that stay are wrong in the "
                "table: correct them, or name an earlier cut, after which files bring them",
            )
        return {
            "rows": found.rows, "source_rows": found.source_rows, "by_files": by_files,
            "compared": list(found.columns.lake), "not_compared": dict(found.columns.left_out),
        }  # fmt: skip

    def _after_files(self, columns: Columns) -> dict[tuple[str, ...], int | None]:
        """Keys of files after the cut, with the hash of the row that these make; None: none. `_UNKNOWN`: a part of it
        is what is stored."""
        if self._later is None:
            return {}
        net, schema = self._later.net, self._later.schema
        there = [name for name in columns.lake if name in self._later.delivered]
        whole = len(there) == len(columns.lake)
        known = self._carry_all(net, schema, there) if whole else np.zeros(net.num_rows, bool)
        gone, hashes = is_delete(net), dict[tuple[str, ...], int | None]()
        rows = zip(*(net.column(name).to_pylist() for name in there), strict=True)
        for row, is_gone, is_known in zip(rows, gone, known, strict=True):
            hashes[columns.key(row)] = None if is_gone else columns.digest(row) if is_known else _UNKNOWN
        return hashes

    def _carry_all(self, net: pa.Table, schema: TableSchema, names: Iterable[str]) -> np.ndarray:
        """Whether the files say all of these columns of each row."""
        flags = carried_names(schema)
        masks = [np.asarray(net.column(flags[name])) for name in names if flags.get(name) in net.column_names]
        whole: np.ndarray = np.logical_and.reduce([np.ones(net.num_rows, bool), *masks])
        return whole

    def _of_files(self, files: Sequence[PlannedFile]) -> dict[str, Any]:
        """The last change of each key of these files, the newest of the cut, against the table's row."""
        found = self._landed.events(files)
        if found is None or found.unreadable:
            unread = [file.path for file in files] if found is None else found.unreadable
            names = named(unread)
            what = f"files that count as in the table can't be read: {names}" if names else "no file counts as in it"
            raise self._refused(f"nothing is proved: {what}", "name another cut, or leave --prove-files out")
        net, schema = found.net, found.schema
        stored = self.context.engine.baseline_work(self.context).stored_rows(net.select(schema.keys))
        rows = _Rows(found, net, by_name(stored, self._kinds(net, schema, stored)), self.adoption)
        wrong = ~rows.are_equal
        newer = wrong & (rows.are_newer | self._are_later(rows))
        if (wrong & ~newer).any():
            raise self._of_wrong(rows, np.flatnonzero(wrong & ~newer))
        return {"files": len(files), "keys": net.num_rows, "newer": int(newer.sum())}

    def _kinds(self, net: pa.Table, schema: TableSchema, stored: pa.Table) -> pa.Schema:
        """The table's columns, in the types of changes where they have them."""
        kinds = change_schema(schema)
        there = set(net.column_names)
        return pa.schema(
            [kinds.field(f.name) if f.name in there and f.name in kinds.names else f for f in stored.schema]
        )

    def _are_later(self, rows: _Rows) -> np.ndarray:
        """Whether the table's row is one that files after the cut lead to: the other job may have loaded some of them.

        Where these files carry a part of the row, any change of the key counts, but for a row whose sequence says that
        none was loaded; that there is no row is explained by a delete.
        """
        if self._later is None:
            return np.zeros(rows.net.num_rows, bool)
        happened, schema = self._later.happened, self._later.schema
        if schema.partial:
            names = keys_json(happened, schema)
            gone = {key for key, is_gone in zip(names, is_delete(happened), strict=True) if is_gone}
            changed = set() if self.adoption.baseline.sequence else set(names)
            keys = zip(keys_json(rows.net, rows.schema), rows.at >= 0, strict=True)
            return np.array([key in (changed if there else gone) for key, there in keys], bool)
        kinds = rows.stored.schema
        states = states_of(happened, schema, pa.schema([kinds.field(name) for name in rows.columns]))
        return rows.are_among(states)

    def _of_wrong(self, rows: _Rows, wrong: np.ndarray) -> FatalError:
        paths = gddl_fields(rows.net)["source_file"].take(pa.array(wrong)).to_pylist()
        names = sorted({path.rpartition("/")[2] for path in paths})
        keys = keys_json(rows.net.take(pa.array(wrong[:NAMED])), rows.schema)
        shown = rows.shown(int(wrong[0]))
        what = (
            f"the last changes of {len(wrong)} keys of files that count as in the table are not in it: files "
            f"{few(names)}; keys {few(keys, len(wrong))}; of the first {shown}"
        )
        return self._refused(what, "the cut is probably too late: name one before these files")

    def _refused(self, what: str, remedy: str) -> FatalError:
        where = self.context.layout.replica
        return FatalError(NOT_PROVED_CODE, f"{self.run.spec.table}: {what}", where=where, remedy=remedy)


_UNKNOWN = -1
"""In place of a hash, which is no negative number."""


@dataclass(frozen=True)
class _Rows:
    """What files make of keys, and the table's rows of these.

    Attributes:
        stored: with other keys, too.
    """

    found: LandedEvents
    net: pa.Table
    stored: pa.Table
    adoption: Adoption

    @cached_property
    def at(self) -> np.ndarray:
        """Row of `stored` for each of `net`; -1: none."""
        mine, theirs = table_codes((self.net, self.stored), self.schema.keys)
        places = np.full(int(max(mine.max(initial=0), theirs.max(initial=0))) + 1, -1)
        places[theirs] = np.arange(len(theirs))
        found: np.ndarray = places[mine]
        return found

    @property
    def schema(self) -> TableSchema:
        return self.found.schema

    @property
    def columns(self) -> list[str]:
        """Those that files deliver and the table has."""
        there = set(self.stored.column_names)
        return [name for name in self.schema.columns if name in there and name in self.found.delivered]

    @cached_property
    def are_equal(self) -> np.ndarray:
        """In what the files say of the row."""
        there, gone = self.at >= 0, is_delete(self.net)
        equal = np.ones(self.net.num_rows, bool)
        flags, taken = carried_names(self.schema), pa.array(self.at, pa.int64(), mask=~there)
        for name in self.columns:
            theirs = flat(self.stored.column(name)).take(taken)
            mine, other = shared_codes([[self.net.column(name)], [theirs]], [self.net.num_rows] * 2)
            flag = flags.get(name)
            said = np.asarray(self.net.column(flag)) if flag in self.net.column_names else True
            equal &= (mine == other) | ~np.asarray(said, bool)
        return np.where(gone, ~there, there & equal)

    @cached_property
    def are_newer(self) -> np.ndarray:
        """Whether the table's row has a later sequence than the files' changes of it."""
        if not self.adoption.baseline.sequence:
            return np.zeros(self.net.num_rows, bool)
        sequence = gddl_fields(self.net)["sequence"]
        stored = sequence_of(self.stored, self.adoption.baseline, sequence.type)
        there = self.at >= 0
        theirs = stored.take(pa.array(self.at, pa.int64(), mask=~there))
        return there & (compare_rows(sortable(theirs), sortable(sequence)) > 0)

    def are_among(self, states: pa.Table) -> np.ndarray:
        """Whether the table's row of each key, or that it has none, is one of some states; see `states_of`."""
        alive = np.asarray(states.column(ALIVE))
        stored, known = table_codes((self.stored, states), self.columns)
        mine, theirs = table_codes((self.net, states), self.schema.keys)
        if not self.stored.num_rows:
            return np.isin(mine, theirs[~alive])
        same = np.isin(stored, known[alive])[self.at]
        return np.where(self.at >= 0, same, np.isin(mine, theirs[~alive]))

    def shown(self, number: int) -> str:
        """Both rows of a key."""
        kinds = {column.name: column.type for column in self.schema.data}
        sides = []
        for rows, at in (
            (self.net, -1 if is_delete(self.net)[number] else number),
            (self.stored, int(self.at[number])),
        ):
            row = rows.slice(at, 1) if at >= 0 else None
            values = [] if row is None else [(n, flat(row.column(n)), kinds[n]) for n in self.columns if n in kinds]
            sides.append(rows_json(values, nulls=True)[0] if values else "no row")
        return f"{sides[0]} by the files, {sides[1]} in the table"
