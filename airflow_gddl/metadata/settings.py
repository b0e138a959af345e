"""Settings from `gddl.yaml` and the environment, those of runners and of their tiers included."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_gddl.contract import durations
from airflow_gddl.contract.codec import plain
from airflow_gddl.contract.codes import (
    FIELD_MISSING,
    FIELD_TYPE,
    FIELD_UNKNOWN,
    FIELD_VALUE,
    RUNNER_UNKNOWN,
    SETTINGS_INVALID,
    SETTINGS_MISSING,
    VARIABLE_UNKNOWN,
)
from airflow_gddl.contract.errors import FatalError, FieldPath, MetadataError, SpecProblem, below, problem_at
from airflow_gddl.contract.extensions import CatalogSpec
from airflow_gddl.contract.row_checks import wrong_durations
from airflow_gddl.contract.spec import DEFAULT_TIERS, MEMORY, Roots, TierSpec, memory_remedy
from airflow_gddl.metadata import files
from airflow_gddl.metadata.folder import FILE, Folder
from airflow_gddl.metadata.keys import report
from airflow_gddl.metadata.problems import VARIABLE, DocumentError, Layer, Problem, screen, unread
from airflow_gddl.metadata.sources import Source, absolute, build_catalogs, build_sources
from airflow_gddl.metadata.validation import (
    ENTRY_NAME,
    FieldShape,
    build_entry,
    check_defaults,
    meant,
    near,
    written,
)
from airflow_gddl.runners.descriptor import RUNNERS, RunnerDescriptor, check_remote


def settings_of_runner(name: str) -> FieldShape[Any] | None:
    """Shape of the section `runners.<name>`; None: the runner has no settings, or is not known."""
    descriptor = _known(name)
    return None if descriptor is None or descriptor.settings is None else FieldShape(descriptor.settings)


def written_runners(section: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Mapping[str, Any]]:
    """Settings by runner."""
    shapes = {name: settings_of_runner(name) for name in section}
    return {name: shape.listed(section[name] or {}) if shape else section[name] or {} for name, shape in shapes.items()}


def check_runners(
    runner: str, sections: Mapping[str, Mapping[str, Any] | None], tiers: Mapping[str, TierSpec]
) -> Iterator[SpecProblem]:
    """Problems of `runner` and `runners`.

    Args:
        runner: the chosen one, whose section is checked even where it is absent. Sections of others that are not
            installed are left alone.
    """
    try:
        RUNNERS.get(runner)
    except FatalError as error:
        if error.code == RUNNER_UNKNOWN:
            remedy = meant(runner, RUNNERS.names(), f"write one of {', '.join(RUNNERS.names())}")
            yield SpecProblem(error.code, ("runner",), runner, "no such runner", remedy)
        else:
            yield SpecProblem(error.code, ("runner",), runner, error.what, error.remedy)
    yield from _misspelt_runners(sections)
    for name in dict.fromkeys((*sections, runner)):
        if (shape := settings_of_runner(name)) is not None:
            path, descriptor = ("runners", name), RUNNERS.get(name)
            built = shape.build(sections.get(name) or {}, *path)
            if isinstance(built, tuple):
                yield from built
            else:
                yield from below(descriptor.check_settings(built), *path)
                yield from below(descriptor.check_tiers(built, tiers if name == runner else ()), *path)


def _misspelt_runners(sections: Iterable[str]) -> Iterator[SpecProblem]:
    """Sections with a name close to a runner's; others may be of a package that is not installed here."""
    known = RUNNERS.names()
    for name in sections:
        if name not in known and (close := difflib.get_close_matches(name.lower(), known, n=1, cutoff=_NEAR)):
            yield SpecProblem(FIELD_UNKNOWN, ("runners", name), None, "no such runner", f"did you mean {close[0]}?")


def is_remote(runner: str) -> bool:
    """False also of a runner that is not known, which `check_runners` reports."""
    descriptor = _known(runner)
    return descriptor is not None and descriptor.remote


def _known(name: str) -> RunnerDescriptor | None:
    try:
        return RUNNERS.get(name)
    except FatalError:
        return None


