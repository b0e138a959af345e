"""Error classes of both sides: a stable code, what, where and a remedy.

The class determines recovery, the code identifies the error. Codes are part of the public contract: they appear
in `JobResult.error.code`, in quarantine rows and in the documentation, and never change their meaning.
"""

from __future__ import annotations

from dataclasses import dataclass

UNEXPECTED_CODE = "UNEXPECTED"
"""Code of an error without a code of its own; a retry may help."""
RETRIED = frozenset(
    {
        UNEXPECTED_CODE,
        "CLUSTER_UNUSABLE",
        "DELTA_MISSING",
        "JOB_DIED",
        "OUT_OF_MEMORY",
        "S3A_MISSING",
        "S3_CREDENTIALS_EXPIRED",
        "S3_CREDENTIALS_MISSING",
    }
)
"""Codes of fatal errors that a new job may not meet: it has new credentials, other machines, fewer tables."""
SETUP = frozenset(
    {
        "ACTION_MISSING",
        "CODE_MISSING",
        "COMMAND_MISSING",
        "DELTA_UNSUPPORTED",
        "JAVA_MISSING",
        "JOB_NOT_STARTED",
        "PACKAGE_MISSING",
        "RUNNER_BROKEN",
        "SOURCE_MISSING",
        "SPARK_HOME_INVALID",
        "SPARK_UNSUPPORTED",
    }
)
"""Codes of fatal errors of an installation: where no table failed otherwise, nothing could be started."""


DOCUMENTATION = "https://github.com/airflow-gddl/airflow-gddl/blob/main/docs"


def documented(page: str, heading: str = "") -> str:
    """URL of a page of the documentation, for messages: pip installs none.

    Args:
        page: its path below `docs/`.
        heading: anchor of a heading on it; empty: the page.
    """
    return f"{DOCUMENTATION}/{page}" + (f"#{heading}" if heading else "")


class GddlError(Exception):
    """Base class of this project's errors; only its subclasses are raised.

    Args:
        code: stable upper-case identifier, e.g. ``SCHEMA_REFUSED``.
        what: what is wrong, with the offending value.
        where: file, line, table or step it concerns; empty when the message says it.
        remedy: what the reader can do about it; empty only when nothing can be done.
    """

    def __init__(self, code: str, what: str, *, where: str = "", remedy: str = "") -> None:
        self.code = code
        self.what = what
        self.where = where
        self.remedy = remedy
        super().__init__(str(self))

    def __str__(self) -> str:
        where = f" ({self.where})" if self.where else ""
        remedy = f"{_REMEDY}{self.remedy}" if self.remedy else ""
        return f"[{self.code}] {self.what}{where}{'' if self.what.endswith('.') else '.'}{remedy}"


_REMEDY = " Remedy: "
_LEAST = 80
_CUT = " …"


def brief(message: str, most: int) -> str:
    """An error's text in at most so many characters: the remedy at its end is whole, what is listed before is cut."""
    if len(message) <= most:
        return message
    what, mark, remedy = message.rpartition(_REMEDY)
    if not mark:
        return message[: most - len(_CUT)] + _CUT
    room = max(most - len(_CUT + mark + remedy), _LEAST)
    return (what[:room].rstrip() + _CUT + mark + remedy)[:most]


class FatalError(GddlError):
    """A retry fails with the same error until a user fixes the cause."""


class RetriableError(GddlError):
    """A transient error (a held claim, a busy store): the same call may succeed later."""


SWAP_TRIES = 50
"""How often an object that others change meanwhile is read again, and put if it is still the one that was read."""


def contended(path: str) -> RetriableError:
    """`STATE_CONTENDED`, for an object that others changed at each of these tries."""
    what = f"other writers kept changing it, {SWAP_TRIES} times"
    return RetriableError("STATE_CONTENDED", what, where=path, remedy="no data is lost; the next try writes it")


class QuarantinableError(GddlError):
    """Concerns one row or file, which is quarantined; processing continues."""


class MetadataError(FatalError):
    """Invalid metadata or arguments; exit status 2 on the command line."""


FieldPath = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class Note:
    """What awaits a person.

    Attributes:
        table: `source:schema.name`.
        code: listed in docs/codes.md.
        command: says more, or decides.
    """

    table: str
    code: str
    text: str
    command: str = ""

    @property
    def line(self) -> str:
        return f"{self.table}: [{self.code}] {self.text}" + (f" ▸ {self.command}" if self.command else "")


@dataclass(frozen=True)
class SpecProblem:
    """A problem of a spec.

    Attributes:
        code: stable, e.g. `FIELD_VALUE`.
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


OF_FILES = "FILE_"
"""How codes of whole files in quarantine begin."""
QUARANTINE_REMEDIES = {
    "APPEND_ONLY_CHANGE": "name the table's keys, then run `gddl rebuild --table T`; or dismiss the row",
    "CAST_FAILED": "correct options.types (string makes the column text), or set type_change: rescue; then replay",
    "COLUMNS_UNKNOWN": "correct columns_to_update or rename, then replay; or correct the source, then dismiss",
    "EXPECTATION_FAILED": "change the expectation, then replay; or correct the source, then dismiss",
    "FILE_EMPTY": "deliver the file again: it is read when it changes; if it can't be, dismiss it",
    "FILE_KEY_MISSING": "correct keys or rename, then replay; or deliver the file again; if it can't be, dismiss it",
    "FILE_TOO_LARGE": "raise max_inflated_bytes of the tier, then replay; or deliver smaller files",
    "FILE_UNREADABLE": "correct the metadata row, then replay; or deliver the file again: it is read when it changes",
    "FILTER_UNDECIDED": "have the source send whole rows, then dismiss these",
    "KEY_NULL": "correct keys, run `gddl rebuild --table T`, then replay; or correct the source, then dismiss",
    "OP_UNKNOWN": (
        "if all rows have it, correct options.op_column or options.missing_op of the metadata row, then replay; if only"
        " a few have it, dismiss them"
    ),
    "PARTITION_VALUE_REFUSED": "partition by another column, then replay; or correct the source, then dismiss",
    "ROW_MALFORMED": "deliver the file again; if it can't be, dismiss the row",
    "SEQUENCE_NULL": (
        "correct sequence_by, run `gddl rebuild --table T`, then replay; or correct the source, then dismiss"
    ),
    "SEQUENCE_UNPARSABLE": "correct sequence_by or options.types, then replay; or correct the source, then dismiss",
    "TEXT_NOT_UTF8": "list the column in exclude_columns or mask, then replay; or correct the source, then dismiss",
}
"""What to do about rows and files in quarantine, by their code; docs/codes.md says more."""
