"""A continuous job: files are noticed, and the same batch code runs again (docs/streaming.md)."""
