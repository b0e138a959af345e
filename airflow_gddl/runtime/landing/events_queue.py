"""The queue that reports new files."""

from __future__ import annotations

import functools
import json
import logging
import os
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote_plus

from airflow_gddl.contract.codes import PACKAGE_MISSING, QUEUE_UNREACHABLE
from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.layout import STATE, LandingFolder, join
from airflow_gddl.contract.packages import needed_by
from airflow_gddl.contract.spec import Roots
from airflow_gddl.runtime.landing.polling import Poll, poll_folders
from airflow_gddl.stores import Storage, open_store

_LOG = logging.getLogger(__name__)


def objects_of(body: str) -> tuple[str, ...] | None:
    """`s3://bucket/key` of each object that was created, changed or removed; none for S3's test message.

    Accepts S3 records, S3 records wrapped by SNS, and EventBridge events. None for a message that is not an event: it
    stays in the queue, whose redrive policy moves it to the dead-letter queue.
    """
    try:
        return tuple(_objects(json.loads(body)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = "a queue message is not an event: %s: %s; the message: %r"
        _LOG.warning(what, type(error).__name__, error, body[:200])
        return None


def _objects(message: Any) -> Iterator[str]:
    if message.get("Type") == "Notification":
        yield from _objects(json.loads(message["Message"]))
    elif message.get("source") == "aws.s3":
        detail = message["detail"]
        yield _url(detail["bucket"]["name"], detail["object"]["key"])
    elif message.get("Event") != "s3:TestEvent":
        for record in message["Records"]:
            # A space comes as `+` here, unlike in EventBridge's form.
            yield _url(record["s3"]["bucket"]["name"], unquote_plus(record["s3"]["object"]["key"]))


def _url(bucket: str, key: str) -> str:
    if not (isinstance(bucket, str) and bucket and isinstance(key, str) and key):
        raise ValueError("bucket or key is empty or not a string")
    return f"s3://{bucket}/{key}"


def places_with_news(objects: Iterable[str], landing: str) -> set[str]:
    """Locations of new objects: `schema.name` of the folder below the common landing root; otherwise, or for deeper
    folders, the URL of the object's folder, which the reader maps to a source's root.
    """
    root, places = join(landing, ""), set()
    for url in objects:
        below = url.removeprefix(root).split("/") if url.startswith(root) else []
        if len(below) > 2:
            places.add(f"{below[0]}.{below[1]}")
        if len(below) != 3:
            places.add(url.rpartition("/")[0])
    return places


def has_news(folder: LandingFolder, landing: str, places: Collection[str]) -> bool:
    """Whether one of these locations, see `places_with_news`, is in a table's folder."""
    if folder.root == landing:
        return folder.table in places
    below = join(folder.path, "")
    return folder.path in places or any(place.startswith(below) for place in places)


OVERLAP = timedelta(minutes=10)
"""Assumed clock skew between machines."""


def folder(lake: str) -> str:
    return join(lake, STATE, "airflow", "notified")


def publish(store: Storage, lake: str, places: Collection[str], now: datetime) -> None:
    """Store which folders have new files, for the polls of all pipelines.

    Raises:
        RetriableError: `STORAGE_BUSY`.
    """
    name = f"{_stamp(now)}-{uuid.uuid4().hex[:8]}.json"
    store.write(join(folder(lake), name), json.dumps(sorted(places)).encode())


def names_since(store: Storage, lake: str, moment: datetime) -> list[str]:
    """Names of the objects written since this moment, minus the clock skew."""
    return sorted(item.name for item in store.list(folder(lake), _stamp(moment - OVERLAP)))


def places_in(store: Storage, lake: str, names: Collection[str]) -> set[str]:
    """Their content; objects removed in the meantime are skipped."""
    places: set[str] = set()
    for name in names:
        try:
            places.update(json.loads(store.read(join(folder(lake), name))))
        except FileNotFoundError:
            continue
    return places


def remove_before(store: Storage, lake: str, moment: datetime) -> None:
    """Remove objects that every pipeline has read, or covers by a full listing."""
    last = _stamp(moment - OVERLAP)
    old = (item for item in store.list(folder(lake)) if item.name < last and not item.is_unfinished)
    store.delete(*(item.path for item in old))


def _stamp(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y%m%dT%H%M%S.%f}"


_AT_ONCE = 10


@dataclass(frozen=True)
class Message:
    """`receipt` is what deletes it."""

    body: str
    receipt: str


class SqsQueue:
    """Amazon SQS: delivers messages at least once, unordered, and again until they are deleted.

    Args:
        url: of the queue.
        environ: credentials and region (`AWS_…`); boto3's defaults apply to missing values.

    Raises (every method):
        RetriableError: `QUEUE_UNREACHABLE`.
        FatalError: `PACKAGE_MISSING`.
    """

    def __init__(self, url: str, environ: Mapping[str, str] = os.environ) -> None:
        self._url, self._environ = url, environ

    def receive(self) -> tuple[Message, ...]:
        """Some of the waiting messages; empty when there are none.

        A wait of one second is long polling, which queries all SQS servers.
        """
        answer = self._ask("receive_message", MaxNumberOfMessages=_AT_ONCE, WaitTimeSeconds=1)
        return tuple(Message(message["Body"], message["ReceiptHandle"]) for message in answer.get("Messages", ()))

    def delete(self, messages: Collection[Message]) -> None:
        """Delete messages; one that is not deleted is delivered again, which is harmless."""
        waiting = list(messages)
        for start in range(0, len(waiting), _AT_ONCE):
            entries = [
                {"Id": str(number), "ReceiptHandle": message.receipt}
                for number, message in enumerate(waiting[start : start + _AT_ONCE])
            ]
            self._ask("delete_message_batch", Entries=entries)

    def _ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        with needed_by("the queue of [gddl] events_queue", install="airflow-gddl[events]"):
            from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - only where a queue is configured
        try:
            answer: dict[str, Any] = getattr(self._client(), operation)(QueueUrl=self._url, **arguments)
        except (BotoCoreError, ClientError) as error:
            remedy = "check [gddl] events_queue, its region, and the role's right to receive and delete its messages"
            raise RetriableError(QUEUE_UNREACHABLE, str(error)[:300], where=self._url, remedy=remedy) from error
        return answer

    def _client(self) -> Any:
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        key, secret, token = (self._environ.get(name) for name in names)
        region = _region(self._url) or self._environ.get("AWS_REGION") or self._environ.get("AWS_DEFAULT_REGION")
        return _client(key, secret, token, region)


@functools.lru_cache(maxsize=8)
def _client(key: str | None, secret: str | None, token: str | None, region: str | None) -> Any:
    """One client for each set of credentials in a process."""
    import boto3  # noqa: PLC0415 - only where a queue is configured
    from botocore.config import Config  # noqa: PLC0415 - imported when needed

    limits = Config(connect_timeout=5, read_timeout=15, retries={"max_attempts": 3, "mode": "standard"})
    # A separate session: boto3's default session is not thread-safe, and the triggerer uses threads.
    session = boto3.session.Session(key, secret, token)
    return session.client("sqs", region_name=region, config=limits)


def _region(url: str) -> str | None:
    """Region in the queue's URL (`https://sqs.eu-west-1.amazonaws.com/…`); None: from the environment."""
    host = url.partition("://")[2].partition("/")[0].split(".")
    return host[1] if len(host) > 3 and host[0] == "sqs" and "amazonaws" in host else None


_DRAIN_SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class QueuePollState:
    """Last poll of a pipeline's tables, for the next one.

    Attributes:
        listed_at: ISO 8601 UTC, before the last listing of all tables.
        looked_at: ISO 8601 UTC, before the last poll.
        read: names of objects already read, as long as they may be listed again.
    """

    listed_at: str
    looked_at: str
    read: tuple[str, ...] = ()
    looks: Mapping[str, Poll] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Following:
    """Source of notifications.

    Attributes:
        full_listing_seconds: all tables are listed after this time, since events may be lost.
        environ: says how S3 is reached.
        sleep: takes seconds; waits for other pipelines that are draining the queue to store their messages.
        publish_seconds: how long a pipeline receives messages before it stores them, and waits for others that do.
    """

    queue: SqsQueue
    full_listing_seconds: float = 3600.0
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], None] = time.sleep
    publish_seconds: float = 1.0

    def poll(self, roots: Roots, folders: Mapping[str, LandingFolder], known: QueuePollState | None) -> QueuePollState:
        """Poll each table, most of them from memory. If the queue can't be read, all tables are listed.

        Args:
            folders: by table, where it lands.
            known: the poll before, or an earlier one; None: there was none.

        Raises:
            RetriableError: `STORAGE_BUSY`.
        """
        wanted, lake, now = sorted(folders), open_store(self.environ), self.clock()
        drained = self._drain(roots)
        fresh_until = now - timedelta(seconds=self.full_listing_seconds)
        full = known is None or not drained or datetime.fromisoformat(known.listed_at) < fresh_until
        since = now if known is None or full else datetime.fromisoformat(known.looked_at)
        names = names_since(lake, roots.lake, since)
        stamp = now.isoformat(timespec="microseconds")
        if known is None or full:
            known = QueuePollState(listed_at=stamp, looked_at=stamp)
            remove_before(lake, roots.lake, fresh_until)
            changed = set(folders)
        else:
            places = places_in(lake, roots.lake, set(names) - set(known.read))
            changed = {table for table, folder in folders.items() if has_news(folder, roots.landing, places)}
        stale = {table: folders[table] for table in wanted if table in changed or table not in known.looks}
        looks = {**known.looks, **{table: files.poll() for table, files in poll_folders(lake, stale, {}).items()}}
        return replace(known, looked_at=stamp, read=tuple(names), looks={table: looks[table] for table in wanted})

    def _drain(self, roots: Roots) -> bool:
        """Whether all queued messages are stored, by this pipeline or by others."""
        end = time.monotonic() + _DRAIN_SECONDS
        try:
            while self._take(roots):
                if time.monotonic() > end:
                    _LOG.warning("the queue could not be drained within %.0f s: listing all tables", _DRAIN_SECONDS)
                    return False
        except GddlError as error:
            if not isinstance(error, RetriableError) and error.code != PACKAGE_MISSING:
                raise
            _LOG.warning("listing all tables, since the queue of events can't be read: %s", error)
            return False
        self.sleep(self.publish_seconds)
        return True

    def _take(self, roots: Roots) -> bool:
        """Receive messages for up to a second, store and then delete them; false when there were none."""
        messages: list[Message] = []
        end = time.monotonic() + self.publish_seconds
        while time.monotonic() < end:
            some = self.queue.receive()
            messages += some
            if not some:
                break
        good = {message: objects for message in messages if (objects := objects_of(message.body)) is not None}
        places = places_with_news((url for objects in good.values() for url in objects), roots.landing)
        if places:
            publish(open_store(self.environ), roots.lake, places, self.clock())
        self.queue.delete(good)
        return bool(good)
