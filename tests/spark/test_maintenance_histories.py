"""Random histories with erasures, refreshes, resyncs and maintenance at any point, dead runs among them.

Each is played three times: by the engine in question, by the other one or both in turn, and undisturbed by one that
neither maintains nor erases. The first two have the same tables, and the others' replica and history but for the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import LocalPort
from tests.harness.examples import examples, rich
from tests.harness.lake import Lake, read
from tests.harness.strategies import Case
from tests.one_task.test_erase_histories import chosen_key
from tests.oracle import Value
from tests.spark.maintenance_world import OPTIONS, SORTS, MaintainedCase, MaintenanceAction, World, histories
from tests.spark.table_lines import by_engine, differences, everything, of_other_keys, readable

# What a table without a good row, or without files that its changes came from, may say to these; else it is a fault.
_HARMLESS = ("TABLE_WITHOUT_KEYS", "NOTHING_TO_REFRESH", "CHANGES_INCOMPATIBLE")


def drawn_histories(counts: Mapping[str, int]) -> list[MaintainedCase]:
    found = [kept for sort, count in counts.items() for kept in rich(histories(sort), count)]
    return [
        replace(kept, case=replace(kept.case, spec=replace(kept.case.spec, table=f"s.t{n:03d}")))
        for n, kept in enumerate(found)
    ]


def key_of(kept: MaintainedCase, number: int) -> dict[str, Value] | None:
    """The key that is erased by then; null: none is."""
    return chosen_key(kept.case) if kept.case.spec.keys and number >= kept.erased_at else None


def disturbed(world: World, found: Sequence[MaintainedCase], number: int) -> None:
    """A run with all that befalls it."""
    rounds = {kept.case.spec.table: kept.rounds[number] for kept in found}
    active = [kept.case for kept in found]
    for case in active:
        world.land(case, number)
    world.load(active, {table: one.dies for table, one in rounds.items()})
    world.maintain([case for case in active if rounds[case.spec.table].between])
    world.load(active)
    _lose(world, found, number)
    for what in OPTIONS:
        chosen = [case for case in active if rounds[case.spec.table].then == what]
        world.keep(chosen, what, {case.spec.table: rounds[case.spec.table].then_dies for case in chosen})
        world.maintain([case for case in chosen if rounds[case.spec.table].between])
        world.keep(chosen, what)
    for kept in found:
        if kept.case.spec.keys and number >= kept.erased_at:  # whoever has the key later lives until asked for again
            key = {name: str(value) for name, value in chosen_key(kept.case).items()}
            world.erase(kept.case, key, kept.erasing_dies)
            world.erase(kept.case, key)


def undisturbed(world: World, found: Sequence[MaintainedCase], number: int) -> None:
    """The same run without deaths, maintenance and erasures."""
    for kept in found:
        world.land(kept.case, number)
    world.load([kept.case for kept in found])
    _lose(world, found, number)
    whats: tuple[MaintenanceAction, ...] = ("rebuild", "reload", "replay")
    for what in whats:
        world.keep([kept.case for kept in found if kept.rounds[number].then == what], what)


def _lose(world: World, found: Sequence[MaintainedCase], number: int) -> None:
    for kept in found:
        if kept.rounds[number].loses:
            world.lose(kept.case, number)


def judge(worlds: Sequence[World], kept: MaintainedCase, number: int) -> list[str]:
    """What is wrong after a run; `worlds` end with the undisturbed one."""
    case, layouts = kept.case, [world.lake.layout(kept.case.spec) for world in worlds]
    first, *others = [everything(layout) for layout in layouts[:-1]]
    wrong = [line for other in others for line in differences(first, other)]
    key = key_of(kept, number)
    wanted = of_other_keys(by_engine(layouts[-1]), key)
    for layout in layouts[:-1]:
        wrong += differences(wanted, of_other_keys(by_engine(layout), key))
        wrong += forgotten(case, layout, key) if key is not None else []
    return wrong


def forgotten(case: Case, layout: object, key: Mapping[str, Value]) -> list[str]:
    """Rows that name the key, as their own or in a before image."""
    found = []
    for table in ("changes", "replica", "history", "tombstones"):
        for row in read(getattr(layout, table)):
            own = all(row[k] == v for k, v in key.items())
            if own or all(row.get(f"BI_{k}") == v for k, v in key.items()):
                found.append(f"{table} holds {row}")
    return found


def play(found: Sequence[MaintainedCase], worlds: Sequence[World]) -> str:
    """What is wrong with which history; empty when all is right. One found wrong is played no further."""
    wrong: dict[str, list[str]] = {}
    for number in range(max(len(kept.case.runs) for kept in found)):
        active = [k for k in found if number < len(k.rounds) and k.case.spec.table not in wrong]
        for world in worlds[:-1]:
            disturbed(world, active, number)
        undisturbed(worlds[-1], active, number)
        for kept in active:
            table = kept.case.spec.table
            faults = [c for world in worlds for c in world.codes.get(table, ()) if not any(h in c for h in _HARMLESS)]
            faults += judge(worlds, kept, number)
            if faults:
                wrong[table] = [f"after run {number} of {kept.rounds}, {kept.erased_at}, {kept.erasing_dies}:", *faults]
    right = [kept.case for kept in found if kept.case.spec.table not in wrong]
    for world in worlds:
        world.verify(right)
        for case in right:
            faults = [code for code in world.codes.get(case.spec.table, ()) if code.startswith("verify")]
            if faults:
                wrong[case.spec.table] = faults
    cases = {kept.case.spec.table: kept.case for kept in found}
    return "\n\n".join("\n".join([readable(cases[table]), *lines]) for table, lines in wrong.items())


@pytest.mark.deep
@pytest.mark.parametrize("count", [4, pytest.param(8, marks=pytest.mark.deep)])
@pytest.mark.parametrize("sort", SORTS)
def test_maintenance_at_any_point_changes_no_rows(sort: str, count: int, tmp_path: Path) -> None:
    """Without Spark."""
    port = LocalPort("one")
    worlds = [World([port], Lake(tmp_path / name)) for name in ("kept", "plain")]
    report = play(drawn_histories({sort: examples(count)}), worlds)
    assert not report, "\n" + report


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    ("turns", "counts"),
    [
        pytest.param(False, {"everything": 1}, marks=pytest.mark.deep),
        pytest.param(False, {"everything": 6, "cut": 4, "keyless": 2}, marks=pytest.mark.deep),
        pytest.param(True, {"everything": 6, "cut": 4, "keyless": 2}, marks=pytest.mark.deep),
    ],
    ids=["few", "many", "in turn"],
)
def test_engines_agree_after_maintenance(
    turns: bool, counts: Mapping[str, int], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """With `turns` the one lake is kept by both, job after job."""
    if request.config.getoption("--tasks") != "both":
        pytest.skip("it takes both engines")
    spark, small = LocalPort("many"), LocalPort("one")
    ports = ([spark, small] if turns else [spark], [small], [small])
    worlds = [World(own, Lake(tmp_path / name)) for own, name in zip(ports, ("one", "other", "plain"), strict=True)]
    report = play(drawn_histories(counts), worlds)
    assert not report, "\n" + report
