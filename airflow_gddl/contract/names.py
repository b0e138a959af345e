"""Names of columns and tables: those that are delivered, those in the lake, and which of them a user means.

The rule for delivered names of columns, for every table the same:
1. each character that Delta refuses in names (blank ``, ; { } ( ) =``, line feed, tab) becomes `_`, nested ones too;
2. a column whose name is ours or Delta's own (`is_reserved`) gets `_source` appended;
3. two columns of one file that would land under names that are equal, or differ only by case, are refused, once the
   row has renamed and left out what it names.

A row may name a column by any of these forms; case does not count, unless another column has the name to the letter.
A table is named by its target, by
`source:schema.table`, or by its name in the source.
"""

from __future__ import annotations

import difflib
import functools
import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from string import Formatter
from typing import Protocol

from airflow_gddl.contract.codes import TABLE_AMBIGUOUS
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.table_spec import MaskMethod, TableSpec

# Those of Delta, and NUL, at which interfaces in C end a name.
_REFUSED = str.maketrans(dict.fromkeys(" ,;{}()\n\t=\0", "_"))
# Ours, Spark's hidden file column, and the names that a change data feed takes.
_OURS = ("_rescued_data", "_metadata", "_change_type", "_commit_version", "_commit_timestamp")
_PREFIXES = ("_gddl", "__")
SOURCE_SUFFIX = "_source"


@functools.lru_cache(maxsize=4096)  # each step asks for the same names
def clean_name(name: str) -> str:
    """A delivered name with `_` for characters that names of columns can't have, and for no character."""
    return name.translate(_REFUSED) or "_"


@functools.lru_cache(maxsize=4096)
def is_reserved(name: str) -> bool:
    """Whether a delivered column may not keep this name: `_gddl`, `_rescued_data`, `__...`, and Delta's own."""
    return name.lower() in _OURS or name.lower().startswith(_PREFIXES)


@functools.lru_cache(maxsize=4096)
def landed_name(name: str) -> str:
    """Steps 1 and 2 of the rule, for a column; `__v` and `__v_source` get different names."""
    cleaned = clean_name(name)
    return cleaned + SOURCE_SUFFIX if is_reserved(cleaned) else cleaned


def delivered_name(stored: str) -> str:
    """The name under which files deliver a column of a table, but for characters: the inverse of step 2."""
    bare = stored.removesuffix(SOURCE_SUFFIX)
    return bare if is_reserved(bare) else stored


def is_before_image(name: str, prefix: str | None) -> bool:
    """Whether a column is a before image, by its name in files or in tables; None: there are none."""
    return bool(prefix) and clean_name(name).lower().startswith(clean_name(prefix or "").lower())


def before_image_name(prefix: str, column: str) -> str:
    """The name in tables of the before image of a table's column."""
    return landed_name(prefix + delivered_name(column))


def renamed(name: str, spec: TableSpec) -> str:
    """The name that `rename` gives a delivered column; a before image follows its column."""
    if not spec.rename:
        return name
    places, after = _places(tuple(spec.rename)), tuple(spec.rename.values())
    if (at := places.get(clean_name(name).lower(), places.get(landed_name(name).lower()))) is not None:
        return after[at]
    column = _column_of_image(name, spec)
    if column is not None and (follows := renamed(column, spec)) != column:
        return (spec.before_image_prefix or "") + follows
    return name


def rows_for(names: Collection[str], spec: TableSpec) -> dict[str, TableSpec]:
    """The row as it is meant for each of the delivered columns: a rule that names another one to the letter, whose
    name differs from this one by case or by characters that Delta refuses alone, is meant for that one.
    """
    alike = defaultdict[str, list[str]](list)
    for name in names:
        alike[landed_name(name).lower()].append(name)
    return {name: _row_for(name, alike[landed_name(name).lower()], spec) for name in names}


