"""Command that starts Python without the working directory on the module path.

A user's folder `spark_jobs/` there would shadow this project's package.
"""

from __future__ import annotations

import sys


def module_command(name: str, *arguments: str) -> tuple[str, ...]:
    """Command that runs a module with this Python."""
    return (sys.executable, "-P", "-m", name, *arguments)


JOB = module_command("spark_jobs.main")
"""Program and first arguments of the embedded job."""
