"""Rooms: what the core finds by a name in a row, a job or a command, and never imports."""
