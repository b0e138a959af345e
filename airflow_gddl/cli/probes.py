"""Probes of landing folder and lake: the first is listed, the second written to."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.stores import open_store

_CONTENT = b"gddl check"


def probe_landing(root: str, environ: Mapping[str, str]) -> str:
    """List the landing root; return the finding.

    Raises:
        FatalError: `ROOT_UNUSABLE`, `STORAGE_DENIED`, `S3_…`.
        RetriableError: `S3_UNREACHABLE`.
    """
    if not is_s3(root):
        _require_folder(root, "landing")
        if not os.access(root, os.R_OK | os.X_OK):
            raise _unusable(f"this user can't read {root}", "give the user permission to read it")
    first = next(iter(open_store(environ).list(root)), None)
    return f"{root} can be listed" + ("" if first else "; there are no files yet")


def probe_lake(root: str, environ: Mapping[str, str], name: str) -> str:
    """Write, read and remove a file; a missing local lake is not created.

    Args:
        name: of the file; unique.

    Raises:
        FatalError: `ROOT_UNUSABLE`, `STORAGE_DENIED`, `S3_…`.
        RetriableError: `S3_UNREACHABLE`.
    """
    if is_s3(root):
        store, path = open_store(environ), join(root, "_gddl", "check", name)
        store.create(path, _CONTENT)
        try:
            store.read(path)
        finally:
            store.delete(path)
        return f"{root} can be written, read and cleaned"
    if not Path(root).exists():
        _require_room(next(folder for folder in Path(root).parents if folder.exists()), root)
        return f"{root} does not exist yet; the first run can create it"
    _require_folder(root, "lake")
    try:
        with tempfile.TemporaryFile(dir=root) as file:
            file.write(_CONTENT)
    except OSError as error:
        raise _unusable(f"can't write to {root}: {error.strerror}", f"check permissions and space of {root}") from error
    return f"{root} can be written"


def _require_room(parent: Path, root: str) -> None:
    """A folder can be made in `parent`: permissions alone do not tell, e.g. of a file or of `/proc`."""
    try:
        with tempfile.TemporaryDirectory(dir=parent):
            return
    except OSError as error:
        what = f"{root} does not exist and can't be created: can't make a folder in {parent}: {error.strerror}"
        remedy = f"give the user permission to write to {parent}, or correct `lake` in gddl.yaml"
        raise _unusable(what, remedy) from error


def _require_folder(root: str, field: str) -> None:
    if not Path(root).is_dir():
        raise _unusable(f"there is no folder {root}", f"create it, or correct `{field}` in gddl.yaml")


def _unusable(what: str, remedy: str) -> FatalError:
    return FatalError("ROOT_UNUSABLE", what, remedy=remedy)
