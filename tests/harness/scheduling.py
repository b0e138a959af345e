"""Which process of pytest works on which group of tests, where there are more processes than cores.

A third of the time of `make test` is spent on waiting: for Airflow, for an S3 server, for the end of a killed process.
One process more works on tests that wait, then on tests that stand alone. The others, which compute, keep the cores
busy: one begins with the tests on Spark, the other with those without, so that only one Java process has to become warm
as long as there is other work.
"""

from __future__ import annotations

from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController

_COMPUTING = 2
"""Processes that compute; further ones begin with tests that wait."""
_WAITING_FOLDERS = frozenset({"airflow", "compose", "databases", "e2e", "packages", "readme", "recipes", "remote"})
_SPARK_FOLDERS = frozenset({"catalogs", "cluster", "debezium", "readers", "scenarios", "spark"})
_OWN_SPARK = frozenset(
    {"test_hive", "test_jobs", "test_session", "test_spark_dies", "test_working_folder", "test_yarn"}
)
"""Modules that start a Spark of their own, so that any process may have them."""
_LONGEST = ("many plain", "many spark test_batches_beside")
"""Groups of minutes with few tests, begun first: such groups come last, and one process would be alone with them."""
_WAITING_MODULES = ("test_commits_on_s3", "test_continuous_command", "test_faults")


class WaitingApart(LoadGroupScheduling):
    """Groups of `tests.harness.lanes`; those that wait go to processes beyond the second, the longest first."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        groups = list(self.workqueue)
        number = self.nodes.index(node)
        if number < _COMPUTING:
            computing = [group for group in groups if not waits(group)] or groups
            kind = [group for group in computing if is_on_spark(group) == (number == 0)] or computing
            chosen = next((group for group in _LONGEST if group in kind), kind[0])
        else:
            alone = next((group for group in groups if "::" in group), groups[-1])  # starts no Spark
            chosen = min(filter(waits, groups), key=lambda group: group != "e2e", default=alone)
        self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)


def is_on_spark(group: str) -> bool:
    """
    Args:
        group: see `waits`. Tests of one task and others without an engine are named by `many`, too.
    """
    words = group.split()
    if words[-1] in _OWN_SPARK:
        return False
    return words[0] == "many" and (words[1] in _SPARK_FOLDERS or words[1:] in (["plain"], ["shuffled"], ["one_go"]))


def waits(group: str) -> bool:
    """
    Args:
        group: as `lanes.group_of` names it; of a test that stands alone, its identifier.
    """
    words = group.split()
    return not _WAITING_FOLDERS.isdisjoint(words[:2]) or words[-1] in _WAITING_MODULES
