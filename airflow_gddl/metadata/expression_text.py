"""Reads expressions of metadata rows from text into trees: a small, closed part of SQL, of bounded length and depth.

sqlglot parses; it sees only the tokens of `_grammar`, and of what it returns only the nodes of `_Reader` are taken.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import pairwise
from typing import Any, ClassVar, NoReturn

from airflow_gddl.contract.codes import EXPRESSION_INVALID, FIELD_REFUSED, FIELD_VALUE
from airflow_gddl.contract.errors import FieldPath, SpecProblem, documented, problem_at
from airflow_gddl.contract.names import clean_name, is_kept, mask_method, renamed
from airflow_gddl.contract.row_checks import RESERVED_COLUMNS, named_columns
from airflow_gddl.contract.shares import is_share
from airflow_gddl.contract.table_spec import COLUMN, FUNCTIONS, TableSpec, Term, lowered

MAX_TEXT = 2_000
"""Characters of an expression."""
MAX_DEPTH = 30
"""Levels of an expression."""
_WORDS = ("AND", "BETWEEN", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "RLIKE", "TRUE")
_TYPES = ("DATE", "TIMESTAMP")
"""Words before a text; elsewhere they are names."""
_SIGNS = {"||": "DPIPE", ">=": "GTE", "<=": "LTE", "<>": "NEQ", "!=": "NEQ"}
_BINARY = {
    "EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">=", "Add": "+", "Sub": "-", "Mul": "*",
    "Div": "/", "Like": "like", "RegexpLike": "regexp_like",
}  # fmt: skip
_CHAINS = {"And": "and", "Or": "or", "DPipe": "concat"}
_IGNORED = frozenset({"typed", "safe", "_type", "nested", "quoted", "negate"})
"""Arguments of nodes that change no meaning here; `negate` is read."""
_LOOKAROUND = re.compile(r"(?<!\\)(?:\\\\)*(\\[1-9]|\(\?(?:[=!]|<[=!]|P=|>|\())")
_SEE = f"see {documented('metadata.md', 'expressions')}"


class ExpressionError(Exception):
    """A text that is no expression.

    Attributes:
        at: character of the text, from 1; null: the text as a whole.
    """

    def __init__(self, message: str, remedy: str = _SEE, at: int | None = None) -> None:
        super().__init__(message if at is None else f"{message} (at character {at})")
        self.remedy = remedy


@functools.lru_cache(maxsize=4096)
def parsed(text: str) -> Term:
    """The tree of an expression.

    Raises:
        ExpressionError: with the place in the text.
    """
    if len(text) > MAX_TEXT:
        raise ExpressionError(f"an expression of more than {MAX_TEXT:,} characters", "write a shorter one")
    if not text.strip():
        raise ExpressionError("an expression without text", "write a condition, e.g. qty > 0")
    if not text.isprintable():
        raise ExpressionError("an expression with line breaks or control characters", "write it on one line")
    try:
        return _parsed(text)
    except RecursionError:
        raise _too_deep() from None


def _parsed(text: str) -> Term:
    from sqlglot.errors import ParseError, TokenError  # noqa: PLC0415 - takes 0.3 s, and few rows have expressions

    grammar = _grammar()
    try:
        tokens = _with_types(grammar.tokenize(text))
        _require_bounds(tokens)
        nodes = grammar.parser().parse(tokens, text)
    except TokenError:
        raise ExpressionError("a text or name in quotes that does not end, or an unknown character") from None
    except ParseError as error:
        raise _unexpected(error.errors[0]) from None
    if len(nodes) != 1 or nodes[0] is None:
        raise ExpressionError("not one expression")
    return _Reader(tokens=tuple(tokens)).term(nodes[0], 1)


def _unexpected(place: Mapping[str, Any]) -> ExpressionError:
    sign = str(place.get("highlight") or "")
    at = max(1, int(place.get("col") or 1) - len(sign) + 1)
    missing = "missing" in str(place.get("description"))
    return ExpressionError(f"{sign[:20]!r} {'lacks a value' if missing else 'is not expected here'}", at=at)


def _with_types(tokens: Sequence[Any]) -> list[Any]:
    """The tokens, with types where a text follows their name."""
    kinds, typed = type(tokens[0].token_type) if tokens else None, list(tokens)
    for at, (token, after) in enumerate(pairwise(tokens)):
        word = token.text.upper()
        if token.token_type.name == "VAR" and word in _TYPES and after.token_type.name == "STRING":
            place = {name: getattr(token, name) for name in ("line", "col", "start", "end")}
            typed[at] = type(token)(getattr(kinds, word), token.text, **place)
    return typed


def _require_bounds(tokens: Sequence[Any]) -> None:
    """Refuse what the parser would descend into too deeply, and comments."""
    depth = prefixes = 0
    for before, token in pairwise((None, *tokens)):
        name = token.token_type.name
        if name == "DASH" and before is not None and before.token_type.name == name and before.end + 1 == token.start:
            raise ExpressionError("a comment", "write comments into the file, after #", token.start)
        depth += (name == "L_PAREN") - (name == "R_PAREN")
        prefixes = prefixes + 1 if name in ("NOT", "DASH") else 0
        if max(depth, prefixes) > MAX_DEPTH:
            raise _too_deep(token)


def _too_deep(token: Any = None) -> ExpressionError:
    at = None if token is None else token.start + 1
    return ExpressionError(f"nested in more than {MAX_DEPTH} levels", "write it with fewer brackets", at)


@functools.cache
def _grammar() -> Any:
    """sqlglot's grammar without words but those of `_WORDS`, functions of its own, and comments."""
    from sqlglot import TokenType, parser, tokens  # noqa: PLC0415 - see `_parsed`
    from sqlglot.dialects.dialect import Dialect  # noqa: PLC0415 - see `_parsed`

    signs = {sign: getattr(TokenType, name) for sign, name in _SIGNS.items()}
    words = {word: getattr(TokenType, word) for word in _WORDS} | signs

    class Expressions(Dialect):
        class Tokenizer(tokens.Tokenizer):
            KEYWORDS = words
            COMMENTS: ClassVar[list[Any]] = []

        class Parser(parser.Parser):
            FUNCTIONS: ClassVar[dict[str, Any]] = {}
            FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {}
            NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
            NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {}

    return Expressions()


