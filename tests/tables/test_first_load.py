"""First loads in parts: the tables of a load that is decoded as a whole, whatever part it is killed at."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract import codec
from airflow_gddl.contract.actions import Reload, Verify
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.contract.table_spec import Expectation, SchemaEvolution
from airflow_gddl.metadata.expression_text import with_expressions
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import Step
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.tables.file_parts import PartBounds, PartReport, Split, WritePart
from tests.harness.lake import TIER, Lake
from tests.harness.landing import write_bytes
from tests.spark.table_lines import TableLines, differences, everything

ROWS, GROUP = 400, 50
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "soft": {"delete": "soft", "history": True},
    "partitions": {"partition_by": ("day",), "cluster_by": ("v",)},
    "change_feed": {"table_properties": {"delta.enableChangeDataFeed": "true"}},
    "key_of_two": {"keys": ("id", "v")},
    "no_key": {"keys": (), "sequence_by": ()},
    "masked": {"mask": {"v": "hash"}, "exclude_columns": ("at",)},
    "conditions": {
        "derive": {"twice": "n * 2"}, "where": "day <> '2024-01-02'",
        "expect": {"small": Expectation(rule="twice < 1200"), "low": Expectation(rule="n < 700", on="warn")},
    },
    "renamed": {"rename": {"day": "of", "v": "text"}, "partition_by": ("of",)},
    "rescues": {"schema_evolution": SchemaEvolution(type_change="rescue")},
}  # fmt: skip


def spec_of(**fields: Any) -> TableSpec:
    usual: dict[str, Any] = {"keys": ("id",), "sequence_by": ("seq",), "options": {"types": {"n": "int"}}}
    return with_expressions(TableSpec(table="s.t", **{**usual, **fields}))


def bounds(together: int = -1) -> PartBounds:
    """Each row group is a part, however few bytes it has; or a load of up to `together` bytes is decoded as a whole."""
    return PartBounds(together=together, least=1, most=1)


def in_parts(root: Path) -> Lake:
    return Lake(root, parts=bounds())


@dataclass
class Parts:
    """How many parts were written, and after how many the process dies by an error (0: never)."""

    written: int = 0
    deadly: int = 0


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Parts:
    """How many parts are written."""
    seen, write = Parts(), WritePart.__call__

    def counted(self: WritePart, storage: Storage, part: Split) -> str:
        report = write(self, storage, part)
        seen.written += 1
        if seen.written == seen.deadly:
            raise KeyboardInterrupt
        return report

    monkeypatch.setattr(WritePart, "__call__", counted)
    return seen


def land(lake: Lake, spec: TableSpec, *, repeated: bool = False, damaged: bool = False) -> None:
    folder = Path(lake.layout(spec).landing)
    for number in range(2):
        ids = list(range(number * ROWS, number * ROWS + ROWS))
        columns: dict[str, Any] = {
            "id": pa.array([None if i % 83 == 5 else 3 if repeated and i == ROWS + 9 else i for i in ids], pa.int64()),
            "v": pa.array([f"v{i % 7}" for i in ids], pa.string()),
            "n": pa.array(["one" if i % 79 == 1 else str(i) for i in ids], pa.string()),
            "at": pa.array([1_700_000_000_000_000 + i for i in ids], pa.timestamp("us")),
            "day": pa.array([f"2024-01-{1 + i % 3:02d}" for i in ids], pa.string()),
        }
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(columns), sink, row_group_size=GROUP)
        data = sink.getvalue().to_pybytes()
        if damaged and number:
            at = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(4).column(1).data_page_offset
            data = data[:at] + b"\xff" * 64 + data[at + 64 :]
        write_bytes(folder, f"LOAD0000000{number + 1}.parquet", data)


def loaded_whole(root: Path, spec: TableSpec, **landed: bool) -> tuple[Lake, Any]:
    """The same load, decoded as a whole."""
    lake = Lake(root, parts=bounds(together=1 << 40))
    land(lake, spec, **landed)
    return lake, lake.done(spec)


def counted(result: Any) -> tuple[object, ...]:
    warnings = sorted((w.code, w.count) for w in result.warnings)
    return (
        result.expectations,
        result.filtered,
        result.rows_read,
        result.changes_written,
        result.redelivered,
        result.quarantined,
        result.main,
        warnings,
    )


def lines(lake: Lake, spec: TableSpec) -> TableLines:
    return everything(lake.layout(spec))


@pytest.mark.parametrize("case", CASES)
def test_same_tables_as_decoded_whole(case: str, parts: Parts, tmp_path: Path) -> None:
    spec = spec_of(**CASES[case])
    whole, expected = loaded_whole(tmp_path / "whole", spec)
    lake = in_parts(tmp_path / "parts")
    land(lake, spec)
    result = lake.done(spec)
    assert parts.written == 2 * ROWS // GROUP
    assert counted(result) == counted(expected)
    assert differences(lines(whole, spec), lines(lake, spec)) == []
    assert lake.done(spec, JobOptions(action=Verify())).details["verdict"] == "equal"
    assert not any(Path(lake.layout(spec).state, "parts").rglob("*.json"))


def test_repeated_keys_are_compared_as_usual(parts: Parts, tmp_path: Path) -> None:
    """Which of two full-load rows of a key counts is for the rules to say; nothing of the parts stays."""
    spec = spec_of()
    whole, expected = loaded_whole(tmp_path / "whole", spec, repeated=True)
    lake = in_parts(tmp_path / "parts")
    land(lake, spec, repeated=True)
    result = lake.done(spec)
    assert parts.written == 2 * ROWS // GROUP
    assert counted(result) == counted(expected)
    assert differences(lines(whole, spec), lines(lake, spec)) == []
    folder = Path(lake.layout(spec).replica)
    named = {path.name for path in map(Path, _files(lake, spec))}
    assert {path.name for path in folder.rglob("*.parquet")} == named


def batches_of_a_file_each(root: Path) -> Lake:
    """Of which the first load is one batch where its parts are written one by one."""
    return Lake(root, tier=replace(TIER, max_bytes_per_batch=1), parts=bounds())


def test_files_of_a_first_load_are_one_batch(parts: Parts, tmp_path: Path) -> None:
    """However few bytes a batch has whose rows are in memory together."""
    spec = spec_of()
    whole, expected = loaded_whole(tmp_path / "whole", spec)
    lake = batches_of_a_file_each(tmp_path / "parts")
    land(lake, spec)
    result = lake.done(spec)
    assert result.batches == 1
    assert parts.written == 2 * ROWS // GROUP
    assert counted(result) == counted(expected)
    assert differences(lines(whole, spec), lines(lake, spec)) == []


@pytest.mark.parametrize("deadly", [0, 3, 2 * ROWS // GROUP])
def test_repeated_keys_of_a_large_first_load_are_compared_in_usual_batches(
    deadly: int, parts: Parts, tmp_path: Path
) -> None:
    spec = spec_of(delete="soft")
    whole, expected = loaded_whole(tmp_path / "whole", spec, repeated=True)
    lake = batches_of_a_file_each(tmp_path / "parts")
    land(lake, spec, repeated=True)
    parts.deadly = deadly
    if deadly:
        with pytest.raises(KeyboardInterrupt):
            lake.run(spec)
    result = lake.done(spec)
    assert (result.batches, result.rows_read, result.quarantined) == (2, 2 * ROWS, expected.quarantined)
    assert lake.replica(spec) == whole.replica(spec)
    assert lines(lake, spec)["errors"]
    assert not any(Path(lake.layout(spec).state, "parts").rglob("*.json"))
    folder = Path(lake.layout(spec).replica)
    log = "".join(path.read_text() for path in folder.glob("_delta_log/*.json"))
    assert [path.name for path in folder.rglob("*.parquet") if path.name not in log] == []
    assert lake.done(spec, JobOptions(action=Verify())).details["verdict"] == "equal"


@pytest.mark.parametrize("step", ["append", "replica", "commit"])
def test_large_first_load_goes_on_once_it_has_appended(step: str, parts: Parts, tmp_path: Path) -> None:
    """Its last steps remove the reports of its parts; it is the same batch all the same."""
    spec = spec_of()
    whole, _ = loaded_whole(tmp_path / "whole", spec)
    lake = batches_of_a_file_each(tmp_path / "parts")
    land(lake, spec)

    def break_off(reported: Step) -> None:
        if reported.step == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lake.raising(spec, observe=break_off)
    assert lake.done(spec).batches == 1
    assert differences(lines(whole, spec), lines(lake, spec)) == []
    assert not any(Path(lake.layout(spec).state, "parts").rglob("*.json"))


@pytest.mark.parametrize("repeated", [False, True])
def test_damaged_file_of_a_large_first_load_holds_all_of_it(repeated: bool, parts: Parts, tmp_path: Path) -> None:
    spec = spec_of()
    whole, _ = loaded_whole(tmp_path / "whole", spec, repeated=repeated)
    lake = batches_of_a_file_each(tmp_path / "parts")
    land(lake, spec, damaged=True, repeated=repeated)
    for _ in range(2):
        error = lake.result(spec).error
        assert error is not None
        assert error.code == "FIRST_LOAD_UNREADABLE"
    land(lake, spec, repeated=repeated)
    assert lake.done(spec).batches == 1 + repeated
    assert lake.replica(spec) == whole.replica(spec)
    left = [row for row in lake.rows(lake.layout(spec).errors) if row["code"] == "FILE_UNREADABLE"]
    assert left
    assert all(row["resolved_at"] for row in left)


@pytest.mark.parametrize("repeated", [False, True])
def test_reload_in_parts(repeated: bool, parts: Parts, tmp_path: Path) -> None:
    spec = spec_of()
    lake = batches_of_a_file_each(tmp_path)
    land(lake, spec, repeated=repeated)
    lake.done(spec)
    before, parts.written = lake.replica(spec), 0
    result = lake.done(spec, JobOptions(action=Reload()))
    assert (result.batches, result.rows_read) == (1 + repeated, 2 * ROWS)
    assert parts.written == (2 + repeated) * ROWS // GROUP  # usual batches begin with a file of other keys
    assert lake.replica(spec) == before


def _files(lake: Lake, spec: TableSpec) -> list[str]:
    return DeltaTable(lake.layout(spec).replica).file_uris()


def test_others_wait_for_a_damaged_file_of_the_load(parts: Parts, tmp_path: Path) -> None:
    spec = spec_of()
    whole, expected = loaded_whole(tmp_path / "whole", spec)
    lake = in_parts(tmp_path / "parts")
    land(lake, spec, damaged=True)
    for _ in range(2):
        held = lake.run(spec)
        assert isinstance(held, TableOutcome)
        assert held.result.error is not None
        assert held.result.error.code == "FIRST_LOAD_UNREADABLE"
        assert parts.written > ROWS // GROUP
        assert not Path(lake.layout(spec).replica, "_delta_log").exists()
    assert any("FILE_UNREADABLE" in row for row in lines(lake, spec)["errors"])
    land(lake, spec)
    assert counted(lake.done(spec)) == counted(expected)
    assert lake.replica(spec) == whole.replica(spec)
    assert not any(Path(lake.layout(spec).state, "parts").rglob("*.json"))


@pytest.mark.parametrize("deadly", [1, 5, 15, 16])
def test_interrupted_load_goes_on_with_the_parts_that_are_missing(deadly: int, parts: Parts, tmp_path: Path) -> None:
    spec = spec_of(delete="soft")
    whole, _ = loaded_whole(tmp_path / "whole", spec)
    lake = in_parts(tmp_path / "parts")
    land(lake, spec)
    parts.deadly = deadly
    with pytest.raises(KeyboardInterrupt):
        lake.run(spec)
    parts.written, parts.deadly = 0, 0
    lake.done(spec)
    assert parts.written == 2 * ROWS // GROUP - deadly
    assert differences(lines(whole, spec), lines(lake, spec)) == []


def test_parts_whose_files_were_removed_are_written_again(parts: Parts, tmp_path: Path) -> None:
    """As a vacuum does, that finds files that no commit names."""
    spec = spec_of()
    whole, _ = loaded_whole(tmp_path / "whole", spec)
    lake = in_parts(tmp_path / "parts")
    land(lake, spec)
    parts.deadly = 9
    with pytest.raises(KeyboardInterrupt):
        lake.run(spec)
    written = sorted(Path(lake.layout(spec).changes).glob("*.parquet"))
    for path in written[:2]:
        path.unlink()
    parts.written, parts.deadly = 0, 0
    lake.done(spec)
    assert parts.written == 2 * ROWS // GROUP - 9 + 2
    assert differences(lines(whole, spec), lines(lake, spec)) == []


def test_parts_of_another_row_are_not_taken(parts: Parts, tmp_path: Path) -> None:
    spec = spec_of()
    masked = replace(spec, mask={"v": "hash"})
    whole, _ = loaded_whole(tmp_path / "whole", masked)
    lake = in_parts(tmp_path / "parts")
    land(lake, spec)
    parts.deadly = 9
    with pytest.raises(KeyboardInterrupt):
        lake.run(spec)
    parts.written, parts.deadly = 0, 0
    lake.done(masked)
    assert parts.written == 2 * ROWS // GROUP
    assert differences(lines(whole, masked), lines(lake, masked)) == []


CHILD = """
import os, signal, sys
from pathlib import Path
from spark_jobs.tables import delta_tables, file_parts, first_load
from tests.tables.test_first_load import in_parts, spec_of

