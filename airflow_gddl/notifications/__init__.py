"""Notifiers."""
