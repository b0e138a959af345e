"""What a file's content raises is that file's fault; what the store raises, and lack of memory, are not."""

from __future__ import annotations

import errno
import gzip
import io
import json
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Erase
from airflow_gddl.contract.errors import GddlError, QuarantinableError, RetriableError
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.stores import Storage
from airflow_gddl.stores.readers import StoreReader
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.plan.planned_batch import PlannedFile
from spark_jobs.rooms.dialects.probe import probe_all, reading
from spark_jobs.rooms.dialects.protocol import dialect_of
from spark_jobs.rules.file_rows import FileRows, read_file
from spark_jobs.tables import decoding
from tests.debezium.probing import event, rows_of
from tests.debezium.probing import probe as probe_debezium
from tests.fuzz.landed_forms import FORMS
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write, write_bytes

CSV = TableSpec(table="s.t", keys=("id",), sequence_by=("seq",),
                options={"csv_columns": ["seq", "id", "v"], "types": {"id": "int", "seq": "int"}})  # fmt: skip


def planned(path: Path, form: str = "csv") -> PlannedFile:
    return PlannedFile(path=str(path), kind="change", format=form, size=path.stat().st_size, etag="", modified="",
                       fingerprint="", generation=1)  # fmt: skip


def landed(lake: Lake, spec: TableSpec, files: dict[str, bytes]) -> Path:
    folder = Path(lake.layout(spec).landing)
    for name, content in files.items():
        write_bytes(folder, name, content)
    return folder


def errors(lake: Lake, spec: TableSpec) -> dict[str, str]:
    rows = DeltaTable(lake.layout(spec).errors).to_pyarrow_table().to_pylist()
    return {Path(row["source_file"]).name: row["code"] for row in rows}


@pytest.mark.parametrize("raised", [ValueError("x"), RecursionError(), OverflowError(), KeyError("k"), EOFError(),
                                    pa.ArrowInvalid("x"), OSError("x"), AssertionError(), UnicodeError()])  # fmt: skip
def test_any_error_is_attributed_to_its_file(raised: Exception, tmp_path: Path) -> None:
    path = write_bytes(tmp_path, "f", b"x")
    with pytest.raises(QuarantinableError) as caught, reading(planned(path)):
        raise raised
    assert caught.value.code == "FILE_UNREADABLE"


@pytest.mark.parametrize("raised", [MemoryError(), pa.ArrowMemoryError("x"), RetriableError("STORAGE_BUSY", "x"),
                                    ModuleNotFoundError("x")])  # fmt: skip
def test_other_errors_are_raised_unchanged(raised: Exception, tmp_path: Path) -> None:
    path = write_bytes(tmp_path, "f", b"x")
    with pytest.raises(type(raised)), reading(planned(path)):
        raise raised