@dataclass(frozen=True)
class _Reader:
    """Nodes of sqlglot as terms; those that are not named here are refused."""

    tokens: tuple[Any, ...]

    def term(self, node: Any, depth: int) -> Term:
        if depth > MAX_DEPTH:
            raise _too_deep()
        kind = type(node).__name__
        if kind in _CHAINS:
            return self._chain(node, kind, depth)
        read = self._binary if kind in _BINARY else getattr(self, f"read_{kind.lower()}", self._refuse)
        result = read(node, depth)
        return Term(op="not", args=(result,)) if node.args.get("negate") else result

    def _terms(self, nodes: Iterable[Any], depth: int) -> tuple[Term, ...]:
        return tuple(self.term(node, depth + 1) for node in nodes)

    def _binary(self, node: Any, depth: int) -> Term:
        self._require_only(node, "this", "expression")
        op, operands = _BINARY[type(node).__name__], self._terms((node.this, node.expression), depth)
        if op == "regexp_like":
            self._require_pattern(operands[1])
        elif op == "like" and operands[1].op != "text":
            raise ExpressionError("a pattern of `like` that is no text", "write it in quotes, e.g. like 'DE%'")
        return Term(op=op, args=operands)

    def _chain(self, node: Any, kind: str, depth: int) -> Term:
        """`a and b and c` as one term, whatever its length."""
        operands, waiting = [], [node]
        while waiting:
            one = waiting.pop()
            if type(one).__name__ == kind:
                self._require_only(one, "this", "expression")
                waiting += [one.this, one.expression]
            else:
                operands.append(self.term(one, depth + 1))
        return Term(op=_CHAINS[kind], args=tuple(reversed(operands)))

    def read_column(self, node: Any, depth: int) -> Term:  # noqa: ARG002 - as all readers
        if (
            any(value for name, value in node.args.items() if name != "this")
            or type(node.this).__name__ != "Identifier"
        ):
            self._refuse(node)
        return Term(op=COLUMN, value=node.name)

    def read_literal(self, node: Any, depth: int) -> Term:  # noqa: ARG002 - as all readers
        return Term(op="text" if node.args.get("is_string") else "number", value=str(node.this))

    def read_boolean(self, node: Any, depth: int) -> Term:  # noqa: ARG002 - as all readers
        return Term(op="boolean", value="true" if node.this else "false")

    def read_null(self, node: Any, depth: int) -> Term:  # noqa: ARG002 - as all readers
        raise ExpressionError("null beside an operator or in a list is never true", "write `is null` or `is not null`")

    def read_paren(self, node: Any, depth: int) -> Term:
        self._require_only(node, "this")
        return self.term(node.this, depth + 1)

    def read_not(self, node: Any, depth: int) -> Term:
        self._require_only(node, "this")
        return Term(op="not", args=(self.term(node.this, depth + 1),))

    def read_neg(self, node: Any, depth: int) -> Term:
        self._require_only(node, "this")
        inner = self.term(node.this, depth + 1)
        if inner.op == "number" and not inner.value.startswith("-"):
            return Term(op="number", value=f"-{inner.value}")
        return Term(op="-", args=(Term(op="number", value="0"), inner))

    def read_is(self, node: Any, depth: int) -> Term:
        self._require_only(node, "this", "expression")
        inner = self.term(node.this, depth + 1)
        if type(node.expression).__name__ != "Null":
            raise ExpressionError("`is` before anything but null", "write `is null`, `is not null`, or = true")
        return Term(op="is null", args=(inner,))

    def read_between(self, node: Any, depth: int) -> Term:
        self._require_only(node, "this", "low", "high")
        return Term(op="between", args=self._terms((node.this, node.args["low"], node.args["high"]), depth))

    def read_in(self, node: Any, depth: int) -> Term:
        self._require_only(node, "this", "expressions")
        operands = self._terms((node.this, *node.expressions), depth)
        if len(operands) < 2 or any(one.op in (COLUMN, "boolean") or one.args for one in operands[1:]):
            raise ExpressionError("a list of `in` that does not hold values alone", "write e.g. in ('DE', 'AT')")
        return Term(op="in", args=operands)

    def read_cast(self, node: Any, depth: int) -> Term:
        """`date '2026-01-31'`, `timestamp '2026-01-31 12:00:00'`."""
        inner = self.term(node.this, depth + 1)
        name = getattr(node.args["to"].this, "name", "").lower()
        if inner.op != "text" or name not in ("date", "timestamp"):
            self._refuse(node)
        return Term(op=f"{name}_value", value=_moment(inner.value, name))

    def read_anonymous(self, node: Any, depth: int) -> Term:
        """A function."""
        name, at = str(node.this).lower(), self._at(str(node.this))
        if name not in FUNCTIONS:
            raise ExpressionError(f"no function {name[:40]!r}", f"use one of {', '.join(FUNCTIONS)}", at)
        self._require_only(node, "this", "expressions")
        least, most = FUNCTIONS[name]
        if not least <= len(node.expressions) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            what = f"{name} with {len(node.expressions)} arguments instead of {wanted}"
            raise ExpressionError(what, at=at)
        args = self._terms(node.expressions, depth)
        if name == "regexp_like":
            self._require_pattern(args[1])
        for argument in args[1:] if name in ("round", "substring") else ():
            if argument.op != "number" or not argument.value.isdecimal() or len(argument.value) > 6:
                raise ExpressionError(f"an argument of {name} that is no whole number", at=at)
        if name == "substring" and args[1].value.strip("0") == "":
            raise ExpressionError("substring counts characters from 1", at=at)
        return Term(op=name, args=args)

    def _require_pattern(self, pattern: Term) -> None:
        """A regular expression whose matching takes linear time, as far as that is known without RE2."""
        if pattern.op != "text":
            raise ExpressionError("a pattern that is no text", "write the regular expression in quotes")
        if _LOOKAROUND.search(pattern.value):
            what = "a pattern that looks around or refers to its groups, which takes no linear time"
            raise ExpressionError(what, "write it with the syntax of RE2")
        try:
            re.compile(pattern.value)
        except (re.error, OverflowError, RecursionError) as error:
            raise ExpressionError(f"not a regular expression: {str(error)[:80]}") from None

    def _require_only(self, node: Any, *known: str) -> None:
        """Refuse arguments of a node that would be ignored: another version of the parser may give them a meaning."""
        unknown = {name for name, value in node.args.items() if value not in (None, False, [])} - {*known} - _IGNORED
        if unknown:
            self._refuse(node)

    def _refuse(self, node: Any, depth: int = 0) -> NoReturn:  # noqa: ARG002 - as all readers
        kind = type(node).__name__
        known = {"Mod": "write mod(a, b) instead of %", "ILike": "write lower(a) like ...",
                 "Dot": "name columns without their table", "Column": "name columns without their table"}  # fmt: skip
        names = (one.name for one in node.walk() if type(one).__name__ in ("Identifier", "Literal"))
        first = next((at for name in names if (at := self._at(name)) is not None), None)
        raise ExpressionError(f"{_TITLES.get(kind, kind)} is not known here", known.get(kind, _SEE), first)

    def _at(self, text: str) -> int | None:
        return next((token.start + 1 for token in self.tokens if token.text == text), None)


