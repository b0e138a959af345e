"""Events of a file transport, checked against the classes that OpenLineage generates from its published schemas."""

from __future__ import annotations

import json
import types
import typing
from enum import Enum
from pathlib import Path
from typing import Any, Union

import attr
from openlineage.client.event_v2 import RunEvent
from openlineage.client.facet_v2 import (
    column_lineage_dataset,
    dataset_version_dataset,
    input_statistics_input_dataset,
    lifecycle_state_change_dataset,
    output_statistics_output_dataset,
    schema_dataset,
)

FACETS: dict[str, Any] = {
    "schema": schema_dataset.SchemaDatasetFacet,
    "columnLineage": column_lineage_dataset.ColumnLineageDatasetFacet,
    "version": dataset_version_dataset.DatasetVersionDatasetFacet,
    "lifecycleStateChange": lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet,
    "inputStatistics": input_statistics_input_dataset.InputStatisticsInputDatasetFacet,
    "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
}


def events(path: Path, job: str) -> list[dict[str, Any]]:
    """Events of the ends of runs (`COMPLETE`, `FAIL`) of a job, in order; each one valid."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = [line for line in lines if line["job"]["name"] == job and line["eventType"] in ("COMPLETE", "FAIL")]
    for event in found:
        require_valid(event)
    return found


def require_valid(event: dict[str, Any]) -> None:
    """The event, and each facet of its datasets by its own class and under its class's schema.

    Raises:
        AssertionError: what is wrong, and where.
    """
    _require(RunEvent, event, "event")
    for kind in ("inputs", "outputs"):
        for dataset in event[kind]:
            for facets in ("facets", f"{kind[:-1]}Facets"):
                for name, facet in dataset.get(facets, {}).items():
                    expected = FACETS[name]
                    assert facet["_schemaURL"] == expected._get_schema(), (name, facet["_schemaURL"])
                    assert facet["_producer"].startswith("https://"), facet
                    _require(expected, facet, f"{dataset['name']}.{name}")


def _require(hint: Any, value: Any, path: str) -> None:
    if attr.has(hint):
        _require_fields(hint, value, path)
        return
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        options = [option for option in arguments if option is not type(None)]
        assert value is not None, f"{path} is null"
        _require(options[0], value, path)
    elif origin is list:
        assert isinstance(value, list), path
        for number, item in enumerate(value):
            _require(arguments[0], item, f"{path}[{number}]")
    elif origin is dict:
        assert isinstance(value, dict), path
        for key, item in value.items():
            _require(arguments[1], item, f"{path}.{key}")
    elif isinstance(hint, type) and issubclass(hint, Enum):
        assert value in [member.value for member in hint], f"{path}: {value!r}"
    elif isinstance(hint, type) and hint is not object:
        assert type(value) is hint, f"{path}: {value!r} is not {hint.__name__}"


def _require_fields(cls: type, value: Any, path: str) -> None:
    """All fields without a default, no others where the class knows all, each of its type."""
    assert isinstance(value, dict), path
    hints = typing.get_type_hints(cls)
    known = {field.name: field for field in attr.fields(cls)}
    missing = [name for name, field in known.items() if field.default is attr.NOTHING and name not in value]
    assert not missing, f"{path} lacks {missing}"
    if cls in FACETS.values() or not cls.__name__.endswith("Facet"):
        assert value.keys() <= known.keys(), f"{path} has also {value.keys() - known.keys()}"
    for name, item in value.items():
        if name in known:
            _require(hints[name], item, f"{path}.{name}")
