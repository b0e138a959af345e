"""What holds for every plan, whatever the schemas and policies."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from hypothesis import assume, example, given
from hypothesis import strategies as st

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.names import landed_name
from airflow_gddl.contract.sql_types import (
    ArrayType,
    DecimalType,
    MapType,
    ScalarName,
    ScalarType,
    SqlType,
    StructField,
    StructType,
    is_complex,
    without_void,
)
from airflow_gddl.contract.table_spec import (
    DroppedColumnPolicy,
    NewColumnPolicy,
    SchemaEvolution,
    TypeChangePolicy,
)
from spark_jobs.plan.schema_evolution import STRING, SchemaPlan, SchemaRules, plan_schema
from spark_jobs.plan.table_schema import Column, LandedGroup, Schema, land
from spark_jobs.plan.types import NOTHING, lossless, merge

NAMES = ["id", "Id", "a", "b", "a b", "c", "_gddl", "__v"]
SCALARS = [
    *(ScalarType(name) for name in get_args(ScalarName)),
    *(DecimalType(precision, scale) for precision, scale in ((4, 0), (10, 2), (8, 4), (38, 0), (30, 15))),
]


def _by_lower_name(names: list[str]) -> list[str]:
    return list({landed_name(name).lower(): name for name in names}.values())


def _structs(inner: st.SearchStrategy[SqlType]) -> st.SearchStrategy[SqlType]:
    names = st.lists(st.sampled_from(["x", "X", "y", "z z"]), min_size=1, max_size=3).map(_by_lower_name)
    return names.flatmap(
        lambda found: st.tuples(*(st.builds(StructField, st.just(name), inner) for name in found)).map(StructType)
    )


TYPES: st.SearchStrategy[SqlType] = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: (
        st.builds(ArrayType, inner) | st.builds(MapType, st.sampled_from(SCALARS[1:4]), inner) | _structs(inner)
    ),
    max_leaves=4,
)
COLUMNS = (
    st.lists(st.sampled_from(NAMES), max_size=6)
    .map(_by_lower_name)
    .flatmap(lambda names: st.tuples(*(st.builds(Column, st.just(name), TYPES) for name in names)))
)
GROUPS = st.lists(st.tuples(COLUMNS, st.booleans()), max_size=4).map(
    lambda found: tuple(
        land(f"f{number}", columns, only_deletes=only_deletes) for number, (columns, only_deletes) in enumerate(found)
    )
)
EVOLUTIONS = st.builds(
    SchemaEvolution,
    new_column=st.sampled_from(get_args(NewColumnPolicy)),
    type_change=st.sampled_from(get_args(TypeChangePolicy)),
    dropped_column=st.sampled_from(get_args(DroppedColumnPolicy)),
)
RULES = EVOLUTIONS.map(lambda evolution: SchemaRules(evolution=evolution))


def _tables(groups: tuple[LandedGroup, ...]) -> Schema | None:
    """What an earlier batch made: a table's columns have landed names and no void parts."""
    return plan_schema(None, groups, SchemaRules(evolution=SchemaEvolution())).target if groups else None


TABLES = GROUPS.map(_tables)


def _plan(table: Schema | None, groups: tuple[LandedGroup, ...], rules: SchemaRules) -> SchemaPlan:
    try:
        return plan_schema(table, groups, rules)
    except FatalError as error:
        # Nothing but a policy of `fail` refuses: names are distinct here, all types supported, no keys asked for.
        policies = (rules.evolution.new_column, rules.evolution.type_change, rules.evolution.dropped_column)
        assume(error.code != "SCHEMA_REFUSED" or "fail" not in policies)
        raise


@given(TABLES, GROUPS, RULES)
def test_planning_again_changes_nothing(
    table: Schema | None, groups: tuple[LandedGroup, ...], rules: SchemaRules
) -> None:
    first = _plan(table, groups, rules)
    # Not through `_plan`: a repeated batch must not be refused where the first was not.
    again = plan_schema(first.target, groups, rules)
    assert again.target == first.target
    assert (again.additions, again.widenings, again.changes) == ((), (), ())
    if table is not None:
        assert again.groups == first.groups


@example(
    Schema((Column("id", ScalarType("boolean")),)),
    (land("f0", (Column("id", ScalarType("tinyint")),), only_deletes=False),),
    SchemaRules(evolution=SchemaEvolution(type_change="text")),
)
@given(TABLES, GROUPS, RULES)
def test_the_table_keeps_its_columns_in_order_and_no_type_narrows(
    table: Schema | None, groups: tuple[LandedGroup, ...], rules: SchemaRules
) -> None:
    assume(table is not None)
    assert table is not None
    found = _plan(table, groups, rules)
    assert found.target.names[: len(table.columns)] == table.names
    is_text = rules.evolution.type_change == "text"  # for good, where no type is for both
    for before, after in zip(table.columns, found.target.columns, strict=False):
        if not (is_text and after.type == STRING):
            assert merge(after.type, before.type, NOTHING) == after.type, f"{before} -> {after}"


@given(TABLES, GROUPS, RULES)
def test_every_delivered_column_goes_to_exactly_one_place(
    table: Schema | None, groups: tuple[LandedGroup, ...], rules: SchemaRules
) -> None:
    found = _plan(table, groups, rules)
    for group, plan in zip(groups, found.groups, strict=True):
        mapped = [action.source for action in plan.actions if action.source is not None]
        assert sorted([*mapped, *plan.rescued, *plan.ignored]) == sorted(column.source.name for column in group.columns)
        assert [action.target for action in plan.actions] == list(found.target.columns)


@given(TABLES, GROUPS, RULES)
def test_void_columns_are_ignored_unless_the_policy_adds_them(
    table: Schema | None, groups: tuple[LandedGroup, ...], rules: SchemaRules
) -> None:
    found = _plan(table, groups, rules)
    for group, plan in zip(groups, found.groups, strict=True):
        lost = [c for c in group.columns if c.source.name in plan.ignored and without_void(c.type)]
        assert not lost or (rules.evolution.new_column == "ignore" and table is not None)


@given(TABLES, GROUPS, RULES)
def test_actions_do_what_they_say(table: Schema | None, groups: tuple[LandedGroup, ...], rules: SchemaRules) -> None:
    found = _plan(table, groups, rules)
    for action in (action for plan in found.groups for action in plan.actions):
        if action.how == "same":
            assert action.source_type == action.target.type
        if action.how == "cast" and action.source_type is not None and not is_complex(action.source_type):
            assert lossless(action.source_type, action.target.type)
        assert action.how.startswith("missing") is (action.source is None)
        assert action.convertible or action.how == "fit"
        if rules.evolution.type_change == "fail":
            assert action.how != "fit"


@given(TABLES, GROUPS, RULES)
def test_the_order_of_columns_in_a_file_means_nothing_to_existing_ones(
    table: Schema | None, groups: tuple[LandedGroup, ...], rules: SchemaRules
) -> None:
    assume(table is not None)
    assert table is not None
    turned = tuple(replace(group, columns=tuple(reversed(group.columns))) for group in groups)
    first, second = _plan(table, groups, rules), _plan(table, turned, rules)
    count = len(table.columns)
    assert first.target.columns[:count] == second.target.columns[:count]
    assert set(first.target.columns) == set(second.target.columns)
    assert set(first.widenings) == set(second.widenings)
    for number, plan in enumerate(first.groups):
        assert plan.actions[:count] == second.groups[number].actions[:count]
