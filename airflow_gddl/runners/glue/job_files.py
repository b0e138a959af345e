"""Files that Glue needs for jobs, by `gddl bundle`."""

from __future__ import annotations

from pathlib import Path

from airflow_gddl.tools.bundle import Bundle, JobFiles

ENTRY = '''"""Entry point on Glue: Glue's own arguments are ignored."""

import argparse
import os
import sys

from spark_jobs.main import task

if __name__ == "__main__":
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--gddl_spec", required=True)
    parser.add_argument("--gddl_region")
    found, _ = parser.parse_known_args()
    if found.gddl_region:
        os.environ.setdefault("AWS_REGION", found.gddl_region)
    sys.argv[1:] = ["--spec", found.gddl_spec, "--results"]
    task()
'''


def write(bundle: Bundle, wheel: Path) -> list[Path]:  # noqa: ARG001 - Glue installs the wheel itself
    return [bundle.text("gddl_glue.py", ENTRY)]


JOB_FILES = JobFiles(write=write, extra="glue")
