"""One look at the landing folders of a pipeline's tables."""

from __future__ import annotations

import contextlib
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.file_names import is_temporary
from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage, StoredObject

_PAGE = 1000


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


def look(store: Storage, landing: str, tables: Iterable[str], window: PollWindow | None = None) -> dict[str, Poll]:
    """A look for each of the tables (`schema.name`).

    Where it is cheaper, one listing of a schema's folder serves all its tables; when that turns out to hold far more
    than theirs, the rest of them are listed one by one.

    Raises:
        RetriableError, FatalError: as `Store`; `STORAGE_DENIED` when none of the folders may be listed.
    """
    wanted: defaultdict[str, list[str]] = defaultdict(list)
    for table in tables:
        schema, _, name = table.partition(".")
        wanted[schema].append(name)
    looks = {
        f"{schema}.{name}": tally.look()
        for schema, names in sorted(wanted.items())
        for name, tally in _schema(store, landing, schema, names, window).items()
    }
    if looks and all(seen.refused for seen in looks.values()):
        remedy = "grant the role the right to list and read it"
        raise FatalError("STORAGE_DENIED", "no permission for any of the tables' folders", where=landing, remedy=remedy)
    return looks


@dataclass
class _Tally:
    window: PollWindow | None
    lines: list[str] = field(default_factory=list)
    in_window: bool = False
    refused: bool = False

    def take(self, found: StoredObject, name: str) -> None:
        if _is_data(name):
            self.lines.append(f"{name}\0{found.size}\0{found.etag}")
            self.in_window = self.in_window or (self.window is not None and self.window.holds(found.modified))

    def look(self) -> Poll:
        if self.refused:
            return _REFUSED
        text = "\n".join(sorted(self.lines))
        digest = hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=8).hexdigest() if self.lines else ""
        return Poll(len(self.lines), digest, self.in_window)


def _schema(
    store: Storage, landing: str, schema: str, names: list[str], window: PollWindow | None
) -> dict[str, _Tally]:
    folder = join(landing, schema)
    tallies = {name: _Tally(window) for name in sorted(names)}
    rest = list(tallies)
    if store.listing_spans_folders(folder) and len(names) > 1:
        with _refusal_borne():  # the right to list may be given folder by folder
            rest = _span(store, folder, tallies)
    for name in rest:
        tallies[name] = _Tally(window, refused=True)
        with _refusal_borne():
            for found in store.list(join(folder, name), within=landing):
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


def _span(store: Storage, folder: str, tallies: dict[str, _Tally]) -> list[str]:
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
