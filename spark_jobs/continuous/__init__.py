"""A continuous job: discovers files and runs the same batch code for them (docs/streaming.md)."""
