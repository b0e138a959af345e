"""Scenarios that Spark plays in each change, at least one of each rule; the others of them are of the deep lane.

Those with steps of Spark's own are chosen: merge, history, reload, schema, tasks. Order, values and texts of all others
are decided by functions that both places call, and one task plays all scenarios in each change.
"""

from __future__ import annotations

import pytest

from tests.scenarios.model import Scenario

ON_MANY_IN_THE_CORE = (
    "history_times",
    "history_versions",
    "quarantine_rows",
    "r02_net_change_per_key",
    "r04_rewritten_change_corrects",
    "r07_keys_swapped",
    "r09_reload",
    "r10_full_refresh",
    "r11_types_widened",
    "r12_columns_to_update",
    "truncate_forced",
    "where_updates_cross_the_filter",
)
"""By `make test`, as they are written."""
ON_MANY = (
    "derive_added_rebuilt",
    "dms_first_load_unreadable",
    "dms_types",
    "expect_policies",
    "keyless_reload",
    "r01_sequence_not_arrival",
    "r03_tombstone",
    "r05_bounded_batches",
    "r06_partition_values",
    "r08_delete_carries_only_the_key",
    "r10_nested_field_in_the_middle",
    "r10_rebuild_masks",
    "r11_becomes_text_as_a_key",
    "r12_masks",
    "r14_changed_keys",
    "r14_history_switched_on",
    "r14_soft_delete_switched_on_and_off",
    "rename_derive_where",
    "truncate_soft_and_history",
)
"""By `make test-wide`."""


def marks(scenario: Scenario, *, as_written: bool) -> tuple[pytest.MarkDecorator, ...]:
    """Lane of the scenario where its place is many tasks."""
    if scenario.name in ON_MANY_IN_THE_CORE:
        return (pytest.mark.core,) if as_written else ()
    return () if scenario.name in ON_MANY else (pytest.mark.deep_on_many,)
