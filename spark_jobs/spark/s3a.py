"""What Spark needs for S3: settings, and JARs by Maven coordinates. Nothing here starts anything.

A runner that starts Spark elsewhere gives it `s3a_settings(environ, roots)` and, where the platform has no S3A of its
own, `s3a().coordinates` without `s3a().excluded`.
"""

from __future__ import annotations

from airflow_gddl.contract.s3a import s3a_settings
from spark_jobs.spark.jars import s3a

__all__ = ["s3a", "s3a_settings"]
