"""Snapshots of the whole table as its source."""

from __future__ import annotations

from spark_jobs.rooms.sources import SourceReader
from spark_jobs.rooms.sources.snapshots.capture import exported_files, has_work, load_snapshots, withdraw_unloaded

READER = SourceReader(has_work=has_work, load=load_snapshots, exports=exported_files, withdraw=withdraw_unloaded)
