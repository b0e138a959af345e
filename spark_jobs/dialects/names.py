"""What a dialect tells of a file by its name."""

from __future__ import annotations

from spark_jobs.plan.files import FileFormat, FileKind

Names = tuple[FileKind, FileFormat, tuple[str, ...]]
"""Kind and format of a data file, and what sorts files of its kind in the order their writer made them."""
