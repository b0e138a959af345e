"""Makes replica and history again from the change table, then loads what has landed.

`rebuild_run` carries it out, of which `plan` asks the refusals; `tables.swap` replaces the tables, of a reload, too.
"""

from __future__ import annotations

from spark_jobs.rooms.actions.rebuild_run import rebuild_table as act

__all__ = ["act"]
