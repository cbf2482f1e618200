"""Detects failed and lost ranks of a launch.

Each rank has a watcher (`worker/watch.py`): its parent process, which connects to the `Watch` of
this module and reports how the rank ended. A `Watch` also detects nodes that no longer answer.
Start commands and schedulers detect such failures later. When the `Watch` closes, the watchers end
all ranks.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import selectors
import socket
import threading
import time
from pathlib import Path
from typing import Self

from xfbench.base import shared_files
from xfbench.base.processes import Outcome
from xfbench.worker.watch import FILE_NAME, SILENCE_SECONDS

_BEAT_SECONDS = 1.0
_LONGEST_LINE = 1000
_MAX_UNIDENTIFIED = 64  # unidentified connections, in addition to one per rank


class Watch:
    """A context manager that detects failed ranks of a launch on `nodes` nodes.

    The watcher process of each rank connects to the address `host`. When the first rank fails or is
    lost, the socket `alarm` becomes readable, and `failure` says how the rank ended.
    """

    def __init__(self, ranks: int, nodes: int, host: str) -> None:
        self.ranks, self.nodes = ranks, nodes
        self.failure: Outcome | None = None
        self.token = secrets.token_hex(16)
        self.listener = socket.create_server(
            (host, 0), backlog=max(_MAX_UNIDENTIFIED, min(ranks, 4096))
        )
        self.alarm, self._raised = socket.socketpair()
        self._stop, self._stopped = socket.socketpair()
        self._heard: dict[socket.socket, tuple[int, float]] = {}
        self._text: dict[socket.socket, bytes] = {}
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._serve, name="watch", daemon=True)

    @property
    def address(self) -> str:
        """Return the address for the ranks' watchers: "host:port:token"."""
        host, port = self.listener.getsockname()
        return f"{host}:{port}:{self.token}"

    def write_address(self, folder: Path) -> None:
        """Write the address to the file `FILE_NAME` in `folder`, which only this user can read."""
        shared_files.write_file(folder / FILE_NAME, self.address, permissions=shared_files.PRIVATE)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.send(b".")
        self._thread.join()
        for connection in (self.listener, self.alarm, self._raised, self._stop, self._stopped):
            connection.close()
        for connection in [*self._heard, *self._text]:
            connection.close()
        self._selector.close()

    def wait_for_failure(self, timeout_s: float = 2.0) -> Outcome | None:
        """Return how the first failed rank ended, or None if no rank has failed.

        Waits for a failure up to `timeout_s` seconds, and only while a rank is connected.
        """
        end = time.monotonic() + timeout_s
        while self.failure is None and time.monotonic() < end and self._heard:
            time.sleep(0.02)
        return self.failure

    def _serve(self) -> None:
        for connection in (self.listener, self._stopped):
            self._selector.register(connection, selectors.EVENT_READ)
        beat = time.monotonic() + _BEAT_SECONDS
        while True:
            for key, _ in self._selector.select(max(0.0, beat - time.monotonic())):
                if key.fileobj is self._stopped:
                    return
                if key.fileobj is self.listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket):
                    self._receive_available_lines(key.fileobj)
            if time.monotonic() >= beat:
                beat = time.monotonic() + _BEAT_SECONDS
                self._send_one_heartbeat_and_close_silent()

    def _accept(self) -> None:
        """Accept a connection. A connection is unidentified until it has sent the token.

        If there are too many unidentified connections, close the oldest of them first.
        """
        with contextlib.suppress(OSError):
            connection, _ = self.listener.accept()
            connection.setblocking(False)
            unidentified = [each for each in self._text if each not in self._heard]
            if len(unidentified) >= self.ranks + _MAX_UNIDENTIFIED:
                self._close_connection(unidentified[0])
            self._text[connection] = b""
            self._selector.register(connection, selectors.EVENT_READ)

    def _receive_available_lines(self, connection: socket.socket) -> None:
        try:
            received = connection.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self._close_connection(connection, loss_reason="its watcher process ended")
            return
        *lines, self._text[connection] = (self._text[connection] + received).split(b"\n")
        for line in lines:
            self._handle_line(connection, line.decode(errors="replace"))
        if len(self._text.get(connection, b"")) > _LONGEST_LINE:
            self._close_connection(connection)

    def _handle_line(self, connection: socket.socket, line: str) -> None:
        """Handle one line from a rank's watcher.

        The first line of a connection must have the token and the rank's number. Later lines are
        heartbeats, or report how the rank ended.
        """
        if connection in self._heard:
            self._heard[connection] = self._heard[connection][0], time.monotonic()
            if ended := re.fullmatch(r"ended (-?\d{1,3})", line):
                rank, status = self._heard[connection][0], int(ended[1])
                self._close_connection(connection)
                if status:
                    self._record_first_failure(Outcome(status, rank=rank))
            return
        token, _, rest = line.partition(" ")
        number = rest.partition(" ")[0]
        token_matches = secrets.compare_digest(token.encode(), self.token.encode())
        if token_matches and re.fullmatch(r"[0-9]{1,9}", number) and int(number) < self.ranks:
            self._heard[connection] = int(number), time.monotonic()
        else:  # not a rank of this launch
            self._close_connection(connection)

    def _send_one_heartbeat_and_close_silent(self) -> None:
        """Send heartbeats to the ranks' watchers. Close connections that are silent too long."""
        silent = time.monotonic() - SILENCE_SECONDS
        for connection, (_, heard) in list(self._heard.items()):
            if heard < silent:
                self._close_connection(
                    connection, loss_reason=f"no heartbeat for {SILENCE_SECONDS:g} s"
                )
                continue
            try:
                connection.send(b".\n")
            except BlockingIOError:  # its node does not answer: the silence limit detects this
                continue
            except OSError:
                self._close_connection(connection, loss_reason="its connection broke")

    def _close_connection(self, connection: socket.socket, loss_reason: str = "") -> None:
        """Close a connection.

        `loss_reason`: why the connection's rank counts as lost. "": the rank is not lost.
        """
        rank, _ = self._heard.pop(connection, (None, 0.0))
        self._text.pop(connection, None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection)
        connection.close()
        if loss_reason and rank is not None:
            node = rank // (self.ranks // self.nodes) + 1
            node_text = f", on node {node} of {self.nodes}" if self.nodes > 1 else ""
            self._record_first_failure(
                Outcome(1, rank=rank, message=f"it was lost: {loss_reason}{node_text}")
            )

    def _record_first_failure(self, failure: Outcome) -> None:
        if self.failure is None:
            self.failure = failure
            self._raised.send(b".")