where, number = sys.argv[2], int(sys.argv[3])
seen = 0

def deadly(kind, name):
    own = getattr(kind, name)
    def run(self, *args, **kwargs):
        global seen
        done = own(self, *args, **kwargs)
        seen += 1
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    setattr(kind, name, run)

deadly(*{"part": (file_parts.WritePart, "_write"), "report": (file_parts.WritePart, "__call__"),
         "commit": (delta_tables.Tables, "add_files"), "replica": (first_load.FirstLoad, "replica")}[where])
in_parts(Path(sys.argv[1])).done(spec_of(delete="soft"))
"""


@pytest.mark.parametrize(
    ("where", "number"), [("part", 4), ("report", 4), ("commit", 1), ("commit", 2), ("commit", 3), ("replica", 1)]
)
def test_killed_load_is_run_again(where: str, number: int, parts: Parts, tmp_path: Path) -> None:
    spec = spec_of(delete="soft")
    whole, _ = loaded_whole(tmp_path / "whole", spec)
    lake = in_parts(tmp_path / "parts")
    land(lake, spec)
    command = [sys.executable, "-c", CHILD, str(lake.root), where, str(number)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    lake.done(spec)
    assert differences(lines(whole, spec), lines(lake, spec)) == []
    assert lake.done(spec, JobOptions(action=Verify())).details["verdict"] == "equal"


def test_report_reads_back() -> None:
    files = {"changes": [{"add": {"path": "x"}}]}
    report = PartReport(path="a", files=files, distinct=(4, 3), code="C", reason="r", error=("a",))
    assert codec.from_json(PartReport, codec.to_json(report)) == report