_TITLES = {"Mod": "the operator %", "Column": "a name with a dot", "Dot": "a name with a dot", "Cast": "a cast",
           "Star": "the sign *", "Struct": "a value in { }", "Alias": "a word after a value",
           "Tuple": "a list of values"}  # fmt: skip


def _moment(text: str, kind: str) -> str:
    try:
        return date.fromisoformat(text).isoformat() if kind == "date" else datetime.fromisoformat(text).isoformat(" ")
    except ValueError:
        example = "date '2026-01-31'" if kind == "date" else "timestamp '2026-01-31 12:00:00'"
        raise ExpressionError(f"{text[:40]!r} is no {kind}", f"write e.g. {example}") from None


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


def expression_problems(spec: TableSpec) -> Iterator[SpecProblem]:
    """Problems of the expressions of a row, and of its expectations."""
    for name, expectation in spec.expect.items():
        path: FieldPath = ("expect", name)
        if not _NAME.fullmatch(name):
            remedy = "use letters, digits and _ (63 at most), e.g. qty_ok"
            yield SpecProblem(FIELD_VALUE, path, name, "not a name of an expectation", remedy)
        if expectation.at_most is not None and not is_share(expectation.at_most):
            yield problem_at(spec, (*path, "at_most"), "not a fraction", "write a number from 0 to 1, e.g. 0.01")
    for path, text in _conditions(spec):
        yield from _problems(spec, path, text, condition=True)
    for name, text in spec.derive.items():
        yield from _problems(spec, ("derive", name), text, condition=False)
        yield from _derived_problems(spec, name)
    for name, is_set in _PARTIAL if spec.where is not None else ():
        if is_set(spec):
            message = f"{name} lets changes carry a part of their row, for which a row filter can't be decided"
            yield problem_at(spec, "where", message, f"leave out where, or {name}", FIELD_REFUSED)
    yield from _rename_problems(spec)


