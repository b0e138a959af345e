"""The truth, held against a replay of the written files that shares no code with the simulator."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_gddl.tools.simulate.simulator import prepare
from airflow_gddl.tools.simulate.spec import SimulateSpec, TableShape, Troubles
from airflow_gddl.tools.simulate.table import differences
from tests.harness.examples import at_random
from tests.harness.typed_tables import with_typed_columns

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
SHAPES = {
    "people": TableShape(keys=("id",)),
    "pairs": TableShape(keys=("part", "code")),
    "log": TableShape(keys=()),
}


@dataclass
class Replay:
    """A replica of one table, kept by rereading its folder.

    Attributes:
        entries: key to its good rows: `order` within the key as docs/semantics.md defines it, operation, values.
    """

    folder: Path
    keys: tuple[str, ...]
    seen: set[str] = field(default_factory=set)
    entries: dict[tuple[Any, ...], list[tuple[tuple[Any, ...], str, dict[str, Any]]]] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)

    def ingest(self) -> None:
        for path in sorted(self.folder.glob("*.parquet")):
            if path.name not in self.seen:
                self.seen.add(path.name)
                for row in pq.read_table(path).to_pylist():
                    self._take(path.name, row, is_load=path.name.startswith("LOAD"))

    def rows(self) -> list[dict[str, Any]]:
        if not self.keys:
            return [values for entries in self.entries.values() for _, _, values in entries]
        last = (max(entries, key=lambda entry: entry[0]) for entries in self.entries.values())
        return [values for _, op, values in last if op != "D"]

    def _take(self, name: str, row: dict[str, Any], *, is_load: bool) -> None:
        self.counts["load" if is_load else "change"] += 1
        op, sequence = ("R", "") if is_load else (row["Op"], row["transact_seq"])
        if op not in "RIUD":
            self.counts["bad"] += 1
            return
        identity = repr((op, sequence, sorted(row.items())))
        if not is_load and identity in self.known:
            self.counts["again"] += 1
            return
        self.known.add(identity)
        values = {name: value for name, value in row.items() if name not in ("Op", "transact_seq", "dms_timestamp")}
        key = tuple(values[key] for key in self.keys)
        order = (sequence, op == "D", name, len(self.known))
        self.entries.setdefault(key, []).append((order, op, values))


def assert_replay_gives_truth(spec: SimulateSpec) -> None:
    simulator = prepare(spec)
    replays = {name: Replay(Path(spec.landing) / spec.schema / name, shape.keys) for name, shape in spec.tables.items()}
    for number in range(spec.rounds + 1):
        simulator.land(number)
        for name, replay in replays.items():
            replay.ingest()
            if simulator.report().tables[name].pending_files == 0:
                truth = simulator.truth(name)
                rows = replay.rows()
                actual = pa.table([pa.array([row[f.name] for row in rows], f.type) for f in truth.schema], truth.schema)
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


shares = st.sampled_from([0.0, 0.0, 0.3, 1.0])
specs = st.builds(
    SimulateSpec,
    input=st.just(TABLES),
    landing=st.just(Path()),
    schema=st.just("s"),
    tables=st.just(SHAPES),
    changes=st.sampled_from([0.5, 3, 25]),
    seed=st.integers(0, 1000),
    files_per_round=st.integers(1, 4),
    round_seconds=st.sampled_from([60, 3600, int(timedelta(days=20).total_seconds())]),
    troubles=st.builds(
        Troubles,
        late=shares,
        repeated=shares,
        out_of_order=st.booleans(),
        ties=st.integers(0, 4),
        unknown_op=st.integers(0, 2),
    ),
)


@settings(max_examples=at_random(15), suppress_health_check=[HealthCheck.too_slow])
@given(specs)
def test_a_replay_of_the_files_gives_the_truth(spec: SimulateSpec) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert_replay_gives_truth(replace(spec, landing=Path(folder)))
