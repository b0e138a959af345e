"""Facts of a source to proposals: size, priority, schedule and keys. Pure.

A database's `NOT NULL` and checks are proposed as `expect`, as a new row's comment: the source enforces them, so that
what breaks them in the lake was lost or came in another order. Whether that is worth a check is for people to say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_gddl.contract.spec import DEFAULT_TIERS, TierSpec
from airflow_gddl.contract.table_spec import COLUMN, CONDITIONS, LITERALS, Term
from airflow_gddl.metadata.expression_text import ExpressionError, parsed
from airflow_gddl.metadata.problems import looks_secret

MEASURED = "measured"


@dataclass(frozen=True, kw_only=True)
class KeyFact:
    """Columns that identify a row, with evidence.

    Attributes:
        evidence: text, e.g. `primary key orders_pkey`, `measured: unique in all 12,345 rows of the full load`.
    """

    columns: tuple[str, ...]
    evidence: str


@dataclass(frozen=True, kw_only=True)
class Activity:
    """Change rate of a table.

    Attributes:
        changes: changes since `since`.
        since: seconds since the epoch.
        until: time of the reading, seconds since the epoch.
    """

    changes: int
    since: float
    until: float


@dataclass(frozen=True, kw_only=True)
class TableFacts:
    """One table in its source.

    Attributes:
        table: `schema.name` as the source spells it.
        key: None: nothing identifies a row.
        rows: by statistics where there are any; None: not known.
        size_bytes: of the data without indexes; None: not known.
        activity: None: not known.
        fields: other fields of the row, by path: what change files state (`sequence_by`, `options.op_column`), and
            comments of a database (`description`, `column_descriptions.id`).
        remarks: what a person may want to add to the row, such as `where? total > 0`.
    """

    table: str
    columns: Mapping[str, str] = field(default_factory=dict)
    key: KeyFact | None = None
    rows: int | None = None
    size_bytes: int | None = None
    activity: Activity | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A notice about a table; not written to metadata.

    Attributes:
        code: stable, listed in docs/codes.md.
        remedy: empty where no action is needed.
    """

    table: str
    code: str
    message: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class SourceFacts:
    """The tables of a source whose names a row can have, and notices about these and others."""

    tables: tuple[TableFacts, ...]
    notices: tuple[Notice, ...] = ()


