"""Databricks: its settings need no package; its SDK (extra `databricks`) is needed by what follows.

`platform` starts, follows and repairs runs; `jobs` makes the saved jobs that they are runs of.
"""
