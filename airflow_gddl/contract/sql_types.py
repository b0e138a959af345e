"""SQL types as values: read from and printed as Spark SQL writes them (`DataType.simpleString`).

`str(parse_type(text))` is the canonical spelling: lower case, no blanks, `tinyint smallint int bigint`, names in
backticks unless they are plain identifiers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal, TypeAlias, get_args

from airflow_gddl.contract.codes import COLUMN_TYPE_UNSUPPORTED
from airflow_gddl.contract.errors import FatalError

ScalarName = Literal[
    "void",
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
]
MAX_PRECISION = 38
REMEDY = "write it as Spark does, e.g. decimal(12,2), array<string> or struct<name:type>"
NO_SUBSTITUTION = {"spark.sql.variable.substitute": "false"}
"""Setting of every Spark session: `${env:NAME}` in a statement is text, not a variable of the driver's environment."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SQL_NAMES: dict[str, ScalarName] = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
"""Names of the Delta log that SQL has otherwise."""
_SCALARS: dict[str, ScalarName] = {
    **{name: name for name in get_args(ScalarName)},
    **SQL_NAMES,
    "real": "float",
    "timestamp_ltz": "timestamp",
}


@dataclass(frozen=True)
class ScalarType:
    """`void` is the type of a column that holds nothing but nulls."""

    name: ScalarName

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class DecimalType:
    """`precision` digits, `scale` of them after the point; 1 <= precision <= 38, 0 <= scale <= precision."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True)
class ArrayType:
    element: SqlType

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True)
class MapType:
    key: SqlType
    value: SqlType

    def __str__(self) -> str:
        return f"map<{self.key},{self.value}>"


@dataclass(frozen=True)
class StructField:
    name: str
    type: SqlType

    def __str__(self) -> str:
        return f"{quote(self.name)}:{self.type}"


@dataclass(frozen=True)
class StructType:
    fields: tuple[StructField, ...]

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        return f"struct<{','.join(map(str, self.fields))}>"

    def field(self, name: str) -> StructField | None:
        """The field with that name, in any case; None: there is none."""
        return self._by_name.get(name.lower())

    @cached_property
    def _by_name(self) -> dict[str, StructField]:
        return {field.name.lower(): field for field in self.fields}


@dataclass(frozen=True)
class UnsupportedType:
    """A type that no table of ours can hold (intervals, variant, time, ...), as it was written, lower case."""

    text: str

    def __str__(self) -> str:
        return self.text


SqlType: TypeAlias = ScalarType | DecimalType | ArrayType | MapType | StructType | UnsupportedType
VOID = ScalarType("void")


def parts_of(kind: SqlType) -> tuple[SqlType, ...]:
    """Types of a struct's fields; of another type itself."""
    return tuple(field.type for field in kind.fields) if isinstance(kind, StructType) else (kind,)


def type_text(kind: Any, names: Mapping[str, str] = SQL_NAMES) -> str:
    """A type of the Delta log as Spark's `catalogString`; without comments of nested fields.

    Args:
        names: of scalar types; those that it lacks are spelled as in the log.
    """
    if isinstance(kind, str):
        return names.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{type_text(kind['elementType'], names)}>"
    if kind["type"] == "map":
        return f"map<{type_text(kind['keyType'], names)},{type_text(kind['valueType'], names)}>"
    fields = ",".join(f"{field['name']}:{type_text(field['type'], names)}" for field in kind["fields"])
    return f"struct<{fields}>"


def quote(name: str) -> str:
    """A name as SQL text."""
    return name if _PLAIN.fullmatch(name) else quoted(name)


