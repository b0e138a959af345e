"""Plans the onboarding of a source up to writing: facts, proposals, texts, validation; settings of DMS."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_gddl.contract.codes import ONBOARD_NO_KEY, ONBOARD_REFUSED, ONBOARD_ROW_ELSEWHERE, TABLE_DUPLICATE
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.extensions import TOTAL_ORDER
from airflow_gddl.contract.s3 import is_s3, split
from airflow_gddl.contract.spec import TableSpec, TierSpec
from airflow_gddl.metadata.folder import Folder
from airflow_gddl.metadata.loading import LoadedMetadata, load_folder
from airflow_gddl.metadata.problems import Problem, show_name
from airflow_gddl.metadata.settings import Settings
from airflow_gddl.tools.onboarding.rules import Notice, Proposal, SourceFacts, TableFacts, propose
from airflow_gddl.tools.onboarding.writing import FileChange, SourceFiles, read_files, write_out


@dataclass(frozen=True, kw_only=True)
class OnboardingPlan:
    """Files to write, the rows in them, and notices."""

    files: tuple[FileChange, ...]
    rows: tuple[Proposal, ...]
    notices: tuple[Notice, ...]


@dataclass(frozen=True)
class Overlay:
    """A folder overlaid with changed files."""

    below: Folder
    files: Mapping[str, str]

    @property
    def base(self) -> str:
        return self.below.base

    def names(self, below: str) -> list[str]:
        overlaid = (name for name in self.files if name.startswith(f"{below}/"))
        return sorted({*self.below.names(below), *overlaid})

    def read(self, name: str) -> bytes:
        return self.files[name].encode() if name in self.files else self.below.read(name)


def make_plan(
    folder: Folder, settings: Settings, source: str, facts: SourceFacts, environ: Mapping[str, str]
) -> OnboardingPlan:
    """Nothing is written.

    Raises:
        MetadataError: `ONBOARD_REFUSED`.
    """
    files = read_files(folder, settings, source)
    had = load_folder(folder, environ)
    left_out: dict[str, Notice] = {}
    for _ in range(2):
        plan = _attempt(files, source, facts, settings.tiers, left_out)
        new_problems = _new_problems(had, folder, plan, environ)
        if not new_problems:
            return replace(plan, notices=(*plan.notices, *left_out.values()))
        for table, problem in _touched(plan, new_problems):
            left_out.setdefault(table, _refusal(table, problem))
    raise MetadataError(
        ONBOARD_REFUSED, f"the files would be invalid: {new_problems[0]}", remedy=new_problems[0].remedy
    )


def _attempt(
    files: SourceFiles, source: str, facts: SourceFacts, tiers: Mapping[str, TierSpec], left_out: Mapping[str, Notice]
) -> OnboardingPlan:
    notices = list(facts.notices)
    rows: list[Proposal] = []
    seen: dict[str, str] = {}
    for table in sorted(facts.tables, key=lambda one: one.table):
        if notice := _obstacle(table, files, seen):
            notices.append(notice)
        elif table.table.lower() not in files.present and table.table not in left_out:
            row = propose(table, tiers)
            if files.named.get(table.table.lower()):  # its keys are in a file, whatever was found
                row = replace(row, fields={name: value for name, value in row.fields.items() if name != "enabled"})
            elif not row.keys:
                notices.append(_without_key(row.table))
            rows.append(row)
        seen.setdefault(table.table.lower(), table.table)
    return OnboardingPlan(files=write_out(files, source, rows), rows=tuple(rows), notices=tuple(notices))


def _obstacle(table: TableFacts, files: SourceFiles, seen: Mapping[str, str]) -> Notice | None:
    """Why a table gets no row here; None: it gets one."""
    name = table.table
    if other := seen.get(name.lower()):
        message = f"differs from {other} only by case; some readers can't distinguish their folders and tables"
        return Notice(
            table=name, code=TABLE_DUPLICATE, message=message, remedy="rename one with a rule of the CDC task"
        )
    if name.lower() not in files.present and (place := files.elsewhere.get(name.lower())):
        message = f"has its metadata row in {place}, for another source"
        return Notice(table=name, code=ONBOARD_ROW_ELSEWHERE, message=message)
    return None


def _without_key(table: str) -> Notice:
    message = "no primary key, no unique index without nulls, and nothing measured: the metadata row is not enabled"
    remedy = "name its keys, or leave [] for a table that only ever gets inserts; then remove enabled: false"
    return Notice(table=table, code=ONBOARD_NO_KEY, message=message, remedy=remedy)


def _new_problems(
    had: LoadedMetadata, folder: Folder, plan: OnboardingPlan, environ: Mapping[str, str]
) -> list[Problem]:
    """New problems that the changes would cause."""
    if not plan.files:
        return []
    known = {(problem.code, problem.table, problem.field, problem.file) for problem in had.problems}
    would = load_folder(Overlay(folder, {change.name: change.new for change in plan.files}), environ)
    return [p for p in would.problems if (p.code, p.table, p.field, p.file) not in known]


def _touched(plan: OnboardingPlan, problems: Iterable[Problem]) -> Iterable[tuple[str, Problem]]:
    """Tables of this plan with problems."""
    shown = {show_name(row.table): row.table for row in plan.rows}
    for problem in problems:
        if problem.table in shown:
            yield shown[problem.table], problem


def _refusal(table: str, problem: Problem) -> Notice:
    message = f"{problem.field + ': ' if problem.field else ''}{problem.message}"
    return Notice(table=table, code=problem.code, message=message, remedy=problem.remedy)


TASK_SETTINGS: Mapping[str, Any] = {
    "Logging": {"EnableLogging": True},
    # A reload overwrites load files by name; change files that are not loaded yet must stay.
    "FullLoadSettings": {"TargetTablePrepMode": "DO_NOTHING"},
    # Large objects up to so many kilobytes; longer ones are cut, which no file shows.
    "TargetMetadata": {"SupportLobs": True, "FullLobMode": False, "LimitedSizeLobMode": True, "LobMaxSize": 65536},
}
_SEQUENCE = TOTAL_ORDER[0]
_ALL = {"schema-name": "%", "table-name": "%"}


def table_mapping(tables: Sequence[TableSpec]) -> dict[str, list[dict[str, Any]]]:
    """Selection of these tables, the column that orders changes, and before images where rows name their prefix."""
    rules: list[dict[str, Any]] = [
        {"rule-type": "selection", "object-locator": _locator(table), "rule-action": "include", "filters": []}
        for table in tables
    ]
    rules.append(
        {
            "rule-type": "transformation",
            "rule-target": "column",
            "object-locator": _ALL,
            "rule-action": "add-column",
            "value": _SEQUENCE,
            "expression": f"${_SEQUENCE}",
            "data-type": {"type": "string", "length": 35},
        }
    )
    rules += [_before_images(table, table.before_image_prefix) for table in tables if table.before_image_prefix]
    return {"rules": [{"rule-id": str(n), "rule-name": f"rule-{n}", **rule} for n, rule in enumerate(rules, 1)]}


def endpoint_settings(landing: str) -> dict[str, Any]:
    """Settings of the task's S3 target endpoint.

    Args:
        landing: the root; for a local root, bucket names are placeholders.
    """
    bucket, folder = split(landing) if is_s3(landing) else ("BUCKET", "FOLDER")
    return {
        "BucketName": bucket,
        "BucketFolder": folder,
        "DataFormat": "parquet",
        "ParquetVersion": "parquet-2-0",
        "TimestampColumnName": "dms_timestamp",
        "IncludeOpForFullLoad": True,
    }


def connector_settings(tables: Sequence[TableSpec]) -> dict[str, str]:
    """Settings of a Debezium source connector besides its connection: whole events of all operations."""
    return {
        "table.include.list": ",".join(re.escape(table.name_in_source) for table in tables),
        "skipped.operations": "none",
        "tombstones.on.delete": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "true",
        "transforms": "route",
        "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.route.regex": r".*\.([^.]+)",
        "transforms.route.replacement": "$1",
    }


def pasted(mapping: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """A table mapping as JSON with a line for each rule."""
    rules = ",\n".join(f"  {json.dumps(rule)}" for rule in mapping["rules"])
    return f'{{"rules": [\n{rules}\n]}}'


def _locator(table: TableSpec) -> dict[str, str]:
    """Names with their underscores written as DMS reads them literally: alone, one stands for any character."""
    names = dict(zip(("schema-name", "table-name"), table.name_in_source.split(".", 1), strict=True))
    return {field: name.replace("_", "[_]") for field, name in names.items()}


def _before_images(table: TableSpec, prefix: str) -> dict[str, Any]:
    return {
        "rule-type": "transformation",
        "rule-target": "column",
        "object-locator": _locator(table),
        "rule-action": "add-before-image-columns",
        "before-image-def": {"column-prefix": prefix, "column-suffix": "", "column-filter": "pk-only"},
    }
