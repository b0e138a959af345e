"""New files announced by a queue rather than found by listing."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote_plus

import boto3
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from moto import mock_aws

from airflow_gddl import configuration
from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.layout import LandingFolder
from airflow_gddl.contract.spec import Roots
from airflow_gddl.runtime.landing import events_queue
from airflow_gddl.runtime.landing.events_queue import (
    Following,
    Message,
    QueuePollState,
    SqsQueue,
    has_news,
    objects_of,
    places_with_news,
)
from airflow_gddl.runtime.landing.polling import Poll, poll
from airflow_gddl.stores import open_store
from airflow_gddl.triggers import GddlTablesTrigger
from tests.airflow.stage import Stage
from tests.airflow.test_triggers import PACK, fired
from tests.harness.examples import at_random
from tests.harness.s3_server import Bucket

ROOTS = Roots(landing="s3://bucket/landing", lake="s3://bucket/lake")
TABLES = ["shop.a", "shop.b", "crm.c"]


def record(*keys: str, bucket: str = "bucket", event: str = "ObjectCreated:Put") -> str:
    """As S3 writes it."""
    return json.dumps(
        {
            "Records": [
                {"eventName": event, "s3": {"bucket": {"name": bucket}, "object": {"key": quote_plus(key)}}}
                for key in keys
            ]
        }
    )


# Messages


def test_s3_s_own_form_with_its_encoding() -> None:
    assert objects_of(record("landing/shop/a b/ü+1.parquet")) == ("s3://bucket/landing/shop/a b/ü+1.parquet",)


def test_sns_wraps_it() -> None:
    assert objects_of(json.dumps({"Type": "Notification", "Message": record("k")})) == ("s3://bucket/k",)


def test_event_bridge_does_not_encode() -> None:
    detail = {"bucket": {"name": "bucket"}, "object": {"key": "landing/shop/a+b/x.parquet"}}
    body = json.dumps({"source": "aws.s3", "detail-type": "Object Created", "detail": detail})
    assert objects_of(body) == ("s3://bucket/landing/shop/a+b/x.parquet",)


def test_s3_s_test_message_is_none() -> None:
    assert objects_of('{"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "bucket"}') == ()


@pytest.mark.parametrize(
    "body", ["", "x", "[]", "{}", "1", '{"Records": [1]}', '{"Records": [{"s3": {}}]}', record(""), record(bucket="")]
)
def test_unknown_messages_are_refused(body: str) -> None:
    if body == record(bucket=""):
        body = record("k", bucket="")
    assert objects_of(body) is None


def test_only_objects_in_landing_folders_belong_to_tables() -> None:
    keys = (
        "landing/shop/a/x.parquet",
        "landing/crm/c/2024/01/y.parquet",
        "landing/shop/loose",
        "landing2/shop/b/z",
        "",
    )
    assert places_with_news((f"s3://bucket/{key}" for key in keys), ROOTS.landing) == {
        "shop.a",
        "crm.c",
        *(f"s3://bucket{folder}" for folder in ("/landing/crm/c/2024/01", "/landing/shop", "/landing2/shop/b", "")),
    }


def test_events_of_a_source_s_root_reach_its_tables() -> None:
    crm, nested = LandingFolder("s3://crm/dms", "public.orders"), LandingFolder("s3://bucket/landing/erp", "a.b")
    shop = LandingFolder(ROOTS.landing, "public.orders")
    for url, expected in (
        ("s3://crm/dms/public/orders/x.parquet", {crm}),
        ("s3://crm/dms/public/orders/2024/01/x.parquet", {crm}),
        ("s3://crm/dms/public/orders2/x.parquet", set()),
        ("s3://bucket/landing/erp/a/b/x.parquet", {nested}),
        ("s3://bucket/landing/public/orders/x.parquet", {shop}),
        ("s3://bucket/landing/public/orders/2024/x.parquet", {shop}),
    ):
        places = places_with_news([url], ROOTS.landing)
        assert {folder for folder in (crm, nested, shop) if has_news(folder, ROOTS.landing, places)} == expected, url


# Following


@dataclass
class Waiting:
    """A queue in memory; what is not deleted comes again."""

    bodies: list[str] = field(default_factory=list)
    broken: GddlError | None = None
    asked: int = 0

    def receive(self) -> tuple[Message, ...]:
        self.asked += 1
        if self.broken is not None:
            raise self.broken
        # Enough of them come at once that one which stays can't hide the others.
        return tuple(Message(body, body) for body in self.bodies)

    def delete(self, messages: Collection[Message]) -> None:
        for message in messages:
            self.bodies.remove(message.body)


@dataclass
class Watch:
    now: datetime = datetime(2024, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


@pytest.fixture
def queue() -> Waiting:
    return Waiting()


@dataclass
class Pipelines:
    """Polls of pipelines, each from what its last one left."""

    following: Following
    known: dict[str, QueuePollState] = field(default_factory=dict)

    def poll(self, pipeline: str, folders: Mapping[str, LandingFolder]) -> Mapping[str, Poll]:
        self.known[pipeline] = self.following.poll(ROOTS, folders, self.known.get(pipeline))
        return self.known[pipeline].looks


def following(queue: Waiting, clock: Watch, hours: float = 1) -> Pipelines:
    source = Following(
        queue=queue, full_listing_seconds=hours * 3600, clock=clock, sleep=lambda _: None, publish_seconds=0.0005
    )
    return Pipelines(source)


def land(bucket: Bucket, table: str, name: str) -> str:
    key = f"landing/{table.replace('.', '/')}/{name}.parquet"
    bucket.objects[key] = name.encode()
    return key


def folders(*tables: str) -> dict[str, LandingFolder]:
    return {table: LandingFolder(ROOTS.landing, table) for table in tables}


def listings(bucket: Bucket) -> int:
    return sum(request == "GET " for request in bucket.requests)


def test_only_folders_with_news_are_listed(bucket: Bucket, queue: Waiting) -> None:
    clock = Watch()
    follow = following(queue, clock)
    land(bucket, "shop.a", "1")
    before = follow.poll("one", folders(*TABLES))
    assert {table: found.files for table, found in before.items()} == {"shop.a": 1, "shop.b": 0, "crm.c": 0}
    queue.bodies.append(record(land(bucket, "shop.b", "2")))
    land(bucket, "crm.c", "nobody told")
    after = follow.poll("one", folders(*TABLES))
    assert after["shop.b"].files == 1
    assert after["shop.a"] == before["shop.a"]
    assert after["crm.c"].files == 0
    clock.now += timedelta(hours=2)
    assert follow.poll("one", folders(*TABLES))["crm.c"].files == 1


def test_without_news_one_small_listing_serves_all(bucket: Bucket, queue: Waiting) -> None:
    follow = following(queue, Watch())
    follow.poll("one", folders(*(f"schema{n}.t" for n in range(50))))
    bucket.requests.clear()
    follow.poll("one", folders(*(f"schema{n}.t" for n in range(50))))
    assert listings(bucket) == 1


def test_any_pipeline_drains_the_queue_for_all(bucket: Bucket, queue: Waiting) -> None:
    follow = following(queue, Watch())
    for dag in ("one", "two"):
        follow.poll(dag, folders(*TABLES))
    queue.bodies.append(record(land(bucket, "shop.a", "1")))
    assert follow.poll("one", folders(*TABLES))["shop.a"].files == 1
    assert queue.bodies == []
    assert follow.poll("two", folders(*TABLES))["shop.a"].files == 1


def test_a_table_that_is_new_is_listed(bucket: Bucket, queue: Waiting) -> None:
    follow = following(queue, Watch())
    land(bucket, "shop.b", "1")
    follow.poll("one", folders("shop.a"))
    assert follow.poll("one", folders("shop.a", "shop.b"))["shop.b"].files == 1


@pytest.mark.parametrize(
    "error", [RetriableError("QUEUE_UNREACHABLE", "told to"), FatalError("PACKAGE_MISSING", "no boto3")]
)
def test_an_unreachable_queue_causes_a_listing(
    bucket: Bucket, queue: Waiting, caplog: pytest.LogCaptureFixture, error: GddlError
) -> None:
    follow = following(queue, Watch())
    follow.poll("one", folders(*TABLES))
    queue.broken = error
    land(bucket, "shop.a", "1")
    with caplog.at_level(logging.WARNING):
        assert follow.poll("one", folders(*TABLES))["shop.a"].files == 1
    assert error.code in caplog.text


def test_a_fault_of_the_lake_is_not_taken_for_one_of_the_queue(bucket: Bucket, queue: Waiting) -> None:
    follow = following(queue, Watch())
    follow.poll("one", folders(*TABLES))
    queue.broken = FatalError("STORAGE_DENIED", "of the store")
    with pytest.raises(FatalError, match="STORAGE_DENIED"):
        follow.poll("one", folders(*TABLES))


def test_an_invalid_message_stays_in_the_queue_and_blocks_no_other(bucket: Bucket, queue: Waiting) -> None:
    follow = following(queue, Watch())
    follow.poll("one", folders(*TABLES))
    queue.bodies += ["<poison>", record(land(bucket, "shop.a", "1"))]
    assert follow.poll("one", folders(*TABLES))["shop.a"].files == 1
    assert queue.bodies == ["<poison>"]


def test_a_lost_poll_causes_a_listing(bucket: Bucket, queue: Waiting) -> None:
    follow = following(queue, Watch())
    follow.poll("one", folders(*TABLES))
    land(bucket, "shop.a", "nobody told")
    follow.known.clear()
    assert follow.poll("one", folders(*TABLES))["shop.a"].files == 1


def test_news_older_than_a_full_listing_are_removed(bucket: Bucket, queue: Waiting) -> None:
    clock = Watch()
    follow = following(queue, clock)
    for day in range(3):
        queue.bodies.append(record(land(bucket, "shop.a", str(day))))
        follow.poll("one", folders(*TABLES))
        clock.now += timedelta(days=1)
    kept = events_queue.names_since(open_store(), ROOTS.lake, datetime(2000, 1, 1, tzinfo=UTC))
    assert [name[:8] for name in kept] == ["20240103"]


def test_a_crash_around_the_deletion_loses_no_message(bucket: Bucket, queue: Waiting) -> None:
    clock = Watch()
    follow = following(queue, clock)
    follow.poll("one", folders(*TABLES))
    body = record(land(bucket, "shop.a", "1"))

    class Dying(Waiting):
        def delete(self, messages: Collection[Message]) -> None:
            raise KeyboardInterrupt(len(messages))

    with pytest.raises(KeyboardInterrupt):
        following(Dying([body]), clock).poll("two", folders(*TABLES))
    assert follow.poll("one", folders(*TABLES))["shop.a"].files == 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("land"), st.sampled_from(TABLES)),
        st.tuples(st.just("poll"), st.sampled_from(["one", "two"])),
        st.tuples(st.just("wait"), st.sampled_from([60, 700, 4000])),
        st.tuples(st.just("again"), st.just("")),
    ),
    max_size=14,
)


@settings(max_examples=at_random(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_every_poll_equals_a_full_listing(bucket: Bucket, queue: Waiting, steps: list[tuple[str, Any]]) -> None:
    """Polls of two pipelines in any order, with messages that come twice."""
    bucket.objects.clear()
    queue.bodies.clear()
    clock = Watch()
    follow = following(queue, clock)
    sent: list[str] = []
    for number, (step, what) in enumerate(steps):
        match step:
            case "land":
                sent.append(record(land(bucket, what, str(number))))
                queue.bodies.append(sent[-1])
            case "again":
                queue.bodies += sent[-1:]
            case "wait":
                clock.now += timedelta(seconds=what)
            case "poll":
                seen = follow.poll(what, folders(*TABLES))
                assert seen == poll(open_store(), ROOTS.landing, TABLES)


# SQS


@pytest.fixture
def sqs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", "https://sqs.eu-west-1.amazonaws.com")
    events_queue._client.cache_clear()
    with mock_aws():
        yield boto3.client("sqs", region_name="eu-west-1")


def test_sqs_gives_and_deletes(sqs: Any) -> None:
    url = sqs.create_queue(QueueName="events")["QueueUrl"]
    for number in range(25):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    queue, seen = SqsQueue(url), list[Message]()
    while some := queue.receive():
        seen += some
    assert sorted(int(message.body) for message in seen) == list(range(25))
    queue.delete(seen)
    left = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert left["ApproximateNumberOfMessages"] == left["ApproximateNumberOfMessagesNotVisible"] == "0"


def test_a_missing_queue_is_named(sqs: Any) -> None:
    url = sqs.create_queue(QueueName="events")["QueueUrl"]
    with pytest.raises(RetriableError, match="QUEUE_UNREACHABLE") as caught:
        SqsQueue(f"{url}-none").receive()
    assert "events_queue" in str(caught.value)


def test_the_trigger_follows_the_queue(sqs: Any, bucket: Bucket, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Airflow's configuration names is what the triggerer reads."""
    url = sqs.create_queue(QueueName="events")["QueueUrl"]
    monkeypatch.setenv("AIRFLOW__GDDL__EVENTS_QUEUE", url)
    stage.write("gddl.yaml", f"landing: {ROOTS.landing}\nlake: {ROOTS.lake}\n")
    stage.rows("{table: shop.a, keys: [id]}", "{table: shop.b, keys: [id]}")
    made = GddlTablesTrigger(
        metadata=str(stage.metadata), pipeline=PACK, run_params="{}", run_id="r", forever=False, poll_seconds=1,
        patience_seconds=0,
    )  # fmt: skip
    fired(made)
    key = land(bucket, "shop.b", "1")
    land(bucket, "shop.a", "nobody told")
    sqs.send_message(QueueUrl=url, MessageBody=record(key))
    assert list(fired(made).payload["initial"]) == ["shop.b"]
    bucket.requests.clear()
    fired(made)
    kept = [request for request in bucket.requests if PACK in request]
    assert kept == [
        f"GET lake/_gddl/state/{PACK}.json",
        f"PUT lake/_gddl/state/{PACK}.json",
    ]
    again = replace(configuration.following(os.environ) or pytest.fail("no queue"), full_listing_seconds=0.0)
    assert again.poll(ROOTS, folders(*TABLES), None).looks["shop.a"].files == 1
