"""How far a source's log was read, and of which server it is: documents of the lake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_gddl.contract import codec
from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.stores import Storage
from spark_jobs.batch.table_run import TableRun
from spark_jobs.ledger.commit_files import read_small
from spark_jobs.rooms.sources.capture.catalog import TableCatalog
from spark_jobs.rooms.sources.capture.relation_messages import Descriptions, RelationMessage

_DOCUMENT, _TABLE = "log.json", "captured-log.json"
_REMEDY = (
    "restore it from a version or backup; or delete it, drop the slot, and load each table of it: "
    "`gddl load --again --table T`"
)


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A message that a job has put into the log, by which the log is known again.

    Attributes:
        token: its content.
        place: of the message in the log; `upto`: behind its commit.
    """

    token: str
    place: str
    upto: str


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why the engine has ended though the database responds, which other tables of the job would meet again.

    Attributes:
        run, at: the job that has read, and when (ISO 8601 UTC).
        code, what, remedy: of the error; `fatal`: whether trying again is in vain.
    """

    run: str
    at: str
    code: str
    what: str
    remedy: str
    fatal: bool


@dataclass(frozen=True, kw_only=True)
class LogPosition:
    """How far the log of a source was read.

    Attributes:
        number: how often it was opened anew; places of files with another number do not compare.
        server: identity of the server, its timeline and database.
        opened: where its log was when it was opened.
        published: identity of what the source published then; it changes when that is made again or altered.
        offsets: behind the last events whose files are written, by the connector's partition; JSON of the connector's.
        mark: the newest that was read; None: none was.
        last: number in the names of the newest files; later ones have greater numbers.
        truncates: how often the log brought a `TRUNCATE`, by table; `truncated_by`: the transaction of the last.
        versions: digest of what the catalog said of all that is published when the log was read last.
        described: how the log has described its tables until then.
        stopped: tables of which the engine can't read a change, to what it says; their changes are left out until they
            are loaded again.
        failure: why the last reading has ended; None: it has not failed.
        read_by, read_at: the job that has last read all that was committed by then (ISO 8601 UTC).
    """

    number: int
    server: str
    opened: str
    published: str
    offsets: Mapping[str, str] = field(default_factory=dict)
    mark: Mark | None = None
    last: int = 0
    truncates: Mapping[str, int] = field(default_factory=dict)
    truncated_by: Mapping[str, str] = field(default_factory=dict)
    versions: str = ""
    described: Descriptions = field(default_factory=Descriptions)
    stopped: Mapping[str, str] = field(default_factory=dict)
    failure: Failure | None = None
    read_by: str = ""
    read_at: str = ""

    @property
    def log(self) -> str:
        """Distinguishes this log from every other."""
        return f"{self.number} {self.server} {self.opened}"


@dataclass(frozen=True, kw_only=True)
class FollowedTable:
    """The log, and the table in it, that a table of the lake has followed since its load.

    Attributes:
        log: `LogPosition.log`.
        relation: `PublishedTable.relation`.
        catalog: what the source's catalog said of it.
        truncates, truncated_by: see `LogPosition`; of it.
        described: how the log had described it and its partitions; see `Descriptions.messages`.
        unloaded: why rows from before the newest load are wrong, until that has ended; empty: they are not.
        kept: partitions that the source has dropped since, and whose rows stay.
    """

    log: str
    relation: str
    catalog: TableCatalog
    truncates: int = 0
    truncated_by: str = ""
    described: tuple[RelationMessage, ...] = ()
    unloaded: str = ""
    kept: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """Of the table in the source's catalog."""
        return int(self.relation.partition("/")[0])


@dataclass(frozen=True)
class Positions:
    """Documents of a source; `folder`: theirs."""

    storage: Storage
    folder: str

    @classmethod
    def of(cls, run: TableRun) -> Positions:
        return cls(run.runtime.storage, join(run.job.roots.lake, STATE, "capture", run.spec.source))

    def read(self) -> LogPosition | None:
        """Null: the log was never opened.

        Raises:
            FatalError: `LEDGER_DAMAGED`.
        """
        return read_small(self.storage, join(self.folder, _DOCUMENT), LogPosition, _REMEDY)

    def write(self, position: LogPosition) -> None:
        self.storage.write(join(self.folder, _DOCUMENT), codec.to_json(position).encode())


def read_followed(run: TableRun) -> FollowedTable | None:
    """What the table follows; None: nothing yet.

    Raises:
        FatalError: `LEDGER_DAMAGED`.
    """
    path, remedy = join(run.layout.state, _TABLE), "delete it, and load the table again"
    return read_small(run.runtime.storage, path, FollowedTable, remedy)


def write_followed(run: TableRun, followed: FollowedTable) -> None:
    run.runtime.storage.write(join(run.layout.state, _TABLE), codec.to_json(followed).encode())
