"""A Spark standalone cluster of separate processes, and what becomes of jobs on it."""
