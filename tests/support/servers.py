"""The servers of a test run. The first test that needs a server starts it; the workers of pytest-xdist share it."""

from __future__ import annotations

import shutil
import tempfile
import threading
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from services import UnavailableError
from services.server import Server


class Servers:
    """Servers that this process starts and ends."""

    def __init__(self) -> None:
        self._started: dict[type[Server], Server | UnavailableError] = {}
        self._lock = threading.Lock()

    def start(self, kind: type[Server]) -> None:
        """Start a server without waiting for it."""
        with self._lock:
            if kind not in self._started:
                try:
                    self._started[kind] = kind().start()
                except UnavailableError as reason:
                    self._started[kind] = reason

    def get(self, kind: type[Server]) -> Any:
        """Return a server that answers, or raise UnavailableError."""
        self.start(kind)
        server = self._started[kind]
        if isinstance(server, UnavailableError):
            raise server
        return server.wait()

    def stop(self) -> None:
        """End every server that was started."""
        for server in self._started.values():
            if isinstance(server, Server):
                server.stop()


class SharedServers(Servers):
    """Servers that other processes ask for through the socket at `address`."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = Path(tempfile.mkdtemp(prefix="ps-"))
        self.address = str(self._folder / "socket")
        self._listener = Listener(self.address)
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self) -> None:
        """End every server, and the socket."""
        super().stop()
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:  # closed
                return
            # A thread for each request: a server that takes long to start delays no other.
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: Connection) -> None:
        with connection:
            verb, kind = connection.recv()
            if verb == "start":
                self.start(kind)
                return
            try:
                connection.send(self.get(kind))
            except (UnavailableError, RuntimeError) as error:
                connection.send(error)


class RemoteServers:
    """The servers of another process, with the methods of Servers; that process ends them."""

    def __init__(self, address: str) -> None:
        self._address = address

    def start(self, kind: type[Server]) -> None:
        """Start a server without waiting for it."""
        with Client(self._address) as connection:
            connection.send(("start", kind))

    def get(self, kind: type[Server]) -> Any:
        """Return a server that answers, or raise UnavailableError."""
        with Client(self._address) as connection:
            connection.send(("get", kind))
            reply = connection.recv()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def stop(self) -> None:
        """Leave the servers to the process that started them."""
