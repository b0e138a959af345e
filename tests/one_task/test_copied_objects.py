"""Objects that are copied in place: another tag, other parts or another key of encryption are no other content."""

from __future__ import annotations

import gzip
import io
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, Roots, TableSpec
from airflow_gddl.stores.readers import READ_AHEAD
from tests.debezium.topic import warnings_of
from tests.harness.asked import options_of
from tests.harness.lake import Lake
from tests.harness.s3_server import Bucket, serving

SPEC = TableSpec(
    table="s.t", keys=("id",), sequence_by=("seq",), options={"csv_header": True, "types": {"id": "bigint"}}
)
TAGS = {
    "of its bytes": "", "of KMS": "0123456789abcdef" * 2, "of KMS, another": "fedcba9876543210" * 2,
    "of parts": f"{'a' * 32}-2", "of other parts": f"{'b' * 32}-3",
}  # fmt: skip
"""The tag of an object; empty: the MD5 of its bytes."""
CHANGED = "CHANGED"
LOAD, CHANGE = "landing/s/t/LOAD00000001", "landing/s/t/20240101-000000001.parquet"


class OnS3(Lake):
    """Whose landing root is the bucket."""

    @property
    def roots(self) -> Roots:
        return replace(super().roots, landing="s3://bucket/landing")


