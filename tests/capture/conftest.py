"""A server whose log can be read, for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from tests.capture.captured import end
from tests.one_task.postgres import postgres


@pytest.fixture(scope="module")
def server() -> Iterator[sa.Engine]:
    with postgres(settings="wal_level = logical") as engine:
        yield engine


@pytest.fixture
def without_slot(server: sa.Engine) -> Iterator[None]:
    """No slot is left when a test ends, which would keep the server's log."""
    yield
    end(server)
