"""Requests of a small table's runs, which `benchmarks/scale_model.py` counts with."""

from __future__ import annotations

import re

import pytest

from spark_jobs.ledger import claim
from tests.s3 import delivery
from tests.s3.conftest import Server
from tests.s3.faulty import Way

IDLE = (
    "LIST ledger/",  # what the ledger has: commits, a plan, claims
    "GET ledger/commits/N.json",  # its state, and files of the last batches
    "LIST landing/",  # new files
)
"""Requests of a run that finds no new file."""
BATCH = (
    *IDLE,
    "GET ledger/claims/N.json",  # whether the last run has ended
    "PUT ledger/claims/N.json",
    "HEAD ledger/claims/N.json",  # the last run's is still there: nobody had this number before
    "DELETE",  # the last run's claim
    "GET ledger/logs.json",  # the tables as the last batch left them
    "GET changes/_delta_log/N.json",  # it is still that table
    "GET changes/_delta_log/N.json",  # absent: nobody has changed it since
    "GET replica/_delta_log/N.json",
    "GET replica/_delta_log/N.json",
    "GET tombstones/_delta_log/N.json",
    "GET tombstones/_delta_log/N.json",
    "PUT ledger/plan.json",
    "GET landing/F.parquet",
    "LIST erased/",  # keys that must not be loaded again
    "PUT changes/F.parquet",
    "PUT changes/_delta_log/N.json",
    "GET replica/F.parquet",  # rows of the changed keys
    "PUT replica/F.parquet",
    "PUT replica/_delta_log/N.json",
    "PUT ledger/logs.json",
    "PUT ledger/commits/N.json",
    "DELETE",  # the plan
    "PUT ledger/claims/N.json",  # released
    "LIST runs/",  # whether the clock was set back since a run
    "PUT runs/F.json",
)
"""Requests of a run with one change file, in their order."""
REQUESTS_OF_A_BATCH = {
    "lists": sum(one.startswith("LIST") for one in BATCH),
    "reads": sum(one.startswith(("GET", "HEAD")) for one in BATCH),
    "writes": sum(one.startswith("PUT") for one in BATCH),
}
"""Deletes cost nothing."""
_PLACES = {
    "lake/_gddl/": "", "ledger/s/a": "ledger", "tombstones/s/a": "tombstones", "erased/s/a": "erased",
    "runs/s/a": "runs", "landing/s/a": "landing", "lake/s/a__changes": "changes", "lake/s/a": "replica",
}  # fmt: skip


def named(request: str) -> str:
    """A request without what differs from batch to batch."""
    method, path = request.split(" ", 1)
    if path.endswith("?delete"):
        return "DELETE"
    if "list-type=2" in path:
        method, path = "LIST", f"//{path.partition('prefix=')[2].partition('&')[0]}"
    path = path.split("/", 2)[2]
    for place, name in _PLACES.items():
        path = path.replace(place, name)
    folder, _, file = path.rpartition("/")
    file = re.sub(r"^[0-9]{20}(?=[.])", "N", file)
    return f"{method} {folder}/{re.sub(r'^(part|[0-9]{8}).*-.*(?=[.])', 'F', file)}"


@pytest.mark.core
def test_a_small_batch_sends_these_requests(server: Server, way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "YOUNG_SECONDS", 600.0)  # however slow this machine is
    place = server.place(way.endpoint)
    delivery.deliver(place, ["a"])
    delivery.run_here(place, ["a"], "first")
    for number in range(2, 6):  # as many as lie between two checkpoints
        row = {"Op": ["U", "I"], "seq": [10 * number, 10 * number + 1], "id": [1, 20 + number], "v": ["x", "y"]}
        delivery.put(place, "a", f"20240101-{number:09d}", row)
        way.requests.clear()
        assert delivery.run_here(place, ["a"], f"run-{number}")["a"].status == "succeeded"
        assert tuple(map(named, way.requests)) == BATCH
    way.requests.clear()
    assert delivery.run_here(place, ["a"], "idle")["a"].status == "skipped"
    assert tuple(map(named, way.requests)) == IDLE
