"""Section `sources` of `gddl.yaml`: source databases with settings for all of their tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_gddl.contract.checks import SOURCE_NAME
from airflow_gddl.contract.spec import TierSpec
from airflow_gddl.contract.spec_problem import FieldPath, SpecProblem
from airflow_gddl.contract.table_spec import STRICT
from airflow_gddl.metadata.checks import check_defaults
from airflow_gddl.metadata.layers import Layer
from airflow_gddl.metadata.roots import absolute
from airflow_gddl.metadata.validation import FieldShape, written
from airflow_gddl.metadata.values import Locate

SECTION = "sources"
_OWN = ("dialect", "owner", "target")
"""Fields of a source that are fields of its rows, too."""


@dataclass(frozen=True, kw_only=True)
class SourceSpec:
    """One source database."""

    __pydantic_config__ = STRICT

    landing: str | None = None
    """Root of its files: `<landing>/<schema>/<table>/`; null: `landing` of the settings."""
    dialect: str | None = None
    """`dialect` of its rows."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """`options` of its rows, entry by entry."""
    connection: str | None = None
    """Name of the variable or Airflow connection that reaches the database: `verify_connection` of its rows."""
    owner: str | None = None
    """`owner` of its rows."""
    target: str | None = None
    """`target` of its rows, e.g. `{source}_{schema}.{table}`."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Other fields for every row of the source that does not set them."""


SOURCE = FieldShape(SourceSpec)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A source as rows use it. `landing`: absolute; `layer`: between the defaults of files and of the settings."""

    landing: str
    layer: Layer


def build_sources(
    section: Mapping[str, Any], tiers: Mapping[str, TierSpec], places: tuple[str, str], layer: Layer
) -> tuple[dict[str, Source], tuple[SpecProblem, ...]]:
    """Sources by short name, and what is wrong with the section (paths start with `sources`).

    Args:
        places: the absolute landing root of the settings, and the folder that relative roots are relative to.
        layer: of the settings' file.
    """
    sources: dict[str, Source] = {}
    problems: list[SpecProblem] = []
    for name, entry in section.items():
        found = _source(name, {} if entry is None else entry, tiers, places, layer)
        if isinstance(found, Source):
            sources[name] = found
        else:
            problems += found
    return sources, tuple(problems)


def _source(
    name: str, entry: Any, tiers: Mapping[str, TierSpec], places: tuple[str, str], layer: Layer
) -> Source | tuple[SpecProblem, ...]:
    path: FieldPath = (SECTION, name)
    if not SOURCE_NAME.fullmatch(name):
        remedy = "use letters, digits, _ . and - (64 at most), e.g. crm"
        return (SpecProblem("SOURCE_INVALID", path, name, "not a name that a DAG id can carry", remedy),)
    if not isinstance(entry, Mapping):
        return (SpecProblem("FIELD_TYPE", path, entry, "must be a mapping", "write e.g. {landing: ../crm}"),)
    spec = SOURCE.build(entry, path)
    if isinstance(spec, tuple):
        return spec
    values, locations = _values(spec)
    problems: list[SpecProblem] = []
    if "source" in spec.defaults:
        place, message = (*path, "defaults", "source"), "rows of a source are those that name it"
        problems.append(SpecProblem("FIELD_REFUSED", place, spec.defaults["source"], message, "remove it"))
    problems += (replace(p, path=_place(path, locations, p.path)) for p in check_defaults(values, tiers))
    landing = _landing(spec, path, places)
    if isinstance(landing, SpecProblem):
        problems.append(landing)
    if problems or isinstance(landing, SpecProblem):
        return tuple(problems)
    return Source(landing=landing, layer=Layer(file=layer.file, values=values, locate=_locate(layer, path, locations)))


def _values(spec: SourceSpec) -> tuple[dict[str, Any], dict[FieldPath, FieldPath]]:
    """Fields of rows, and where those stand, below the source, that are not among its defaults."""
    values = written(dict(spec.defaults))
    locations: dict[FieldPath, FieldPath] = {}
    for name in _OWN:
        if (value := getattr(spec, name)) is not None:
            values[name] = value
            locations[name,] = (name,)
    below = values.get("options")
    options = {**(below if isinstance(below, Mapping) else {}), **spec.options}
    locations |= {("options", name): ("options", name) for name in spec.options}
    if spec.connection is not None:
        options["verify_connection"] = spec.connection
        locations["options", "verify_connection"] = ("connection",)
    return values | ({"options": options} if options else {}), locations


def _landing(spec: SourceSpec, path: FieldPath, places: tuple[str, str]) -> str | SpecProblem:
    shared, base = places
    if spec.landing is None:
        return shared
    try:
        return absolute(spec.landing, base)
    except ValueError as error:
        remedy = "write landing: with an absolute path or s3://bucket/prefix, or leave it out"
        return SpecProblem("ROOT_INVALID", (*path, "landing"), spec.landing, f"not a usable root: {error}", remedy)


def _place(path: FieldPath, locations: Mapping[FieldPath, FieldPath], inner: FieldPath) -> FieldPath:
    for length in range(len(inner), 0, -1):
        if (found := locations.get(inner[:length])) is not None:
            return (*path, *found, *inner[length:])
    return (*path, "defaults", *inner)


def _locate(layer: Layer, path: FieldPath, locations: Mapping[FieldPath, FieldPath]) -> Locate:
    return lambda inner: layer.locate(_place(path, locations, inner))
