"""Section `catalogs` of `gddl.yaml`, and checks of rows against it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from airflow_gddl.contract import durations
from airflow_gddl.contract.catalogs import TOKEN_PREFIX, CatalogSpec, EntryName, entry_name, template_fault
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.spec_problem import SpecProblem
from airflow_gddl.metadata.validation import FieldShape, near

CATALOG = FieldShape(CatalogSpec, remedies={"timeout": durations.remedy})
MAX_TIMEOUT_SECONDS = 60
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
_TOKEN = re.compile(rf"{TOKEN_PREFIX}[A-Z0-9_]{{1,100}}")
_ONLY: Mapping[str, tuple[str, ...]] = {
    "glue": ("region", "endpoint", "catalog_id"),
    "unity": ("url", "catalog_name", "token_env"),
    "hive": ("uri",),
}
_NEEDED: Mapping[str, tuple[str, ...]] = {"unity": ("url", "catalog_name")}
_SCHEMES: Mapping[str, tuple[str, ...]] = {
    "url": ("http", "https"),
    "endpoint": ("http", "https"),
    "uri": ("thrift",),
}


def build_catalogs(section: Mapping[str, Any]) -> tuple[dict[str, CatalogSpec], tuple[SpecProblem, ...]]:
    """Catalogs by name, and the problems of the section (paths start with `catalogs`)."""
    catalogs: dict[str, CatalogSpec] = {}
    problems: list[SpecProblem] = []
    for name, values in section.items():
        path = ("catalogs", name)
        if not _NAME.fullmatch(name):
            problems.append(SpecProblem("FIELD_VALUE", path, name, "not a catalog's name", "use letters, digits, _"))
            continue
        if not isinstance(values, Mapping):
            problems.append(SpecProblem("FIELD_TYPE", path, values, "must be a mapping", "write e.g. {kind: glue}"))
            continue
        built = CATALOG.build(values, path)
        found = built if isinstance(built, tuple) else tuple(_check(built, path))
        problems += found
        if isinstance(built, CatalogSpec) and not found:
            catalogs[name] = built
    return catalogs, tuple(problems)


def _check(spec: CatalogSpec, path: tuple[str, ...]) -> Iterator[SpecProblem]:
    for name in _NEEDED.get(spec.kind, ()):
        if getattr(spec, name) is None:
            yield SpecProblem("FIELD_MISSING", (*path, name), None, f"kind {spec.kind} needs it", f"add {name}")
    for kind, names in _ONLY.items():
        for name in names:
            if kind != spec.kind and (value := getattr(spec, name)) is not None:
                message = f"belongs to kind {kind}"
                yield SpecProblem("FIELD_VALUE", (*path, name), value, message, f"remove it, or write kind: {kind}")
    for name in ("database", "table"):
        value = getattr(spec, name)
        if fault := template_fault(value, of_table=name == "table"):
            yield SpecProblem("FIELD_VALUE", (*path, name), value, fault, "use {schema}, {source}; {table} in table")
    for name, schemes in _SCHEMES.items():
        value = getattr(spec, name)
        if value is not None and not _is_url(value, schemes):
            remedy = f"write e.g. {schemes[-1]}://host:port, without user and password"
            yield SpecProblem("FIELD_VALUE", (*path, name), value, f"not a URL of {' or '.join(schemes)}", remedy)
    yield from _limits(spec, path)


def _limits(spec: CatalogSpec, path: tuple[str, ...]) -> Iterator[SpecProblem]:
    if not durations.is_duration(spec.timeout):
        remedy = durations.remedy(spec.timeout)
        yield SpecProblem("DURATION_INVALID", (*path, "timeout"), spec.timeout, "not a duration", remedy)
    elif durations.seconds(spec.timeout) > MAX_TIMEOUT_SECONDS:
        message = "longer than a job may wait for a catalog"
        yield SpecProblem("FIELD_VALUE", (*path, "timeout"), spec.timeout, message, "write 60s or less, e.g. 5s")
    if not spec.tables:
        yield SpecProblem("FIELD_VALUE", (*path, "tables"), [], "names no table", "write e.g. [replica, history]")
    if spec.token_env is not None and not _TOKEN.fullmatch(spec.token_env):
        message = "not a variable that metadata may name"
        remedy = f"put the token into a variable such as {TOKEN_PREFIX}TOKEN, and write that name"
        yield SpecProblem("FIELD_VALUE", (*path, "token_env"), "(not shown)", message, remedy)


def _is_url(text: str, schemes: tuple[str, ...]) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in schemes and bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
    except ValueError:  # a port that is no number
        return False


def check_rows(
    specs: Iterable[TableSpec], catalogs: Mapping[str, CatalogSpec]
) -> Iterator[tuple[TableSpec, SpecProblem]]:
    """Problems of rows that name an unknown catalog, or whose table names collide with another row's."""
    taken: dict[tuple[str, EntryName], TableSpec] = {}
    for spec in specs:
        if spec.catalog is None:
            continue
        catalog = catalogs.get(spec.catalog)
        if catalog is None:
            remedy = near(spec.catalog, tuple(catalogs)) if catalogs else "describe it under catalogs: in gddl.yaml"
            yield spec, SpecProblem("CATALOG_UNKNOWN", ("catalog",), spec.catalog, "no such catalog", remedy)
            continue
        names = [entry_name(catalog, spec, kind) for kind in catalog.tables]
        first = next((taken[spec.catalog, name] for name in names if (spec.catalog, name) in taken), None)
        if first is not None:
            message = f"{first.table} has the name {names[0]} in this catalog (case does not count)"
            remedy = "give the catalog a database or table template that distinguishes them, or write catalog: null"
            yield spec, SpecProblem("CATALOG_NAME_COLLISION", ("catalog",), spec.catalog, message, remedy)
            continue
        taken |= {(spec.catalog, name): spec for name in names}
