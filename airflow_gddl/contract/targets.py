"""Names of lake tables by a template: `{source}_{schema}.{table}`."""

from __future__ import annotations

from string import Formatter

PLACEHOLDERS = ("source", "schema", "table")
REMEDY = "write e.g. '{source}_{schema}.{table}'"


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


def template_fault(template: str) -> str:
    """Why a text is not a template; empty when it is one. Resulting names are checked separately."""
    try:
        unknown = [field for _, field in _parts(template) if field is not None and field not in PLACEHOLDERS]
    except ValueError as error:
        return f"not a template: {error}"
    if unknown:
        return f"no such placeholder: {{{unknown[0]}}}; there are {', '.join(f'{{{name}}}' for name in PLACEHOLDERS)}"
    return ""


def _parts(template: str) -> list[tuple[str, str | None]]:
    """Text, and the placeholder after it (null: none).

    Raises:
        ValueError: a brace without its other, or a conversion or format within braces.
    """
    parts = []
    for text, field, form, conversion in Formatter().parse(template):
        if form or conversion:
            raise ValueError("a placeholder is a name alone")
        parts.append((text, field))
    return parts
