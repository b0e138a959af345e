"""Reproducible archives: sorted names, one time, one mode."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

EPOCH = 315_532_800
"""1980-01-01, the earliest time that a zip can hold."""
_MODE = 0o644
_EXECUTABLE = 0o755


def write_zip(path: Path, files: Mapping[str, bytes], epoch: int = EPOCH) -> Path:
    """Write files by name, in the order given; each gets the time `epoch` (seconds, UTC)."""
    moment = datetime.fromtimestamp(max(epoch, EPOCH), UTC)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, moment.timetuple()[:6])
            entry.external_attr = (0o100000 | _MODE) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return path


def write_tar(path: Path, folder: Path, epoch: int = EPOCH) -> Path:
    """Write a folder's files and links, by name, as a gzipped tar without owner."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for each in sorted(folder.rglob("*")):
            if each.is_symlink() or each.is_file():
                _add(archive, each.relative_to(folder).as_posix(), each, epoch)
    return path


def _add(archive: tarfile.TarFile, name: str, path: Path, epoch: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.mtime = epoch
    if path.is_symlink():
        entry.type, entry.linkname = tarfile.SYMTYPE, str(path.readlink())
        archive.addfile(entry)
        return
    data = path.read_bytes()
    entry.size = len(data)
    entry.mode = _EXECUTABLE if path.stat().st_mode & 0o100 else _MODE
    archive.addfile(entry, io.BytesIO(data))
