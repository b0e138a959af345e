"""Derives findings from the content of a folder; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from airflow_gddl.contract.dms import COMMIT_TIMES, TOTAL_ORDER
from airflow_gddl.onboarding.inspection import findings
from airflow_gddl.onboarding.inspection.findings import Finding
from airflow_gddl.onboarding.inspection.reading import InspectionRequest, service_columns
from airflow_gddl.onboarding.landing_files import Footer
from airflow_gddl.onboarding.landing_rules import before_prefix

LEAST_GROUP_ROWS, LEAST_GROUP_BYTES = 5_000, 1024**2
"""Row groups with fewer rows and bytes on the average, in a file of several, are small."""


def judge(request: InspectionRequest) -> tuple[Finding, ...]:
    """All findings of a table, in the order of the rules."""
    return tuple(found for rule in _RULES for found in rule(request))


def _order(request: InspectionRequest) -> Iterator[Finding]:
    changes = request.folder.footers_of("change")
    if not changes:
        return
    newest, table = changes[-1], request.folder.table
    own = () if request.spec is None else request.spec.sequence_by
    times = tuple(name for name in (service_columns(request.spec).timestamp_column, *COMMIT_TIMES) if name)
    if own and not _lower(own) <= _lower(times):
        missing = [name for name in own if name.lower() not in _lower(newest.columns)]
        if missing:
            evidence = f"sequence_by names {missing[0]}, which the file lacks"
            yield findings.NO_SEQUENCE.at(table, newest.file.name, evidence)
        return
    if _lower(TOTAL_ORDER) & _lower(newest.columns) and not own:
        return
    found = [name for name in newest.columns if name.lower() in _lower(times)]
    columns = f"columns {', '.join(newest.columns)}"
    if found:
        yield findings.ORDER_BY_COMMIT_TIME.at(
            table, newest.file.name, f"{found[0]}, and none of {', '.join(TOTAL_ORDER)}"
        )
    else:
        yield findings.NO_SEQUENCE.at(table, newest.file.name, columns[:300])


def _texts(request: InspectionRequest) -> Iterator[Finding]:
    declared = _lower(() if request.spec is None else request.spec.options.get("types", {}))
    for column, seen in request.times.items():
        if column.lower() not in declared:
            yield findings.TEXT_TIMESTAMPS.at(
                request.folder.table, seen.file, f"{column} holds {seen.value!r}, as text"
            )


def _groups(request: InspectionRequest) -> Iterator[Finding]:
    small = [footer for footer in request.folder.footers if _has_small_groups(footer)]
    if small:
        worst = max(small, key=lambda footer: len(footer.group_rows))
        average = worst.rows / len(worst.group_rows)
        evidence = f"{len(worst.group_rows)} row groups of {average:,.0f} rows; {len(small)} such files"
        yield findings.SMALL_ROW_GROUPS.at(request.folder.table, worst.file.name, evidence)


def _has_small_groups(footer: Footer) -> bool:
    groups = len(footer.group_rows)
    if groups < 2 or footer.rows >= LEAST_GROUP_ROWS * groups:
        return False
    return sum(footer.group_bytes) < LEAST_GROUP_BYTES * groups


def _operation(request: InspectionRequest) -> Iterator[Finding]:
    loads, changes = request.folder.footers_of("load"), request.folder.footers_of("change")
    name = service_columns(request.spec).op_column
    bare = [footer for footer in loads if name.lower() not in _lower(footer.columns)]
    if bare and any(name.lower() in _lower(footer.columns) for footer in changes):
        evidence = f"first column {next(iter(bare[0].columns), '(none)')}; change files have {name}"
        yield findings.FULL_LOAD_WITHOUT_OP.at(request.folder.table, bare[0].file.name, evidence)


def _large_objects(request: InspectionRequest) -> Iterator[Finding]:
    for column, seen in request.cut.items():
        yield findings.LOB_TRUNCATED.at(request.folder.table, seen.file, f"{column}: {seen.value}")


def _units(request: InspectionRequest) -> Iterator[Finding]:
    """One unit for all times of a table; a column that changes its unit is named, else two columns that differ."""
    first: dict[str, tuple[str, str, str]] = {}
    for footer in request.folder.footers:
        for column, kind in footer.columns.items():
            if not kind.startswith("timestamp["):
                continue
            unit = kind[len("timestamp[") :].partition(",")[0].rstrip("]")
            other = first.setdefault(column, (unit, column, footer.file.name))
            other = other if other[0] != unit else next((o for o in first.values() if o[0] != unit), other)
            if other[0] != unit:
                evidence = f"{column} in {unit}, {other[1]} in {other[0]} ({other[2]})"
                yield findings.MIXED_TIMESTAMP_UNITS.at(request.folder.table, footer.file.name, evidence)
                return


def _before_images(request: InspectionRequest) -> Iterator[Finding]:
    changes = request.folder.footers_of("change")
    prefix = None if request.spec is None else request.spec.before_image_prefix
    table = request.folder.table
    if prefix is not None and changes and not any(name.startswith(prefix) for name in changes[-1].columns):
        evidence = f"before_image_prefix is {prefix}, and no column begins with it"
        yield findings.NO_BEFORE_IMAGES.at(table, changes[-1].file.name, evidence)
    elif request.updates_without_row and not (changes and before_prefix(changes[-1].columns)):
        evidence = f"{request.updates_without_row[0].value}; {len(request.updates_without_row)} such updates"
        yield findings.NO_BEFORE_IMAGES.at(table, request.updates_without_row[0].file, evidence)


def _format(request: InspectionRequest) -> Iterator[Finding]:
    plain = [file for file in request.folder.files if file.format == "csv"]
    if plain:
        number = f"{len(plain)} file{'s' if len(plain) > 1 else ''}"
        yield findings.NOT_PARQUET.at(request.folder.table, plain[0].name, number)
    for name, why in request.folder.unreadable.items():
        yield findings.FILE_UNREADABLE.at(request.folder.table, name, why)


def _lower(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


_RULES = (_order, _texts, _groups, _operation, _large_objects, _units, _before_images, _format)
