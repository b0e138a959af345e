"""Section `sources` of `gddl.yaml`: source databases with settings for all of their tables."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from airflow_gddl.contract import durations
from airflow_gddl.contract.basics import STRICT
from airflow_gddl.contract.codes import (
    CATALOG_UNKNOWN,
    FIELD_MISSING,
    FIELD_REFUSED,
    FIELD_VALUE,
    LANDING_SHARED,
    TARGET_TAKEN,
)
from airflow_gddl.contract.errors import FieldPath, SpecProblem, below, problem_at
from airflow_gddl.contract.extensions import (
    CATALOGS,
    ICEBERG_KINDS,
    TOKEN_PREFIX,
    CaptureSpec,
    CatalogDescriptor,
    CatalogSpec,
    EntryName,
    entry_name,
)
from airflow_gddl.contract.iceberg_rest import is_catalog_connection
from airflow_gddl.contract.names import PLACEHOLDERS, template_fault
from airflow_gddl.contract.row_checks import SOURCE_NAME, wrong_durations
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.contract.source_access import SourceAccess
from airflow_gddl.contract.spec import Roots, TableSpec, TierSpec
from airflow_gddl.contract.table_spec import Origin, SourceType
from airflow_gddl.metadata.folder import FILE
from airflow_gddl.metadata.problems import Layer, Locate
from airflow_gddl.metadata.validation import ENTRY_NAME, FieldShape, build_entry, check_defaults, near, written

_S3 = re.compile(r"s3://[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?(/[^?#]*)?")
_VARIABLE = re.compile(r"\$\{|\{\{|%[A-Za-z_]+%|\$[A-Za-z_]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def absolute(root: str, base: str) -> str:
    """An absolute local path or an `s3://bucket/prefix`, without a slash at its end.

    Args:
        root: a local path, a `file://` URL or an `s3://` URL; relative ones are relative to `base`.
        base: the metadata folder: an absolute path or an `s3://` URL.

    Raises:
        ValueError: for anything else; its text says why and never holds the root.
    """
    if not root.strip() or root != root.strip() or not root.isprintable():
        raise ValueError("it is empty, or has blanks or control characters around it")
    if _VARIABLE.search(root):
        raise ValueError("variables are not replaced in it")
    if root.startswith("s3://"):
        return _s3(root)
    if root.startswith("file:"):
        return _file(root)
    if _SCHEME.match(root):
        raise ValueError("it is neither a local path nor s3:// (s3a:// and s3n:// are written s3://)")
    if root.startswith("~"):
        raise ValueError("~ is not replaced, since it differs between machines")
    if base.startswith("s3://") and not root.startswith("/"):
        return _below_url(base, root)
    return _normal(posixpath.join(base, root))


def _below_url(base: str, root: str) -> str:
    bucket, _, prefix = base.removeprefix("s3://").partition("/")
    path = posixpath.normpath(posixpath.join(prefix, root))
    if path.startswith(".."):
        raise ValueError("it climbs out of the bucket that holds the metadata")
    return f"s3://{bucket}" if path == "." else f"s3://{bucket}/{path}"


def _s3(root: str) -> str:
    if not _S3.fullmatch(root):
        raise ValueError("it is not s3://bucket or s3://bucket/prefix")
    if any(part in {".", ".."} for part in root.split("/")):
        raise ValueError("an object store knows no . and .. folders")
    return root.rstrip("/")


def _file(root: str) -> str:
    url = urlsplit(root)
    if url.netloc not in {"", "localhost"} or not url.path.startswith("/") or url.query or url.fragment:
        raise ValueError("a file URL must be file:///absolute/path")
    return _normal(unquote(url.path))


def _normal(path: str) -> str:
    # POSIX keeps two leading slashes apart from one; no system this runs on does.
    return "/" + posixpath.normpath(path).lstrip("/")


CATALOG = FieldShape(CatalogSpec, remedies={"timeout": durations.remedy})
MAX_TIMEOUT_SECONDS = 60
_TOKEN = re.compile(rf"{TOKEN_PREFIX}[A-Z0-9_]{{1,100}}")
_SCHEMES: Mapping[str, tuple[str, ...]] = {
    "url": ("http", "https"),
    "endpoint": ("http", "https"),
    "uri": ("thrift",),
}
_REST_SCHEMES = {**_SCHEMES, "uri": _SCHEMES["url"]}


def build_catalogs(section: Mapping[str, Any]) -> tuple[dict[str, CatalogSpec], tuple[SpecProblem, ...]]:
    """Catalogs by name, and the problems of the section (paths start with `catalogs`)."""
    catalogs: dict[str, CatalogSpec] = {}
    problems: list[SpecProblem] = []
    remedies = ("use letters, digits, _", "write e.g. {kind: glue}")
    for name, values in section.items():
        path = ("catalogs", name)
        built = build_entry(CATALOG, path, values, ENTRY_NAME, remedies)
        faults = built if isinstance(built, tuple) else tuple(below(_check(built, CATALOGS[built.kind]), *path))
        problems += faults
        if isinstance(built, CatalogSpec) and not faults:
            catalogs[name] = built
    return catalogs, tuple(problems)


def _check(spec: CatalogSpec, descriptor: CatalogDescriptor) -> Iterator[SpecProblem]:
    for name in descriptor.needed:
        if getattr(spec, name) is None:
            yield problem_at(spec, name, f"kind {spec.kind} needs it", f"add {name}", FIELD_MISSING)
    owners = {name: kind for kind, other in reversed(list(CATALOGS.items())) for name in other.fields}
    for name, kind in owners.items():
        if name not in descriptor.fields and getattr(spec, name) is not None:
            yield problem_at(spec, name, f"belongs to kind {kind}", f"remove it, or write kind: {kind}")
    for name in ("database", "table"):
        known, text = PLACEHOLDERS if name == "table" else ("source", "schema"), getattr(spec, name)
        if fault := template_fault(text, known) if text.strip() else "is empty":
            yield problem_at(spec, name, fault, "use {schema}, {source}; {table} in table")
    for name, schemes in (_REST_SCHEMES if spec.kind == "iceberg_rest" else _SCHEMES).items():
        value = getattr(spec, name)
        if value is not None and not _is_url(value, schemes):
            remedy = f"write e.g. {schemes[-1]}://host:port, without user and password"
            yield problem_at(spec, name, f"not a URL of {' or '.join(schemes)}", remedy)
    yield from _limits(spec)
    yield from _of_secrets(spec)
    if descriptor.is_iceberg and (other := [kind for kind in spec.tables if kind not in ICEBERG_KINDS]):
        message = "these have no Iceberg metadata"
        yield SpecProblem(FIELD_VALUE, ("tables",), other, message, f"name some of {', '.join(ICEBERG_KINDS)}")


def _limits(spec: CatalogSpec) -> Iterator[SpecProblem]:
    yield from wrong_durations(spec, ("timeout",))
    if durations.is_duration(spec.timeout) and durations.seconds(spec.timeout) > MAX_TIMEOUT_SECONDS:
        message = "longer than a job may wait for a catalog"
        yield problem_at(spec, "timeout", message, "write 60s or less, e.g. 5s")
    if not spec.tables:
        yield problem_at(spec, "tables", "names no table", "write e.g. [replica, history]")


def _of_secrets(spec: CatalogSpec) -> Iterator[SpecProblem]:
    """Names of what holds secrets are not shown: they may be secrets themselves."""
    if spec.token_env is not None and not _TOKEN.fullmatch(spec.token_env):
        message = "not a variable that metadata may name"
        remedy = f"put the token into a variable such as {TOKEN_PREFIX}TOKEN, and write that name"
        yield SpecProblem(FIELD_VALUE, ("token_env",), "(not shown)", message, remedy)
    if spec.connection is not None and not is_catalog_connection(spec.connection):
        message = "not a connection that metadata may name"
        remedy = f"call it e.g. {TOKEN_PREFIX.lower()}main, and write that name"
        yield SpecProblem(FIELD_VALUE, ("connection",), "(not shown)", message, remedy)


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
            yield spec, problem_at(spec, "catalog", "no such catalog", remedy, CATALOG_UNKNOWN)
            continue
        if CATALOGS[catalog.kind].is_iceberg and not spec.iceberg:
            message, remedy = f"kind {catalog.kind} holds Iceberg tables", "add iceberg: true, or catalog: null"
            yield spec, problem_at(spec, "iceberg", message, remedy, FIELD_MISSING)
            continue
        if spec.iceberg in CATALOGS[catalog.kind].refused_versions:
            message = f"tables of kind {catalog.kind} can't be committed to in this version of Iceberg's format"
            yield spec, problem_at(spec, "iceberg", message, "write true, or catalog: null")
            continue
        names = [entry_name(catalog, spec, kind) for kind in catalog.tables]
        first = next((taken[spec.catalog, name] for name in names if (spec.catalog, name) in taken), None)
        if first is not None:
            message = f"{first.table} has the name {names[0]} in this catalog (case does not count)"
            remedy = "give the catalog a database or table template that distinguishes them, or write catalog: null"
            yield spec, problem_at(spec, "catalog", message, remedy, TARGET_TAKEN)
            continue
        taken |= {(spec.catalog, name): spec for name in names}


SECTION = "sources"
_CONNECTION = re.compile(r"[A-Za-z0-9_.:/-]{1,200}")
_ROLE = re.compile(r"arn:aws[a-z-]{0,20}:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]{1,512}")
_OWN = ("dialect", "heartbeat", "owner", "target", "source_type", "region")
"""Fields of a source that are fields of its rows, too."""


@dataclass(frozen=True, kw_only=True)
class NewTableLimits:
    """Which tables `new_tables` proposes."""

    __pydantic_config__ = STRICT

    names: tuple[str, ...] = ("*",)
    """Patterns of `schema.name` in the source, `shop.*`, that are proposed; case does not count."""
    ignore: tuple[str, ...] = ()
    """Patterns of those that are not, e.g. `*.tmp_*`."""


@dataclass(frozen=True, kw_only=True)
class SourceSpec:
    """One source database."""

    __pydantic_config__ = STRICT

    landing: str | None = None
    """Root of its files: `<landing>/<schema>/<table>/`; null: `landing` of the settings."""
    aws_conn_id: str | None = None
    """Airflow connection (type `aws`) that reads its `landing`; null: the credentials of all other roots."""
    role_arn: str | None = None
    """ARN of a role that is assumed to read its `landing`."""
    external_id: str | None = None
    """External id that the role's trust policy asks for."""
    dialect: str | None = None
    """`dialect` of its rows."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """`options` of its rows, entry by entry."""
    connection: str | None = None
    """Name of the variable or Airflow connection that reaches the database: `verify_connection` of its rows."""
    capture: CaptureSpec | None = None
    """How jobs read the source's log themselves (docs/capture.md); null: other programs write its files."""
    heartbeat: str | None = None
    """`heartbeat` of its rows: a table of the source that is updated all the time, e.g. `ops.heartbeat`."""
    owner: str | None = None
    """`owner` of its rows."""
    target: str | None = None
    """`target` of its rows, e.g. `{source}_{schema}.{table}`."""
    source_type: SourceType | None = None
    """`source_type` of its rows: the kind of database; null: the connector of `capture`."""
    region: str | None = None
    """`region` of its rows: its data centre or region, e.g. `eu-west-1`."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Other fields for every row of the source that does not set them."""
    new_tables: Literal["propose"] | None = None
    """What becomes of tables that have no row (docs/onboarding.md): one is proposed; null: nothing."""
    new_table_limits: NewTableLimits | None = None
    """Which of them."""


