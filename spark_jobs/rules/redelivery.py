"""Re-deliveries and ties: which changes of a batch are new (docs/semantics.md, section 4).

Needs all changes of a key, or of a sequence without keys, together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.codes import EQUAL_ROWS_UNDECIDED, SEQUENCE_TIE
from airflow_gddl.contract.file_names import is_resynced
from airflow_gddl.contract.result import RunWarning, Warnings
from spark_jobs.plan.table_schema import GDDL, RESCUED, TableSchema
from spark_jobs.rooms.dialects.protocol import LOADED
from spark_jobs.rules.arrays import all_false, all_true, changes, flat, is_true, numbered, row_codes, sorted_rows
from spark_jobs.rules.convert import each
from spark_jobs.rules.errors_table import without_files
from spark_jobs.rules.order import file_places, gddl_fields, sample_keys, that_count
from spark_jobs.rules.positions import are_replayed, readings, runs_of


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Overlap of a batch's changes with earlier batches.

    Attributes:
        changes: the batch's sequences may occur in earlier batches.
        loads: earlier batches had full-load rows of this generation.
        later: every change follows all earlier ones, so that all stored rows of its key are older.
    """

    changes: bool
    loads: bool
    later: bool = False

    @property
    def disjoint(self) -> bool:
        """No change of the change table can be one of the batch, nor have its sequence."""
        return not (self.changes or self.loads)


TIED = f"{GDDL}__tied"
"""Column of new changes: the tie policy decides between it and another change of its key and sequence; of those without
a key: it equals the one before it, and may be that one, sent twice."""


def new_changes(batch: pa.Table, stored: pa.Table | None, schema: TableSchema) -> pa.Table:
    """Changes of a batch that did not arrive before, with `TIED`.

    The n-th of equal changes in a delivery is a re-delivery where n equal ones are known from others. Of several in a
    batch the first is kept. A delivery is a file; where a service sends changes again into the same file, what that has
    at one place without a break. A replayed change belongs to the delivery in which it was quarantined. Of a key, what
    a delivery brings back is no re-delivery, see `_returning`, nor what comes at a place of which changes were put
    aside. Full-load rows of a keyless table are none, nor rows that a resync has read. What a load has read (`LOADED`)
    is one.

    Args:
        stored: rows of the change table that may equal some, of other batches; None: there are none.
    """
    count = batch.num_rows
    joined = batch if stored is None else pa.concat_tables([batch, that_count(stored).select(batch.column_names)])
    gddl = gddl_fields(joined)
    group = _groups(joined, gddl, schema)
    kept, nth = _first_deliveries(joined, gddl, group, schema, count)
    rows = batch.filter(kept)
    if not schema.keys:
        follows = (nth > 0) & schema.one_change & doubtful(batch, schema)
        return rows.append_column(TIED, pa.array(follows[kept], pa.bool_()))
    tied = _tied(gddl, group, np.concatenate([kept, all_true(joined.num_rows - count)]), schema)
    return rows.append_column(TIED, pa.array(tied[:count][kept], pa.bool_()))


def _groups(rows: pa.Table, gddl: dict[str, pa.Array], schema: TableSchema) -> np.ndarray:
    """Changes that share key and sequence; full-load rows only within their generation."""
    generation = gddl["generation"]
    of_load = pc.if_else(pc.equal(gddl["op"], "R"), generation, pa.scalar(None, generation.type))
    columns = [rows.column(k) for k in schema.keys]
    return row_codes([*columns, of_load, gddl["sequence"]], rows.num_rows)