def _row_for(name: str, alike: Iterable[str], spec: TableSpec) -> TableSpec:
    alike = [other for other in alike if other != name]
    columns = [column for other in alike if (column := _column_of_image(other, spec)) is not None]
    others = {*alike, *columns} - {name, _column_of_image(name, spec)}
    if not others:
        return spec
    return replace(
        spec,
        keys=_without(spec.keys, others), exclude_columns=_without(spec.exclude_columns, others),
        columns=None if spec.columns is None else _without(spec.columns, others),
        rename={old: new for old, new in spec.rename.items() if old not in others},
        mask={column: method for column, method in spec.mask.items() if column not in others},
    )  # fmt: skip


def _without(listed: tuple[str, ...], others: Collection[str | None]) -> tuple[str, ...]:
    return tuple(name for name in listed if name not in others)


def is_kept(name: str, spec: TableSpec) -> bool:
    """Whether a delivered column reaches the lake.

    Keys, computed columns and their before images always do, and columns that say how changes are applied.
    """
    controls = tuple(filter(None, (spec.columns_to_update, spec.force_update)))
    if _listed(name, (*spec.keys, *controls), spec):
        return True
    if _listed(name, spec.exclude_columns, spec):
        return False
    return spec.columns is None or _listed(name, (*spec.columns, *spec.derive), spec)


def mask_method(name: str, spec: TableSpec) -> MaskMethod | None:
    """The mask of a delivered column; for a before image its column's."""
    places = _places(tuple(spec.mask))
    positions = [places[alias] for alias in aliases(name, spec) if alias in places]
    return tuple(spec.mask.values())[min(positions)] if positions else None


def aliases(name: str, spec: TableSpec) -> set[str]:
    """Every name, in lower case, by which a row may mean this column of a file: for a before image its column's too."""
    names = [one for one in (name, _column_of_image(name, spec)) if one is not None]
    return {form(each).lower() for each in names for form in (clean_name, landed_name)}


def _column_of_image(name: str, spec: TableSpec) -> str | None:
    prefix = spec.before_image_prefix
    is_image = prefix and len(name) > len(prefix) and is_before_image(name, prefix)
    return name[len(prefix or "") :] if is_image else None


def _listed(name: str, listed: tuple[str, ...], spec: TableSpec) -> bool:
    return not aliases(name, spec).isdisjoint(_places(tuple(listed)))


@functools.lru_cache(maxsize=64)
def _places(listed: tuple[str, ...]) -> Mapping[str, int]:
    """Names as they are compared, to the first place at which each is listed."""
    return {clean_name(name).lower(): at for at, name in reversed(list(enumerate(listed)))}


PLACEHOLDERS = ("source", "schema", "table")
TEMPLATE_REMEDY = "write e.g. '{source}_{schema}.{table}'"


def rendered(template: str, source: str, table: str) -> str:
    """The target of a table.

    Args:
        template: one without a fault.
        table: `schema.name` in the source.
    """
    schema, _, name = table.partition(".")
    values = {"source": source, "schema": schema, "table": name}
    return "".join(text + (values[field] if field is not None else "") for text, field in _parts(template))


def has_source(template: str) -> bool:
    """Whether a template without a fault names the source."""
    return any(field == "source" for _, field in _parts(template))


def template_fault(template: str, known: Collection[str] = PLACEHOLDERS) -> str:
    """Why a text is not a template with these placeholders; empty when it is one. Resulting names are checked
    separately."""
    try:
        unknown = [field for _, field in _parts(template) if field is not None and field not in known]
    except ValueError as error:
        return f"not a template: {error}"
    if unknown:
        return f"no such placeholder: {{{unknown[0]}}}; there are {', '.join(f'{{{name}}}' for name in known)}"
    return ""


def _parts(template: str) -> list[tuple[str, str | None]]:
    """Text, and the placeholder after it (None: none).

    Raises:
        ValueError: a brace without its other, or a conversion or format within braces.
    """
    parts = []
    for text, field, form, conversion in Formatter().parse(template):
        if form or conversion:
            raise ValueError("a placeholder is a name alone")
        parts.append((text, field))
    return parts


# Limits of the search for a similar name, among many tables and for many unknown names.
_SEARCHED, _COMPARED, _NEAR_LENGTH = 500, 300, 3


