"""Random histories through the pipeline without a JVM: the oracle judges all tables after every run."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engines.in_process_lake import InProcessLake
from tests.oracle import replay
from tests.spark.playing import examples
from tests.spark.table_lines import by_engine, by_oracle, counts_of, differences
from tests.strategies import EVERYTHING, Case, Traits, cases, dense

SORTS = {
    "everything": dense(EVERYTHING),
    "loads": dense(Traits(loads_only=True, most_reloads=3)),
    "reloads": dense(Traits(most_reloads=3, steps=True)),
    "conditions": dense(Traits(conditions=True, renames=True, images=True, most_reloads=2)),
    "conditions of parts": dense(Traits(conditions=True, partial=True, variants=False)),
    "truncates": dense(Traits(truncates=True, most_reloads=2)),
    "truncates of parts": dense(Traits(truncates=True, partial=True, forced=True, renames=True, images=True)),
    "truncates without keys": dense(Traits(truncates=True, keyless=True)),
    "conditions without keys": dense(Traits(conditions=True, keyless=True)),
}
"""Beside those of `tests/spark/test_histories.py`, which the same pipeline plays, with repairs at the end."""


@pytest.mark.parametrize("sort", SORTS)
def test_pipeline_and_oracle_agree(sort: str) -> None:
    @settings(max_examples=examples(8), suppress_health_check=list(HealthCheck))
    @given(st.deferred(lambda: cases(SORTS[sort])))
    def agree(case: Case) -> None:
        with tempfile.TemporaryDirectory() as folder:
            _play(case, InProcessLake(Path(folder)))

    agree()


def _play(case: Case, lake: InProcessLake) -> None:
    for number, run in enumerate(case.runs):
        lake.land(case.spec, run, case.types)
        result = lake.run(case.spec)
        outcome = replay(case.spec, case.runs[: number + 1])
        assert differences(by_oracle(outcome, case.spec), by_engine(lake.layout(case.spec), lake.port.read)) == []
        assert counts_of(result) == outcome.counts[number]
    context, state = lake.table_run(case.spec).context(), lake.ledger(case.spec).state
    verdict = context.engine.verify(context, context.stored_schema(state), state.swept, limit=5)
    assert verdict.equal, verdict
