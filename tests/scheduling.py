"""Which process of pytest works on which group of tests, where there are more processes than cores.

A third of the time of `make test` is spent on waiting: for Airflow, for an S3 server, for the end of a killed process.
One process more works on tests that wait, then on tests that stand alone. The others, which compute, keep the cores
busy, and start Spark.
"""

from __future__ import annotations

from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController

_COMPUTING = 2
"""Processes that compute; further ones begin with tests that wait."""
_WAITING_FOLDERS = frozenset({"airflow", "compose", "databases", "e2e", "packages", "readme", "recipes", "remote"})
_WAITING_MODULES = ("test_commits_on_s3", "test_continuous_command", "test_faults")


class WaitingApart(LoadGroupScheduling):
    """Groups of `tests.lanes`; those that wait go to the processes beyond the second, the longest group first."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        groups = list(self.workqueue)
        if self.nodes.index(node) < _COMPUTING:
            chosen = next((group for group in groups if not waits(group)), groups[0])
        else:
            alone = next((group for group in groups if "::" in group), groups[-1])  # starts no Spark
            chosen = min(filter(waits, groups), key=lambda group: group != "e2e", default=alone)
        self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)


def waits(group: str) -> bool:
    """
    Args:
        group: as `lanes.group_of` names it; of a test that stands alone, its identifier.
    """
    words = group.split()
    return not _WAITING_FOLDERS.isdisjoint(words[:2]) or words[-1] in _WAITING_MODULES
