"""A batch in a bucket is compared with Spark's `MERGE`: both sides name the table's files by their URIs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.s3 import delivery
from tests.s3.conftest import Place
from tests.s3.job_port import JobPort


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_batch_is_compared_and_both_sides_are_removed(place: Place) -> None:
    delivery.put(place, "a", "LOAD00000001", {"id": [1, 2, 3], "v": ["a", "b", "c"]})
    job = delivery.job(place, ["a"])
    job = replace(job, tables=tuple(replace(spec, shadow=True, history=True) for spec in job.tables))
    assert delivery.run_here(place, ["a"])["a"].status == "succeeded"
    delivery.put(place, "a", "20240101-000000001", {"Op": ["U", "D"], "seq": [1, 2], "id": [1, 2], "v": ["new", None]})
    (result,) = JobPort("many", place.environ).run(job)
    assert result.status == "succeeded", result.error
    assert (result.features["shadow.compared"], result.features["shadow.differences"]) == (1, 0), result.features
    assert delivery.objects(place, "lake/_gddl/shadow") == []
