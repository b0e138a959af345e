"""SCD type 2: the versions of a key from all its changes (docs/semantics.md, section 9).

Needs all events of a key together, of all generations; holds for any partition of the keys.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.sql_types import DecimalType, SqlType, StructType, parse_type
from spark_jobs.plan.planned_batch import GenerationFloor
from spark_jobs.plan.table_schema import GDDL, ROW_ID, TableSchema
from spark_jobs.rules.arrays import (
    all_false,
    all_true,
    arrow_type,
    by_name,
    changes,
    codes,
    flat,
    ranks,
    sortable,
    table_codes,
)
from spark_jobs.rules.fold import held_after, states_of, with_rescued
from spark_jobs.rules.order import OrderedEvents, gddl_fields, ordered
from spark_jobs.rules.texts import WHOLE_NUMBERS, read_json

START, END = "__start_at", "__end_at"
START_GENERATION, END_GENERATION = "__start_generation", "__end_generation"
"""Columns of a history: the places in the log between which a version is valid, and their generations."""
BOUNDS = (START, END, START_GENERATION, END_GENERATION)
VALID_FROM, VALID_TO = "__valid_from", "__valid_to"
TIMES = (VALID_FROM, VALID_TO)
IDENTITY = (START, START_GENERATION)
"""What tells a key's versions apart."""
_LOWEST = {"string": "", "boolean": False, "float": "-inf", "double": "-inf", "date": "1970-01-01",
           "timestamp": "1970-01-01T00:00:00+00:00", "timestamp_ntz": "1970-01-01T00:00:00"}  # fmt: skip
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def versions(happened: pa.Table, schema: TableSchema, floors: Sequence[GenerationFloor], swept: int) -> pa.Table:
    """All versions of all keys: the replica's columns, `_gddl`, `BOUNDS`, and `TIMES`.

    Args:
        happened: see `order.events`; every event of each key concerned.
        floors: what was ingested before each generation.
        swept: rows of generations before this one have vanished.
    """
    events = with_rescued(ordered(happened, schema), schema)
    return _runs(_timeline(events, schema, floors, swept), schema)


def before_changes(kind: SqlType) -> Any:
    """The bound of a later generation before which no change came: below every sequence, and not null.

    Null would be the start of the first full load, or the end of a current row. Of times it is 1970, which every
    reader can hold.
    """
    return read_json(_lowest(kind), kind)


def _lowest(kind: SqlType) -> Any:
    if isinstance(kind, StructType):
        return {field.name: _lowest(field.type) for field in kind.fields}
    if isinstance(kind, DecimalType):
        return f"-{'9' * kind.precision}e-{kind.scale}"
    name = str(kind)
    return WHOLE_NUMBERS[name].start if name in WHOLE_NUMBERS else _LOWEST[name]


def retyped_bounds(stored: pa.Array | pa.ChunkedArray, kind: SqlType) -> pa.Array:
    """`__start_at` or `__end_at` of a table that had no change yet, in the type that its first changes decided."""
    places = np.zeros(len(stored), np.int64)
    return pa.array([before_changes(kind)], arrow_type(kind)).take(pa.array(places, mask=np.asarray(stored.is_null())))


def tracked_columns(schema: TableSchema) -> list[str]:
    """Columns whose change opens a version."""
    untracked = {
        name.lower() for name in (*schema.named(schema.spec.track_history_except), *schema.controls, *schema.keys)
    }
    return [c for c in schema.columns if c.lower() not in untracked and not schema.is_technical(c)]


