"""Mutants: a comparison flipped, a condition dropped or negated, `and` and `or` swapped, or a number off by one."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

ROOMS = ("rules", "dialects", "plan", "batch", "tables", "sources/snapshots")
_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}  # fmt: skip
_MASKS: dict[type[ast.operator], type[ast.operator]] = {ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}
_NAMES = {
    "equal": "not_equal", "not_equal": "equal", "less": "less_equal", "less_equal": "less", "greater": "greater_equal",
    "greater_equal": "greater", "and_": "or_", "or_": "and_", "is_null": "is_valid", "is_valid": "is_null",
    "any": "all", "all": "any", "maximum": "minimum", "minimum": "maximum", "max": "min", "min": "max",
    "logical_and": "logical_or", "logical_or": "logical_and",
}  # fmt: skip
"""Functions of Arrow, numpy and Python that compare, and their opposites."""


@dataclass(frozen=True)
class Mutant:
    """Attributes:
    function: first line of the function in which it is, 0 at module level.
    text: what was there, and what is.
    source: the module with it.
    """

    path: str
    line: int
    function: int
    text: str
    source: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def drawn(root: Path, seed: int, count: int) -> list[Mutant]:
    """A seed's mutants, each drawn from all; more of a seed begin with the same ones."""
    places = [
        (str(path.relative_to(root)), number)
        for room in ROOMS
        for path in sorted((root / "spark_jobs" / room).rglob("*.py"))
        for number in range(len(list(_changes(ast.parse(path.read_text(encoding="utf-8"))))))
    ]
    Random(seed).shuffle(places)  # noqa: S311 - no secret
    return [_mutant(root, path, number) for path, number in places[:count]]


def _mutant(root: Path, path: str, number: int) -> Mutant:
    tree = ast.parse((root / path).read_text(encoding="utf-8"))
    node, other = list(_changes(tree))[number]
    text = f"{ast.unparse(node)}  ->  {ast.unparse(other)}"
    around = [each for each in _functions(tree) if each.lineno <= node.lineno <= (each.end_lineno or 0)]
    function = max(map(_first_line, around), default=0)
    source = ast.unparse(ast.fix_missing_locations(_Replacing(node, other).visit(tree)))
    return Mutant(path, node.lineno, function, text, source)


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def _first_line(function: ast.FunctionDef) -> int:
    """As a code object has it: that of the first decorator."""
    return min([function.lineno, *(each.lineno for each in function.decorator_list)])


def _changes(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Expressions of a module, and what a mutant has in place of each; annotations are left."""
    for field, value in ast.iter_fields(tree):
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or field in ("annotation", "returns"):
                continue
            if isinstance(node, ast.expr):
                yield from ((node, other) for other in _others(node))
            conditions = [*getattr(node, "ifs", ()), *([node.test] if isinstance(node, (ast.If, ast.IfExp)) else [])]
            for test in conditions:
                yield test, ast.UnaryOp(ast.Not(), test)
                yield test, ast.Constant(True)
            yield from _changes(node)


def _others(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(ops=[op]):
            for other in _COMPARED[type(op)]:
                yield ast.Compare(node.left, [other()], node.comparators)
        case ast.BoolOp():
            yield ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values)
            yield from _without_one(node)
        case ast.BinOp() if type(node.op) in _MASKS:
            yield ast.BinOp(node.left, _MASKS[type(node.op)](), node.right)
            yield from (node.left, node.right)
        case ast.UnaryOp(op=ast.Not() | ast.Invert()):
            yield node.operand
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            yield ast.Constant(number + 1)
        case ast.Attribute() if node.attr in _NAMES:
            yield ast.Attribute(node.value, _NAMES[node.attr], node.ctx)
        case ast.Name() if node.id in ("any", "all", "max", "min"):
            yield ast.Name(_NAMES[node.id], node.ctx)


def _without_one(node: ast.BoolOp) -> Iterator[ast.expr]:
    for left_out in node.values:
        values = [value for value in node.values if value is not left_out]
        yield values[0] if len(values) == 1 else ast.BoolOp(node.op, values)


class _Replacing(ast.NodeTransformer):
    def __init__(self, node: ast.expr, other: ast.expr) -> None:
        self._node, self._other = node, copy.deepcopy(other)

    def visit(self, node: ast.AST) -> ast.AST:
        result: ast.AST = self._other if node is self._node else self.generic_visit(node)
        return result
