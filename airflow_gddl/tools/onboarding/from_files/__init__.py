"""What a team already has, as facts of a source: an AWS DMS task, a Debezium connector, an onboarding file of sdp-meta.

A module for each format, found by what the document has. Each reads what a row can say, and names what it can't with
the way out, line by line (`ONBOARD_NOT_CARRIED`). Values of connections are neither read nor shown. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from airflow_gddl.contract.codes import ONBOARD_REFUSED
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.metadata.files import read_yaml
from airflow_gddl.metadata.problems import DocumentError
from airflow_gddl.tools.onboarding.from_files import debezium_connector, dms_task, sdp_meta
from airflow_gddl.tools.onboarding.from_files.model import ImportedSource, merged

FORMATS = (dms_task, debezium_connector, sdp_meta)


def read(texts: Mapping[str, str]) -> ImportedSource:
    """What files say together: the mapping of a DMS task and the settings of its endpoint may be two.

    Args:
        texts: by name.

    Raises:
        MetadataError: `ONBOARD_REFUSED`.
    """
    return merged([_read(name, text) for name, text in texts.items()])


def _read(name: str, text: str) -> ImportedSource:
    try:
        document = json.loads(text) if text.lstrip().startswith(("{", "[")) else read_yaml(text)
    except (ValueError, RecursionError, DocumentError) as error:
        raise _unknown(name, f"it is neither JSON nor YAML: {error}") from error
    for form in FORMATS:
        if form.knows(document):
            try:
                found: ImportedSource = form.read(document)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise _unknown(name, f"{form.WHAT} has another form: {type(error).__name__}: {error}") from error
            return found
    raise _unknown(name, "its form is not known")


def _unknown(name: str, why: str) -> MetadataError:
    known = "; ".join(form.WHAT for form in FORMATS)
    return MetadataError(ONBOARD_REFUSED, f"{name} can't be read: {why}", remedy=f"give one of: {known}")
