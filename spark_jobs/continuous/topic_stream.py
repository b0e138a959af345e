"""Which topics of Kafka have new messages, asked of the brokers in a thread beside the continuous job."""

from __future__ import annotations

import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.kafka import settings_of, topic_of
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.continuous.schedule import ANYWAY_SECONDS
from spark_jobs.dialects.kafka_log import KafkaLog

_LOG = logging.getLogger(__name__)
Settings = tuple[tuple[str, str], ...]


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
    asked: Future[Collection[str]] | None = None

    def changed(self, now: float) -> list[str]:
        """Tables whose topics have grown since the last question; all where the brokers don't answer."""
        topics: defaultdict[str, list[str]] = defaultdict(list)
        for spec in self.specs:
            topics[topic_of(spec)].append(spec.table)
        try:
            if now >= self.again:
                self.partitions, self.again = {}, now + ANYWAY_SECONDS
            for topic in topics.keys() - {name for name, found in self.partitions.items() if found}:
                self.partitions[topic] = self.log.partitions(topic)
            found = self.log.ends({topic: self.partitions[topic] for topic in topics})
        except GddlError as error:  # a table's run raises it again, and reports it
            _LOG.info("topics could not be polled: %s", error)
            return [spec.table for spec in self.specs]
        changed = [t for topic, ends in found.items() if ends and ends != self.ends.get(topic) for t in topics[topic]]
        self.ends = found
        return changed


class TopicStream:
    """See `FileStream`. Each cluster is asked after the shortest `trigger` of its tables; no answer holds up the job.

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
        self._clusters: dict[Settings, _Cluster] = {}
        self._wrong: tuple[str, ...] = ()
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="topics")

    def follow(self, specs: Sequence[TableSpec]) -> None:
        by_cluster: dict[Settings, list[TableSpec]] = {key: [] for key in self._clusters}
        wrong = []
        for spec in specs:
            try:
                by_cluster.setdefault(tuple(sorted(settings_of(spec, self._environ).items())), []).append(spec)
            except GddlError:  # as above
                wrong.append(spec.table)
        for key, mine in by_cluster.items():
            if key not in self._clusters:
                self._clusters[key] = _Cluster(KafkaLog(dict(key)))
            self._clusters[key].specs = tuple(mine)
        self._wrong = tuple(wrong)

    def news(self) -> Collection[str]:
        found, self._wrong = list(self._wrong), ()
        for cluster in self._clusters.values():
            if cluster.asked is not None and cluster.asked.done():
                found += cluster.asked.result()
                cluster.asked = None
            if cluster.asked is None and cluster.specs and cluster.next <= self._now():
                cluster.next = self._now() + min(spec.look_seconds for spec in cluster.specs)
                cluster.asked = self._threads.submit(self._ask, cluster)
        return found

    def _ask(self, cluster: _Cluster) -> Collection[str]:
        found = cluster.changed(self._now())
        if found:
            self._wake()
        return found

    def taken(self, table: str) -> None:
        """Nothing to do: a reported table is retried by the schedule until it succeeds."""

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for cluster in self._clusters.values():
            cluster.log.close()
