"""The error family both sides share: a stable code, what, where and the way out.

The class tells what may be done about an error, the code what it is. Codes are part of the public contract: they appear
in `JobResult.error.code`, in quarantine rows and in the documentation, and never change their meaning.
"""

from __future__ import annotations


class GddlError(Exception):
    """Something this project noticed itself; never raised bare, only as one of the families below.

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
        remedy = f" Remedy: {self.remedy}" if self.remedy else ""
        return f"[{self.code}] {self.what}{where}{'' if self.what.endswith('.') else '.'}{remedy}"


class FatalError(GddlError):
    """Running again without a change by a person gives the same error."""


class RetriableError(GddlError):
    """A passing fault (a held claim, a busy store): the same call may succeed later."""


class QuarantinableError(GddlError):
    """It concerns one row or one file, which goes to the quarantine; the rest goes on."""


class MetadataError(FatalError):
    """Wrong metadata or arguments; the command line answers it with exit status 2."""
