"""Which actions may end a code of the state `attention`, and why: the one place that says so.

A code ends by a successful action of its row here that does not warn of it again. Where the row asks for a count, the
quarantine has to say so, too. Any other action leaves it as it is: what it did says nothing of the problem.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_gddl.contract.completeness import STOPPED_CODE, WINDOW_CODE
from airflow_gddl.contract.endings import COMMITS, COUNTS, Ending
from airflow_gddl.contract.idle_runs import OWN_CODES
from airflow_gddl.contract.result import CATALOG_PROBLEMS, INCOMPLETE_CODE, SHARED_CODE, STALE_CODE

LOST_CODE = "FOLDER_MISSING"
VERIFY_CODE, SOURCE_CODE = "VERIFY_DIFFERENT", "SOURCE_DIFFERENT"
UNREAD_CODE, RATE_CODE, MAINTENANCE_CODE = "FILE_UNREADABLE", "QUARANTINE_RATE", "MAINTENANCE_DUE"


_NEWER = Ending(("run", "reload"), "said of the files of one run; the next files, or all files again, take its place")
_CATALOG = Ending(COMMITS, "each run that commits tells the catalog, and warns again where it can't")

OF_ROOMS: Mapping[str, Ending] = {code: how for one in OWN_CODES for code, how in one.endings.items()}
"""Codes of features and sources."""
ENDINGS: Mapping[str, Ending] = {
    "BATCH_LATE": _NEWER,
    "COLUMN_DROPPED": _NEWER,
    UNREAD_CODE: Ending(COUNTS, "the files are counted, by whoever counts the quarantine", by_count=True, judged=True),
    "FOREIGN_COMMIT": Ending(("run", "rebuild", "reload"), "a run says it until the tables were made again"),
    "GENERATIONS_INFERRED": _NEWER,
    SHARED_CODE: Ending(
        ("rebuild", "reload", "errors_dismiss"),
        "all rows by other keys, or a person who says that they are meant",
        judged=True,
    ),
    "LOAD_AFTER_CHANGES": _NEWER,
    INCOMPLETE_CODE: Ending(("run", "reload"), "a run says it until a whole full load has come", judged=True),
    "LOG_BEGAN_LATE": Ending(("run", "rebuild", "reload"), "a run says it until changes are in order again"),
    STALE_CODE: Ending(
        COUNTS,
        "rows are stale by what is in quarantine, which a rebuild and a reload leave",
        by_count=True,
    ),
    "SNAPSHOT_INCOMPLETE": Ending(("run", "reload", "release"), "a run says it until all rows have come"),
    "SNAPSHOT_MERGED": _NEWER,
    "SWEEP_HELD": Ending(("run", "reload", "release"), "a run says it while the sweep is held"),
    "TRUNCATE_HELD": Ending(("run", "reload", "release"), "a run says it while a truncate holds files"),
    "TRUNCATE_IGNORED": _NEWER,
    **dict.fromkeys(sorted(CATALOG_PROBLEMS), _CATALOG),
    VERIFY_CODE: Ending(("verify",), "only a comparison shows that it is settled", judged=True),
    SOURCE_CODE: Ending(("verify",), "only a comparison with the source shows that it is settled", judged=True),
    LOST_CODE: Ending(("run",), "a run, or a poll, that finds the folder", judged=True),
    RATE_CODE: Ending(COUNTS, "the rows are counted, by whoever counts the quarantine", by_count=True, judged=True),
    MAINTENANCE_CODE: Ending(("maintain",), "it is what is due", judged=True),
    WINDOW_CODE: Ending(("verify",), "only a later verification of that time shows it", judged=True),
    STOPPED_CODE: Ending((), "newer changes of the heartbeat, which no action brings", judged=True),
    **OF_ROOMS,
}
"""By code. Tests play each action on each code."""