SOURCE = FieldShape(SourceSpec)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A source as rows use it. `landing`: absolute; `layer`: between the defaults of files and of the settings.

    `origin`: what it states of itself. `access`: null: its files are read with the same credentials as all other roots.
    `proposes`: new tables, within `limits`.
    """

    landing: str
    layer: Layer
    access: SourceAccess | None = None
    origin: Origin = field(default_factory=Origin)
    proposes: bool = False
    limits: NewTableLimits = field(default_factory=NewTableLimits)


def build_sources(
    section: Mapping[str, Any], tiers: Mapping[str, TierSpec], roots: Roots, base: str, locate: Locate
) -> tuple[dict[str, Source], tuple[SpecProblem, ...]]:
    """Sources by short name, and what is wrong with the section (paths start with `sources`).

    Args:
        roots: of the settings.
        base: the folder that relative roots are relative to.
        locate: of the settings' file.
    """
    sources: dict[str, Source] = {}
    problems: list[SpecProblem] = []
    for name, entry in section.items():
        outcome = _source(name, entry, tiers, (roots.landing, base), locate)
        if isinstance(outcome, Source):
            sources[name] = outcome
        else:
            problems += outcome
    for name, source in sources.items():
        problems += below(_overlaps(name, sources, roots) if source.access else (), SECTION, name)
        problems += below(_shared_folders(name, sources), SECTION, name)
        if source.access is None and source.landing and source.landing == roots.lake:
            remedy = "give the tables a folder of their own"
            problems += below([problem_at(source, "landing", "the same folder as lake", remedy)], SECTION, name)
    return sources, tuple(problems)


def _mix(one: str, other: str) -> bool:
    """Whether one of two folders is below the other, or they are the same."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _overlaps(name: str, sources: Mapping[str, Source], roots: Roots) -> Iterator[SpecProblem]:
    """For a source with credentials of its own, one for each root that overlaps its root and is read with others."""
    others = {"the lake": roots.lake, "those of landing": roots.landing}
    others |= {f"those of source {n}": source.landing for n, source in sources.items() if n != name}
    for other, root in others.items():
        if _mix(root, sources[name].landing):
            what = f"has credentials of its own, and its files mix with {other} ({root})"
            yield problem_at(sources[name], "landing", what, "give its files a root of their own")


