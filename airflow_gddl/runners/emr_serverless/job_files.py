"""Files that EMR Serverless needs for jobs, by `gddl bundle`."""

from __future__ import annotations

from pathlib import Path

from airflow_gddl.tools.bundle import Bundle, JobFiles, environment_of

ENTRY = '"""Entry point on EMR Serverless: the details of a failed run name the error."""\n\n'
ENTRY += "from airflow_gddl.contract.python_command import exit_process\nfrom spark_jobs.main import task\n\n"
ENTRY += 'if __name__ == "__main__":\n    task()\n    exit_process(0)\n'


def write(bundle: Bundle, wheel: Path) -> list[Path]:
    return [bundle.text("gddl_task.py", ENTRY), *environment_of(bundle, wheel)]


JOB_FILES = JobFiles(write=write, extra="emr-serverless", python="/usr/bin/python3.11")