_PARTIAL: tuple[tuple[str, Callable[[TableSpec], bool]], ...] = (
    ("columns_to_update", lambda spec: spec.columns_to_update is not None),
    ("ignore_null_updates", lambda spec: spec.ignore_null_updates),
)


def _derived_problems(spec: TableSpec, name: str) -> Iterator[SpecProblem]:
    def refused(message: str, remedy: str = "give the computed column another name") -> SpecProblem:
        return problem_at(spec, ("derive", name), message, remedy, FIELD_REFUSED)

    if not name.strip() or name.lower() in RESERVED_COLUMNS:
        yield refused("not a name of a column")
    elif name.lower() in lowered((*spec.keys, *spec.sequence_by)):
        yield refused("a computed column as a key or sequence, which deletes may lack", "name delivered columns there")
    elif [*map(str.lower, (*spec.rename.values(), *spec.derive))].count(name.lower()) > 1:
        yield refused("two columns of one name")
    try:
        columns = parsed(spec.derive[name]).columns
    except ExpressionError:
        return  # reported by `_problems`
    if lowered(columns) & lowered(spec.derive):
        yield refused("an expression that names a computed column", "name delivered columns alone")
    for field, is_set in _PARTIAL if len(columns) > 1 else ():
        if is_set(spec):
            message = f"{field} lets updates carry some of its columns without the others"
            yield refused(message, f"compute it from one column, or leave out {field}")


