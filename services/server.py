"""A server of this machine: processes in a folder of their own, which end when told to, or with their owner."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from types import TracebackType
from typing import TypeVar

HOST = "127.0.0.1"
KEEPER = Path(__file__).resolve().with_name("keeper.py")

Self = TypeVar("Self", bound="Server")


class Server:
    """What the servers have in common: a folder, processes, and how one waits for them.

    host  the address that it listens on: one of this machine's, loopback unless told
    """

    patience = 20.0  # seconds until it has to answer
    health = "/"  # the path that answers when it is ready, with one of these
    ready = range(200, 500)

    def __init__(self, host: str = HOST) -> None:
        self.host = host
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-server-"))
        self.port = 0
        self._processes: list[subprocess.Popen[bytes]] = []

    def __getstate__(self) -> dict[str, object]:
        """Pickle without the processes: a copy finds the server, but does not end it."""
        return {**self.__dict__, "_processes": []}

    def launch(self) -> None:
        """Start the processes; each server's own."""
        raise NotImplementedError

    def start(self: Self) -> Self:
        """Start, without waiting."""
        self.launch()
        return self

    def wait(self: Self) -> Self:
        """Wait until it answers."""
        deadline = time.monotonic() + self.patience
        while not self._answers():
            ended = any(process.poll() is not None for process in self._processes)
            if ended or time.monotonic() > deadline:
                told = self.log[-2000:]
                self.stop()
                raise RuntimeError(f"{type(self).__name__} {'ended' if ended else 'did not answer in time'}: {told}")
            time.sleep(0.05)
        return self

    def stop(self) -> None:
        """End the processes and take their folder away; again does nothing."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()
        self._processes.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"http://{self.host}:{self.port}"

    @property
    def log(self) -> str:
        """What its processes have said."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log")))

    def run(self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> None:
        """Start a process that ends with this one; Ctrl-C in a terminal is for its owner, not for it."""
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(KEEPER), str(os.getpid()), *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | dict(environment or {}),
                start_new_session=True,
            )
        self._processes.append(process)

    def _answers(self) -> bool:
        """Whether it is ready."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=2)
        with closing(connection), suppress(OSError, http.client.HTTPException):
            connection.request("GET", self.health)
            return connection.getresponse().status in self.ready
        return False

    def __enter__(self: Self) -> Self:
        return self.start().wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def free_ports(count: int, host: str = HOST) -> list[int]:
    """Ports that nobody listens on, each another one."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((host, 0))
        return [each.getsockname()[1] for each in sockets]
