"""The truth, held against a replay of the written files that shares no code with the simulator."""

from __future__ import annotations

import gzip
import io
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_gddl.simulate.simulator import prepare
from airflow_gddl.simulate.spec import Delivery, SchemaEvent, SimulateSpec, TableShape, Troubles
from airflow_gddl.simulate.table import differences
from tests.harness.examples import at_random
from tests.harness.typed_tables import with_typed_columns

SEQUENCE = re.compile(r"[0-9]{35}")
CHANGE_NAME = re.compile(r"[0-9]{8}-[0-9]{9}\.")
TABLES = {
    "people": with_typed_columns(
        pa.table(
            {
                "id": pa.array(range(1, 21), pa.int32()),
                "Name": [None if i == 7 else f'name {i}, "the" {i}\'th' for i in range(20)],
                "active": [i % 3 == 0 for i in range(20)],
                "visits": pa.array(range(20), pa.int16()),
                "seen": pa.array([i * 86_400_000_123 for i in range(20)], pa.timestamp("us")),
            }
        )
    ),
    "pairs": pa.table(
        {"code": [f"k{i % 4}" for i in range(12)], "part": range(12), "value": [i / 4 for i in range(12)]}
    ),
    "log": pa.table({"at": range(9), "text": [f"line {i}" for i in range(9)]}),
}
FLAT_TABLES = {**TABLES, "people": TABLES["people"].drop_columns(["t_struct"])}
"""For CSV."""
SHAPES = {
    "people": TableShape(keys=("id",)),
    "pairs": TableShape(keys=("part", "code")),
    "log": TableShape(keys=()),
}
EVENTS = ("add_column", "drop_column", "rename_case", "reorder", "widen", "add_nested_field")


@dataclass(frozen=True)
class Entry:
    """A good row: `order` within its key as docs/semantics.md defines it."""

    order: tuple[Any, ...]
    op: str
    values: dict[str, Any]


