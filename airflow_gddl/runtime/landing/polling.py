"""One poll of the landing folders of a pipeline's tables."""

from __future__ import annotations

import contextlib
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.file_names import is_temporary
from airflow_gddl.contract.layout import LandingFolder, join
from airflow_gddl.runtime.landing.watermarks import Watermark
from airflow_gddl.stores import Storage, StoredObject

_PAGE = 1000
_BYTES = 8
"""Of a digest."""


@dataclass(frozen=True)
class PollWindow:
    """A time of last modification: from `start` on, before `end`; seconds since the epoch, null: open."""

    start: float | None = None
    end: float | None = None

    def holds(self, moment: float) -> bool:
        return (self.start is None or moment >= self.start) and (self.end is None or moment < self.end)


@dataclass(frozen=True)
class Poll:
    """Content of a table's landing folder.

    Attributes:
        files: data files; hidden and unfinished ones don't count.
        digest: changes when a file is added, removed or changed; empty without files.
        in_window: whether one of them was last modified within the window that was asked for.
        refused: access was denied: counts as work, so that the job reports it for this table while the others are
            loaded.
    """

    files: int = 0
    digest: str = ""
    in_window: bool = False
    refused: bool = False


_REFUSED = Poll(files=1, digest="refused", in_window=True, refused=True)


def joined(polls: Sequence[Poll]) -> Poll:
    """What lies in several folders of one table; of one folder its own poll."""
    if len(polls) == 1:
        return polls[0]
    return Poll(
        files=sum(poll.files for poll in polls),
        digest="-".join(poll.digest for poll in polls) if any(poll.digest for poll in polls) else "",
        in_window=any(poll.in_window for poll in polls),
        refused=any(poll.refused for poll in polls),
    )


@dataclass(frozen=True)
class Scope:
    """How much is listed.

    Attributes:
        window: range of modification times; listed in full.
        watermarks: by table; tables without one are listed in full.
    """

    window: PollWindow | None = None
    watermarks: Mapping[str, Watermark] = field(default_factory=dict)


def poll(store: Storage, landing: str, tables: Iterable[str], window: PollWindow | None = None) -> dict[str, Poll]:
    """`poll_landing` in full."""
    return {table: files.poll() for table, files in poll_landing(store, landing, tables, Scope(window)).items()}


def poll_landing(store: Storage, landing: str, tables: Iterable[str], scope: Scope) -> dict[str, ListedFiles]:
    """`poll_folders` the folders of tables with one landing root and default names."""
    return poll_folders(store, {table: LandingFolder(landing, table) for table in tables}, scope)


def poll_folders(store: Storage, folders: Mapping[str, LandingFolder], scope: Scope) -> dict[str, ListedFiles]:
    """Poll each of the tables (`schema.name`, or any other name) in its landing folder.

    Where it is cheaper, one listing of a schema's folder serves all its tables; if the folder holds far more files, the
    remaining tables are listed one by one.

    Raises:
        RetriableError, FatalError: as `Storage`; `STORAGE_DENIED` when none of the folders may be listed.
    """
    by_root: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for table, folder in folders.items():
        by_root[folder.root][folder.table].append(table)
    listed: dict[str, ListedFiles] = {}
    for root, tables in sorted(by_root.items()):
        marks = {name: mark for name, of in tables.items() if (mark := scope.watermarks.get(of[0])) is not None}
        found = _root(store, root, tables, Scope(scope.window, marks))
        listed |= {table: files for name, files in found.items() for table in tables[name]}
    if listed and all(files.refused for files in listed.values()):
        remedy, where = "grant the role the right to list and read it", ", ".join(sorted(by_root))
        raise FatalError("STORAGE_DENIED", "no permission for any of the tables' folders", where=where, remedy=remedy)
    return listed


def _root(store: Storage, landing: str, tables: Iterable[str], scope: Scope) -> dict[str, ListedFiles]:
    wanted: defaultdict[str, list[str]] = defaultdict(list)
    for table in tables:
        schema, _, name = table.partition(".")
        wanted[schema].append(name)
    listed: dict[str, ListedFiles] = {}
    for schema, names in sorted(wanted.items()):
        known = {name: mark for name in names if (mark := scope.watermarks.get(f"{schema}.{name}")) is not None}
        found = _schema(store, landing, schema, names, Scope(scope.window, known))
        listed |= {f"{schema}.{name}": files for name, files in found.items()}
    return listed


@dataclass
class ListedFiles:
    """Listed files of a table.

    Attributes:
        known: covers the files that were not listed; null: all were listed.
        digests: of the files that were listed, by name. Their sum doesn't depend on how much was listed.
    """

    window: PollWindow | None
    known: Watermark | None = None
    digests: dict[str, int] = field(default_factory=dict)
    in_window: bool = False
    refused: bool = False

    def take(self, found: StoredObject, name: str) -> None:
        if _is_data(name):
            line = f"{name}\0{found.size}\0{found.etag}".encode(errors="surrogateescape")
            self.digests[name] = int.from_bytes(hashlib.blake2b(line, digest_size=_BYTES).digest())
            self.in_window = self.in_window or (self.window is not None and self.window.holds(found.modified))

    def poll(self) -> Poll:
        if self.refused:
            return _REFUSED
        known = self.known
        files = len(self.digests) + (known.files if known is not None else 0)
        total = sum(self.digests.values()) + (known.total if known is not None else 0)
        digest = (total % 2 ** (8 * _BYTES)).to_bytes(_BYTES).hex() if files else ""
        return Poll(files, digest, self.in_window)


def _schema(store: Storage, landing: str, schema: str, names: list[str], scope: Scope) -> dict[str, ListedFiles]:
    folder = join(landing, schema)
    listed = {name: ListedFiles(scope.window, scope.watermarks.get(name)) for name in sorted(names)}
    rest = list(listed)
    whole = {name: files for name, files in listed.items() if files.known is None}
    if store.listing_spans_folders(folder) and len(whole) > 1:
        with _refusal_borne():  # list permission may be granted folder by folder
            left = _span(store, folder, whole)
            rest = [name for name in listed if name in left or name not in whole]
    for name in rest:
        known = scope.watermarks.get(name)
        listed[name] = ListedFiles(scope.window, known, refused=True)
        with _refusal_borne():
            after = known.after if known is not None else ""
            for found in store.list(join(folder, name), after, within=landing):
                listed[name].take(found, found.name)
            listed[name].refused = False
    return listed


@contextlib.contextmanager
def _refusal_borne() -> Iterator[None]:
    try:
        yield
    except FatalError as error:
        if error.code != "STORAGE_DENIED":
            raise


def _span(store: Storage, folder: str, listed: dict[str, ListedFiles]) -> list[str]:
    """List the folder for at most one page for each table; return the tables not reached."""
    ends = sorted(f"{name}/" for name in listed)
    budget = _PAGE * len(listed)
    for seen, found in enumerate(store.list(folder, ends[0])):
        name, _, rest = found.name.partition("/")
        if f"{name}/" > ends[-1]:
            break
        if seen >= budget:
            return [other for other in listed if f"{other}/" >= f"{name}/"]
        if rest and name in listed:
            listed[name].take(found, rest)
    return []


def _is_data(name: str) -> bool:
    """Whether the file may be data; the job knows the dialect, and an unrelated file costs one run."""
    return bool(name) and not name.endswith("/") and not is_temporary(name)