@dataclass(frozen=True, kw_only=True)
class _Timeline:
    """States of keys one after the other; arrays have an entry for each.

    Attributes:
        event: number of the event in `ordered`; -1: the key ended because a later generation lacks it.
        key: number of the key; `dead`: there is no row.
        generation: in which the key has this state.
        sequence: row in `sequences`; `rank` compares them.
        time: when the key came to have this state: row in `times`, which are sorted; -1: not known.
    """

    ordered: OrderedEvents
    event: np.ndarray
    key: np.ndarray
    dead: np.ndarray
    generation: np.ndarray
    sequence: np.ndarray
    sequences: pa.Array
    rank: np.ndarray
    time: np.ndarray
    times: np.ndarray

    def where(self, chosen: np.ndarray) -> _Timeline:
        names = ("event", "key", "dead", "generation", "sequence", "rank", "time")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})

    def without_steps_back(self) -> _Timeline:
        """No state begins before an earlier one of its key, so that versions never overlap in time."""
        base = self.key * (len(self.times) + 1)
        latest = np.maximum.accumulate(base + self.time + 1) - base - 1
        return replace(self, time=np.where(self.time < 0, -1, latest))

    def moments(self, at: np.ndarray) -> pa.Array:
        """Times of states; null: not known, and for the number -1."""
        known = (at >= 0) & (self.time[at] >= 0) if len(at) else all_false(0)
        micros = pa.array(self.times, pa.int64()).take(pa.array(self.time[at], pa.int64(), mask=~known))
        return micros.cast(pa.timestamp("us", "UTC"))


def _timeline(events: OrderedEvents, schema: TableSchema, floors: Sequence[GenerationFloor], swept: int) -> _Timeline:
    """States in order, one for each key, generation and effective sequence: the last at it."""
    count = len(events.at)
    kind = parse_type(schema.sequence_type)
    texts = [floor.sequence for floor in floors]
    values = [None if text is None else read_json(json.loads(text, parse_float=Decimal), kind) for text in texts]
    gddl = gddl_fields(events.rows)
    lows = pa.array([None, *values], arrow_type(kind))
    event_sequences = gddl["sequence"].cast(lows.type)
    rank = ranks(sortable(pa.concat_arrays([event_sequences, lows])), len(event_sequences) + len(lows))
    later = pa.array([before_changes(kind) if value is None else value for value in values[1:]], lows.type)
    sequences = pa.concat_arrays([event_sequences, lows[:2], later])
    low_at = events.rows.num_rows + np.arange(len(lows))  # of generation n at n
    generation = np.asarray(gddl["generation"])[events.at].astype(np.int64)
    low = low_at[np.minimum(generation, len(floors))]
    sequence = np.where(rank[events.at] > rank[low], events.at, low)
    key = np.cumsum(events.begins)
    ended_key, ended_generation = _endings(key, generation, len(floors), swept)
    nothing = np.full(len(ended_key), -1)
    event = np.concatenate([np.arange(count), nothing])
    sequence = np.concatenate([sequence, low_at[ended_generation]])
    key = np.concatenate([key, ended_key])
    dead = np.concatenate([events.op == "D", all_true(len(ended_key))])
    generation = np.concatenate([generation, ended_generation])
    order = np.lexsort((event, generation, key))
    time, times = _times(events, event, generation, sequence >= events.rows.num_rows, floors)
    whole = _Timeline(ordered=events, event=event, key=key, dead=dead, generation=generation, sequence=sequence,
                      sequences=sequences, rank=rank[sequence], time=time, times=times).where(order)  # fmt: skip
    last = all_true(len(order))
    last[:-1] = (changes(whole.key) | changes(whole.generation) | changes(whole.rank))[1:]
    return whole.where(last).without_steps_back()


_UNKNOWN = np.iinfo(np.int64).min


def _times(
    events: OrderedEvents,
    event: np.ndarray,
    generation: np.ndarray,
    at_floor: np.ndarray,
    floors: Sequence[GenerationFloor],
) -> tuple[np.ndarray, np.ndarray]:
    """When states begin, as rows of the sorted microseconds beside them; -1: not known.

    That is the commit time of the change. What a later generation has at its floor is not before the newest commit time
    of the generations before it, and at that time where no change says one.

    Args:
        event, generation: of each state, see `_Timeline`.
        at_floor: the sequence of the state is the floor of its generation.
    """
    if not len(event):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    committed = gddl_fields(events.rows)["commit_ts"].cast(pa.int64()).fill_null(_UNKNOWN)
    own = np.where(event >= 0, np.asarray(committed)[events.at[event]], _UNKNOWN)
    before = [_UNKNOWN, _UNKNOWN, *(_micros(floor.commit_ts) for floor in floors[1:])]  # of generation n at n
    lowest = np.array(before)[np.minimum(generation, len(floors))]
    found = np.where(at_floor, np.maximum(own, lowest), own)
    times = np.unique(found)
    times = times[times > _UNKNOWN]
    place = np.searchsorted(times, found)
    return np.where(found == _UNKNOWN, -1, place), times