@dataclass
class Replay:
    """A replica of one table, kept by rereading its folder."""

    folder: Path
    spec: SimulateSpec
    keys: tuple[str, ...]
    csv_names: list[str]
    seen: dict[str, bytes] = field(default_factory=dict)
    generation: int = 0
    entries: dict[tuple[Any, ...], list[Entry]] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    spelling: dict[str, str] = field(default_factory=dict)
    position: int = 0

    def ingest(self) -> None:
        fresh = {name: data for name, data in self._data_files() if self.seen.get(name) != data}
        loads = {name: data for name, data in fresh.items() if not CHANGE_NAME.search(name)}
        if loads and (self.generation == 0 or set(loads) & set(self.seen)):
            self.generation += 1
        for name, data in [*loads.items(), *(item for item in fresh.items() if item[0] not in loads)]:
            rows = self._read(data)
            self.counts["unreadable"] += rows is None
            for row in rows or ():
                self._take(name.rpartition("/")[2], row, load=name in loads)
        self.seen |= fresh

    def rows(self) -> list[dict[str, Any]]:
        if not self.keys:
            return [e.values for entries in self.entries.values() for e in entries if e.order[0] == self.generation]
        found = []
        for entries in self.entries.values():
            newest = [e for e in entries if e.order[0] == self.generation]
            state: dict[str, Any] | None = None
            for entry in sorted(newest, key=lambda e: e.order):
                if entry.op == "D":
                    state = None
                elif entry.op == "U":
                    state = {**(state or {}), **entry.values}
                else:
                    state = entry.values
            if state is not None:
                found.append(state)
        return found

    def _data_files(self) -> Iterator[tuple[str, bytes]]:
        for path in sorted(self.folder.rglob(f"*.{self.spec.delivery.format}")):
            name = path.relative_to(self.folder).as_posix()
            if not any(part.startswith((".", "_")) for part in name.split("/")):
                yield name, path.read_bytes()

    def _read(self, data: bytes) -> list[dict[str, Any]] | None:
        form = self.spec.delivery.format
        try:
            data = gzip.decompress(data) if form.endswith(".gz") and data else data
            if form.startswith("parquet"):
                return list(pq.read_table(io.BytesIO(data)).to_pylist())
            return self._read_csv(data) if data else None
        except (pa.ArrowInvalid, EOFError):
            return None

    def _read_csv(self, data: bytes) -> list[dict[str, Any]]:
        rows = self._cells(data)
        if self.spec.delivery.csv_header:
            names = [str(name) for name in rows.pop(0)]
        else:
            names = [*(["Op"] if len(rows[0]) > len(self.csv_names) else []), *self.csv_names]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _cells(self, data: bytes) -> list[list[str | None]]:
        options = {"strings_can_be_null": True, "quoted_strings_can_be_null": False, "null_values": ["NULL"]}
        read = pa_csv.ReadOptions(autogenerate_column_names=True)
        width = len(pa_csv.read_csv(io.BytesIO(data), read_options=read).schema)
        types = {f"f{i}": pa.string() for i in range(width)}
        table = pa_csv.read_csv(
            io.BytesIO(data), read_options=read, convert_options=pa_csv.ConvertOptions(column_types=types, **options)
        )
        return [list(row.values()) for row in table.to_pylist()]

    def _take(self, name: str, row: dict[str, Any], *, load: bool) -> None:
        self.counts["load" if load else "change"] += 1
        op, sequence = ("R", "") if load else (row["Op"], row[self.spec.delivery.sequence_column] or "")
        values = self._values(row)
        key = tuple(values.get(k) for k in self.keys)
        if "not-a-value" in row.values() or None in key or not (load or (op in "IUD" and SEQUENCE.fullmatch(sequence))):
            self.counts["bad"] += 1
            return
        identity = repr((op, sequence, sorted(row.items())))
        if not load and identity in self.known:
            self.counts["again"] += 1
            return
        self.known.add(identity)
        self._keep(name, (op, sequence), key, self._carried(row, values) if op == "U" else values)
        before = self._before(row)
        if op == "U" and before is not None and before != key:
            self._keep(name, ("D", sequence), before, {})

    def _keep(self, name: str, change: tuple[str, str], key: tuple[Any, ...], values: dict[str, Any]) -> None:
        self.position += 1
        op, sequence = change
        order = (self.generation, sequence, op == "D", name, self.position)
        self.entries.setdefault(key, []).append(Entry(order, op, values))

    def _values(self, row: dict[str, Any]) -> dict[str, Any]:
        delivery = self.spec.delivery
        ours = {"Op", delivery.sequence_column, delivery.timestamp_column, delivery.columns_to_update}
        prefixes = ("AR_H_", delivery.before_images or "AR_H_")
        return {
            self.spelling.setdefault(name.lower(), name): value
            for name, value in row.items()
            if name not in ours and not name.startswith(prefixes)
        }

    def _carried(self, row: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
        listed = row[self.spec.delivery.columns_to_update] if self.spec.delivery.columns_to_update else None
        if listed is None:
            return values
        names = {self.spelling[name.lower()] for name in listed.split(",")} | set(self.keys)
        return {name: value for name, value in values.items() if name in names}

    def _before(self, row: dict[str, Any]) -> tuple[Any, ...] | None:
        prefix = self.spec.delivery.before_images
        return tuple(row[f"{prefix}{key}"] for key in self.keys) if prefix and self.keys else None


def as_table(rows: list[dict[str, Any]], truth: pa.Table, *, text: bool) -> pa.Table:
    """Rows in the truth's types where files are typed, as text where they are not."""
    columns = {}
    for column in truth.schema:
        values = [row.get(column.name) for row in rows]
        untyped = text or any(isinstance(value, str) for value in values)
        columns[column.name] = pa.array(values, pa.string() if untyped else column.type)
    return pa.table(columns)


def assert_replay_gives_truth(spec: SimulateSpec) -> None:
    simulator = prepare(spec)
    folder = spec.landing / spec.schema
    replays = {}
    for name, table_schema in spec.tables.items():
        options: Any = simulator.metadata_row(name).get("options", {})
        replays[name] = Replay(folder / name, spec, table_schema.keys, list(options.get("csv_columns", ())))
    for number in range(spec.rounds + 1):
        simulator.land(number)
        for name, replay in replays.items():
            replay.ingest()
            if simulator.report().tables[name].pending_files == 0:
                truth = simulator.truth(name)
                actual = as_table(replay.rows(), truth, text=spec.delivery.format.startswith("csv"))
                found = differences(truth, actual, spec.tables[name].keys)
                assert not found, f"{name}, round {number}: {found}"
    for name, replay in replays.items():
        assert_accounts_agree(simulator.report().tables[name], replay.counts)


def assert_accounts_agree(report: Any, counts: Counter[str]) -> None:
    assert report.pending_files == 0
    assert counts["load"] == report.load_rows
    assert counts["change"] == report.change_rows
    assert counts["bad"] == report.expected_quarantined
    assert counts["again"] == report.expected_redelivered
    good = sum(report.changes.values()) + report.troubles.get("ties", 0)
    assert report.change_rows == good + report.expected_quarantined + report.expected_redelivered


deliveries = st.builds(
    Delivery,
    format=st.sampled_from(["parquet", "parquet", "parquet.gz", "csv", "csv.gz"]),
    csv_header=st.booleans(),
    include_op_for_full_load=st.booleans(),
    sequence_column=st.sampled_from(["transact_seq", "seq"]),
    full_load_sequence=st.sampled_from(["null", "empty"]),
    commit_times=st.sampled_from(["us", "ms", "string"]),
    source_times=st.sampled_from(["us", "ms", "string"]),
    booleans_as_strings=st.booleans(),
    ar_h_columns=st.booleans(),
    date_partition=st.sampled_from(["none", "YYYYMMDD", "YYYYMMDDHH", "YYYYMM", "MMYYYYDD", "DDMMYYYY"]),
    date_delimiter=st.sampled_from(["slash", "dash", "underscore", "none"]),
    segments=st.integers(0, 3),
    segment_style=st.sampled_from(["name", "folder"]),
    rows_per_load_file=st.sampled_from([4, 7, 1000]),
    files_per_round=st.integers(1, 4),
    before_images=st.sampled_from([None, "BI_"]),
    deletes_carry_only_keys=st.booleans(),
    columns_to_update=st.sampled_from([None, "cols"]),
)
shares = st.sampled_from([0.0, 0.0, 0.3, 1.0])
counts = st.integers(0, 2)
troubles = st.builds(
    Troubles,
    late=shares,
    torn=shares,
    repeated=shares,
    out_of_order=st.booleans(),
    ties=st.integers(0, 4),
    key_updates=shares,
    tricky_keys=st.booleans(),
    unknown_op=counts,
    null_key=counts,
    null_sequence=counts,
    unparsable_sequence=counts,
    bad_value=counts,
    truncated_file=st.booleans(),
    empty_file=st.booleans(),
    clutter=st.booleans(),
)
events = st.lists(st.builds(SchemaEvent, round=st.integers(1, 3), kind=st.sampled_from(EVENTS)), max_size=4)


@st.composite
def specs(draw: st.DrawFn) -> SimulateSpec:
    delivery, trouble = draw(deliveries), draw(troubles)
    if delivery.format == "csv":
        trouble = replace(trouble, torn=0.0, truncated_file=False)
    if delivery.format.startswith("csv"):
        delivery = replace(delivery, csv_header=delivery.csv_header or draw(st.booleans()))
    is_csv = delivery.format.startswith("csv")
    chosen = tuple(draw(events)) if delivery.csv_header or not is_csv else ()
    return SimulateSpec(
        input=FLAT_TABLES if is_csv else TABLES,
        landing=Path(),
        schema="s",
        tables=SHAPES,
        changes=draw(st.sampled_from([0.5, 3, 25])),
        seed=draw(st.integers(0, 1000)),
        delivery=delivery,
        troubles=trouble,
        events=chosen,
        reload_rounds=draw(st.sampled_from([(), (2,), (1, 3)])),
        round_seconds=draw(st.sampled_from([60, 3600, int(timedelta(days=20).total_seconds())])),
    )


@settings(max_examples=at_random(15), suppress_health_check=[HealthCheck.too_slow])
@given(specs())
def test_a_replay_of_the_files_gives_the_truth(spec: SimulateSpec) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert_replay_gives_truth(replace(spec, landing=Path(folder)))
