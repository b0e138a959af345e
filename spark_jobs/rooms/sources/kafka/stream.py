"""Topics with new messages, for a continuous job."""

from __future__ import annotations

import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.sources.kafka import settings_of, topic_of
from airflow_gddl.contract.table_spec import TableSpec
from spark_jobs.rooms.sources.kafka.log import KafkaLog

_LOG = logging.getLogger(__name__)
_ClusterSettings = tuple[tuple[str, str], ...]
_PARTITIONS_SECONDS = 60.0
"""After which the partitions of topics are asked for anew."""


@dataclass
class _Cluster:
    """Brokers of one address and user, and what their topics held when they were last asked.

    Attributes:
        next: time of the next question.
        again: time from which partitions are asked for anew, since a topic may get more.
    """

    log: KafkaLog
    specs: tuple[TableSpec, ...] = ()
    next: float = 0.0
    again: float = 0.0
    partitions: dict[str, int] = field(default_factory=dict)
    ends: dict[str, tuple[int, ...]] = field(default_factory=dict)
    answer: Future[Collection[str]] | None = None

    def changed(self, now: float) -> list[str]:
        """Tables whose topics have grown since the last question; all where the brokers don't answer."""
        topics: defaultdict[str, list[str]] = defaultdict(list)
        for spec in self.specs:
            topics[topic_of(spec)].append(spec.table)
        try:
            if now >= self.again:
                self.partitions, self.again = {}, now + _PARTITIONS_SECONDS
            for topic in topics.keys() - {name for name, partitions in self.partitions.items() if partitions}:
                self.partitions[topic] = self.log.partitions(topic)
            newest = self.log.ends({topic: self.partitions[topic] for topic in topics})
        except GddlError as error:  # a table's run raises it again, and reports it
            _LOG.info("topics could not be polled: %s", error)
            return [spec.table for spec in self.specs]
        changed = [t for topic, ends in newest.items() if ends and ends != self.ends.get(topic) for t in topics[topic]]
        self.ends = newest
        return changed


class TopicStream:
    """Which topics of Kafka have new messages, asked of the brokers in threads; see `Streams`.

    Each cluster is asked after the shortest `trigger` of its tables; no answer holds up the job.

    Args:
        environ: of the job, for connections.
        wake: called, from a thread, when there are new messages.
        now: seconds, monotonic.
    """

    def __init__(
        self,
        wake: Callable[[], None],
        environ: Mapping[str, str] = os.environ,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wake, self._environ, self._now = wake, environ, now
        self._clusters: dict[_ClusterSettings, _Cluster] = {}
        self._wrong: tuple[str, ...] = ()
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="topics")

    def follow(self, specs: Sequence[TableSpec]) -> None:
        by_cluster: dict[_ClusterSettings, list[TableSpec]] = {key: [] for key in self._clusters}
        wrong = []
        for spec in specs:
            try:
                by_cluster.setdefault(tuple(sorted(settings_of(spec, self._environ).items())), []).append(spec)
            except GddlError:  # a table's run raises it again, and reports it
                wrong.append(spec.table)
        for key, mine in by_cluster.items():
            if key not in self._clusters:
                self._clusters[key] = _Cluster(KafkaLog(dict(key)))
            self._clusters[key].specs = tuple(mine)
        self._wrong = tuple(wrong)

    def news(self) -> Collection[str]:
        tables, self._wrong = list(self._wrong), ()
        for cluster in self._clusters.values():
            if cluster.answer is not None and cluster.answer.done():
                tables += cluster.answer.result()
                cluster.answer = None
            if cluster.answer is None and cluster.specs and cluster.next <= self._now():
                cluster.next = self._now() + min(spec.look_seconds for spec in cluster.specs)
                cluster.answer = self._threads.submit(self._ask, cluster)
        return tables

    def _ask(self, cluster: _Cluster) -> Collection[str]:
        tables = cluster.changed(self._now())
        if tables:
            self._wake()
        return tables

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for cluster in self._clusters.values():
            cluster.log.close()