def _rename_problems(spec: TableSpec) -> Iterator[SpecProblem]:
    seen: set[str] = set()
    for before, after in spec.rename.items():
        path: FieldPath = ("rename", before)
        if not before.strip() or not after.strip() or after.lower() in RESERVED_COLUMNS:
            yield problem_at(spec, path, "not a name of a column", "name both columns")
        elif clean_name(before).lower() in seen:
            message = "the same column of the files twice (case does not count)"
            yield problem_at(spec, path, message, "name each column once")
        elif after.lower() in lowered(spec.rename):
            yield problem_at(spec, path, "a name that is renamed itself", "write the final name of each column")
        seen.add(clean_name(before).lower())
    yield from _earlier_names(spec)


def _earlier_names(spec: TableSpec) -> Iterator[SpecProblem]:
    """Fields that name a column as files do; a mask or an exclusion would have no effect."""
    if not spec.rename:
        return
    computed = lowered(map(clean_name, spec.derive))
    for path, column in named_columns(spec):
        name = renamed(column, spec)
        if name != column and clean_name(column).lower() not in computed:
            message = f"a name in the files; the metadata row gives the column the name {name!r}"
            yield problem_at(spec, path, message, f"write {name}")


def with_expressions(spec: TableSpec) -> TableSpec:
    """The row with the trees of its expressions.

    Raises:
        ExpressionError: where it has problems.
    """
    texts = [*(text for _, text in _conditions(spec)), *spec.derive.values()]
    return replace(spec, expressions={text: parsed(text) for text in texts}) if texts else spec


def _conditions(spec: TableSpec) -> Iterator[tuple[FieldPath, str]]:
    """Expressions that are true or false."""
    if spec.where is not None:
        yield ("where",), spec.where
    yield from ((("expect", name, "rule"), expectation.rule) for name, expectation in spec.expect.items())


def _problems(spec: TableSpec, path: FieldPath, text: str, *, condition: bool) -> Iterator[SpecProblem]:
    try:
        tree = parsed(text)
    except ExpressionError as error:
        yield SpecProblem(EXPRESSION_INVALID, path, text, str(error), error.remedy)
        return
    if condition and not tree.is_condition:
        message = "an expression that is neither true nor false"
        yield SpecProblem(EXPRESSION_INVALID, path, text, message, "write a condition, e.g. qty > 0")
    if not tree.columns:
        message = "an expression without a column, which is the same for all rows"
        yield SpecProblem(EXPRESSION_INVALID, path, text, message, "name a column of the table")
    for column in tree.columns:
        if fault := _column_fault(spec, column):
            at = text.find(column) + 1
            message = f"column {column!r} (at character {at}) {fault}"
            yield SpecProblem(FIELD_REFUSED, path, text, message, "name another column")


def _column_fault(spec: TableSpec, column: str) -> str:
    """Why no expression of the row may name a column; empty: it may."""
    if column.lower() in RESERVED_COLUMNS:
        return "is a column of this package"
    if (name := renamed(column, spec)) != column:
        return f"has the name {name!r} in this row"
    if mask_method(column, spec) is not None:
        return "is masked: whether an expression holds would reveal its values"
    if not is_kept(column, spec):
        return "is kept out of the lake: whether an expression holds would reveal its values"
    return ""
