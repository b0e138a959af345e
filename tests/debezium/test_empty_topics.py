"""A sink that has opened a file and written nothing."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import LocalPort
from tests.debezium.probing import text
from tests.debezium.topic import Topic


def test_a_file_without_bytes_is_no_rows(engine: LocalPort, tmp_path: Path) -> None:
    """But an Avro container has a header, so that one without bytes is damaged."""
    topic = Topic(engine, tmp_path)
    topic.land("")
    topic.run()
    source = {"connector": "postgresql", "lsn": 5, "ts_ms": 5}
    topic.land(text({"op": "c", "before": None, "after": {"id": 1}, "source": source}))
    topic.land("\n")
    topic.run()
    assert (topic.replica("id"), topic.errors()) == ([(1,)], [])
    topic.land("", "avro")
    topic.run()
    assert [error["code"] for error in topic.errors()] == ["FILE_EMPTY"]
