"""One look at the landing folders of a pipeline's tables."""

from __future__ import annotations

import contextlib
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.file_names import is_temporary
from airflow_gddl.contract.layout import join
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
    """What lies in a table's landing folder.

    Attributes:
        files: data files; hidden and unfinished ones don't count.
        digest: differs whenever a file came, went or changed; empty without files.
        in_window: whether one of them was last modified within the window that was asked for.
        refused: the folder may not be listed: work, so that the job says so of this table while the others go on.
    """

    files: int = 0
    digest: str = ""
    in_window: bool = False
    refused: bool = False


_REFUSED = Poll(files=1, digest="refused", in_window=True, refused=True)


@dataclass(frozen=True)
class Scope:
    """How much is listed.

    Attributes:
        window: of last modification; a listing for it is always full.
        watermarks: by table; the others are listed in full.
    """

    window: PollWindow | None = None
    watermarks: Mapping[str, Watermark] = field(default_factory=dict)


def look(store: Storage, landing: str, tables: Iterable[str], window: PollWindow | None = None) -> dict[str, Poll]:
    """`look_from` in full."""
    return {table: tally.look() for table, tally in look_from(store, landing, tables, Scope(window)).items()}


def look_from(store: Storage, landing: str, tables: Iterable[str], scope: Scope) -> dict[str, Tally]:
    """A look for each of the tables (`schema.name`).

    Where it is cheaper, one listing of a schema's folder serves all its tables; when that turns out to hold far more
    than theirs, the rest of them are listed one by one.

    Raises:
        RetriableError, FatalError: as `Storage`; `STORAGE_DENIED` when none of the folders may be listed.
    """
    wanted: defaultdict[str, list[str]] = defaultdict(list)
    for table in tables:
        schema, _, name = table.partition(".")
        wanted[schema].append(name)
    tallies: dict[str, Tally] = {}
    for schema, names in sorted(wanted.items()):
        known = {name: mark for name in names if (mark := scope.watermarks.get(f"{schema}.{name}")) is not None}
        found = _schema(store, landing, schema, names, Scope(scope.window, known))
        tallies |= {f"{schema}.{name}": tally for name, tally in found.items()}
    if tallies and all(tally.refused for tally in tallies.values()):
        remedy = "grant the role the right to list and read it"
        raise FatalError("STORAGE_DENIED", "no permission for any of the tables' folders", where=landing, remedy=remedy)
    return tallies


@dataclass
class Tally:
    """What was listed of a table.

    Attributes:
        known: stands for the files that were not listed; null: all were.
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

    def look(self) -> Poll:
        if self.refused:
            return _REFUSED
        known = self.known
        files = len(self.digests) + (known.files if known is not None else 0)
        total = sum(self.digests.values()) + (known.total if known is not None else 0)
        digest = (total % 2 ** (8 * _BYTES)).to_bytes(_BYTES).hex() if files else ""
        return Poll(files, digest, self.in_window)


def _schema(store: Storage, landing: str, schema: str, names: list[str], scope: Scope) -> dict[str, Tally]:
    folder = join(landing, schema)
    tallies = {name: Tally(scope.window, scope.watermarks.get(name)) for name in sorted(names)}
    rest = list(tallies)
    whole = {name: tally for name, tally in tallies.items() if tally.known is None}
    if store.listing_spans_folders(folder) and len(whole) > 1:
        with _refusal_borne():  # the right to list may be given folder by folder
            left = _span(store, folder, whole)
            rest = [name for name in tallies if name in left or name not in whole]
    for name in rest:
        known = scope.watermarks.get(name)
        tallies[name] = Tally(scope.window, known, refused=True)
        with _refusal_borne():
            after = known.after if known is not None else ""
            for found in store.list(join(folder, name), after, within=landing):
                tallies[name].take(found, found.name)
            tallies[name].refused = False
    return tallies


@contextlib.contextmanager
def _refusal_borne() -> Iterator[None]:
    try:
        yield
    except FatalError as error:
        if error.code != "STORAGE_DENIED":
            raise


def _span(store: Storage, folder: str, tallies: dict[str, Tally]) -> list[str]:
    """List the folder until it has cost a page for each table; the names that it was not done with by then."""
    ends = sorted(f"{name}/" for name in tallies)
    budget = _PAGE * len(tallies)
    for seen, found in enumerate(store.list(folder, ends[0])):
        name, _, rest = found.name.partition("/")
        if f"{name}/" > ends[-1]:
            break
        if seen >= budget:
            return [other for other in tallies if f"{other}/" >= f"{name}/"]
        if rest and name in tallies:
            tallies[name].take(found, rest)
    return []


def _is_data(name: str) -> bool:
    """Whether it may be data: which dialect's, the job knows, and a file that is nobody's costs one run."""
    return bool(name) and not name.endswith("/") and not is_temporary(name)
