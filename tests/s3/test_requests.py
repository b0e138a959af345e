"""Requests of a small table's runs, which `benchmarks/scale_model.py` counts with."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.s3 import delivery
from tests.s3.conftest import Server
from tests.s3.faulty import Way

REQUESTS_OF_A_BATCH = {"lists": 5, "reads": 20, "writes": 10}
"""Of one small table that has a change file, its ledger and its results; `writes` are PUT, COPY and POST."""
KINDS = {"GET": "reads", "HEAD": "reads", "PUT": "writes", "POST": "writes", "DELETE": "free"}


def kind_of(request: str) -> str:
    method, path = request.split(" ", 1)
    if path.endswith("?delete"):
        return "free"
    return "lists" if method == "GET" and "list-type=2" in path else KINDS[method]


@pytest.mark.core
def test_a_small_batch_sends_as_many_as_the_model_of_a_day_assumes(server: Server, way: Way) -> None:
    place = server.place(way.endpoint)
    delivery.deliver(place, ["a"])
    delivery.run_here(place, ["a"], "first")
    counted: Counter[str] = Counter()
    for number in range(2, 12):  # as many as lie between two checkpoints
        row = {"Op": ["U", "I"], "seq": [10 * number, 10 * number + 1], "id": [1, 20 + number], "v": ["x", "y"]}
        delivery.put(place, "a", f"20240101-{number:09d}", row)
        way.requests.clear()
        assert delivery.run_here(place, ["a"], f"run-{number}")["a"].status == "succeeded"
        counted.update(map(kind_of, way.requests))
    for name, assumed in REQUESTS_OF_A_BATCH.items():
        assert 0.8 * assumed <= counted[name] / 10 <= 1.2 * assumed, (name, counted, assumed)