class NamedTable(Protocol):
    """Names of a table: a `TableSpec`, or another row with these fields."""

    @property
    def table(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def name_in_source(self) -> str: ...


class TableNames:
    """Resolves names to targets."""

    def __init__(self, tables: Iterable[NamedTable], *, fold: bool = False) -> None:
        """Index tables by their targets, qualified names and names in the source.

        Args:
            fold: compare in lower case; the names passed must be in lower case.
        """
        self._targets: set[str] = set()
        self._qualified: dict[str, str] = {}
        self._short: defaultdict[str, dict[str, str]] = defaultdict(dict)
        form = str.lower if fold else str
        for one in tables:
            target, short = form(one.table), form(one.name_in_source)
            qualified = f"{form(one.source)}:{short}"
            self._targets.add(target)
            self._qualified[qualified] = target
            self._short[short][qualified] = target

    def find(self, name: str) -> str | None:
        """The target; null when no table has the name. A target takes precedence over another table's name in its
        source.

        Raises:
            MetadataError: `TABLE_AMBIGUOUS`.
        """
        targets = self.candidates(name)
        if len(targets) > 1:
            raise MetadataError(TABLE_AMBIGUOUS, ambiguous(name, targets), where=name, remedy=ambiguous_remedy(targets))
        return next(iter(targets.values()), None)

    def near(self, name: str) -> str | None:
        """The known name that is most similar; one that differs only in case comes first; None: none."""
        folded = name.lower()
        if (same := self._folded.get(folded)) is not None:
            return same
        alike = (one for one in self._folded if one[:1] == folded[:1] and abs(len(one) - len(folded)) <= _NEAR_LENGTH)
        matches = difflib.get_close_matches(folded[:_COMPARED], itertools.islice(alike, _SEARCHED), n=1, cutoff=0.85)
        return self._folded[matches[0]] if matches else None

    @functools.cached_property
    def _folded(self) -> dict[str, str]:
        """Known names by their lower case."""
        known = (*sorted(self._targets), *sorted(self._qualified), *sorted(self._short))
        return {name.lower(): name for name in reversed(known)}

    def candidates(self, name: str) -> dict[str, str]:
        """Targets by the longer names that distinguish them; one or none when the name is clear."""
        if name in self._targets:
            return {name: name}
        if name in self._qualified:
            return {name: self._qualified[name]}
        return dict(self._short.get(name, {}))

    def candidates_within(self, name: str, source: str) -> dict[str, str]:
        """As `candidates`, for a name in a row of `source`: a table of its own source comes before those of others.

        More than one where its own source's table and another table's target have this name.
        """
        qualified = f"{source}:{name}"
        if (target := self._qualified.get(qualified)) is None:
            return self.candidates(name)
        return (
            {qualified: target} | ({name: name} if name in self._targets else {}) if target != name else {name: target}
        )


def few(names: Sequence[str], most: int = 5) -> str:
    """The first of some names for a message, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def ambiguous(name: str, candidates: Iterable[str]) -> str:
    return f"{name!r} may be {few(sorted(candidates))}"


def ambiguous_remedy(candidates: Iterable[str]) -> str:
    return f"write source:schema.table, e.g. {min(candidates)}, or the name of the lake's table"


@dataclass(frozen=True)
class HiddenColumns:
    """Columns whose values are not shown.

    The job masks values before it writes them. They are also hidden here, since a row that was quarantined before its
    column got a mask keeps the value until the next rebuild.

    Attributes:
        spec: None: the row is invalid or disabled, so that its masks are not known, and no value is shown.
    """

    spec: TableSpec | None

    def hides(self, column: str) -> bool:
        """As the job decides it, for the name in the record and the one that `rename` gives it."""
        spec = self.spec
        return spec is None or any(
            mask_method(name, spec) is not None or not is_kept(name, spec) for name in {column, renamed(column, spec)}
        )

    @property
    def any(self) -> bool:
        spec = self.spec
        return spec is None or bool(spec.mask or spec.exclude_columns) or spec.columns is not None
