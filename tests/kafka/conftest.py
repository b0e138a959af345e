"""The broker that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("confluent_kafka", reason="no client of Kafka: install airflow-gddl[kafka]")

from tests.kafka.broker import Broker, broker


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {"log.cleaner.backoff.ms": "100", "log.initial.task.delay.ms": "100"}  # compaction is soon
    with broker(tmp_path_factory.mktemp("kafka") / "broker", settings) as started:
        yield started
