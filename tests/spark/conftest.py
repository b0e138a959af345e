"""The engine of the session with its runtime at hand, to watch and to break it."""

from __future__ import annotations

import pytest

from tests.conftest import LocalPort
from tests.harness.engine_port import EnginePort


@pytest.fixture(scope="session")
def spark(engine: EnginePort) -> LocalPort:
    assert isinstance(engine, LocalPort)
    return engine


@pytest.fixture(autouse=True)
def _jobs_use_spark(with_spark: None) -> None:
    """Also those in processes of their own."""
