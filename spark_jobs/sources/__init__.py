"""Rooms that bring a source's rows into files of landing folders, which tables then take like those of any service."""