def _micros(text: str | None) -> int:
    return _UNKNOWN if text is None else (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)


def _endings(key: np.ndarray, generation: np.ndarray, generations: int, swept: int) -> tuple[np.ndarray, np.ndarray]:
    """Each later generation ends each key of an older one until the key occurs again; returns keys and generations.

    One that was not swept ends only keys that occur in it.
    """
    if generations < 2 or not len(key):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    begins = changes(key)
    first = np.minimum.reduceat(generation, np.flatnonzero(begins))
    numbers, later = np.meshgrid(key[begins], np.arange(2, generations + 1), indexing="ij")
    again = np.isin(numbers * (generations + 1) + later, key * (generations + 1) + generation)
    chosen = (later > first[:, None]) & ((later <= swept) | again)
    return numbers[chosen], later[chosen]


def _runs(line: _Timeline, schema: TableSchema) -> pa.Table:
    """Runs of states that are the same in all tracked columns; each is a version of its key, unless there is no row."""
    states = states_of(line.ordered, _held(line, schema), schema)
    begins = changes(line.key)
    differs = begins | changes(line.dead)
    alive = ~line.dead & ~begins
    for name in tracked_columns(schema):
        differs |= alive & changes(codes(states[name]))
    starts = np.flatnonzero(differs)
    ends = np.append(starts[1:], len(line.key)) - 1 if len(starts) else starts
    following = np.append(starts[1:], -1) if len(starts) else starts
    has_next = (following >= 0) & (line.key[following] == line.key[starts]) if len(starts) else following >= 0
    live = ~line.dead[starts]
    starts, ends, following, has_next = starts[live], ends[live], following[live], has_next[live]
    columns = {name: states[name].take(ends) for name in schema.columns}
    columns[GDDL] = flat(line.ordered.rows.column(GDDL)).take(pa.array(line.ordered.at[line.event[ends]], pa.int64()))
    columns[START] = line.sequences.take(pa.array(line.sequence[starts], pa.int64()))
    columns[END] = line.sequences.take(pa.array(line.sequence[following], pa.int64(), mask=~has_next))
    columns[START_GENERATION] = pa.array(line.generation[starts], pa.int32())
    columns[END_GENERATION] = pa.array(line.generation[following], pa.int32(), mask=~has_next)
    columns[VALID_FROM] = line.moments(starts)
    columns[VALID_TO] = line.moments(np.where(has_next, following, -1))
    return pa.table(columns)


def _held(line: _Timeline, schema: TableSchema) -> dict[str, np.ndarray]:
    """For each column the events whose values the states hold; -1: null."""
    nothing = line.event < 0
    return {
        name: np.where(nothing, -1, held[line.event] if len(held) else -1)
        for name, held in held_after(line.ordered, schema).items()
    }


def differences(derived: pa.Table, stored: pa.Table, schema: TableSchema) -> tuple[pa.Table, np.ndarray]:
    """Versions that the history lacks, and row numbers of stored ones that are no versions any more.

    A version that ends is the same row with other bounds: it has the row id of the stored one that it comes instead of.

    Args:
        stored: without `ROW_ID`: the table has no row ids.
    """
    mine, theirs = table_codes((derived, by_name(stored, derived.schema)), derived.column_names)
    missing, extra = derived.filter(~np.isin(mine, theirs)), np.flatnonzero(~np.isin(theirs, mine))
    if ROW_ID not in stored.column_names:
        return missing, extra
    removed = stored.take(extra)
    new, old = table_codes((missing, by_name(removed, missing.schema)), (*schema.keys, *IDENTITY))
    at = pc.index_in(new, value_set=pa.array(old))
    return missing.append_column(ROW_ID, removed.column(ROW_ID).take(at)), extra
