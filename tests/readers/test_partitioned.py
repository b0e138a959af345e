"""Filters find the same rows in partitioned tables, whatever their partitions are called and whoever wrote them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Maintain, Rebuild, Verify
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, JobSpec, Roots, TableSpec
from tests.conftest import LocalPort
from tests.harness.landing import write
from tests.readers.probes import probes
from tests.readers.reading import READERS

TEXTS = (
    "a/b", "x=y", "100%", "%41", "é ü", "'q\"", "#?&+", "[x]{y}", " blank ", "null", "A", "a", "2024-01-01", "07", None,
)  # fmt: skip
DATES = (date(2024, 5, 6), date(1, 1, 1), None, date(9999, 12, 31))
UNFIT = ("", "__HIVE_DEFAULT_PARTITION__", "a\0b", "x" * 300)
SPEC = TableSpec(
    table="s.parted", keys=("id",), sequence_by=("seq",), partition_by=("Area", "day"), history=True, sweep_limit=1.0
)


@dataclass(frozen=True)
class Parted:
    root: Path
    engine: LocalPort

    @property
    def roots(self) -> Roots:
        return Roots(landing=str(self.root / "landing"), lake=str(self.root / "lake"))

    @property
    def layout(self) -> Layout:
        return Layout.of(self.roots, SPEC)

    def land(self, name: str, ids: list[int], areas: list[str | None], ops: str = "") -> None:
        columns = {
            "id": pa.array(ids, pa.int32()),
            "area": pa.array(areas, pa.string()),
            "day": pa.array([DATES[i % len(DATES)] for i in ids], pa.date32()),
            "v": pa.array([f"{name[:9]} {i}" for i in ids]),
        }
        change = {"Op": list(ops), "seq": [int(name[-10:-8]) * 100 + n for n in range(len(ops))]} if ops else {}
        write(Path(self.layout.landing), name, pa.table({**change, **columns}))

    def run(self, options: JobOptions | None = None) -> JobResult:
        job = JobSpec(run_id="r", roots=self.roots, tables=(SPEC,), options=options or JobOptions())
        (result,) = self.engine.run(job)
        assert result.error is None, result.error
        return result

    def rows(self) -> dict[int, tuple[str | None, date | None]]:
        rows = DeltaTable(self.layout.replica).to_pyarrow_table().to_pylist()
        assert len(rows) == len({row["id"] for row in rows})
        return {row["id"]: (row["area"], row["day"]) for row in rows}

    def wrong(self) -> list[str]:
        """Filters that some reader answers otherwise than the rows read whole do."""
        path = self.layout.replica
        asked = [p for p in probes(DeltaTable(path).to_pyarrow_table(), "") if p.path[0] in ("id", "area", "day", "v")]
        return [
            f"{name}: {probe}, found {found}"
            for name, reader in READERS.items()
            for probe, found in zip(asked, reader(path, asked), strict=True)
            if probe.rows != found
        ]


@pytest.mark.deep_on_many
def test_every_reader_reads_every_partition(engine: LocalPort, tmp_path: Path) -> None:
    """Rows move between partitions; some can't be in any; a rebuild and maintenance change nothing."""
    table, count = Parted(tmp_path, engine), len(TEXTS)
    table.land("LOAD00000001.parquet", [*range(count), *range(100, 104)], [*TEXTS, *UNFIT])
    assert table.run().quarantined == len(UNFIT)
    assert table.rows() == {i: (text, DATES[i % 4]) for i, text in enumerate(TEXTS)}
    moved = [TEXTS[(i + 1) % count] for i in range(3)]
    table.land("20240101-000000011.parquet", [0, 1, 2, 3, 4], [*moved, "", ""], "UUUDU")
    result = table.run()
    assert (result.changes_written, result.quarantined) == (4, 1), "a delete needs no partition"
    assert result.tasks == engine.name
    wanted = {i: (moved[i] if i < 3 else text, DATES[i % 4]) for i, text in enumerate(TEXTS) if i != 3}
    assert table.rows() == wanted
    assert table.wrong() == []
    table.run(JobOptions(action=Rebuild()))
    assert table.rows() == wanted
    table.run(JobOptions(action=Maintain()))
    details = table.run(JobOptions(action=Verify())).details
    assert details is not None
    assert details["verdict"] == "equal"
    assert table.wrong() == []
    assert DeltaTable(table.layout.replica).metadata().partition_columns == ["area", "day"]


def test_table_moves_between_engines(tmp_path: Path) -> None:
    """What Spark wrote, one task replaces, whichever way each spells the paths of files; and the other way round."""
    slow, quick = (Parted(tmp_path, LocalPort(name)) for name in ("many", "one"))
    count = len(TEXTS)
    slow.land("LOAD00000001.parquet", list(range(count)), list(TEXTS))
    slow.run()
    for number, table in enumerate((quick, slow, quick)):
        moved = [*TEXTS[number + 1 :], *TEXTS[: number + 1]]
        table.land(f"20240101-0000000{number + 1}1.parquet", list(range(count)), moved, "U" * count)
        assert table.run().tasks == table.engine.name
        assert table.rows() == {i: (TEXTS[(i + number + 1) % count], DATES[i % 4]) for i in range(count)}
    assert quick.wrong() == []