@dataclass
class Objects:
    """A table of two files, in a bucket."""

    bucket: Bucket
    lake: Lake
    form: str
    spec: TableSpec = SPEC
    day: int = 1
    load: str = field(init=False)

    def __post_init__(self) -> None:
        self.load = f"{LOAD}.{self.form.partition(' ')[2]}"

    def put(self, name: str, content: bytes, tag: str) -> None:
        """By another upload, which is a day later."""
        self.bucket.objects[name], self.bucket.etags[name] = content, tag
        self.day += 1
        self.bucket.days[name] = self.day

    def run(self, options: JobOptions | None = None) -> JobResult:
        return self.lake.done(self.spec, options)

    def rows(self) -> dict[int, str]:
        return {row["id"]: row["v"] for row in self.lake.rows(self.lake.layout(self.spec).replica)}


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    bucket = Bucket()
    with serving(bucket) as url:
        settings = {"ENDPOINT": url, "ALLOW_HTTP": "true", "REGION": "eu-west-1"}
        for name, value in {**settings, "ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        yield bucket


def written(columns: dict[str, Sequence[Any]], form: str) -> bytes:
    """Not compressed, so that equally long values make equally long files."""
    table = pa.table(columns)
    if form.endswith("parquet"):
        sink = io.BytesIO()
        pq.write_table(table, sink, compression="none", use_dictionary=False)
        return sink.getvalue()
    lines = [",".join(table.column_names), *(",".join(map(str, row.values())) for row in table.to_pylist())]
    text = ("\n".join(lines) + "\n").encode()
    return gzip.compress(text, compresslevel=0, mtime=0) if form.endswith("gz") else text


def load_of(form: str, v: str) -> bytes:
    """Of three rows; in large files each has much else, before the value."""
    chance, size = random.Random(1), READ_AHEAD if form.startswith("large") else 1  # noqa: S311 - no secret
    columns = {"id": [1, 2, 3], "filler": [chance.randbytes(size).hex() for _ in range(3)], "v": ["load", "load", v]}
    return written(columns, form)


def changed(bucket: Bucket, lake: Lake, form: str, tag: str) -> Objects:
    """A load of rows 1 to 3 of which changes have updated the first, deleted the second, and added a fourth."""
    found = Objects(bucket, lake, form)
    found.put(found.load, load_of(form, "load"), TAGS[tag])
    change = {
        "Op": ["U", "D", "I"],
        "seq": [1, 2, 3],
        "id": [1, 2, 4],
        "filler": ["x"] * 3,
        "v": [CHANGED, None, "new"],
    }
    found.put(CHANGE, written(change, "parquet"), TAGS[tag])
    assert "FILES_TOUCHED" not in warnings_of(found.run())
    assert found.rows() == {1: CHANGED, 3: "load", 4: "new"}
    return found


FORMS = ("small parquet", "large parquet", "small csv", "large csv", "large csv.gz")
COPIES = (
    ("of its bytes", "of KMS"), ("of KMS", "of its bytes"), ("of KMS", "of KMS, another"),
    ("of parts", "of its bytes"), ("of parts", "of other parts"), ("of its bytes", "of parts"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("form", "tag", "later"),
    [
        *((form, tag, later) for form in FORMS[:2] for tag, later in COPIES),
        *((form, "of KMS", "of KMS, another") for form in FORMS[2:]),
    ],
)
def test_copy_in_place_is_what_it_was(bucket: Bucket, tmp_path: Path, form: str, tag: str, later: str) -> None:
    table = changed(bucket, OnS3(tmp_path), form, tag)
    for name in (table.load, CHANGE):
        table.put(name, table.bucket.objects[name], TAGS[later])
    said = table.run()
    assert table.rows() == {1: CHANGED, 3: "load", 4: "new"}
    assert {"FILES_TOUCHED", "GENERATIONS_INFERRED"}.intersection(warnings_of(said))
    if form.startswith("small") or (tag, later) == ("of its bytes", "of KMS"):
        assert (said.status, warnings_of(said)) == ("skipped", ["FILES_TOUCHED"]), "this is known, and not taken so"
    again = table.run()
    assert (again.status, again.warnings) == ("skipped", ()), "said once"
    assert table.lake.ledger(SPEC).state.generation == 1
    table.run(options_of("reload", confirmed=True))
    assert table.rows() == {1: CHANGED, 3: "load", 4: "new"}


@pytest.mark.parametrize("form", FORMS[:2])
@pytest.mark.parametrize("tag", ["of its bytes", "of KMS", "of parts"])
@pytest.mark.parametrize("later", ["of its bytes", "of KMS, another", "of other parts"])
def test_load_of_the_same_size_opens_a_generation(
    bucket: Bucket, tmp_path: Path, form: str, tag: str, later: str
) -> None:
    table = changed(bucket, OnS3(tmp_path), form, tag)
    content = load_of(form, "next")
    assert len(content) == len(table.bucket.objects[table.load])
    table.put(table.load, content, TAGS[later])
    table.run()
    assert table.rows() == {1: "load", 2: "load", 3: "next"}
    assert table.lake.ledger(SPEC).state.generation == 2


def test_large_text_of_equal_size_and_start_is_a_copy(bucket: Bucket, tmp_path: Path) -> None:
    table = changed(bucket, OnS3(tmp_path), "large csv", "of parts")
    table.put(table.load, load_of(table.form, "next"), TAGS["of other parts"])
    said = table.run()
    assert (warnings_of(said), said.warnings[0].count) == (["GENERATIONS_INFERRED"], 1)
    assert "gddl reload --from-files --table s.t" in said.warnings[0].message
    table.run(options_of("reload", confirmed=True))
    assert table.rows() == {1: CHANGED, 3: "next", 4: "new"}


def test_folder_that_is_copied_brings_back_no_file_of_an_older_load(bucket: Bucket, tmp_path: Path) -> None:
    """One of two load files was written again, and the rows of the other were swept."""
    table = changed(bucket, OnS3(tmp_path), "small parquet", "of its bytes")
    table.spec = replace(SPEC, sweep_after="0s", sweep_limit=1.0)
    other = f"{LOAD[:-1]}2.parquet"
    table.put(other, written({"id": [7], "filler": ["x"], "v": ["load"]}, "parquet"), "")
    table.run()
    table.put(table.load, load_of(table.form, "next"), "")
    table.run()
    assert table.rows() == {1: "load", 2: "load", 3: "next"}
    for name in (table.load, other):
        table.put(name, table.bucket.objects[name], TAGS["of KMS"])
    assert warnings_of(table.run()) == ["FILES_TOUCHED"]
    assert table.rows() == {1: "load", 2: "load", 3: "next"}


def test_erased_key_stays_out_of_a_copy(bucket: Bucket, tmp_path: Path) -> None:
    table = changed(bucket, OnS3(tmp_path), "small parquet", "of KMS")
    table.run(options_of("erase", key={"id": "3"}))
    assert set(table.rows()) == {1, 4}
    table.put(table.load, table.bucket.objects[table.load], TAGS["of KMS, another"])
    table.run(options_of("reload", confirmed=True))
    assert set(table.rows()) == {1, 4}


def test_files_on_a_disk_that_are_touched_are_named_once(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    spec = replace(SPEC, settle="0s", options={})
    lake.load(spec)
    lake.done(spec)
    (lake.landing(spec) / "LOAD00000001.parquet").touch()
    assert [(one.code, one.count) for one in lake.done(spec).warnings] == [("FILES_TOUCHED", 1)]
    assert lake.done(spec).warnings == ()
