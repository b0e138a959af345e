"""Tables whose changes jobs read from Kafka themselves: whatever happens, the replica is the source."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from airflow_gddl.cli.check import probe_topics
from airflow_gddl.contract import codec
from airflow_gddl.contract.actions import Reload
from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.row_checks import check_table
from airflow_gddl.contract.sources.kafka import topic_of
from airflow_gddl.contract.spec import Continuous, JobOptions, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import Runtime, SparkLeftOut
from spark_jobs.plan.batching import SourceLimits
from spark_jobs.rooms.sources.kafka import log as kafka_log
from tests.debezium.source import Source
from tests.harness.background_job import BackgroundJob
from tests.harness.waiting import wait_for
from tests.kafka.broker import Broker
from tests.kafka.topics import Topic, event


def lived(seed: int, steps: int = 60) -> Source:
    return Source.lived(Random(seed), steps)  # noqa: S311 - repeatable by its seed


def rows_of(source: Source) -> list[dict[str, Any]]:
    return sorted(source.rows.values(), key=lambda row: row["id"])


def inserts(ids: Sequence[int]) -> list[tuple[int, dict[str, Any]]]:
    return [(i, event("c", {"id": i, "v": f"v{i}"}, 1000 + i)) for i in ids]


def snapshot(rows: Sequence[dict[str, Any]], place: int) -> list[tuple[int, dict[str, Any]]]:
    """Events of a snapshot of the whole table."""
    found = [(row["id"], event("r", row, place)) for row in rows]
    for _, one in found:
        one["source"]["snapshot"] = "last" if one is found[-1][1] else "true"
    return found


def ids(topic: Topic) -> list[int]:
    return [row["id"] for row in topic.rows()]


@pytest.mark.parametrize(("seed", "partitions"), [pytest.param(1, 1, marks=pytest.mark.core), (2, 3)])
def test_replica_equals_the_source(seed: int, partitions: int, kafka: Broker, tmp_path: Path) -> None:
    chance = Random(seed)  # noqa: S311 - repeatable by its seed
    source, topic = lived(seed, 120), Topic(kafka, tmp_path, partitions).create()
    records = list(source.records)
    while records:
        count = chance.randint(1, 40)
        topic.send(records[:count])
        records = records[count:]
        assert topic.run().quarantined == 0
    assert topic.rows() == rows_of(source)
    files = topic.files()
    assert topic.run().status == "skipped"
    assert topic.files() == files
    topic.run(JobOptions(action=Reload(confirmed=True)))
    assert topic.rows() == rows_of(source)


@pytest.mark.parametrize("when", ["before", "after"])
def test_capture_that_is_killed_at_any_write_is_resumed(when: str, kafka: Broker, tmp_path: Path) -> None:
    source, topic = lived(7, 80), Topic(kafka, tmp_path, 2).create()
    size = len(source.records) // 6 + 1
    for number in range(1, 7):
        topic.send(source.records[(number - 1) * size : number * size])
        assert _killed(topic, number, when)
    topic.run()
    assert topic.rows() == rows_of(source)
    spans = sorted(_span(name) for name in topic.files())
    assert all(a[0] != b[0] or a[2] <= b[1] for a, b in pairwise(spans)), "each message is in one file"


def _killed(topic: Topic, number: int, when: str) -> bool:
    job = replace(topic.lake.job([topic.spec]), run_id=f"killed {number}")
    command = [sys.executable, "-m", "tests.databases.killed_load", codec.to_json(job), str(number), when]
    status = subprocess.run(command, env=dict(os.environ), check=False).returncode
    assert status in (0, -signal.SIGKILL)
    return status != 0


def _span(name: str) -> tuple[int, int, int]:
    """Partition, first offset, and the one behind the last."""
    _, partition, offsets = name.split("+")
    first, end, _ = offsets.split("_")
    return int(partition), int(first), int(end)


def test_two_jobs_at_once_write_each_message_once(kafka: Broker, tmp_path: Path) -> None:
    source = lived(9)
    topics = [Topic(kafka, tmp_path, 2, runs=100 * n) for n in range(3)]
    for one in topics:
        one.name = topics[0].name
    topics[0].create().send(source.records)
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda one: one.outcome(), topics))
    topics[0].run()
    assert topics[0].rows() == rows_of(source)
    assert sorted((p, first) for p, first, _ in map(_span, topics[0].files())) == [(0, 0), (1, 0)]


def test_files_are_bounded(kafka: Broker, tmp_path: Path) -> None:
    topic = Topic(kafka, tmp_path, 1, limits=SourceLimits(messages_a_file=10)).create()
    topic.send(inserts(range(25)))
    topic.run()
    assert sorted(_span(name) for name in topic.files()) == [(0, 0, 10), (0, 10, 20), (0, 20, 25)]
    topic.limits = SourceLimits(bytes_a_file=1)
    topic.send(inserts([25, 26]))
    topic.run()
    assert sorted(_span(name) for name in topic.files())[3:] == [(0, 25, 26), (0, 26, 27)]
    assert ids(topic) == list(range(27))


def test_what_retention_has_removed_unread_is_an_error(kafka: Broker, tmp_path: Path) -> None:
    topic = Topic(kafka, tmp_path, 1).create()
    topic.send(snapshot([{"id": i, "v": f"v{i}"} for i in range(5)], 10))
    topic.run()
    topic.send(inserts(range(5, 10)))
    topic.admin.delete_records([TopicPartition(topic.name, 0, 8)])[TopicPartition(topic.name, 0)].result()
    found = topic.outcome()
    assert found.error is not None
    assert (found.error.code, found.error.fatal) == ("SOURCE_LOG_LOST", True)
    assert "offsets 5 to 7" in found.error.message
    assert str(topic.position) in found.error.message
    assert ids(topic) == list(range(5))
    topic.position.unlink()
    rows = [{"id": i, "v": f"v{i}"} for i in (*range(3), *range(5, 10))]
    topic.send(snapshot(rows, 5000))
    topic.run()
    assert topic.rows() == rows


def test_what_is_removed_before_the_first_read_is_not_missed(kafka: Broker, tmp_path: Path) -> None:
    topic = Topic(kafka, tmp_path, 1).create()
    topic.send(inserts(range(5)))
    topic.admin.delete_records([TopicPartition(topic.name, 0, 2)])[TopicPartition(topic.name, 0)].result()
    topic.run()
    assert ids(topic) == [2, 3, 4]


def test_topic_that_is_made_again_is_an_error(kafka: Broker, tmp_path: Path) -> None:
    topic = Topic(kafka, tmp_path, 1).create()
    topic.send(inserts(range(3)))
    topic.run()
    topic.delete()
    assert _code(topic) == "SOURCE_LOG_REPLACED"
    wait_for(lambda: _is_created(topic), "the topic to be gone")
    topic.send(inserts(range(3, 7)))
    assert _code(topic) == "SOURCE_LOG_REPLACED"
    assert ids(topic) == [0, 1, 2]
    topic.position.unlink()
    topic.run()
    assert ids(topic) == list(range(7))
    assert len(topic.files()) == 2, "offsets that were there before are another file"


def _is_created(topic: Topic) -> bool:
    try:
        topic.create()
    except KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise
        return False
    return True


def _code(topic: Topic) -> str:
    found = topic.outcome()
    assert found.error is not None
    return found.error.code


def test_topic_that_is_not_there_yet_is_reported(kafka: Broker, tmp_path: Path) -> None:
    topic = Topic(kafka, tmp_path)
    assert "TOPIC_MISSING" in {one.code for one in topic.run().warnings}
    topic.create().send(inserts([1]))
    assert topic.run().warnings == ()
    assert ids(topic) == [1]


def test_aborted_transactions_are_left_out_and_open_ones_awaited(kafka: Broker, tmp_path: Path) -> None:
    topic = Topic(kafka, tmp_path, 1).create()
    topic.send(inserts([1]), **{"transactional.id": "a"})
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": "b"})
    producer.init_transactions()
    for number, ends in ((2, producer.abort_transaction), (3, producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic.name, json.dumps(inserts([number])[0][1]).encode(), b"{}")
        producer.flush()
        topic.run()
        assert ids(topic) == [1]
        ends()

    def is_read() -> bool:
        topic.run()
        return ids(topic) == [1, 3]

    # The broker writes a commit's marker after it has confirmed the commit.
    wait_for(is_read, "the committed message to be readable")
    assert topic.run().status == "skipped", "markers behind the last message are no work"


def test_a_compacted_topic_gives_the_newest_rows(kafka: Broker, tmp_path: Path) -> None:
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "100"}
    topic = Topic(kafka, tmp_path, 1, settings).create()
    place = 0

    def send(op: str, key: int, text: str) -> None:
        nonlocal place
        place += 1
        topic.send([(key, event(op, {"id": key, "v": text}, place))] + ([(key, None)] if op == "d" else []))

    send("c", 1, "first")
    send("c", 2, "first")
    assert topic.run().warnings == ()
    for number in range(5):
        send("u", 1, f"update {number}")
    send("d", 2, "first")
    wait_for(lambda: _is_compacted(topic, send), "the topic to be compacted")
    found = topic.run()
    assert {row["id"]: row["v"] for row in topic.rows()}[1] == "update 4"
    assert {one.code for one in found.warnings} == {"DELETES_COMPACTED"}, "its tombstone alone is left"


def _is_compacted(topic: Topic, send: Any) -> bool:
    """Whether nothing but the tombstone is left of the deleted key; each message may close a segment."""
    send("c", 100, "segment")
    log = kafka_log.KafkaLog({"bootstrap.servers": topic.broker.address})
    state = log.state(topic.name)
    assert state is not None
    left = list(log.messages(topic.name, 0, state.first[0], state.end[0]))
    log.close()
    return [one.value for one in left if one.key == b'{"id":2}'] == [None] and sum(
        one.key == b'{"id":1}' for one in left
    ) == 1


def test_broker_that_does_not_answer_is_tried_again(kafka: Broker, tmp_path: Path) -> None:
    topic = Topic(
        kafka, tmp_path, options={"bootstrap_servers": "127.0.0.1:1"}, limits=SourceLimits(answer_seconds=1.0)
    )
    found = topic.outcome()
    assert found.error is not None
    assert (found.error.code, found.error.fatal) == ("SOURCE_UNREACHABLE", False)
    assert "127.0.0.1:1" in found.error.message


@pytest.mark.parametrize(("password", "code"), [("right", None), ("wrong", "SOURCE_REFUSED")])
def test_credentials_are_those_of_a_connection(
    password: str, code: str | None, kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "bootstrap.servers": kafka.sasl_address, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.username": "gddl", "sasl.password": password,
    }  # fmt: skip
    connection = json.dumps({"conn_type": "kafka", "extra": json.dumps(settings)})
    monkeypatch.setenv("AIRFLOW_CONN_GDDL_SOURCE_KAFKA", connection)
    topic = Topic(kafka, tmp_path, limits=SourceLimits(answer_seconds=5.0)).create()
    topic.send(inserts([1, 2]))
    topic.options = {"kafka_connection": "GDDL_SOURCE_KAFKA", "bootstrap_servers": "127.0.0.1:1"}
    found = topic.outcome()
    assert (found.error and found.error.code) == code, found.error
    assert found.error is None or password not in found.error.message


def test_connection_that_is_not_lent_is_refused(kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_SECRET", json.dumps({"sasl.password": "x"}))
    assert _code(Topic(kafka, tmp_path, options={"kafka_connection": "OTHER_SECRET"})) == "SOURCE_CONNECTION_REFUSED"


def test_setting_that_the_client_does_not_know_is_named(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GDDL_SOURCE_KAFKA", json.dumps({"sasl.mechanism": "PLAIN", "sasl.pasword": "hush"}))
    found = Topic(kafka, tmp_path, options={"kafka_connection": "GDDL_SOURCE_KAFKA"}).outcome()
    assert found.error is not None
    assert found.error.code == "SOURCE_REFUSED"
    assert "sasl.pasword" in found.error.message
    assert "hush" not in found.error.message


def test_files_are_in_folders_of_time(kafka: Broker, tmp_path: Path) -> None:
    topic = Topic(kafka, tmp_path, options={"path_format": "'year'=YYYY/'month'=MM"}).create()
    topic.send(inserts([1]))
    topic.run()
    (name,) = topic.files()
    assert name.startswith("year=20")
    assert name.count("/") == 2
    assert ids(topic) == [1]


def test_times_that_can_not_be_stop_nothing(kafka: Broker, tmp_path: Path) -> None:
    topic = Topic(kafka, tmp_path, options={"path_format": "'year'=YYYY"}).create()
    producer = Producer({"bootstrap.servers": kafka.address})
    later = datetime.now(UTC) + timedelta(days=2)
    for number, moment in enumerate((1_706_700_000_000_000, int(later.timestamp() * 1000), 1_706_700_000_000)):
        key, value = inserts([number])[0]
        producer.produce(topic.name, json.dumps(value), json.dumps({"id": key}), timestamp=moment)
        producer.flush()
        topic.run()
    assert ids(topic) == [0, 1, 2]
    assert sorted(name.split("/")[0] for name in topic.files()) == ["year=1970", "year=1970", "year=2024"]


def test_flat_event_that_speaks_of_ddl_is_a_change(kafka: Broker, tmp_path: Path) -> None:
    topic = Topic(kafka, tmp_path).create()
    fields = {"__op": "c", "__deleted": "false", "__source_connector": "postgresql", "__source_ts_ms": 1}
    fields |= {"__source_snapshot": "false", "__source_db": "d", "__source_schema": "shop", "__source_table": "t"}
    rows = [{"id": 1, "kind": "ddl", "ddl": None, "source": "x"}, {"id": 2, "kind": "x", "ddl": "DROP", "source": "y"}]
    places = [{"__source_lsn": row["id"], "__source_sequence": f'["{row["id"]}","{row["id"]}"]'} for row in rows]
    topic.send([(row["id"], {**row, **fields, **place}) for row, place in zip(rows, places, strict=True)])
    found = topic.run()
    assert topic.rows() == rows
    assert [one.code for one in found.warnings if one.code == "MESSAGES_IGNORED"] == []


def test_position_without_an_id_takes_that_of_the_topic(kafka: Broker, tmp_path: Path) -> None:
    """Brokers that were upgraded give ids to topics that had none."""
    topic = Topic(kafka, tmp_path).create()
    topic.send(inserts([1]))
    topic.run()
    written = json.loads(topic.position.read_text())
    topic.position.write_text(json.dumps({**written, "topic_id": ""}))
    topic.send(inserts([2]))
    topic.run()
    assert ids(topic) == [1, 2]
    assert json.loads(topic.position.read_text())["topic_id"] == written["topic_id"] != ""


def test_refusal_that_has_passed_is_not_remembered(kafka: Broker, tmp_path: Path) -> None:
    topic = Topic(kafka, tmp_path).create()
    log = kafka_log.KafkaLog({"bootstrap.servers": kafka.address})
    log._note(KafkaError(KafkaError._AUTHENTICATION, "as a broker said while it was started"))
    assert log.fault(KafkaError(KafkaError._TRANSPORT, "gone"), topic.name).code == "SOURCE_REFUSED"
    assert log.state(topic.name) is not None
    assert log.fault(KafkaError(KafkaError._TRANSPORT, "gone"), topic.name).code == "SOURCE_UNREACHABLE"


def test_messages_that_are_no_changes(kafka: Broker, tmp_path: Path) -> None:
    topic = Topic(kafka, tmp_path).create()
    wrong = [b"no JSON", b"[1]", b'{"half":', b'{\n "spread": [\r\n1]}', b'"text"', b"\xff{"]
    ddl = {"source": {}, "ddl": "ALTER TABLE t", "tableChanges": []}
    topic.send([*((7, one) for one in wrong), (7, ddl), (None, ddl), *inserts([1])])
    found = topic.run()
    assert ids(topic) == [1]
    assert found.quarantined == len(wrong)
    assert [one.message[:10] for one in found.warnings if one.code == "MESSAGES_IGNORED"] == ["2 messages"]


def test_deletes_have_the_key_of_their_message(kafka: Broker, tmp_path: Path) -> None:
    topic = Topic(kafka, tmp_path).create()
    topic.send(inserts([1, 2]))
    topic.send([(1, {**event("d", {}, 5000), "before": None}), (1, None)])
    topic.run()
    assert ids(topic) == [2]


def test_check_asks_the_brokers_for_the_topics(kafka: Broker, tmp_path: Path) -> None:
    there, missing = Topic(kafka, tmp_path).create(), Topic(kafka, tmp_path)
    assert probe_topics([there.spec, missing.spec], {}) == f"1 topic found; none yet: {missing.name}"
    with pytest.raises(RetriableError, match="SOURCE_UNREACHABLE"):
        probe_topics([Topic(kafka, tmp_path, options={"bootstrap_servers": "127.0.0.1:1"}).spec], {}, seconds=1.0)
    missing.options = {"kafka_connection": "GDDL_SOURCE_KAFKA"}
    with pytest.raises(FatalError, match="SOURCE_REFUSED") as refused:
        probe_topics([missing.spec], {"GDDL_SOURCE_KAFKA": json.dumps({"sasl.pasword": "hush"})})
    assert "hush" not in str(refused.value)


def test_continuous_job_follows_topics(kafka: Broker, tmp_path: Path) -> None:
    topics = [Topic(kafka, tmp_path, 2).create() for _ in range(2)]
    specs = [replace(one.spec, table=f"shop.t{n}", trigger="1s") for n, one in enumerate(topics)]
    lake = topics[0].lake
    job = replace(lake.job(specs, JobOptions(continuous=Continuous())), run_id="goes on")
    runtime = Runtime(storage=Storage(), spark=SparkLeftOut(), environ=os.environ)
    sources = [lived(n, 60) for n in (21, 22)]
    with BackgroundJob(job, runtime) as background:
        for at in range(0, 200, 20):
            for one, source in zip(topics, sources, strict=True):
                one.send(source.records[at : at + 20])
        last = [rows_of(source) for source in sources]
        background.until(lambda: all(map(_reads, topics, specs, last)))


def _reads(topic: Topic, spec: Any, rows: list[dict[str, Any]]) -> bool:
    try:
        return topic.rows(spec) == rows
    except Exception:  # noqa: BLE001 - the table is not there yet
        return False


def test_names_of_tables_become_names_of_topics() -> None:
    def topic(table: str, template: str) -> str:
        return topic_of(
            TableSpec(table=table, keys=("id",), source="crm", dialect="debezium", options={"topic": template})
        )

    assert topic("shop.orders", "crm.{schema}.{table}") == "crm.shop.orders"
    assert topic("shop.order$ lines", "{source}.{schema}.{table}") == "crm.shop.order__lines"
    assert topic("shop.orders", "../{nonsense}") == "..__nonsense_", "of a row that no check has seen"


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"topic": "a.{nonsense}"}, "topic"),
        ({"topic": "a topic"}, "topic"),
        ({"topic": ".."}, "topic"),
        ({"bootstrap_servers": None}, "topic"),
        ({"bootstrap_servers": "user:hush@host:9092"}, "bootstrap_servers"),
        ({"schema_registry": "http://user:hush@host:8081"}, "schema_registry"),
        ({"kafka_connection": '{"sasl.password": "hush"}'}, "kafka_connection"),
    ],
)
def test_bad_rows_are_refused(options: dict[str, Any], path: str, tmp_path: Path) -> None:
    spec = Topic(Broker(tmp_path), tmp_path, options=options).spec
    assert [one.path for one in check_table(spec)] == [("options", path)]
    assert "hush" not in str(list(check_table(spec)))
