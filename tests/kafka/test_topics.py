"""Tables whose changes jobs read from Kafka themselves: whatever happens, the replica is the source."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.debezium.source import Source
from tests.kafka.broker import Broker
from tests.kafka.topics import Topic


@pytest.mark.parametrize(("seed", "partitions"), [(1, 1), (2, 3), (3, 1)])
def test_replica_equals_the_source(seed: int, partitions: int, kafka: Broker, tmp_path: Path) -> None:
    chance = Random(seed)  # noqa: S311 - repeatable by its seed
    source, topic = Source.lived(chance, 120), Topic(kafka, tmp_path, partitions).create()
    records = list(source.records)
    while records:
        count = chance.randint(1, 40)
        topic.send(records[:count])
        records = records[count:]
        assert topic.run().quarantined == 0
    assert topic.rows() == sorted(source.rows.values(), key=lambda row: row["id"])
    files = topic.files()
    assert topic.run().status == "skipped"
    assert topic.files() == files
