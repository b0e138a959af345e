"""`docs/costs.md`: its requests are those of a batch, and its dollars follow from its formulas."""

from __future__ import annotations

from tests.s3.test_requests import BATCH, REQUESTS_OF_A_BATCH
from tests.unit.pages import page

PAGE = page("costs.md").replace("\u00d7", "*")
PUT, GET, HOURS, TABLES = 0.005 / 1000, 0.0004 / 1000, 730, 400


def test_requests_and_dollars_are_those_of_a_batch() -> None:
    lists, reads, writes = (REQUESTS_OF_A_BATCH[one] for one in ("lists", "reads", "writes"))
    assert f"sends {len(BATCH)} requests, {lists} of them lists" in PAGE
    assert f"({lists + writes} puts and lists * $0.005 + {reads} gets * $0.0004)" in PAGE
    dollars = TABLES * HOURS * ((lists + writes) * PUT + reads * GET)
    assert f"| ${dollars:.0f} |" in PAGE


def test_other_sums_follow_from_their_formulas() -> None:
    assert f"| ${TABLES * HOURS * PUT:.2f} |" in PAGE
    starts, seconds, tasks = 48 * 30.4, (6, 0.059), 9_744 * 30.4 * 0.5
    assert f"| {starts * seconds[0] / 3600:.1f} core hours |" in PAGE
    assert f"| {TABLES * HOURS * seconds[1] / 3600:.1f} core hours |" in PAGE
    assert f"| {tasks / 3600:.0f} core hours |" in PAGE
    assert f"are {starts * 2 * 1.5 / 60:.0f} DPU hours" in PAGE
