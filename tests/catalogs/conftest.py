"""A Glue Data Catalog in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.catalogs import iceberg_server


@pytest.fixture
def glue(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    boto3, moto = pytest.importorskip("boto3"), pytest.importorskip("moto")
    for name, value in {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}.items():
        monkeypatch.setenv(name, value)
    with moto.mock_aws():
        yield boto3.client("glue", region_name="eu-west-1")


@pytest.fixture(scope="session")
def iceberg_rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of an Iceberg REST catalog."""
    jars = iceberg_server.find_jars()
    if jars is None:
        pytest.skip("no Java, or Maven Central can't be reached")
    with iceberg_server.serving(jars, tmp_path_factory.mktemp("rest")) as url:
        yield url
