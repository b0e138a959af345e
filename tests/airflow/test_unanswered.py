"""An S3 endpoint that accepts connections and never answers: DAGs are served as before, and the problem file says so.

Airflow gives a DAG file six seconds here, so that all reads of a parse have one. A file that takes longer has an import
error of Airflow's, which no test expects.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from airflow_gddl import configuration
from airflow_gddl.dags.factory import MetadataProblems, build_dags
from tests.airflow.bag import parse
from tests.airflow.stage import Stage
from tests.harness.s3_server import Bucket

pytestmark = pytest.mark.usefixtures("database")
PACK, LARGE = "gddl_pack.shop.small.1", "gddl.shop.large"
UPKEEP = ["gddl_maintenance", "gddl_rerun", "gddl_verify"]
LAKE = "landing: s3://bucket/landing\nlake: s3://bucket/lake\n"
ROWS = b"tables:\n  - {table: shop.a, keys: [id], source: shop}\n"


@dataclass
class Silent:
    """An endpoint that reads no request."""

    url: str
    accepted: list[socket.socket] = field(default_factory=list)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Silent]:
    monkeypatch.setenv("AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT", "6")
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"AWS_{name}", "a")
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = Silent(f"http://127.0.0.1:{server.getsockname()[1]}")

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    found.accepted.append(server.accept()[0])

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield found
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in found.accepted:
            connection.close()


@pytest.fixture
def way(silent: Silent, monkeypatch: pytest.MonkeyPatch) -> Silent:
    monkeypatch.setenv("AWS_ENDPOINT_URL", silent.url)
    return silent


def errors() -> tuple[list[str], dict[str, str]]:
    """Ids of the DAGs that Airflow finds, and its import errors by file name."""
    bag = parse()
    return sorted(bag.dags), {Path(path).name: text for path, text in bag.import_errors.items()}


def test_a_row_that_is_added_while_the_lake_does_not_answer_is_served(stage: Stage, way: Silent) -> None:
    stage.write("gddl.yaml", LAKE)
    stage.rows("{table: shop.a, keys: [id]}")
    cold, reported = errors()
    assert cold == sorted([PACK, *UPKEEP])
    assert list(reported) == ["gddl_metadata_problems.py"]
    assert way.url in reported["gddl_metadata_problems.py"]
    assert "s3://bucket/lake/_gddl/airflow/placement/default.json" in reported["gddl_metadata_problems.py"]
    stage.rows("{table: shop.a, keys: [id]}", "{table: shop.large, keys: [id], size: large}")
    warm, reported = errors()
    assert warm == sorted([PACK, LARGE, *UPKEEP])
    assert list(reported) == ["gddl_metadata_problems.py"]


def test_tables_keep_their_dags_while_the_lake_does_not_answer(
    stage: Stage, bucket: Bucket, silent: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.write("gddl.yaml", f"{LAKE}tiers: {{small: {{tables_per_job: 2}}}}\n")
    stage.rows("{table: shop.b, keys: [id]}", "{table: shop.c, keys: [id]}")
    configuration.compiled_metadata(str(stage.metadata)).keep_placement()
    assert errors()[1] == {}
    monkeypatch.setenv("AWS_ENDPOINT_URL", silent.url)
    stage.rows(*(f"{{table: shop.{name}, keys: [id]}}" for name in "abc"))
    served, reported = errors()
    assert served == sorted([PACK, "gddl_pack.shop.small.2", *UPKEEP])
    assert silent.url in reported["gddl_metadata_problems.py"]
    document = configuration.compiled_metadata(str(stage.metadata)).pipeline(PACK)
    assert document is not None
    assert document.pipeline.tables == ("shop.b", "shop.c"), "by name alone, shop.a would be among them"


def test_metadata_that_does_not_answer_is_served_from_the_last_good_copy(
    stage: Stage, bucket: Bucket, silent: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.objects |= {"meta/gddl.yaml": f"landing: {stage.landing}\nlake: {stage.lake}\n".encode()}
    bucket.objects |= {"meta/tables/shop.yaml": ROWS}
    monkeypatch.setenv("GDDL_METADATA", "s3://bucket/meta")
    monkeypatch.setenv("AIRFLOW__GDDL__REFRESH_SECONDS", "0")
    assert errors() == (sorted([PACK, *UPKEEP]), {})
    monkeypatch.setenv("AWS_ENDPOINT_URL", silent.url)
    served, reported = errors()
    assert served == sorted([PACK, *UPKEEP])
    assert list(reported) == ["gddl_metadata_problems.py"]
    assert f"no answer of S3 at {silent.url}" in reported["gddl_metadata_problems.py"]
    assert "the last good copy is used" in reported["gddl_metadata_problems.py"]


def test_new_metadata_that_does_not_answer_is_an_import_error(
    stage: Stage, way: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GDDL_METADATA", "s3://bucket/meta")
    served, reported = errors()
    assert served == []
    assert sorted(reported) == ["gddl.py", "gddl_metadata_problems.py"]
    for text in reported.values():
        assert "no table is scheduled" in text
        assert f"[METADATA_UNREACHABLE] no answer of S3 at {way.url} within 1 s (s3://bucket/meta)" in text
    with pytest.raises(MetadataProblems, match="no table is scheduled"):
        build_dags(stage.root / "no such folder")


def test_many_files_in_a_bucket_are_read_within_the_time_of_a_few(
    stage: Stage, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GDDL_METADATA", "s3://bucket/meta")
    bucket.objects |= {"meta/gddl.yaml": f"landing: {stage.landing}\nlake: {stage.lake}\n".encode()}
    for n in range(60):
        bucket.objects[f"meta/tables/{n}.yaml"] = ROWS.replace(b"shop.a", f"shop.t{n}".encode())
    bucket.objects["meta/tables/odd.yaml"] = b"\xff"
    bucket.objects["meta/tables/notes.txt"] = b"no metadata"
    assert list(build_dags()) == [PACK]
    compiled = configuration.compiled_metadata("s3://bucket/meta")
    directory = compiled.directory()
    assert directory is not None
    assert len(directory.rows) == 60
    assert ["DOCUMENT_INVALID" in problem for problem in compiled.problems()] == [True]
