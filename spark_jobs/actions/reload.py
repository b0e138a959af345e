"""Loads the tables again from the files that are there, or from those of a time."""

from __future__ import annotations

from spark_jobs.actions.reload_run import reload_table as act

__all__ = ["act"]
