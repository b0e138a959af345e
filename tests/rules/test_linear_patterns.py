"""Every pattern of the code takes time in proportion to the text, whatever the text is."""

from __future__ import annotations

import functools
import importlib.util
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import airflow_gddl
import spark_jobs
from airflow_gddl.contract.packages import of_import
from airflow_gddl.contract.sql_types import StructType, parse_type
from spark_jobs.rules.convert import fit
from spark_jobs.rules.texts import forms, normal_form, reader, width

_METHODS = ("search", "match", "fullmatch", "sub", "split", "finditer", "findall")
_POOL = "0a ~.-/:'\"`_\\({}$@\n"
_SIZES = (30, 300, 2_000, 8_000)
_GROWTH, _NOTICED, _LINEAR = 10.0, 0.05, 0.001
"""From 2,000 to 8,000 characters: 4 where time is linear, 16 where it is quadratic; less CPU time is not compared, and
where 2,000 characters take less than the last one, no quadratic pattern is that fast."""


LEFT_OUT: dict[str, str] = {}
"""Modules that need a package which is not installed here, as in the lanes without Airflow, and why."""


def _modules() -> Iterator[ModuleType]:
    for package in (spark_jobs, airflow_gddl):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            spec = importlib.util.find_spec(found.name)
            if spec is not None and "re.compile(" in Path(str(spec.origin)).read_text():
                try:
                    yield importlib.import_module(found.name)
                except ImportError as error:
                    if of_import(error, found.name) is None:
                        raise
                    LEFT_OUT[found.name] = str(error)


def _patterns() -> Iterator[tuple[str, re.Pattern[str], str]]:
    """Each pattern by its name, once for each method that its module calls."""
    for module in _modules():
        text = Path(str(module.__file__)).read_text()
        classes = [v for v in vars(module).values() if isinstance(v, type) and v.__module__ == module.__name__]
        for owner in (module, *classes):
            for name, value in vars(owner).items():
                if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
                    used = set(re.findall(rf"\b{name}\.(\w+)\b", text)) & set(_METHODS) or {"match", "fullmatch"}
                    yield from ((f"{module.__name__}.{name}.{method}", value, method) for method in sorted(used))


PATTERNS = list(_patterns())
BOUNDED = {
    "spark_jobs.tables.vacuum._PART": 200,  # `_LONGEST`
    "spark_jobs.rooms.dialects.debezium.dialect._BESIDE": 1024,  # a name in S3; 255 on disks
}
"""Length of the longest text that a pattern is given, where the code before it bounds it."""


def test_modules_are_left_out_only_without_airflow() -> None:
    assert LEFT_OUT == {} or importlib.util.find_spec("airflow") is None


def _samples(tree: Any, flags: int) -> list[str]:
    """Short texts that the parsed pattern takes, at most eight."""
    found = [""]
    for kind, value in tree:
        pieces = _pieces(str(kind), value, flags)
        found = [before + piece for before in found for piece in pieces][:8]
    return found


def _pieces(kind: str, value: Any, flags: int) -> list[str]:
    if kind == "LITERAL":
        return [chr(value)]
    if kind in ("NOT_LITERAL", "ANY", "IN"):
        one = [c for c in _POOL if _takes(kind, value, c)]
        return one or [next(c for c in map(chr, range(0x250)) if _takes(kind, value, c))]
    if kind == "BRANCH":
        return [text for branch in value[1] for text in _samples(branch, flags)]
    if kind in ("SUBPATTERN", "ATOMIC_GROUP"):
        return _samples(value[3] if kind == "SUBPATTERN" else value, flags)
    if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return [text * max(1, value[0]) for text in _samples(value[2], flags)]
    return [""]


def _takes(kind: str, value: Any, c: str) -> bool:
    if kind == "ANY":
        return c != "\n"
    if kind == "NOT_LITERAL":
        return ord(c) != value
    negated, hit = False, False
    for inner, part in value:
        name = str(inner)
        negated |= name == "NEGATE"
        hit |= name == "LITERAL" and part == ord(c)
        hit |= name == "RANGE" and part[0] <= ord(c) <= part[1]
        hit |= name == "CATEGORY" and _CATEGORIES[str(part)](c)
    return hit != negated


_CATEGORIES: dict[str, Callable[[str], bool]] = {
    "CATEGORY_DIGIT": str.isdigit, "CATEGORY_SPACE": str.isspace, "CATEGORY_WORD": lambda c: c.isalnum() or c == "_",
    "CATEGORY_NOT_DIGIT": lambda c: not c.isdigit(), "CATEGORY_NOT_SPACE": lambda c: not c.isspace(),
    "CATEGORY_NOT_WORD": lambda c: not (c.isalnum() or c == "_"),
}  # fmt: skip