PREFIX = "GDDL_"
NAMES = (
    "GDDL_AWS_CONN_ID",
    "GDDL_CAPTURE_MEMORY",
    "GDDL_DAG_PREFIX",
    "GDDL_JARS",
    "GDDL_LAKE",
    "GDDL_LANDING",
    "GDDL_LANDING_ACCESS",
    "GDDL_LOG_FORMAT",
    "GDDL_METADATA",
    "GDDL_MASK_KEY",
    "GDDL_MASK_KEY_FILE",
    "GDDL_METRICS_TABLES",
    "GDDL_RUNNER",
    "GDDL_SETTLE",
    "GDDL_SOURCE_CONNECTIONS",
    "GDDL_SPARK_DELTA",
    "GDDL_SPARK_MASTER",
    "GDDL_SPARK_START_TIMEOUT",
    "GDDL_WITHOUT_SPARK",
)
OF_THE_MACHINE = ("GDDL_JARS", "GDDL_SPARK_START_TIMEOUT")
"""Those of `NAMES` that describe the machine, not a deployment: they hold for a demonstration, too."""
# Similarity of two swapped letters in a short name; user variables such as GDDL_SHOP_DB do not match.
_NEAR = 0.85


def misspelt(environ: Mapping[str, str]) -> Iterator[Problem]:
    """`VARIABLE_UNKNOWN` for each unused variable whose name is similar to a known one; sorted."""
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable in NAMES or "__" in variable:
            continue
        if near := difflib.get_close_matches(variable, NAMES, n=1, cutoff=_NEAR):
            place, remedy = f"{VARIABLE}{variable}", f"did you mean {near[0]}?"
            yield Problem(code=VARIABLE_UNKNOWN, message="nothing reads it", remedy=remedy, file=place)


ROOT_FIELDS = ("landing", "lake", "runner", "aws_conn_id", "dag_prefix")
_SECTIONS = {"defaults": 2, "tiers": 3, "sources": 3, "runners": 3, "catalogs": 3}


