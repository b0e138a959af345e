"""A port of the loopback that leads to a server's Unix socket: Java's drivers know no such sockets."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Any

import psutil

_BYTES = 1 << 16


def relay(path: str) -> int:
    """Relay connections of this process to the socket; those of others are closed, since the server trusts us by it.

    Returns:
        The port on 127.0.0.1; it closes with the process.
    """
    listening = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_accept, args=(listening, path), daemon=True, name="unix-relay").start()
    return int(listening.getsockname()[1])


def _accept(listening: socket.socket, path: str) -> None:
    while True:
        accepted, peer = listening.accept()
        if not _is_own(peer):
            accepted.close()
            continue
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(path)
        except OSError:
            accepted.close()
            server.close()
            continue
        for source, target in ((accepted, server), (server, accepted)):
            threading.Thread(target=_pump, args=(source, target), daemon=True).start()


def _is_own(peer: Any) -> bool:
    """Whether the other end belongs to this process. Java's sockets are of IPv6, with addresses of IPv4 in them."""
    ends = (one.laddr for one in psutil.Process().net_connections("tcp") if one.laddr)
    return any((end.ip.removeprefix("::ffff:"), end.port) == peer[:2] for end in ends)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_BYTES):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