def _shared_folders(name: str, sources: Mapping[str, Source]) -> Iterator[SpecProblem]:
    """For a source whose new tables are proposed, where its folders may be those of another one."""
    mine = sources[name].landing
    others = [n for n, source in sources.items() if n != name and _mix(mine, source.landing)]
    if sources[name].proposes and others:
        what = f"a new folder in {mine} may be one of the source {others[0]}, too"
        remedy = "give each of the two sources a landing root of its own"
        yield SpecProblem(LANDING_SHARED, ("new_tables",), "propose", what, remedy)


def _problems(spec: SourceSpec) -> Iterator[SpecProblem]:
    """Problems of new tables, defaults and credentials."""
    if spec.new_tables is not None and spec.options.get("topic") and spec.connection is None:
        message, remedy = "tables of topics are shown by the source's catalog alone", "add connection to the source"
        yield problem_at(spec, "new_tables", message, remedy)
    if spec.new_table_limits is not None and spec.new_tables is None:
        remedy = "add new_tables: propose"
        yield SpecProblem(FIELD_VALUE, ("new_table_limits",), None, "limits of nothing", remedy)
    if "source" in spec.defaults:
        message = "rows of a source are those that name it"
        yield problem_at(spec, ("defaults", "source"), message, "remove it", FIELD_REFUSED)
    if spec.external_id is not None and spec.role_arn is None:
        yield problem_at(spec, "external_id", "belongs to a role", "add role_arn, or remove it")
    elif spec.aws_conn_id is not None and spec.role_arn is not None:
        remedy = "keep one of them; a connection may name a role itself"
        yield problem_at(spec, "role_arn", "stands beside aws_conn_id", remedy)
    elif spec.aws_conn_id is not None and not _CONNECTION.fullmatch(spec.aws_conn_id):
        yield problem_at(spec, "aws_conn_id", "not a connection's id", "write e.g. crm_landing")
    elif spec.role_arn is not None and not _ROLE.fullmatch(spec.role_arn):
        remedy = "write e.g. arn:aws:iam::123456789012:role/crm"
        yield problem_at(spec, "role_arn", "not the ARN of a role", remedy)
    elif spec.landing is None and (spec.aws_conn_id or spec.role_arn):
        remedy = "write landing: s3://bucket/prefix beside the credentials"
        yield problem_at(spec, "landing", "credentials of a source need a landing root of its own", remedy)