DAY = 86_400.0
BUSY = 1_000_000
"""Changes for each day from which a table is loaded four times an hour, with high priority."""
QUIET_DAYS = 7
"""Days without a change after which a table is loaded once a day."""
_UNITS = ((1024**4, "TB"), (1024**3, "GB"), (1024**2, "MB"), (1024, "kB"))


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A proposed row, without fields that have their default.

    Attributes:
        keys: empty: none were found, and the row is disabled until a user decides.
        evidence: of the keys.
        fields: by path (`size`, `options.op_column`), in the order in which a row shows them.
        comment: behind the row.
    """

    table: str
    keys: tuple[str, ...]
    evidence: str
    fields: Mapping[str, Any]
    comment: str


_PERSONAL = re.compile(
    r"e[_-]?mail|phone|mobile|passport|birth|surname|(?:first|last|full)[_-]?name|address|street|tax[_-]?id"
    r"|(?<![a-z])(?:ssn|iban|dob|fax)(?![a-z])",
    re.IGNORECASE,
)
"""Names of columns that look personal; whether they are is for people to say."""


def propose(facts: TableFacts, tiers: Mapping[str, TierSpec]) -> Proposal:
    """Propose the row of a table."""
    size, key = _size(facts.size_bytes, tiers), facts.key or KeyFact(columns=(), evidence="no key was found")
    fields: dict[str, Any] = {} if size == "small" else {"size": size}
    fields |= {**_rhythm(facts.activity), **facts.fields}
    fields |= {} if facts.key else {"enabled": False}
    personal = [f"{name}: hmac" for name in facts.columns if _PERSONAL.search(name)]
    masks = [f"personal? mask: {{{', '.join(personal)}}}"] if personal else []
    comment = "; ".join((_extent(facts), *masks, *facts.remarks))
    return Proposal(table=facts.table, keys=key.columns, evidence=key.evidence, fields=fields, comment=comment)


def _size(size: int | None, tiers: Mapping[str, TierSpec]) -> str:
    """The smallest tier whose tasks take the table."""
    small, medium = (tiers.get(name, DEFAULT_TIERS[name]).task_max_bytes for name in ("small", "medium"))
    if size is None or size <= small:
        return "small"
    return "medium" if size <= medium else "large"


def _extent(facts: TableFacts) -> str:
    rows = "rows not known" if facts.rows is None else f"{facts.rows:,} rows"
    return rows if facts.size_bytes is None else f"{rows}, {in_bytes(facts.size_bytes)}"


def in_bytes(size: int) -> str:
    """`1.2 GB`, counted in powers of 1024."""
    unit, name = next(((unit, name) for unit, name in _UNITS if size >= unit), (1, "bytes"))
    return f"{size} bytes" if unit == 1 else f"{size / unit:.1f} {name}"


def _rhythm(activity: Activity | None) -> dict[str, str]:
    """Priority and schedule; empty: the defaults, also before a day was seen."""
    days = 0.0 if activity is None else (activity.until - activity.since) / DAY
    if activity is None or days < 1:
        return {}
    if activity.changes / days >= BUSY:
        return {"priority": "high", "schedule": "*/15 * * * *"}
    return {"priority": "low", "schedule": "@daily"} if not activity.changes and days >= QUIET_DAYS else {}


_TEXT, _NUMBER = ("VARCHAR", "TEXT"), ("INTEGER", "BIGINT", "SMALLINT", "NUMERIC", "DECIMAL")
_LITERAL = r"('(?:[^']|'')*')"
_TEXT_CASTS = r"::(?:text|character varying)(?:\(\d+\))?(?!\[)"
_NUMBER_CASTS = r"::(?:numeric|double precision)(?![\w(\[])"
"""That change no number; others round, or refuse values."""
_SAME = frozenset({*CONDITIONS, *LITERALS, COLUMN, "+", "-", "*", "abs", "coalesce", "length", "lower", "upper"}) - {
    "regexp_like"
}
"""Operations that databases compute as jobs do; others round, divide whole numbers, or treat nulls otherwise."""
_LISTED = re.compile(r"(= ANY|<> ALL) \(+ARRAY\[([^\[\]]*)\]\)?(?:::\w[\w ]*\[\])?\)")
_WHITE = re.compile(r"[\x00-\x20\x7f\ud800-\udfff]+")
_UNNAMED = re.compile(r"\W+", re.ASCII)
_SHOWN = 200
"""Characters of a constraint that no expression says."""


@dataclass(frozen=True, kw_only=True)
class DeclaredConstraints:
    """What a database declares of the rows of one table, as SQLAlchemy's inspector shows it.

    Attributes:
        key: columns that identify a row; they need no check.
    """

    columns: Sequence[Mapping[str, Any]]
    key: tuple[str, ...]
    checks: Sequence[Mapping[str, Any]]
    untranslated: list[str] = field(default_factory=list)
    """Checks that are no expressions of a row; filled by `comment`."""

    def comment(self) -> str:
        """`constraints? expect: {...}; left: CHECK ...`; empty without any."""
        rules = ", ".join(self._expect())
        parts = [f"constraints? expect: {{{rules}}}"] if rules else []
        parts += [f"left: {', '.join(self.untranslated)}"] if self.untranslated else []
        text = _WHITE.sub(" ", "; ".join(parts))
        return "" if looks_secret(text) else text

    def _expect(self) -> Iterator[str]:
        filled = [c["name"] for c in self.columns if not c.get("nullable", True) and c["name"] not in self.key]
        taken = set[str]()
        if filled:
            rule = " and ".join(f"{_column(name)} is not null" for name in filled)
            yield from self._rule("not_null", rule, f"NOT NULL of {len(filled)} columns")
            taken.add("not_null")
        for one in self.checks:
            text = _WHITE.sub(" ", str(one.get("sqltext") or "")).strip()
            name = _named(one, taken)
            yield from self._rule(name, self._portable(text), f"CHECK {one.get('name') or ''} ({text[:_SHOWN]})")

    def _rule(self, name: str, text: str, otherwise: str) -> Iterator[str]:
        """An expectation; a check that is null for a row holds for it in SQL, and not here."""
        nullable = {c["name"] for c in self.columns if c.get("nullable", True)}
        try:
            tree = parsed(text)
            rule = f"coalesce({text}, true)" if nullable.intersection(tree.columns) else text
            parsed(rule)
        except ExpressionError:
            self.untranslated.append(otherwise)
            return
        columns = set(tree.columns)
        if tree.is_condition and _is_same(tree) and columns and columns <= {c["name"] for c in self.columns}:
            yield f"{name}: {{rule: {json.dumps(rule, ensure_ascii=False)}, on: warn}}"
        else:
            self.untranslated.append(otherwise)

    def _portable(self, text: str) -> str:
        """The condition without what PostgreSQL and MariaDB add as they store it, where that changes no value."""
        text = re.sub(r"`([^`\"]+)`", r'"\1"', text)
        text = re.sub(f"{_LITERAL}::date\\b", r"date \1", text)
        text = re.sub(f"{_LITERAL}{_TEXT_CASTS}", r"\1", text)
        text = re.sub(r"'(-\d+)'::(?:integer|bigint)\b", r"\1", text)
        text = re.sub(rf"'(-\d+(?:\.\d+)?)'{_NUMBER_CASTS}", r"\1", text)
        text = re.sub(rf"\(?(-?\d+(?:\.\d+)?)\)?{_NUMBER_CASTS}", r"\1", text)
        for kinds, casts in ((_TEXT, _TEXT_CASTS), (_NUMBER, _NUMBER_CASTS)):
            names = "|".join(_spelled(c["name"]) for c in self.columns if str(c["type"]).upper().startswith(kinds))
            text = re.sub(rf"(?<![\w\"])(?:\(({names})\)|({names})){casts}", r"\1\2", text) if names else text
        text = _LISTED.sub(lambda m: f"{'in' if m[1] == '= ANY' else 'not in'} ({m[2]})", text)
        return text.replace(" ~~ ", " like ")


def _is_same(tree: Term) -> bool:
    """Whether a database computes the expression as jobs do."""
    return tree.op in _SAME and all(map(_is_same, tree.args))


def _spelled(name: str) -> str:
    """A pattern of the column as a database may write it."""
    return "|".join(map(re.escape, (f'"{name}"', name)))


def _column(name: str) -> str:
    """The column in an expression."""
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) and _is_plain(name) else '"' + name.replace('"', '""') + '"'


def _is_plain(name: str) -> bool:
    """Whether it is no word of expressions."""
    try:
        return parsed(f"{name} is not null").columns == (name,)
    except ExpressionError:
        return False


def _named(one: Mapping[str, Any], taken: set[str]) -> str:
    """The constraint's name as that of a check, which is none of those taken."""
    wanted = _UNNAMED.sub("_", str(one.get("name") or "check"))[:56]
    wanted = wanted if not wanted[0].isdigit() else f"_{wanted}"
    name = next(n for n in (wanted, *(f"{wanted}_{i}" for i in range(2, len(taken) + 3))) if n not in taken)
    taken.add(name)
    return name
