"""A Glue Data Catalog in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def glue(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    boto3, moto = pytest.importorskip("boto3"), pytest.importorskip("moto")
    for name, value in {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}.items():
        monkeypatch.setenv(name, value)
    with moto.mock_aws():
        yield boto3.client("glue", region_name="eu-west-1")