class Failing(io.RawIOBase):
    """The first bytes are there; then the disk fails."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self._inner = io.BytesIO(content)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._inner.seek(offset, whence)

    def tell(self) -> int:
        return self._inner.tell()

    def readinto(self, buffer: Any) -> int:
        if self._inner.tell() > 0:
            raise OSError(errno.EIO, "Input/output error")
        return self._inner.readinto(buffer[:10])


class FailingStorage(Storage):
    def open_input(self, path: str) -> BinaryIO:
        return StoreReader(path, Failing(Path(path).read_bytes()))


@pytest.mark.parametrize("form", FORMS)
def test_store_failure_is_not_attributed_to_the_file(form: str, tmp_path: Path) -> None:
    spec, file_format, content = FORMS[form]
    path = write_bytes(tmp_path, "f", content())
    with pytest.raises(GddlError) as caught:
        probe_all(FailingStorage(), [planned(path, file_format)], dialect_of(spec))
    assert caught.value.code == "STORAGE_BUSY"


def test_first_field_of_any_length_is_read(tmp_path: Path) -> None:
    lake, long = Lake(tmp_path), "x" * 200_000
    landed(lake, CSV, {"20240101-000000001.csv": f"I,1,1,{long}\nI,2,2,b\n".encode()})
    assert lake.done(CSV).warnings == ()
    assert lake.replica(CSV) == {1: long, 2: "b"}


def test_damaged_gzip_block_is_quarantined(tmp_path: Path) -> None:
    """Also where an erasure searches the landing files, which names it as one that may hold the key."""
    zipped = bytearray(gzip.compress(b"I,1,1,a\n" + bytes(range(48, 90)) * 50, mtime=0))
    zipped[20:40] = b"\xff" * 20
    lake = Lake(tmp_path)
    landed(lake, CSV, {"20240101-000000001.csv.gz": bytes(zipped), "20240101-000000002.csv": b"I,1,2,b\n"})
    assert [warning.code for warning in lake.done(CSV).warnings] == ["FILE_UNREADABLE"]
    assert errors(lake, CSV) == {"20240101-000000001.csv.gz": "FILE_UNREADABLE"}
    assert lake.replica(CSV) == {2: "b"}
    erased = lake.done(CSV, JobOptions(action=Erase(key={"id": "2"}, asked_by="eve")))
    assert {warning.code: warning.count for warning in erased.warnings} == {"ERASED_IN_FILES": 1, "FILE_UNREADABLE": 1}


def test_undecodable_values_are_quarantined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = decoding.decode

    def decoded(raw: Any, *given: Any) -> Any:
        if any("bad" in str(value) for value in raw.columns["v"].to_pylist()):
            raise OverflowError("no such value")
        return decode(raw, *given)

    monkeypatch.setattr(decoding, "decode", decoded)
    lake, spec = Lake(tmp_path), spec_of()
    lake.change(spec, 1, [("I", 1, "a")])
    lake.change(spec, 2, [("I", 2, "bad")])
    assert [warning.code for warning in lake.done(spec).warnings] == ["FILE_UNREADABLE"]
    assert lake.replica(spec) == {1: "a"}
    assert errors(lake, spec) == {"20240101-000000002.parquet": "FILE_UNREADABLE"}
    monkeypatch.undo()
    assert isinstance(lake.run(spec), TableOutcome)


DEEP = "[" * 50_000 + "]" * 50_000


@pytest.mark.parametrize("line", [DEEP, '{"op": "u", "after": ' + DEEP + "}", f'{{"op": "c", "n": {"9" * 5000}}}',
                                  json.dumps(DEEP)])  # fmt: skip
def test_unparsable_json_is_a_malformed_line(line: str, tmp_path: Path) -> None:
    found = probe_debezium(
        tmp_path, "\n".join([json.dumps(event("c", {"id": 1})), line, json.dumps(event("c", {"id": 2}, 2))])
    )
    assert found.malformed is not None
    assert [text is None for text in found.malformed.to_pylist()] == [True, False, True]
    with pytest.raises(QuarantinableError, match="FILE_UNREADABLE"):
        probe_debezium(tmp_path, line)


def test_concatenated_records_are_separated(tmp_path: Path) -> None:
    """One line of 60,000, as Firehose writes them; each one that is no event is quarantined with its own text."""
    records = [json.dumps(event("c", {"id": i}, i)) for i in range(1, 60_001)]
    records[7], records[9] = '{"other": 1}', "17"
    found = probe_debezium(tmp_path, " ".join(records))
    assert found.rows == 60_000
    assert found.malformed is not None
    assert {i: text for i, text in enumerate(found.malformed.to_pylist()) if text} == {7: '{"other": 1}', 9: "17"}
    assert [row["id"] for row in rows_of(found)][-2:] == [59_999, 60_000]


def test_malformed_csv_lines_keep_their_positions(tmp_path: Path) -> None:
    lines = ["I,1,1,a", "I,2", "", "I,3,3,c", "I,4,4,d,e", "x", "I,5,5,f"]
    path = write_bytes(tmp_path, "f.csv", ("\n".join(lines) + "\n").encode())
    (probed,), _ = probe_all(Storage(), [planned(path)], dialect_of(CSV))
    found = read_file(Storage(), probed)
    assert isinstance(found, FileRows)
    assert found.malformed is not None
    assert found.malformed.to_pylist() == [None, "I,2", None, "I,4,4,d,e", "x", None]


@pytest.mark.parametrize(
    ("column", "kind", "code"),
    [
        ("seq", "array<int>", "SEQUENCE_TYPE"),
        ("seq", "struct<m: map<string, int>>", "SEQUENCE_TYPE"),
        ("id", "map<string, int>", "KEY_TYPE"),
        ("id", "array<map<string, int>>", "KEY_TYPE"),
        ("seq", "struct<a: int>", None),
        ("id", "array<int>", None),
    ],
)
def test_types_of_keys_and_sequences_that_cannot_be_compared(
    tmp_path: Path, column: str, kind: str, code: str | None
) -> None:
    """No file is at fault, and none is passed over."""
    lake, spec = Lake(tmp_path), spec_of(settle="0s", options={"types": {column: kind}})
    text = "[]" if kind.startswith("array") else "{}"
    columns = {"Op": ["I", "I"], "seq": [1, 2], "id": [1, 1], "v": ["a", "b"], column: [text, text]}
    write(Path(lake.layout(spec).landing), "20240101-000000001.parquet", pa.table(columns))
    found = lake.run(spec)
    assert isinstance(found, TableOutcome)
    error = found.result.error
    assert (error.code if error else None, found.result.warnings) == (code, ())
    assert DeltaTable.is_deltatable(lake.layout(spec).replica) is (code is None)
