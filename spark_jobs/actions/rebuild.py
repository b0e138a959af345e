"""Makes replica and history again from the change table, then loads what has landed."""

from __future__ import annotations

from spark_jobs.actions.rebuild_run import rebuild_table as act

__all__ = ["act"]