def overrides(environ: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """Variables of an environment that override settings, sorted, each with the setting's path in lower case and value.

    Raises:
        MetadataError: where the variable is, never with its value: a section that is not known, a name without its
            field, or a value that can't be read.
    """
    for variable in sorted(name for name in environ if name.startswith(PREFIX)):
        parts = tuple(part.lower() for part in variable.removeprefix(PREFIX).split("__"))
        text = environ[variable].strip()
        if not text:
            continue
        if parts in {(name,) for name in ROOT_FIELDS}:
            yield variable, parts, text
        elif parts[0] in _SECTIONS or len(parts) > 1:
            _check_form(variable, parts)
            yield variable, parts, _value(variable, text)


def _check_form(variable: str, parts: tuple[str, ...]) -> None:
    if parts[0] not in _SECTIONS:
        known = ", ".join(f"{PREFIX}{name.upper()}__" for name in _SECTIONS)
        remedy = f"start it with {known} or unset it"
        raise MetadataError(FIELD_UNKNOWN, "names no section of gddl.yaml", where=variable, remedy=remedy)
    if len(parts) < _SECTIONS[parts[0]] or not all(parts):
        form = {2: "<FIELD>", 3: "<NAME>__<FIELD>"}[_SECTIONS[parts[0]]]
        remedy = f"write {PREFIX}{parts[0].upper()}__{form}"
        raise MetadataError(FIELD_UNKNOWN, "names no field", where=variable, remedy=remedy)


def _value(variable: str, text: str) -> Any:
    # `@daily` and `*/5 * * * *` are not valid unquoted YAML scalars, but unambiguous here.
    if text[0] not in "[{\"'":
        return files.scalar(text)
    try:
        return files.read_yaml(text)
    except (DocumentError, UnicodeError) as error:
        remedy = "check quotes and brackets"
        raise MetadataError(FIELD_VALUE, "not a YAML value", where=variable, remedy=remedy) from error


def apply(settings: dict[str, Any], written: tuple[str, ...], value: Any) -> FieldPath:
    """Set one value in a tree of mappings, in place; the path it has there.

    Names match existing ones without case, `_` standing for any character a variable's name can't hold.
    """
    here, path = settings, []
    for part in written[:-1]:
        name = _match(part, here)
        if not isinstance(here.get(name), dict):
            here[name] = {}
        here = here[name]
        path.append(name)
    last = _match(written[-1], here)
    here[last] = value
    return (*path, last)


def _match(part: str, there: Mapping[str, Any]) -> str:
    return next((name for name in there if re.sub(r"[^a-z0-9]", "_", name.lower()) == part), part)


AMOUNTS = ("memory", "task_memory")
DURATIONS = ("task_timeout", "run_timeout")
COUNTS = (
    "tables_per_job",
    "max_files_per_batch",
    "max_bytes_per_batch",
    "max_inflated_bytes",
    "task_max_bytes",
    "cores",
    "workers",
    "slots",
)
TIER = FieldShape(
    TierSpec,
    remedies={**dict.fromkeys(AMOUNTS, memory_remedy), **dict.fromkeys(DURATIONS, durations.remedy)},
)


def build_tiers(section: Mapping[str, Any]) -> tuple[dict[str, TierSpec], tuple[SpecProblem, ...]]:
    """All tiers by name, and what is wrong with the section (paths start with `tiers`)."""
    tiers = dict(DEFAULT_TIERS)
    problems: list[SpecProblem] = []
    remedies = ("use letters, digits, _ and -", "write e.g. {tables_per_job: 50}")
    for name, changes in section.items():
        base = plain(DEFAULT_TIERS.get(name, TierSpec()))
        built = build_entry(TIER, ("tiers", name), changes, ENTRY_NAME, remedies, base)
        if isinstance(built, TierSpec):
            tiers[name] = built
        problems += built if isinstance(built, tuple) else below(_check(built), "tiers", name)
    return tiers, tuple(problems)


_LONGEST = {"pool": 249, "queue": 256}
"""Characters that Airflow's database holds, of a pool with `_tables` behind it."""


def _check(tier: TierSpec) -> Iterator[SpecProblem]:
    for name in COUNTS:
        if (value := getattr(tier, name)) is not None and value < 1:
            yield problem_at(tier, name, "must be 1 or more", "write a number from 1 up")
    for name in AMOUNTS:
        if not MEMORY.fullmatch(value := getattr(tier, name)):
            yield problem_at(tier, name, "not an amount of memory", memory_remedy(value))
    yield from wrong_durations(tier, *((name,) for name in DURATIONS))
    if "pod_override" in tier.executor_config:
        remedy = "set it in `on_dag` of build_dags"
        yield SpecProblem(FIELD_VALUE, ("executor_config",), "pod_override", "a Python object", remedy)
    if tier.queue is not None and not tier.queue.strip():
        yield problem_at(tier, "queue", "is no name", "write a queue's name, or null")
    for name, most in _LONGEST.items():
        if len(getattr(tier, name) or "") > most:
            what, remedy = "too long for Airflow", f"write up to {most} characters"
            yield problem_at(tier, name, what, remedy)
    if tier.tables_per_job <= 1 and tier.airflow not in (None, "table"):
        what = "a tier of one table a job has no packs: each table has its own DAG"
        yield problem_at(tier, "airflow", what, "set tables_per_job above 1")


FIELDS = (*ROOT_FIELDS, *_SECTIONS)
DAG_PREFIX = re.compile(r"[A-Za-z0-9_.-]{0,40}")
_ABSENT = f"{FILE} (there is none)"
_ABSENT_REMEDY = """write it with these two lines, or set GDDL_LANDING and GDDL_LAKE:
landing: ../landing
lake: ../lake"""


class SettingsError(MetadataError):
    """`SETTINGS_INVALID`: nothing can run; `problems` holds each fault."""

    def __init__(self, problems: tuple[Problem, ...], base: str) -> None:
        self.problems = problems
        what = "; ".join(f"{p.place}: {p.field + ': ' if p.field else ''}{p.said}" for p in problems)
        remedies = dict.fromkeys(p.remedy for p in problems)
        super().__init__(SETTINGS_INVALID, what, where=base, remedy="; ".join(remedies))


@dataclass(frozen=True, kw_only=True)
class Settings:
    """
    Attributes:
        roots: absolute.
        runner: name of the runner that jobs go to.
        tiers: every tier by name, defaults filled in.
        runners: settings by runner, as written; checked by the runner itself.
        defaults: the weakest layer of every row.
        sources: those that the file declares, by short name.
        aws_conn_id: Airflow connection that reaches S3; null: the environment, or the machine's role.
        dag_prefix: begins the ids of the DAGs and the names of the tiers' own pools; may be empty.
        catalogs: in which tables may be registered, by name.
    """

    roots: Roots
    runner: str
    tiers: Mapping[str, TierSpec]
    runners: Mapping[str, Mapping[str, Any]]
    defaults: Layer = field(compare=False, repr=False)
    sources: Mapping[str, Source] = field(default_factory=dict, compare=False, repr=False)
    aws_conn_id: str | None = None
    dag_prefix: str = ""
    catalogs: Mapping[str, CatalogSpec] = field(default_factory=dict)


def read_settings(folder: Folder, environ: Mapping[str, str]) -> Settings:
    """Settings of a metadata folder; without a `gddl.yaml` the environment must name the roots.

    Raises:
        SettingsError: anything in the file or in a variable is wrong.
    """
    draft = _Draft(_document(folder), folder.base)
    draft.absent_remedy = _absent_remedy(folder)
    draft.override(environ)
    draft.check_sections()
    return draft.build()


def _document(folder: Folder) -> Layer:
    try:
        return files.read_document(folder, FILE)
    except FileNotFoundError:
        return Layer(_ABSENT, None)
    except DocumentError as error:
        raise SettingsError((unread(error, FILE),), folder.base) from error


def _absent_remedy(folder: Folder) -> str:
    others = [name for name in folder.names("") if name.lower() in ("gddl.yml", "gddl.json", "gddl.yaml.txt")]
    return f"rename {others[0]} to {FILE}" if others else _ABSENT_REMEDY


class _Draft:
    """Builds settings: values of the file, overridden by the environment, checked section by section."""

    def __init__(self, document: Layer, base: str) -> None:
        self.document = document
        self.base = base
        self.absent_remedy = _ABSENT_REMEDY
        self.variables: dict[FieldPath, str] = {}
        self.problems: list[Problem] = []
        if not isinstance(document.values, dict) and document.values is not None:
            self.take(
                SpecProblem(FIELD_TYPE, (), document.values, "must be a mapping", "write landing: and lake: fields")
            )
            self.stop_if_wrong()
        self.values: dict[str, Any] = _copy(document.values or {})
        self.screen()

    def override(self, environ: Mapping[str, str]) -> None:
        try:
            for variable, path, value in overrides(environ):
                self.variables[apply(self.values, path, value)] = variable
        except MetadataError as error:
            place = f"{VARIABLE}{error.where}"
            self.problems.append(Problem(code=error.code, message=error.what, remedy=error.remedy, file=place))
            self.stop_if_wrong()
        self.screen()

    def check_sections(self) -> None:
        for name, value in self.values.items():
            if name not in FIELDS:
                self.take(SpecProblem(FIELD_UNKNOWN, (name,), value, "no such field", near(name, FIELDS)))
        sections: dict[FieldPath, Any] = {(name,): self.section(name) for name in _SECTIONS}
        if isinstance(runners := self.section("runners"), dict):
            sections |= {("runners", name): value or {} for name, value in runners.items()}
        for path, value in sections.items():
            if not isinstance(value, dict):
                self.take(SpecProblem(FIELD_TYPE, path, value, "must be a mapping", "write name: value pairs below it"))
        self.stop_if_wrong()

    def build(self) -> Settings:
        tiers, problems = build_tiers(self.section("tiers"))
        self.take(*problems)
        catalogs, problems = build_catalogs(self.section("catalogs"))
        self.take(*problems)
        defaults = written(self.section("defaults"))
        self.take(*below(check_defaults(defaults, tiers), "defaults"))
        roots = self.roots()
        sources = self.sources(tiers, roots)
        runner = self.values.get("runner", "local")
        if not isinstance(runner, str) or not runner.strip():
            self.take(SpecProblem(FIELD_TYPE, ("runner",), runner, "must be a runner's name", "write e.g. local"))
        else:
            sections = self.section("runners")
            self.take(*check_runners(runner, sections, tiers))
            if is_remote(runner) and roots.landing and roots.lake:
                settings = sections.get(runner) or {}
                self.take(*check_remote(runner, settings, {("landing",): roots.landing, ("lake",): roots.lake}))
                landings = {("sources", name, "landing"): source.landing for name, source in sources.items()}
                self.take(*check_remote(runner, settings, {p: r for p, r in landings.items() if r != roots.landing}))
        connection = self.values.get("aws_conn_id")
        if connection is not None and not (isinstance(connection, str) and connection.strip()):
            remedy = "write e.g. aws_default, or leave it out"
            self.take(SpecProblem(FIELD_TYPE, ("aws_conn_id",), connection, "must be a connection's id", remedy))
        prefix = self.dag_prefix()
        self.stop_if_wrong()
        return Settings(
            roots=roots,
            runner=runner,
            aws_conn_id=connection,
            dag_prefix=prefix,
            tiers=tiers,
            catalogs=catalogs,
            sources=sources,
            runners=written_runners(self.section("runners")),
            defaults=Layer(FILE, defaults, lambda path: self.document.locate(("defaults", *path))),
        )

    def sources(self, tiers: Mapping[str, TierSpec], roots: Roots) -> dict[str, Source]:
        built, problems = build_sources(self.section("sources"), tiers, roots, self.base, self.document.locate)
        self.take(*problems)
        return built

    def dag_prefix(self) -> str:
        value = self.values.get("dag_prefix")
        if value is None:
            return ""
        if not isinstance(value, str) or not DAG_PREFIX.fullmatch(value):
            remedy = "use up to 40 letters, digits, _, - and ., e.g. sales_"
            self.take(SpecProblem(FIELD_VALUE, ("dag_prefix",), value, "can't begin a DAG id", remedy))
            return ""
        return value

    def section(self, name: str) -> Any:
        value = self.values.get(name)
        return {} if value is None else value

    def roots(self) -> Roots:
        if self.document.file == _ABSENT and not {"landing", "lake"} & self.values.keys():
            problem = Problem(
                code=SETTINGS_MISSING, message="there is no such file", remedy=self.absent_remedy, file=FILE
            )
            self.problems.append(problem)
            return Roots(landing="", lake="")
        landing, lake = self._root("landing"), self._root("lake")
        if landing and landing == lake:
            remedy = "give the tables a folder of their own"
            self.take(SpecProblem(FIELD_VALUE, ("lake",), lake, "the same folder as landing", remedy))
        return Roots(landing=landing, lake=lake)

    def _root(self, name: str) -> str:
        value = self.values.get(name)
        remedy = f"write {name}: with an absolute path or s3://bucket/prefix in {FILE}, or set GDDL_{name.upper()}"
        if not isinstance(value, str):
            code, message = (FIELD_MISSING, "must be given") if value is None else (FIELD_TYPE, "must be text")
            self.take(SpecProblem(code, (name,), value, message, remedy))
            return ""
        try:
            return absolute(value, self.base)
        except ValueError as error:
            self.take(SpecProblem(FIELD_VALUE, (name,), value, f"not a usable root: {error}", remedy))
            return ""

    def screen(self) -> None:
        self.take(*screen(self.values))
        self.stop_if_wrong()

    def stop_if_wrong(self) -> None:
        if self.problems:
            raise SettingsError(tuple(self.problems), self.base)

    def take(self, *problems: SpecProblem) -> None:
        self.problems.extend(self._placed(problem) for problem in problems)

    def _placed(self, problem: SpecProblem) -> Problem:
        path = problem.path
        names = (self.variables.get(path[:n]) for n in range(len(path), 0, -1))
        variable = next((name for name in names if name), None)
        placed = report(problem, (Layer(f"{VARIABLE}{variable}", {}) if variable else self.document,))
        return replace(placed, value="") if problem.value is None else placed


def _copy(value: Any) -> Any:
    """For overrides: each alias of YAML becomes a value of its own."""
    if isinstance(value, dict):
        return {name: _copy(item) for name, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
