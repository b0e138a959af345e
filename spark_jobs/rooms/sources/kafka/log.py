"""Reads topics of Kafka by offsets, without a consumer group: what a partition holds, and its messages in order.

Transactions that were aborted are left out, and one that is open ends what can be read (`read_committed`). Schemas of
messages come from a registry with the API of Confluent's.
"""

from __future__ import annotations

import base64
import functools
import http.client
import importlib
import json
import logging
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from airflow_gddl.contract.codes import SOURCE_LOG_LOST, SOURCE_REFUSED, SOURCE_UNREACHABLE, TOPIC_UNREADABLE
from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.packages import needed_by
from airflow_gddl.contract.sources.kafka import REGISTRY, REGISTRY_USER, SERVERS, client_settings
from spark_jobs.plan.batching import SourceLimits
from spark_jobs.rooms.dialects.debezium.topic_files import Message, RegisteredSchema

_QUIET = logging.getLogger(f"{__name__}.client")
"""The client's own log: each attempt to connect that fails. What is wrong is in our errors."""
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False
_SILENT_SECONDS = 60.0
_AT_ONCE = 1000
_DEFAULTS = {
    "group.id": "airflow-gddl",  # needed, and not used: nothing is committed
    "enable.auto.commit": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": "50",
    "queued.max.messages.kbytes": "32768",
    "client.id": "airflow-gddl",
}
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
_REFUSED = (
    "_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED", "TOPIC_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TopicState:
    """What a topic holds now.

    Attributes:
        id: of this topic, which one of the same name that is made later does not have; empty: the brokers give none.
        first, end: of each partition, from number 0 on, the offset of its oldest message, and the one behind its newest
            that can be read.
    """

    id: str
    first: tuple[int, ...]
    end: tuple[int, ...]


class KafkaLog:
    """A cluster, by the settings of its client; connections are kept until it is closed."""

    def __init__(self, settings: Mapping[str, str], answer_seconds: float = SourceLimits.answer_seconds) -> None:
        given = client_settings(settings)
        self.servers = given.get(SERVERS, "")
        self._settings = {**_DEFAULTS, **given}
        self._answer_seconds = answer_seconds
        self._said: Any = None

    @cached_property
    def _kafka(self) -> Any:
        with needed_by("a job that reads topics", install="airflow-gddl[kafka]"):
            importlib.import_module("confluent_kafka.admin")
            return importlib.import_module("confluent_kafka")

    @cached_property
    def _admin(self) -> Any:
        names = ("group.id", "enable.auto.commit", "enable.partition.eof", "auto.offset.reset", "isolation.level",
                 "fetch.wait.max.ms", "queued.max.messages.kbytes")  # fmt: skip
        return self._client(self._kafka.admin.AdminClient, {n: v for n, v in self._settings.items() if n not in names})

    @cached_property
    def _consumer(self) -> Any:
        return self._client(self._kafka.Consumer, self._settings)

    def _client(self, kind: Any, settings: Mapping[str, str]) -> Any:
        try:
            return kind({**settings, "error_cb": self._note}, logger=_QUIET)
        except (self._kafka.KafkaException, TypeError, ValueError) as error:
            what = f"Kafka's client refuses its settings: {_words(error)}"
            remedy = "correct the settings of kafka_connection; see the list of librdkafka"
            raise FatalError(SOURCE_REFUSED, what, where=self.servers, remedy=remedy) from None  # may show a secret

    def _note(self, error: Any) -> None:
        if self._said is None or error.name() in _REFUSED:
            self._said = error

    def close(self) -> None:
        if "_consumer" in self.__dict__:
            self._consumer.close()

    def state(self, topic: str) -> TopicState | None:
        """Null: there is no such topic.

        Raises:
            GddlError: `SOURCE_UNREACHABLE`, `SOURCE_REFUSED`, `PACKAGE_MISSING`.
        """
        described = self._described(topic)
        if described is None:
            return None
        count = {topic: len(described.partitions)}
        first = self._offsets(count, self._kafka.admin.OffsetSpec.earliest())[topic]
        id_ = str(described.topic_id)
        return TopicState(id="" if id_ == _NO_ID else id_, first=first, end=self.ends(count)[topic])

    def ends(self, partitions: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """`TopicState.end` of several topics, by how many partitions they have."""
        return self._offsets(partitions, self._kafka.admin.OffsetSpec.latest())

    def partitions(self, topic: str) -> int:
        """How many it has; 0: there is no such topic."""
        described = self._described(topic)
        return 0 if described is None else len(described.partitions)

    def _described(self, topic: str) -> Any:
        topics = self._kafka.TopicCollection([topic])
        try:
            return self._answer(self._admin.describe_topics(topics, request_timeout=self._answer_seconds)[topic], topic)
        except self._kafka.KafkaException as error:
            if error.args[0].name() == "UNKNOWN_TOPIC_OR_PART":
                return None
            raise self.fault(error.args[0], topic) from error

    def _offsets(self, partitions: Mapping[str, int], spec: Any) -> dict[str, tuple[int, ...]]:
        requested = {
            self._kafka.TopicPartition(topic, n): spec for topic, count in partitions.items() for n in range(count)
        }
        if not requested:
            return dict.fromkeys(partitions, ())
        level, topics = self._kafka.IsolationLevel.READ_COMMITTED, ", ".join(list(partitions)[:5])
        try:
            futures = self._admin.list_offsets(requested, isolation_level=level, request_timeout=self._answer_seconds)
            results = {(part.topic, part.partition): self._answer(one, topics) for part, one in futures.items()}
        except self._kafka.KafkaException as error:
            raise self.fault(error.args[0], topics) from error
        return {topic: tuple(results[topic, n].offset for n in range(count)) for topic, count in partitions.items()}

    def _answer(self, future: Any, topic: str) -> Any:
        """The result; a refused connection is known before its time is over."""
        while True:
            try:
                answer = future.result(0.2)
            except TimeoutError:
                self._admin.poll(0)
                if self._said is not None and self._said.name() in _REFUSED:
                    raise self.fault(self._said, topic) from None
            else:
                self._said = None  # whatever it was, it has passed
                return answer

    def fault(self, error: Any, topic: str) -> GddlError:
        """The error of a client's, with why it can't connect, where that is known."""
        self._admin.poll(0)
        said = error if error.name() in _REFUSED else self._said or error
        if said.name() not in _REFUSED:
            return self._unreachable(topic, said.str())
        what = f"the topic {topic} can't be read: {said.str()}"
        remedy = "correct kafka_connection, or the rights of its user: DESCRIBE and READ on the topic"
        return FatalError(SOURCE_REFUSED, what, where=self.servers, remedy=remedy)

    def _unreachable(self, topic: str, why: str) -> RetriableError:
        what = f"the topic {topic} can't be read: {why}"
        remedy = "check bootstrap_servers, that the brokers run, and the network; then try again"
        return RetriableError(SOURCE_UNREACHABLE, what, where=self.servers, remedy=remedy)

    def messages(self, topic: str, partition: int, start: int, end: int) -> Iterator[Message]:
        """Those from `start` on, before `end`; offsets may be missing.

        Raises:
            GddlError: as `state`; `SOURCE_LOG_LOST`: Kafka has removed some of them meanwhile.
        """
        consumer, since, at = self._consumer, time.monotonic(), start
        consumer.assign([self._kafka.TopicPartition(topic, partition, start)])
        try:
            while at < end:
                first = consumer.poll(1.0)  # `consume` waits for as many as it is asked for
                batch = [] if first is None else [first, *consumer.consume(_AT_ONCE, timeout=0)]
                since = time.monotonic() if batch else since
                for one in batch:
                    if (one.topic(), one.partition()) not in ((topic, partition), (None, -1)):
                        continue  # of what was assigned before
                    if (error := one.error()) is not None:
                        at = self._after(error, one, topic, at)
                    elif at <= one.offset() < end:
                        at = one.offset() + 1
                        yield Message(one.offset(), one.timestamp()[1], one.key(), one.value())
                    elif one.offset() >= end:
                        return
                if time.monotonic() - since > _SILENT_SECONDS:
                    raise self._unreachable(topic, f"no message came for {_SILENT_SECONDS:.0f} s")
        finally:
            consumer.unassign()

    def _after(self, error: Any, message: Any, topic: str, at: int) -> int:
        """Where to read on after what is no message: the end of the partition, or an error that passes."""
        if error.name() == "_PARTITION_EOF":
            return max(at, int(message.offset()))
        if error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
            what = f"Kafka has removed messages of {topic} from offset {at} on while they were read"
            raise FatalError(SOURCE_LOG_LOST, what, where=self.servers, remedy="run again, which says what to do")
        if error.fatal() or error.name() in (
            *_REFUSED,
            "UNKNOWN_TOPIC_OR_PART",
            "_UNKNOWN_TOPIC",
            "_UNKNOWN_PARTITION",
        ):
            raise self.fault(error, topic)
        self._note(error)
        return at


def _words(error: Exception) -> str:
    """What the client says of a setting, without its value."""
    text = error.args[0].str() if hasattr(error.args[0], "str") else str(error)
    return text.partition(" value ")[0][:200]


_KEPT = threading.local()


def kafka_log(settings: Mapping[str, str], answer_seconds: float = SourceLimits.answer_seconds) -> KafkaLog:
    """The cluster of these settings: a thread keeps its connections from one table, or one turn, to the next."""
    known: tuple[object, KafkaLog] | None = getattr(_KEPT, "log", None)
    wanted = (dict(settings), answer_seconds)
    if known is None or known[0] != wanted:
        if known is not None:
            known[1].close()
        known = _KEPT.log = (wanted, KafkaLog(settings, answer_seconds))
    return known[1]


_REGISTRY_SECONDS, _MOST_SCHEMAS = 15.0, 10_000


@dataclass(frozen=True)
class SchemaRegistry:
    """A registry of schemas.

    Attributes:
        url: without a slash at its end.
        user: `name:password`; empty: none.
    """

    url: str
    user: str = ""

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> SchemaRegistry | None:
        """Null: no registry is named."""
        url = settings.get(REGISTRY, "").rstrip("/")
        return cls(url, settings.get(REGISTRY_USER, "")) if url else None

    @functools.lru_cache(maxsize=_MOST_SCHEMAS)  # noqa: B019 - registries are few, and small
    def schema(self, number: int) -> RegisteredSchema:
        """
        Raises:
            RetriableError: `SOURCE_UNREACHABLE`.
            FatalError: `SOURCE_REFUSED`; `TOPIC_UNREADABLE`: no such schema, or one that refers to others.
        """
        answer = self.fetch(number)
        kind = str(answer.get("schemaType") or "AVRO")
        if answer.get("references"):
            what = f"schema {number} refers to others, which is not supported"
            remedy = "let a sink connector write the files"
            raise FatalError(TOPIC_UNREADABLE, what, where=self.url, remedy=remedy)
        return RegisteredSchema(kind, json.loads(answer["schema"]) if kind == "AVRO" else None)

    def fetch(self, number: int) -> Mapping[str, Any]:
        """What the registry answers; raises as `schema`."""
        request = urllib.request.Request(f"{self.url}/schemas/ids/{number}")  # noqa: S310 - http(s), as rows are checked
        if self.user:
            request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(self.user.encode()).decode()}")
        try:
            with urllib.request.urlopen(request, timeout=_REGISTRY_SECONDS) as answer:  # noqa: S310 - as above
                document = json.load(answer)
        except urllib.error.HTTPError as error:
            raise self._refused(error.code, number) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise self._unreachable(str(error)) from error
        if not isinstance(document, dict) or not isinstance(document.get("schema"), str):
            raise self._unreachable("its answer has no schema")
        return document

    def _refused(self, status: int, number: int) -> FatalError | RetriableError:
        if status in (401, 403):
            what, remedy = f"the schema registry answers {status}", f"set {REGISTRY_USER} in kafka_connection"
            return FatalError(SOURCE_REFUSED, what, where=self.url, remedy=remedy)
        if status == 404:
            what = f"the schema registry has no schema {number}, which a message names"
            remedy = "name the registry that the connector writes to in schema_registry"
            return FatalError(TOPIC_UNREADABLE, what, where=self.url, remedy=remedy)
        return self._unreachable(f"status {status}")

    def _unreachable(self, why: str) -> RetriableError:
        what, remedy = (
            f"the schema registry does not answer: {why}",
            "check schema_registry and the network; then try again",
        )
        return RetriableError(SOURCE_UNREACHABLE, what, where=self.url, remedy=remedy)
