"""Changes that the job itself reads from a topic of Kafka, and writes as change files, without a sink connector.

What is to be read next is stored first, then its files are written if absent, then how far they go. After a kill the
same messages are read again, so that the same files result. See docs/debezium.md and
docs/decisions/sources-and-security.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from airflow_gddl.contract import codec
from airflow_gddl.contract.codes import (
    DELETES_COMPACTED,
    MESSAGES_IGNORED,
    SOURCE_LOG_LOST,
    SOURCE_LOG_REPLACED,
    TOPIC_MISSING,
)
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.file_names import PathFormat
from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.sources.kafka import settings_of, topic_of
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.ledger.claim import Claim
from spark_jobs.ledger.commit_files import read_small
from spark_jobs.rooms.dialects.debezium.topic_files import Message, TopicFile, TopicFiles
from spark_jobs.rooms.sources.kafka.log import KafkaLog, SchemaRegistry, TopicState, kafka_log

_WAIT_SECONDS = 600.0
_POSITION = "position.json"
_AHEAD = timedelta(days=1)
"""By how much the clock of a producer may be ahead of ours."""


@dataclass(frozen=True, kw_only=True)
class TopicPosition:
    """How far a topic was read.

    Attributes:
        topic_id: of the topic that was read; empty: the brokers give none.
        next: of each partition, the offset behind the last message that is in a file, or needs none.
        until: where the group under way ends; the same as `next` when its files are written.
    """

    topic_id: str
    next: tuple[int, ...]
    until: tuple[int, ...] = ()

    @property
    def is_written(self) -> bool:
        return all(at >= end for at, end in zip(self.next, self.until, strict=False))

    def is_of(self, state: TopicState) -> bool:
        """Whether this topic was read; brokers give ids once they are new enough."""
        return not self.topic_id or self.topic_id == state.id

    def ahead(self, state: TopicState) -> Iterator[tuple[int, int, int, int]]:
        """Of each partition its number, where to read on, its oldest offset, and its end."""
        for partition, (first, end) in enumerate(zip(state.first, state.end, strict=True)):
            yield partition, self.next[partition] if partition < len(self.next) else 0, first, end

    def after(self, partition: int, offset: int) -> TopicPosition:
        """Its messages before the offset are written."""
        return replace(self, next=(*self.next[:partition], offset, *self.next[partition + 1 :]))


def capture_topic(run: TableRun, totals: RunTotals) -> None:
    """Write the topic's new messages as files of the table's landing folder.

    Raises:
        FatalError: `SOURCE_LOG_LOST`: Kafka has removed messages that were not read; `SOURCE_LOG_REPLACED`: the topic
            was deleted, or made again; `TOPIC_UNREADABLE`: its messages are of an unknown form; `PACKAGE_MISSING`,
            `SOURCE_REFUSED`, and as `settings_of`.
        RetriableError: `SOURCE_UNREACHABLE`; `TABLE_BUSY`: another job reads the topic for longer than ten minutes.
    """
    reading = _reading(run)
    if not _finds_news(reading, run, totals):
        return
    runtime = run.runtime
    with Claim.acquire(runtime.storage, reading.folder, run.job.run_id, runtime.clock, _WAIT_SECONDS) as claim:
        schema_of = None if reading.registry is None else reading.registry.schema
        captured = _TopicCapture(run, reading, claim, TopicFiles(reading.topic, schema_of))
        captured.carry_out()
    captured.tell(totals)


def has_messages(run: TableRun, totals: RunTotals) -> bool:
    """Whether the topic has messages that were not read; raises as `capture_topic`."""
    return _finds_news(_reading(run), run, totals)


@dataclass(frozen=True)
class _TopicReading:
    """Attributes:
    folder: of the documents that remember how far the topic was read.
    registry: None: none is named.
    """

    topic: str
    log: KafkaLog
    registry: SchemaRegistry | None
    folder: str

    @property
    def document(self) -> str:
        return join(self.folder, _POSITION)

    def position(self, run: TableRun) -> TopicPosition | None:
        """Null: the topic was never read."""
        remedy = "delete it: the topic is read again from its start"
        return read_small(run.runtime.storage, self.document, TopicPosition, remedy)


def _reading(run: TableRun) -> _TopicReading:
    topic, settings = topic_of(run.spec), settings_of(run.spec, run.runtime.environ)
    folder = join(run.job.roots.lake, STATE, "topics", run.spec.source, topic)
    return _TopicReading(
        topic, kafka_log(settings, run.runtime.limits.answer_seconds), SchemaRegistry.of(settings), folder
    )


def _finds_news(reading: _TopicReading, run: TableRun, totals: RunTotals) -> bool:
    """Whether there is something to read, or to complain of."""
    state, known = reading.log.state(reading.topic), reading.position(run)
    if state is None and known is None:
        text = f"there is no topic {reading.topic} yet: a connector makes it with the first change of the table"
        totals.warn([RunWarning(code=TOPIC_MISSING, message=text)])
        return False
    if state is None or known is None or not known.is_written or not known.is_of(state):
        return True
    return any(at != end or first > at for _, at, first, end in known.ahead(state))


def _folder_time(milliseconds: int, now: datetime) -> datetime:
    """Of a message, for its folder: that of 1970 where its producer gives none, or one that can't be.

    A folder of the future would stay the newest, behind which new files are not looked for at once.
    """
    is_known = 0 <= milliseconds <= (now + _AHEAD).timestamp() * 1000
    return datetime.fromtimestamp(milliseconds / 1000 if is_known else 0, UTC)


@dataclass
class _TopicCapture:
    run: TableRun
    reading: _TopicReading
    claim: Claim
    files: TopicFiles
    messages: int = 0

    def carry_out(self) -> None:
        """Read what is left of an interrupted group, then up to where the topic ends now."""
        known = self.reading.position(self.run)  # again: another job may have read on
        state = self.reading.log.state(self.reading.topic)
        if state is None or (known is not None and not known.is_of(state)):
            raise self._replaced("was deleted" if state is None else "was deleted and made again: it has another id")
        follows = known is not None
        if known is None:
            known = TopicPosition(topic_id=state.id, next=state.first)
            self._keep(known)
        self._require_kept(state, known)
        if not known.is_written:
            known = self._written(known, follows=follows)
        self._written(self._planned(state, known), follows=follows)

    def tell(self, totals: RunTotals) -> None:
        """Report what was written, and what was not."""
        topic, warnings = self.reading.topic, []
        if self.files.ignored:
            text = (
                f"{self.files.ignored:,} messages of {self.reading.topic} are changes of a schema, and were not written"
            )
            warnings.append(RunWarning(code=MESSAGES_IGNORED, message=text))
        if self.files.lone:
            text = (
                f"Kafka has compacted {self.files.lone:,} deletes of {topic} before they were read: their rows stay; "
                "set min.compaction.lag.ms of the topic above what jobs lag, and let the connector take a new snapshot"
            )
            warnings.append(RunWarning(code=DELETES_COMPACTED, message=text))
        totals.warn(warnings)
        if self.messages:
            self.run.report("messages of the topic written", rows=self.messages)

    def _require_kept(self, state: TopicState, known: TopicPosition) -> None:
        """Refuse to go on where messages that follow the last one are gone."""
        for partition, at, first, end in known.ahead(state):
            if end < at:
                raise self._replaced(f"ends at offset {end:,} of partition {partition}, before {at:,}, which was read")
            if first > at:
                what = (
                    f"Kafka has removed offsets {at:,} to {first - 1:,} of partition {partition} of "
                    f"{self.reading.topic} before a job read them"
                )
                raise FatalError(SOURCE_LOG_LOST, what, where=self.reading.log.servers, remedy=self._remedy)

    def _replaced(self, how: str) -> FatalError:
        return FatalError(
            SOURCE_LOG_REPLACED,
            f"the topic {self.reading.topic} {how}",
            where=self.reading.log.servers,
            remedy=self._remedy,
        )

    @property
    def _remedy(self) -> str:
        return (
            f"delete {self.reading.document}, so that the topic is read from its start, then let the connector take a "
            "new snapshot of the table: it brings what is missing, and removes rows that were deleted meanwhile"
        )

    def _planned(self, state: TopicState, known: TopicPosition) -> TopicPosition:
        planned = replace(
            known, topic_id=state.id, next=tuple(at for _, at, _, _ in known.ahead(state)), until=state.end
        )
        if not planned.is_written:
            self._keep(planned)
        return planned

    def _written(self, position: TopicPosition, *, follows: bool) -> TopicPosition:
        """Write the group's files."""
        for partition, end in enumerate(position.until):
            for messages, upto in self._in_parts(partition, position.next[partition], end):
                for file in self.files.of(messages, follows=follows):
                    self._write(partition, file, upto)
                self.messages += len(messages)
                position = position.after(partition, upto)
                self._keep(position)
                self.run.go_on()
        return position

    def _in_parts(self, partition: int, start: int, end: int) -> Iterator[tuple[list[Message], int]]:
        """Messages for a file each time, and the offset behind them."""
        messages: list[Message] = []
        size, limits = 0, self.run.runtime.limits
        for message in self.reading.log.messages(self.reading.topic, partition, start, end) if start < end else ():
            messages.append(message)
            size += message.size
            if len(messages) >= limits.messages_a_file or size >= limits.bytes_a_file:
                yield messages, message.offset + 1
                messages, size, start = [], 0, message.offset + 1
        if start < end:
            yield messages, end

    def _write(self, partition: int, file: TopicFile, upto: int) -> None:
        name = f"{self.reading.topic}+{partition}+{file.first:020d}_{upto}_{file.digest}{file.ending}"
        folder = self.run.layout.landing
        if (text := self.run.dialect.options.path_format) is not None:
            folder = join(folder, PathFormat.parsed(text).folder(_folder_time(file.time, self.run.runtime.clock())))
        self.claim.check()
        self.run.runtime.storage.create(join(folder, name), file.content)

    def _keep(self, position: TopicPosition) -> None:
        self.claim.check()
        self.run.runtime.storage.write(self.reading.document, codec.to_json(position).encode())
