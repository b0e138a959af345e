"""Loads the tables again from the files that are there, where they then equal the source."""

from __future__ import annotations

from spark_jobs.actions.reload_run import reload_table as act

__all__ = ["act"]
