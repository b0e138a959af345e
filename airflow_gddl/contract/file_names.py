"""Types and rules for names of landing files, common to all dialects."""

from __future__ import annotations

from typing import Literal

FileKind = Literal["load", "change"]
FileFormat = Literal["parquet", "csv", "json"]
Names = tuple[FileKind, FileFormat, tuple[str, ...]]
"""Kind and format of a data file, and what sorts files of its kind in the order their writer made them."""

_TEMPORARY = ("~", ".tmp", ".temp", ".crc", ".part", ".partial", ".filepart", ".swp", "._copying_", "_$folder$")


def is_temporary(relative_path: str) -> bool:
    """Whether a file is hidden or unfinished, and so ignored without a warning."""
    rooted = f"/{relative_path}"
    return "/." in rooted or "/_" in rooted or rooted.lower().endswith(_TEMPORARY)
