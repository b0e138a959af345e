"""Scenarios as data: a folder each with a `scenario.yaml`; `model` says what one may hold."""
