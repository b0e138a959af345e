"""A file of the metadata folder as a `Document`, by its ending."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath

from airflow_gddl.metadata import json_file, yaml_file
from airflow_gddl.metadata.folder import ENDINGS, JSON_ENDINGS, MAX_BYTES, Folder
from airflow_gddl.metadata.values import Document, DocumentError, Position, position_of

FOLDERS = ("tables", "keys")
"""Folders whose files are read."""


def read_text(folder: Folder, name: str) -> str:
    """Text of a file, without byte order mark.

    Raises:
        DocumentError: `FILE_UNREADABLE`, `FILE_TOO_LARGE` or `FILE_NOT_TEXT`.
        FileNotFoundError: there is no such file.
    """
    try:
        content = folder.read(name)
    except FileNotFoundError:
        raise
    except OSError as error:
        message = f"the file can't be read: {error.strerror or type(error).__name__}"
        raise DocumentError("FILE_UNREADABLE", message, "put a readable file there, or remove it") from error
    if len(content) > MAX_BYTES:
        message = f"larger than {MAX_BYTES // 1024**2} MB"
        raise DocumentError("FILE_TOO_LARGE", message, "split it; a file of 10,000 rows has 1 to 5 MB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DocumentError("FILE_NOT_TEXT", "not UTF-8", "save it as UTF-8", Position(line)) from error


def read_document(folder: Folder, name: str) -> Document:
    """A YAML or JSON file.

    Raises:
        DocumentError: of `read_text`, `YAML_INVALID` or `JSON_INVALID`.
        FileNotFoundError: there is no such file.
    """
    text = read_text(folder, name)
    if PurePosixPath(name).suffix.lower() in JSON_ENDINGS:
        return Document(file=name, value=json_file.read(text), locate=json_file.positions(text))
    value = yaml_file.read(text)
    return Document(file=name, value=value, locate=functools.partial(position_of, value))


def having_ending(names: list[str], endings: tuple[str, ...]) -> list[str]:
    return [name for name in names if PurePosixPath(name).suffix.lower() in endings]


def passed_over(names: list[str], endings: tuple[str, ...]) -> tuple[str, ...]:
    """Names that look like metadata but are not read: `a.yaml.bak`, `a.yaml~`, another format, links to folders."""
    read = set(having_ending(names, endings))
    return tuple(name for name in names if name not in read and _looks_like_metadata(name))


def misplaced(names: list[str], known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Files that look like metadata but are not where it is read, each with a remedy; one for each unknown folder.

    Args:
        names: of all files of the metadata folder.
        known: the settings' file, and the folders that may hold such files.
    """
    tops: dict[str, list[str]] = {}
    for name in names:
        if _looks_like_metadata(name) and (top := name.split("/", 1)[0]) not in known:
            tops.setdefault(top, []).append(name)
    for top, found in tops.items():
        is_folder = "/" in found[0]
        near = difflib.get_close_matches(top, FOLDERS if is_folder else [one for one in known if "." in one], n=1)
        ask = f"did you mean {near[0]}{'/' * is_folder}?" if near else f"move it below {' or '.join(FOLDERS)}/, or away"
        more = f" ({len(found)} such files in {top}/)" if len(found) > 1 else ""
        yield found[0], f"{ask}{more}"


def _looks_like_metadata(name: str) -> bool:
    return name.endswith("/") or any(part.rstrip("~").lower() in ENDINGS for part in PurePosixPath(name).suffixes)
