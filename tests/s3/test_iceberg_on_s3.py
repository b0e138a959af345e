"""Lake in a bucket: Iceberg metadata, also of a table in Glue (moto), is written and read by the lake's own store."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.actions import Maintain
from airflow_gddl.contract.extensions import CatalogSpec
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Runtime
from spark_jobs.job.job_tables import run_job
from spark_jobs.rooms.features.iceberg.publishing import IcebergPublisher
from spark_jobs.tables.iceberg_metadata import MetadataVersions
from tests.readers.iceberg_v3 import SharedTable
from tests.s3.conftest import Place
from tests.s3.delivery import deliver_load, job, put

glue_catalogs: Any = pytest.importorskip("pyiceberg.catalog.glue")
static_table: Any = pytest.importorskip("pyiceberg.table").StaticTable
moto, boto3 = pytest.importorskip("moto"), pytest.importorskip("boto3")


def run(place: Place, options: JobOptions | None = None) -> JobResult:
    given = job(place, ["t"])
    (spec,) = given.tables
    catalogs = {"ice": CatalogSpec(kind="iceberg_glue", region="eu-west-1")}
    spec = replace(spec, iceberg=True, catalog="ice", settle="0s", partition_by=("v",))
    given = replace(given, tables=(spec,), catalogs=catalogs, options=options or JobOptions())
    runtime = Runtime(storage=Storage(place.environ), spark=NoSpark(), environ=place.environ)
    (outcome,) = run_job(given, runtime, lambda _: None)
    return outcome.result


def reads_of(place: Place) -> dict[str, str]:
    """pyiceberg's settings to read the bucket."""
    return {
        "s3.endpoint": place.environ["AWS_ENDPOINT_URL"],
        "s3.access-key-id": place.environ["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": place.environ["AWS_SECRET_ACCESS_KEY"],
        "s3.region": "us-east-1",
    }


def test_glue_names_metadata_in_the_bucket(place: Place) -> None:
    with moto.mock_aws():
        client = boto3.client("glue", region_name="eu-west-1")
        reader = glue_catalogs.GlueCatalog("reader", client=client, **reads_of(place))

        def rows() -> dict[int, str]:
            found = reader.load_table("s.t").scan().to_arrow().to_pylist()
            return {row["id"]: row["v"] for row in found}

        deliver_load(place, "t")
        result = run(place)
        assert (result.status, result.warnings) == ("succeeded", ())
        assert rows() == {1: "new", 3: "c"}
        put(place, "t", "20240101-000000001", {"Op": ["U", "D"], "seq": [1, 2], "id": [1, 3], "v": ["a/b c", "c"]})
        assert run(place).warnings == ()
        assert rows() == {1: "a/b c"}
        run(place, JobOptions(action=Maintain()))
        assert rows() == {1: "a/b c"}
        entry = client.get_table(DatabaseName="s", Name="t")["Table"]["Parameters"]
        assert entry["metadata_location"].startswith(f"{place.roots.lake}/_gddl/iceberg/s/t/metadata/")
        assert entry["previous_metadata_location"] != entry["metadata_location"]


def test_version_3_has_its_vectors_in_the_bucket(place: Place, tmp_path: Path) -> None:
    """In folders with special characters, and after old files are removed."""
    table, storage, sent = SharedTable(tmp_path / "t", "copied"), Storage(place.environ), set[Path]()
    table.create()
    source = f"{place.roots.lake}/ü b%20c/t"
    versions = MetadataVersions(storage, f"{place.roots.lake}/_gddl/iceberg/ü b%20c/t")
    publisher = IcebergPublisher(storage, source, versions, 3)

    def publish() -> None:
        for file in sorted(path for path in table.root.rglob("*") if path.is_file() and path not in sent):
            storage.write(f"{source}/{file.relative_to(table.root)}", file.read_bytes())
            sent.add(file)
        assert publisher.publish()
        found = static_table.from_metadata(versions.path(versions.newest()), reads_of(place)).scan().to_arrow()
        rows = sorted(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))
        assert rows == sorted((key, name) for key, name, _, _ in table.rows.values())

    table.change(1, [], [], range(40))
    publish()
    table.change(2, [1, 2], [3], range(100, 110))
    publish()
    table.change(3, [4, 101], [5, 102], range(200, 203))
    publish()
    now = datetime.now(UTC) + timedelta(days=1)
    assert versions.clean(now, publisher.needed(now)) > 0
    assert sum(file.name.endswith(".puffin") for file in storage.list(versions.folder)) == 2
    table.change(4, [6], [], [300])
    publish()
    table.compact(5)
    publish()
    versions.clean(now, publisher.needed(now))
    assert not any(file.name.endswith(".puffin") for file in storage.list(versions.folder))