def _attacks(tree: Any, flags: int, before: tuple[str, ...] = ("",)) -> set[tuple[str, str]]:
    """Beginnings with what is to be repeated after them: each unbounded repetition after what leads to it."""
    found: set[tuple[str, str]] = set()
    lead = list(before)
    for kind, value in tree:
        name = str(kind)
        if name.endswith("_REPEAT"):
            inner = _samples(value[2], flags)
            if value[1] > 50:
                found |= {(a, b) for a in lead[:3] for b in inner}
            found |= _attacks(value[2], flags, tuple(lead[:3]))
        elif name == "SUBPATTERN":
            found |= _attacks(value[3], flags, tuple(lead[:3]))
        elif name == "BRANCH":
            for branch in value[1]:
                found |= _attacks(branch, flags, tuple(lead[:3]))
        lead = [a + b for a in lead for b in _pieces(name, value, flags)][:3]
    return found


def _seconds(call: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(2):
        start = time.thread_time()
        call()
        best = min(best, time.thread_time() - start)
        if best > 2 * _NOTICED:
            break
    return best


def _grows(call: Callable[[str], object], begin: str, pump: str, end: str, longest: int = _SIZES[-1]) -> str:
    """Sizes and CPU times of a text with which they grow faster than the text; empty: there is none."""
    times: list[float] = []
    for size in (size for size in _SIZES if size <= longest):
        if times and size == _SIZES[-1] and times[-1] < _LINEAR:
            break
        text = begin + pump * (size // len(pump)) + end
        times.append(_seconds(functools.partial(call, text)))
        if times[-1] > _NOTICED and len(times) > 1 and times[-1] > _GROWTH * max(times[-2], 1e-6):
            return f"{begin[:20]!r} + {pump!r} * n + {end!r}: {dict(zip(_SIZES, times, strict=False))}"
    return ""


@pytest.mark.parametrize(("name", "pattern", "method"), PATTERNS, ids=[p[0] for p in PATTERNS])
def test_time_of_a_pattern_grows_with_the_text(name: str, pattern: re.Pattern[str], method: str) -> None:
    longest = BOUNDED.get(name.rpartition(".")[0], _SIZES[-1])
    tree = re._parser.parse(pattern.pattern, pattern.flags)  # type: ignore[attr-defined] # no public way to the parsed form
    attacks = {("", c) for c in _POOL} | _attacks(tree, pattern.flags) | {("", s) for s in _samples(tree, 0) if s}

    def call(text: str) -> object:
        if method == "sub":
            return pattern.sub("", text)
        found = getattr(pattern, method)(text)
        return list(found) if method == "finditer" else found

    slow = {_grows(call, begin, pump, end, longest) for begin, pump in attacks if pump for end in ("\x00", "!~")}
    assert slow == {""}


BEGINS = ("", "1", "1.", "1e", "-", "2024-01-02 03:04:05.", "2024-01-02 03:04:05 ", "2024-01-02T03:04:05+")
TYPES = ("tinyint", "bigint", "decimal(38,10)", "float", "double", "boolean", "date", "timestamp", "timestamp_ntz",
         "string", "binary")  # fmt: skip


@pytest.mark.parametrize("kind", TYPES)
def test_time_of_a_reader_grows_with_the_text(kind: str) -> None:
    read = reader(parse_type(kind))
    slow = {_grows(read, begin, pump, end) for begin in BEGINS for pump in _POOL for end in ("", "x", "Z")}
    assert slow == {""}


def _column(read: Callable[[pa.Array], object]) -> Callable[[str], object]:
    return lambda text: read(pa.array([text, "1"]))


COLUMNS: dict[str, Callable[[str], object]] = {
    **{kind: _column(functools.partial(fit, source=parse_type("string"), target=parse_type(kind))) for kind in TYPES},
    "normal_form": _column(normal_form),
    "forms": _column(forms),
    "width": _column(width),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_time_of_a_column_grows_with_its_text(name: str) -> None:
    call = COLUMNS[name]
    slow = {_grows(call, begin, pump, end) for begin in BEGINS for pump in "0a ~.-/:F" for end in ("", "x")}
    assert slow == {""}


@pytest.mark.parametrize("field", ["`a`:int,", "b : array<int>,", "`c`` d`:struct<x:int>,"])
def test_time_of_a_type_grows_with_its_fields(field: str) -> None:
    assert _grows(parse_type, "struct<", field * 10, "z:int>", longest=_SIZES[-1]) == ""
    found = parse_type(f"struct<{field * 1000}z:int>")
    assert isinstance(found, StructType)
    assert len(found.fields) == 1001
