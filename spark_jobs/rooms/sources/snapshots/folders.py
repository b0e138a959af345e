"""What the folders of an export say beside its data files, where other programs have written it.

Spark writes values of columns into the names of folders alone. Table formats, and Databricks' way to commit files, keep
in files of their own which data files count. None of this is read here, so that such an export is held.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import unquote

_LOGS = {
    "Delta Lake": re.compile(r"((?:.*/)?)_delta_log/.*"),
    "Iceberg": re.compile(r"((?:.*/)?)metadata/[^/]+\.metadata\.json"),
    "Hudi": re.compile(r"((?:.*/)?)\.hoodie/.*"),
}
_MARKER = re.compile(r"((?:.*/)?)_(started|committed)_(\d+)")


def columns_in_folders(name: str, depth: int) -> list[str]:
    """Columns in the names of a file's folders (`country=DE`).

    Args:
        name: of the file below the table's landing folder.
        depth: folders at its beginning that say the time of the snapshot.
    """
    return [unquote(folder.partition("=")[0]) for folder in name.split("/")[depth:-1] if "=" in folder]


def foreign_logs(names: Sequence[str]) -> Mapping[str, str]:
    """Folders in which something else says which data files count, to why the content of these is not known to be the
    whole export.

    Args:
        names: of all files below the table's landing folder, hidden ones too.
    """
    return {**dict(_uncommitted(names)), **dict(_tables(names))}


def _tables(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        for kind, pattern in _LOGS.items():
            if match := pattern.fullmatch(name):
                what = f"{match[1] or 'the landing folder'} is a table of {kind}, whose log says which files are in it"
                yield match[1], f"{what}; export its rows as plain files, or remove the log once only these are there"


def _uncommitted(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Folders that transactions of Databricks have written to, but for those of one that is committed."""
    found: defaultdict[str, dict[str, set[str]]] = defaultdict(lambda: {"started": set(), "committed": set()})
    for name in names:
        if match := _MARKER.fullmatch(name):
            found[match[1]][match[2]].add(match[3])
    for folder, ids in found.items():
        if len(ids["started"] | ids["committed"]) > 1 or ids["started"] - ids["committed"]:
            what = f"{folder} has files of transactions of Databricks that are not committed, or were replaced"
            yield folder, f"{what}; remove these with VACUUM, or write the export into an empty folder"
