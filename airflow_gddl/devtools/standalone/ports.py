"""Finds a free port of this machine."""

from __future__ import annotations

import socket

HOST = "127.0.0.1"


def free_port(wanted: int) -> int:
    """The wanted port, or another one when it is taken."""
    for port in (wanted, 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            # Connections of a stopped server may be in TIME_WAIT.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError(f"no free port on {HOST}")
