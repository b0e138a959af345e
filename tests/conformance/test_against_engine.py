"""The model of Debezium's connector for PostgreSQL against the connector: equal but for times and ids.

A history is played as SQL on a real PostgreSQL under Debezium's embedded engine, and told by the model. What differs
in a byte is an error of the model. `CONFORMANCE_SEED` draws the cases of a run of the deep lane again.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterator, Mapping
from random import Random, SystemRandom
from typing import Any

import pytest
import sqlalchemy as sa

from tests.conformance.covering import Covering
from tests.conformance.history import drawn
from tests.conformance.kinds import KINDS
from tests.conformance.names import NAMES, Names, with_names
from tests.conformance.real_postgres import Played, without_ids
from tests.conformance.writers.debezium import Task
from tests.conformance.writers.debezium_postgres import DATABASE, Postgres
from tests.one_task.postgres import postgres

SEED = int(os.environ.get("CONFORMANCE_SEED") or SystemRandom().randint(1, 10**6))
WRITER = KINDS["debezium_postgres"]
NOT_OF_THE_ENGINE = ("sink", "partitions", "flush.size", "arrival")
"""Settings and events of what comes after the engine."""
NOT_PLAYED = ("interleaved", "resumed", "failed_over")
"""Two transactions at a time, and an engine that is killed: tests of their own, or none, show them."""


@functools.cache
def covering() -> Covering:
    factors = {name: v for name, v in WRITER.factors.items() if name not in (*NOT_OF_THE_ENGINE, *NOT_PLAYED)}
    usual = {name: WRITER.factors[name][0] for name in (*NOT_OF_THE_ENGINE, *NOT_PLAYED)}
    return Covering(factors, lambda case: WRITER.refusal({**usual, **case}))


def cases(seed: int) -> list[dict[str, Any]]:
    usual = {name: values[0] for name, values in WRITER.factors.items()}
    return [{**usual, **case} for case in covering().cases(Random(f"engine.{seed}"))]  # noqa: S311 - no secret


@pytest.fixture(scope="module")
def server() -> Iterator[sa.Engine]:
    with postgres(settings="wal_level = logical") as engine:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(sa.text(f"CREATE DATABASE {DATABASE} LC_COLLATE 'C' TEMPLATE template0"))
        yield sa.create_engine(engine.url.set(database=DATABASE), poolclass=sa.pool.NullPool)


def differences(server: sa.Engine, seed: str, case: Mapping[str, Any], names: Names) -> list[tuple[str, str]]:
    """Records of the engine and of the model that are not equal, from the first byte that differs."""
    history = with_names(drawn(seed, case, WRITER.columns), names, "debezium_postgres", seed)
    groups = list(Task(Postgres(history, case), history, case).messages())
    played = Played(server, history, case, [len(group) for group in groups])
    real = [f"{_text(record.key)} {_text(record.value)}" for record in played.play()]
    model = [f"{key or '-'} {value or '-'}" for group in groups for key, value in group]
    pairs = itertools.zip_longest(without_ids(real), without_ids(model), fillvalue="")
    return [_from_difference(one, other) for one, other in pairs if one != other]


def _text(data: bytes | None) -> str:
    return "-" if data is None else data.decode()


def _from_difference(one: str, other: str) -> tuple[str, str]:
    same = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
    begin = max(same - 60, 0)
    return one[begin : begin + 300], other[begin : begin + 300]


@pytest.mark.parametrize(("number", "names"), [(8, "technical"), (10, "envelope")])
def test_sample_is_what_the_engine_writes(server: sa.Engine, number: int, names: Names) -> None:
    case = cases(2)[number]
    assert differences(server, f"2.{number}", case, names) == [], case


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_the_model_writes_what_the_engine_writes(server: sa.Engine) -> None:
    """Each pair of settings and events of one seed."""
    drawn_cases = cases(SEED)
    print(f"\n{len(drawn_cases)} cases of CONFORMANCE_SEED={SEED} cover {len(covering().possible):,} pairs")
    for number, case in enumerate(drawn_cases):
        names = NAMES[number % len(NAMES)]
        assert differences(server, f"{SEED}.{number}", case, names) == [], (number, names, case)


def test_ids_and_times_are_all_that_is_left_out() -> None:
    """The ranks of places and transactions remain, so that an order which is not the engine's is found."""
    text = '{{"source":{{"ts_ms":{0},"sequence":"[\\"{1}\\",\\"{2}\\"]","txId":{3},"lsn":{2}}},"ts_ms":{0}}}'
    first, second = text.format(17, 5, 20, 700), text.format(18, 30, 40, 701)
    assert without_ids([first, second]) == without_ids([text.format(9, 1, 2, 3), text.format(9, 3, 4, 5)])
    assert without_ids([first, second]) != without_ids([first, text.format(18, 10, 40, 701)])
    assert without_ids([first, second]) != without_ids([first, text.format(18, 30, 40, 700)])
    assert without_ids([first, second]) != without_ids([second, first])
    assert "T" in without_ids([first])[0]