def quoted(name: str) -> str:
    """A name in backticks, for Spark SQL and Hive's DDL."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text in quotes, for Spark SQL and Hive's DDL. No other value of a row or a file is put into a statement."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def parts(kind: SqlType) -> Iterator[SqlType]:
    """The type and every type inside it, outermost first."""
    yield kind
    if isinstance(kind, ArrayType):
        yield from parts(kind.element)
    elif isinstance(kind, MapType):
        yield from parts(kind.key)
        yield from parts(kind.value)
    elif isinstance(kind, StructType):
        for field in kind.fields:
            yield from parts(field.type)


def is_complex(kind: SqlType) -> bool:
    """Whether it is an array, a map or a struct."""
    return isinstance(kind, ArrayType | MapType | StructType)


def unsupported_part(kind: SqlType) -> UnsupportedType | None:
    """The first part that no table can hold; None: a table can hold all parts."""
    return next((part for part in parts(kind) if isinstance(part, UnsupportedType)), None)


def without_void(kind: SqlType) -> SqlType | None:
    """The type without its void parts, as a table can hold it; None: nothing is left."""
    if isinstance(kind, ArrayType):
        element = without_void(kind.element)
        return None if element is None else ArrayType(element)
    if isinstance(kind, MapType):
        key, value = without_void(kind.key), without_void(kind.value)
        return None if key is None or value is None else MapType(key, value)
    if isinstance(kind, StructType):
        kept = [(f.name, without_void(f.type)) for f in kind.fields]
        fields = tuple(StructField(name, inner) for name, inner in kept if inner is not None)
        return StructType(fields) if fields else None
    return None if kind == VOID else kind


@lru_cache(maxsize=4096)
def parse_type(text: str) -> SqlType:
    """Read a type as Spark prints or accepts it: any case, aliases, `name: type`, `NOT NULL` and `COMMENT` in structs.

    Names may be unquoted up to their colon (`simpleString` never quotes them). A type that is not known here gives an
    `UnsupportedType`.

    Raises:
        FatalError: `COLUMN_TYPE_UNSUPPORTED` where the text is no type at all.
    """
    reader = _Reader(text)
    kind = reader.type()
    reader.end()
    return kind


class _Reader:
    """Recursive descent over one text; `at` is the next character."""

    _WORD = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*")
    _DIGITS = re.compile(r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
    _NAME = re.compile(r"\s*+(?:`((?:[^`]|``)++)`\s*+|([^:<>,`]++)):")
    _TAIL = re.compile(r"\s*(?:not\s+null\b)?\s*(?:comment\s+'(?:[^'\\]|\\.)*')?", re.IGNORECASE)
    _OTHER = re.compile(r"[^<>,()]*(?:\([^()]*\))?[^<>,()]*")

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def type(self) -> SqlType:
        start = self.at
        word = self._match(self._WORD)
        if word is None:
            raise self._wrong("a type")
        name = word[1].lower()
        if name in ("array", "map", "struct") and self._take("<"):
            return {"array": self._array, "map": self._map, "struct": self._struct}[name]()
        if name in ("decimal", "numeric", "dec"):
            return self._decimal(start)
        if name in ("char", "varchar") and self._match(self._DIGITS):
            return ScalarType("string")
        if name in _SCALARS and self._ends_here():
            return ScalarType(_SCALARS[name])
        return self._other(start)

    def end(self) -> None:
        if self.text[self.at :].strip():
            raise self._wrong("the end")

    def _array(self) -> SqlType:
        element = self.type()
        self._expect(">")
        return ArrayType(element)

    def _map(self) -> SqlType:
        key = self.type()
        self._expect(",")
        value = self.type()
        self._expect(">")
        return MapType(key, value)

    def _struct(self) -> SqlType:
        fields: list[StructField] = []
        while not self._take(">"):
            if fields:
                self._expect(",")
            name = self._match(self._NAME)
            if name is None:
                raise self._wrong("a field's name and a colon")
            fields.append(StructField((name[2] or "").rstrip() or name[1].replace("``", "`"), self.type()))
            self._match(self._TAIL)
        return StructType(tuple(fields))

    def _decimal(self, start: int) -> SqlType:
        digits = self._match(self._DIGITS)
        precision, scale = (int(digits[1]), int(digits[2] or 0)) if digits else (10, 0)
        if not self._ends_here() or not 1 <= precision <= MAX_PRECISION or scale > precision:
            return self._other(start)
        return DecimalType(precision, scale)

    def _other(self, start: int) -> SqlType:
        self.at = start
        match = self._match(self._OTHER)
        if match is None or not match[0].strip():
            raise self._wrong("a type")
        return UnsupportedType(" ".join(match[0].lower().split()))

    def _ends_here(self) -> bool:
        tail = self._TAIL.match(self.text, self.at)
        at = self._past_blanks(tail.end() if tail else self.at)
        return at == len(self.text) or self.text[at] in ",>"

    def _past_blanks(self, at: int) -> int:
        return len(self.text) - len(self.text[at:].lstrip())

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        result = pattern.match(self.text, self.at)
        if result is not None:
            self.at = result.end()
        return result

    def _take(self, mark: str) -> bool:
        at = self._past_blanks(self.at)
        if not self.text.startswith(mark, at):
            return False
        self.at = at + len(mark)
        return True

    def _expect(self, mark: str) -> None:
        if not self._take(mark):
            raise self._wrong(repr(mark))

    def _wrong(self, wanted: str) -> FatalError:
        return FatalError(
            COLUMN_TYPE_UNSUPPORTED,
            f"{self.text!r} is not a SQL type: {wanted} expected at character {self.at + 1}",
            remedy=REMEDY,
        )
