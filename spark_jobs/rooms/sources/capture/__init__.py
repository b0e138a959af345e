"""A source's log, read by Debezium's embedded engine into change files.

See docs/capture.md and docs/decisions/sources-and-security.md.

`log.capture_log` is called by a run, `log.open_log` before a table is read; the engine runs in a child process
(`engine_process`), and `engine` speaks with it.
"""