def _source(
    name: str, entry: Any, tiers: Mapping[str, TierSpec], places: tuple[str, str], locate: Locate
) -> Source | tuple[SpecProblem, ...]:
    """
    Args:
        places: the landing root of the settings, and the folder that relative roots are relative to.
    """
    remedies = ("use letters, digits, _ . and - (64 at most), e.g. crm", "write e.g. {landing: ../crm}")
    spec = build_entry(SOURCE, (SECTION, name), entry, SOURCE_NAME, remedies)
    if isinstance(spec, tuple):
        return spec
    values, locations = _values(spec)
    problems = [*_problems(spec)]
    problems += (replace(p, path=_place(locations, p.path)) for p in check_defaults(values, tiers))
    landing, base = places
    try:
        landing = landing if spec.landing is None else absolute(spec.landing, base)
    except ValueError as error:
        remedy = "write landing: with an absolute path or s3://bucket/prefix, or leave it out"
        problems.append(problem_at(spec, "landing", f"not a usable root: {error}", remedy))
    if problems:
        return tuple(below(problems, SECTION, name))
    return Source(
        landing=landing,
        layer=Layer(FILE, values, lambda inner: locate((SECTION, name, *_place(locations, inner)))),
        access=_access(name, spec, landing),
        origin=Origin(source_type=values.get("source_type"), region=values.get("region")),
        proposes=spec.new_tables is not None,
        limits=spec.new_table_limits or NewTableLimits(),
    )


def _access(name: str, spec: SourceSpec, landing: str) -> SourceAccess | None:
    """The credentials that the source names; null: none, or for a folder, as a variable may name it in development."""
    if not (spec.aws_conn_id or spec.role_arn) or not is_s3(landing):
        return None
    return SourceAccess(
        source=name,
        landing=landing,
        aws_conn_id=spec.aws_conn_id,
        role_arn=spec.role_arn,
        external_id=spec.external_id,
    )


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
    if spec.capture is not None:
        options["capture"] = {"connector": spec.capture.connector, "properties": dict(spec.capture.properties)}
        locations["options", "capture"] = ("capture",)
        values.setdefault("dialect", "debezium")
        values.setdefault("source_type", spec.capture.connector)
        locations["source_type",] = ("source_type",) if spec.source_type else ("capture",)
    return values | ({"options": options} if options else {}), locations


def _place(locations: Mapping[FieldPath, FieldPath], inner: FieldPath) -> FieldPath:
    for length in range(len(inner), 0, -1):
        if (location := locations.get(inner[:length])) is not None:
            return (*location, *inner[length:])
    return ("defaults", *inner)
