"""Which snapshots of a table were taken, held, or are still to be loaded (`mode: snapshots`, docs/snapshots.md).

One document beside the table's ledger. The folder that it names, not the paths of the ledger, says where a table of
snapshots comes from: what its ledger has ingested are change files in a folder of the lake.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace

from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage
from spark_jobs.ledger.commit_files import read_small

FOLDER = "snapshots"
DOCUMENT = "taken.json"


def reload_of(table: str) -> str:
    """What to do where the snapshots that were taken can't be built upon."""
    return f"load the table again from the snapshots that are there: `gddl reload --from-files --table {table}`"


@dataclass(frozen=True, kw_only=True)
class TakenSnapshot:
    """A snapshot whose differences are in change files.

    Attributes:
        version: digits of the time in its path; changes have it as their sequence.
        files: digest of the names, sizes and tags of its files, as they were seen last.
        content: digest of what was in them when it was taken; files that are copied get other tags.
        at: when it was taken, ISO 8601 UTC.
        changed: whether the files that were seen last have another content.
        change_files: their names, until the table is known to have loaded all of them.
    """

    version: str
    files: str
    content: str
    at: str
    changed: bool = False
    change_files: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class HeldSnapshot:
    """A snapshot that was not taken, and is not tried again until its files, or the row, change.

    Attributes:
        row: digest of the row.
        until: when it is tried in any case, ISO 8601 UTC: the time of its folder had not come; empty: it had.
    """

    version: str
    files: str
    why: str
    row: str
    until: str = ""


@dataclass(frozen=True, kw_only=True)
class SnapshotsTaken:
    """Which snapshots of a table were taken.

    Attributes:
        taken: in the order in which they were taken.
        begun: the snapshot whose files are being written; None: none.
        first: name, without its ending, of the first file of the one that was begun last.
        last: name of the newest file.
        columns: `exports.column_id` of all columns of those that were taken.
        names: the same to the name under which a column came first.
        remembered: seconds for which deletes were remembered, the least of all times; 0: none was taken yet.
        reloading: whether the change files are those of a reload that has not ended; the tables don't have their rows
            alone until then.
        landing: the folder of the snapshots.
    """

    taken: tuple[TakenSnapshot, ...] = ()
    held: tuple[HeldSnapshot, ...] = ()
    begun: TakenSnapshot | None = None
    first: str = ""
    last: str = ""
    columns: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    remembered: int = 0
    reloading: bool = False
    landing: str = ""
    format: int = 1

    @property
    def faulty(self) -> tuple[str, ...]:
        """Versions that were held, and those that changed after they were taken."""
        return (*(one.version for one in self.held), *(one.version for one in self.taken if one.changed))

    def only_of(self, landed: Container[str]) -> SnapshotsTaken:
        """Without the faults of snapshots that are no longer there."""
        taken = (replace(one, changed=one.changed and one.version in landed) for one in self.taken)
        return replace(self, held=tuple(one for one in self.held if one.version in landed), taken=tuple(taken))

    def after_load(self, loaded: Container[str]) -> SnapshotsTaken:
        """Without the names of change files of snapshots that were loaded whole, given those that were loaded."""
        return replace(self, taken=tuple(
            replace(one, change_files=()) if all(name in loaded for name in one.change_files) else one
            for one in self.taken
        ))  # fmt: skip

    def to_withdraw(self, loaded: Container[str]) -> tuple[TakenSnapshot, ...]:
        """The newest snapshots of which no change file was loaded.

        One that was loaded in part stays, and so do all before it.

        Args:
            loaded: names of change files.
        """
        first = len(self.taken)
        for at in reversed(range(len(self.taken))):
            names = self.taken[at].change_files
            if any(name in loaded for name in names):
                break
            first = at if names else first
        return self.taken[first:]


def folder_of(state: str) -> str:
    """The folder of the document, below a table's ledger."""
    return join(state, FOLDER)


def document_of(state: str) -> str:
    return join(folder_of(state), DOCUMENT)


def read_taken(storage: Storage, state: str) -> SnapshotsTaken | None:
    """What is known of a table's snapshots; None: nothing.

    Raises:
        FatalError: `LEDGER_DAMAGED`.
    """
    return read_small(storage, document_of(state), SnapshotsTaken, f"delete it, and {reload_of('T')}")
