"""The register of codes: each error, warning, advice and reason of the quarantine is one value, which raisers name.

`gddl codes` and docs/codes.md are printed from it. A module has the codes of a part; all are names of this package.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_gddl.contract.codes import changes, jobs, metadata, onboarding, quarantine, schema, stores, tasks
from airflow_gddl.contract.codes.changes import *  # noqa: F403 - all names of the part
from airflow_gddl.contract.codes.code import Code as Code
from airflow_gddl.contract.codes.jobs import *  # noqa: F403 - all names of the part
from airflow_gddl.contract.codes.metadata import *  # noqa: F403 - all names of the part
from airflow_gddl.contract.codes.onboarding import *  # noqa: F403 - all names of the part
from airflow_gddl.contract.codes.quarantine import *  # noqa: F403 - all names of the part
from airflow_gddl.contract.codes.schema import *  # noqa: F403 - all names of the part
from airflow_gddl.contract.codes.stores import *  # noqa: F403 - all names of the part
from airflow_gddl.contract.codes.tasks import *  # noqa: F403 - all names of the part

SECTIONS = {
    "Metadata": metadata,
    "Commands and jobs": jobs,
    "Airflow and alerts": tasks,
    "Schema, keys and sequence": schema,
    "Warnings about changes": changes,
    "Files and rows in quarantine": quarantine,
    "Stores, claims and the ledger": stores,
    "Onboarding, test data and the demo": onboarding,
}
"""Parts of the register, by their headings."""
REGISTER: Mapping[str, Code] = {
    code: code for part in SECTIONS.values() for code in vars(part).values() if isinstance(code, Code)
}
"""All codes by name."""
RETRIED = frozenset(code for code in REGISTER.values() if code.kind == "retried")
"""Codes of fatal errors that a new job may not meet: it has new credentials, other machines, fewer tables."""
SETUP = frozenset(code for code in REGISTER.values() if code.kind == "setup")
"""Codes of fatal errors of an installation: where no table failed otherwise, nothing could be started."""
QUARANTINED = frozenset(code for code in REGISTER.values() if code.kind.partition(",")[0] in ("row", "file"))
"""Codes of rows and files in quarantine."""
ENDINGS: Mapping[str, Code] = {code: code for code in REGISTER.values() if code.ends is not None}
"""Codes of a table's state `attention`."""


def of(name: str) -> Code:
    """The code of this name; one of another version, or of another package, has no texts."""
    return REGISTER.get(name) or Code(name, "", "", "")
