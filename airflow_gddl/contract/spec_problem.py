"""A problem of a spec and its location."""

from __future__ import annotations

from dataclasses import dataclass

FieldPath = tuple[str | int, ...]


@dataclass(frozen=True)
class SpecProblem:
    """A problem of a spec.

    Attributes:
        code: stable, e.g. `KEYS_DUPLICATE`.
        path: names and list positions that lead to the value.
        value: the raw value; it must be truncated and screened for secrets before display.
        message: what is wrong, without the value.
        remedy: the way out.
    """

    code: str
    path: FieldPath
    value: object
    message: str
    remedy: str

    @property
    def field(self) -> str:
        return field_name(self.path)


def field_name(path: FieldPath) -> str:
    """`("options", "types", "a")` as `options.types.a`, `("keys", 1)` as `keys[1]`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
