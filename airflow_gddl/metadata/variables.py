"""Environment variables of this package, and detection of misspelt ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from airflow_gddl.metadata.problems import VARIABLE, Problem

PREFIX = "GDDL_"
NAMES = (
    "GDDL_AWS_CONN_ID",
    "GDDL_DAG_PREFIX",
    "GDDL_JARS",
    "GDDL_LAKE",
    "GDDL_LANDING",
    "GDDL_LANDING_ACCESS",
    "GDDL_LOG_FORMAT",
    "GDDL_METADATA",
    "GDDL_METRICS_FILE",
    "GDDL_MASK_KEY",
    "GDDL_MASK_KEY_FILE",
    "GDDL_METRICS_TABLES",
    "GDDL_RUNNER",
    "GDDL_SETTLE",
    "GDDL_SOURCE_CONNECTIONS",
    "GDDL_SPARK_DELTA",
    "GDDL_SPARK_MASTER",
    "GDDL_SPARK_START_TIMEOUT",
)
OF_THE_MACHINE = ("GDDL_JARS", "GDDL_SPARK_START_TIMEOUT")
"""Those of `NAMES` that describe the machine, not a deployment: they hold for a demonstration, too."""
# Similarity of two swapped letters in a short name; user variables such as GDDL_SHOP_DB do not match.
_NEAR = 0.85


def misspelt(environ: Mapping[str, str]) -> Iterator[Problem]:
    """`VARIABLE_UNKNOWN` for each unused variable whose name is similar to a known one; sorted."""
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable in NAMES or "__" in variable:
            continue
        if near := difflib.get_close_matches(variable, NAMES, n=1, cutoff=_NEAR):
            place, remedy = f"{VARIABLE}{variable}", f"did you mean {near[0]}?"
            yield Problem(code="VARIABLE_UNKNOWN", message="nothing reads it", remedy=remedy, file=place)