def _first_deliveries(
    rows: pa.Table, gddl: dict[str, pa.Array], group: np.ndarray, schema: TableSchema, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Which of the first `count` rows are no re-deliveries, and how many equal ones precede each in its delivery.

    The others are stored. Doubled changes are not counted; of the delivery of a replayed one stored changes are.
    """
    content = [without_files(flat(rows.column(name))) if name == RESCUED else rows.column(name)
               for name in schema.content if name not in schema.keys]  # fmt: skip
    same = row_codes([group, gddl["op"], *content], rows.num_rows)
    runs, (batch, position) = runs_of(gddl), readings(gddl)
    replayed, gddl = are_replayed(gddl), gddl | {"batch_id": batch, "position": position}
    delivery = _deliveries(rows, gddl, runs, group, schema)
    doubled = _doubled(same, delivery, position, schema)
    part = row_codes([same, delivery], rows.num_rows)
    in_order = sorted_rows([part[:count], position.slice(0, count)])
    stored_before = np.bincount(part[count:], minlength=rows.num_rows)[part[:count]]
    nth = numbered(part[:count], in_order, ~doubled[:count]) + np.where(replayed[:count], stored_before, 0)
    known = np.bincount(same[count:], minlength=rows.num_rows)[same[:count]]
    came = _arrival(gddl, replayed, schema, count)
    at = sorted_rows([same[:count], nth, *came])
    first = all_false(count)
    first[at] = changes(same[at]) | changes(nth[at])
    # What a resync has read of the source is new, also where it was said before.
    resynced = is_true(each(gddl["source_file"].slice(0, count), is_resynced, pa.bool_()))
    kept: np.ndarray = (first & (nth >= known) & ~doubled[:count]) | resynced
    of_load = np.asarray(pc.equal(gddl["op"], "R"))
    loads, loaded = of_load[:count], np.asarray(pc.equal(gddl["op"].slice(0, count), LOADED))
    if not schema.keys:
        kept &= ~loaded
        return (kept & ~((nth > 0) & _are_numbered(rows, schema)[:count])) | loads, nth
    if schema.shared_places:
        kept |= np.isin(group[:count], group[(runs > 0) | (replayed & ~of_load)])
    for row in _returning(_Lists(group, same, delivery, gddl, schema), kept, loads):
        kept[row] = True
    return kept & ~loaded, nth


def _arrival(gddl: dict[str, pa.Array], replayed: np.ndarray, schema: TableSchema, count: int) -> list[pa.Array]:
    """What orders the first `count` rows as they came; of replayed ones no position says which file came first.

    Args:
        gddl: with batches and positions by `readings`.
    """
    position = gddl["position"].slice(0, count)
    if not replayed[:count].any():
        return [position]
    places = file_places(gddl["source_file"].slice(0, count), schema)
    return [gddl["batch_id"].slice(0, count), pa.array(places), position]


def _deliveries(
    rows: pa.Table, gddl: dict[str, pa.Array], runs: np.ndarray, group: np.ndarray, schema: TableSchema
) -> np.ndarray:
    """Number of the delivery of each row: its file in its batch, or a part of that, see `new_changes`."""
    count = rows.num_rows
    file = row_codes([gddl["source_file"], gddl["batch_id"]], count)
    if not schema.one_change:
        return file
    if not schema.keys:
        return row_codes([file, runs], count)
    key = row_codes([*(rows.column(name) for name in schema.keys)], count)
    at = sorted_rows([file, key, gddl["position"]])
    deliveries = np.empty(count, np.int64)
    deliveries[at] = np.cumsum(changes(file[at]) | changes(key[at]) | changes(group[at]))
    return deliveries


def _doubled(same: np.ndarray, delivery: np.ndarray, positions: pa.Array, schema: TableSchema) -> np.ndarray:
    """Changes of a key that equal the one before them in their delivery, where a service may send one twice."""
    mask = all_false(len(same))
    if schema.one_change and schema.keys:
        at = sorted_rows([delivery, positions])
        mask[at] = ~(changes(delivery[at]) | changes(same[at]))
    return mask


@dataclass(frozen=True)
class _Lists:
    """What the files have of each key at each sequence, as lists."""

    group: np.ndarray
    same: np.ndarray
    delivery: np.ndarray
    gddl: dict[str, pa.Array]
    schema: TableSchema

    def of(self, numbers: np.ndarray) -> Iterator[list[list[int]]]:
        """Row numbers of the deliveries of each of these groups, in the order of their files.

        Groups of which some file has a name that says nothing about order are left out.
        """
        rows = np.flatnonzero(np.isin(self.group, numbers))
        places = file_places(self.gddl["source_file"].take(rows), self.schema)
        known = ~np.isin(self.group[rows], self.group[rows[places == 0]])
        rows, places = rows[known], places[known]
        order = [self.gddl[name].take(rows) for name in ("batch_id", "position")]
        rows = rows[sorted_rows([self.group[rows], places, *order])]
        for _, members in itertools.groupby(rows.tolist(), self.group.__getitem__):
            yield [list(part) for _, part in itertools.groupby(members, self.delivery.__getitem__)]


def _returning(lists: _Lists, kept: np.ndarray, loads: np.ndarray) -> list[int]:
    """Changes that equal known ones and are no re-deliveries: a file has them after a different change of their key.

    What a file has of a key at one sequence is a list, and is a re-delivery if it is, as a whole, what came last. That
    holds where several changes may share a sequence, and for a file that was written again.

    Args:
        kept: which rows of the batch are new by their number; `loads`: which are of a full load.
    """
    count, group, same = len(kept), lists.group, lists.same
    dropped = ~kept & ~loads
    pairs = np.unique(np.stack([group, same]), axis=1)[0] if dropped.any() else np.zeros(0, np.int64)
    several = np.bincount(pairs, minlength=len(group) + 1) > 1
    concerned = np.unique(group[:count][dropped & several[group[:count]]])
    return [row for deliveries in lists.of(concerned) for row in _of_group(lists, deliveries, kept)]


def _of_group(lists: _Lists, deliveries: Sequence[Sequence[int]], kept: np.ndarray) -> Iterator[int]:
    chain: list[int] = []
    before: set[str] = set()
    files = lists.gddl["source_file"]
    for members in deliveries:
        contents, file = [int(lists.same[row]) for row in members], files[members[0]].as_py()
        may_return = lists.schema.shared_places or file in before
        fresh = [row >= len(kept) or bool(kept[row]) for row in members]
        whole = not may_return or (_ends_with(chain, contents) and not any(fresh))
        for row, content, is_fresh in zip(members, contents, fresh, strict=True):
            if is_fresh or (not whole and content in chain and chain[-1] != content):
                chain.append(content)
                yield from () if is_fresh else (row,)
        before.add(file)


def _ends_with(chain: Sequence[int], tail: Sequence[int]) -> bool:
    """Whether a list is the end of another; equal changes in a row count as one."""
    last, mine = ([content for content, _ in itertools.groupby(part)] for part in (chain, tail))
    return last[-len(mine) :] == mine


def _tied(gddl: dict[str, pa.Array], group: np.ndarray, among: np.ndarray, schema: TableSchema) -> np.ndarray:
    """Changes of keys and sequences in several files, some of unknown order."""
    if not len(group):
        return all_false(len(group))
    chosen = np.flatnonzero(among)
    size = int(group.max()) + 1
    pairs = np.unique(np.stack([group[chosen], row_codes([gddl["source_file"]], len(group))[chosen]]), axis=1)
    several = np.bincount(pairs[0], minlength=size) > 1
    unordered = all_false(size)
    unordered[group[chosen][file_places(gddl["source_file"], schema)[chosen] == 0]] = True
    result: np.ndarray = (several & unordered)[group]
    return result


def doubtful(rows: pa.Table, schema: TableSchema) -> np.ndarray:
    """Which changes can't be told from re-deliveries of equal ones: without a key, at a place that several share."""
    if schema.keys or not schema.shared_places:
        return all_false(rows.num_rows)
    is_sure = pc.is_in(gddl_fields(rows)["op"], value_set=pa.array(["R", LOADED]))
    result: np.ndarray = ~np.asarray(is_sure) & ~_are_numbered(rows, schema)
    return result


def _are_numbered(rows: pa.Table, schema: TableSchema) -> np.ndarray:
    """Changes with a `TableSchema.number`: equal ones are one, wherever they come."""
    number = schema.spelled(schema.number)
    if number is None:
        return all_false(rows.num_rows)
    return np.asarray(flat(rows.column(number)).is_valid())


def skipped(rows: pa.Table, fresh: pa.Table, schema: TableSchema) -> int:
    """Number of doubtful changes that are taken for re-deliveries, see `Doubts.of`."""
    return int(doubtful(rows, schema).sum() - doubtful(fresh, schema).sum())


@dataclass(frozen=True)
class Doubts:
    """What is unsure of the new changes of some rows.

    Attributes:
        tied: see `TIED`; `sample`: keys of these.
        skipped: doubtful ones (`doubtful`) that are taken for re-deliveries.
    """

    tied: int = 0
    skipped: int = 0
    sample: tuple[str, ...] = ()

    @classmethod
    def of(cls, rows: pa.Table, fresh: pa.Table, schema: TableSchema) -> Doubts:
        """Count the changes of a batch whose re-delivery is in doubt.

        Args:
            rows: of a batch; `fresh`: what `new_changes` has found among them.
        """
        tied = fresh.filter(flat(fresh.column(TIED)))
        return cls(tied.num_rows, skipped(rows, fresh, schema), sample_keys(tied, schema))

    def warnings(self, schema: TableSchema) -> Warnings:
        """`SEQUENCE_TIE`, of rows without keys `EQUAL_ROWS_UNDECIDED`."""
        if not self.tied and (schema.keys or not self.skipped):
            return ()
        if schema.keys:
            message = (
                "different changes, in files whose names give no order, share key and sequence; decided by tie_break "
                f"{schema.spec.tie_break}"
            )
            return (RunWarning(code=SEQUENCE_TIE, message=message, count=self.tied, sample=self.sample),)
        message = (
            "equal rows without a key share their place in the source's log, and are several rows or one that was sent "
            f"again: {self.tied:,} that follow an equal one in their file were kept, {self.skipped:,} that equal rows "
            "of another file, or of an earlier part of their file, were skipped"
        )
        return (RunWarning(code=EQUAL_ROWS_UNDECIDED, message=message, count=self.tied + self.skipped),)
