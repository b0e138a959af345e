"""A server whose log can be read, for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from tests.delta_rs.postgres import postgres


@pytest.fixture(scope="module")
def server() -> Iterator[sa.Engine]:
    with postgres(settings="wal_level = logical") as engine:
        yield engine
