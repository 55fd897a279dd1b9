"""A TCP proxy that passes HTTP on to a server, and spoils the answers that it is told to.

with FaultProxy(s3.port) as proxy:
    proxy.spoil(Cut(after=1000), times=2)       # the next two answers end in their middle
    proxy.spoil(Answer(503), path="shard-3")    # the next request whose first line has this gets a 503
    proxy.spoil(Stall(), times=None)            # no request is ever answered again
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType

from services.server import HOST

_REQUEST = re.compile(rb"(?:GET|PUT|POST|HEAD|DELETE|PATCH) (\S+) HTTP/1\.[01]\r\n")
_PIECE = 1 << 16


@dataclass(frozen=True)
class Delay:
    """The answer comes after some seconds."""

    seconds: float


@dataclass(frozen=True)
class Cut:
    """The connection is lost after some bytes of the answer, headers included."""

    after: int


@dataclass(frozen=True)
class Corrupt:
    """One byte of the answer is another, as many bytes behind its headers."""

    at: int


@dataclass(frozen=True)
class Answer:
    """The server is never asked: this status is the answer."""

    status: int


@dataclass(frozen=True)
class Stall:
    """The server is never asked, and no answer comes."""


Fault = Delay | Cut | Corrupt | Answer | Stall


@dataclass
class _Order:
    """A fault that is to happen, how often still (None: always), and to whom."""

    fault: Fault
    times: int | None
    path: str


@dataclass
class _Exchange:
    """A request and its answer: the fault, and how much of the answer has passed."""

    fault: Fault | None = None
    passed: int = 0
    head: bytearray = field(default_factory=bytearray)
    body: int | None = None  # bytes of the body that have passed, once it has begun


@dataclass
class _Connection:
    """A client, the server, and what is under way between them."""

    client: socket.socket
    server: socket.socket
    exchange: _Exchange = field(default_factory=_Exchange)

    def close(self) -> None:
        for each in (self.client, self.server):
            _close(each)


class FaultProxy:
    """Listens on a port of its own, and passes on what comes to that of a server.

    instead  ports by those that stand in their place where an answer sends a client on
    """

    def __init__(self, target: int, instead: Mapping[int, int] | None = None) -> None:
        self.target = target
        self._instead = {b":%d/" % port: b":%d/" % other for port, other in (instead or {}).items()}
        self.requests: list[str] = []  # the paths that were asked for
        self.answered = 0  # bytes of answers that have passed, headers included
        self._orders: list[_Order] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._listener = socket.create_server((HOST, 0))
        self._connections: list[_Connection] = []
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"http://{HOST}:{self.port}"

    def spoil(self, fault: Fault, *, times: int | None = 1, path: str = "") -> None:
        """Spoil the next answers; with `path`, only those to requests whose path has this in it."""
        with self._lock:
            self._orders.append(_Order(fault, times, path))

    def heal(self) -> None:
        """Forget the faults that have not happened."""
        with self._lock:
            self._orders.clear()

    def stop(self) -> None:
        """Close all connections."""
        self._ended.set()
        with self._lock:
            _close(self._listener)
            for connection in self._connections:
                connection.close()

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection((HOST, self.target), timeout=10)
        except OSError:
            _close(client)
            return
        server.settimeout(None)
        connection = _Connection(client, server)
        with self._lock:
            self._connections.append(connection)
        back = threading.Thread(target=self._pass_answers, args=(connection,), daemon=True)
        back.start()
        with suppress(OSError):
            while (data := client.recv(_PIECE)) and self._pass_request(connection, data):
                pass
        connection.close()
        back.join()
        with self._lock:
            self._connections.remove(connection)

    def _pass_request(self, connection: _Connection, data: bytes) -> bool:
        """Pass on a piece of a request; False where the connection ends."""
        if match := _REQUEST.match(data):  # the first piece: those of a body begin otherwise
            fault = self._take(match[1].decode("latin-1"))
            connection.exchange = _Exchange(fault)
            if isinstance(fault, Stall):
                self._ended.wait()
                return False
            if isinstance(fault, Answer):
                head = b"HTTP/1.1 %d Spoiled\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                connection.client.sendall(head % fault.status)
                return False
        connection.server.sendall(data)
        return True

    def _take(self, path: str) -> Fault | None:
        with self._lock:
            self.requests.append(path)
            for order in self._orders:
                if order.path in path:
                    if order.times is not None:
                        order.times -= 1
                        if not order.times:
                            self._orders.remove(order)
                    return order.fault
        return None

    def _pass_answers(self, connection: _Connection) -> None:
        with suppress(OSError):
            while data := connection.server.recv(_PIECE):
                exchange = connection.exchange
                fault = exchange.fault
                for port, other in self._instead.items():
                    data = data.replace(port, other)
                if isinstance(fault, Delay) and not exchange.passed:
                    self._ended.wait(fault.seconds)
                if isinstance(fault, Corrupt):
                    data = _corrupted(data, fault, exchange)
                if isinstance(fault, Cut) and exchange.passed + len(data) > fault.after:
                    connection.client.sendall(data[: fault.after - exchange.passed])
                    break
                exchange.passed += len(data)
                with self._lock:
                    self.answered += len(data)
                connection.client.sendall(data)
        connection.close()


def _corrupted(data: bytes, fault: Corrupt, exchange: _Exchange) -> bytes:
    """A piece of an answer, with the byte flipped if it is in it."""
    begin = 0  # of the body, in this piece
    if exchange.body is None:
        before = len(exchange.head)
        exchange.head += data
        end = exchange.head.find(b"\r\n\r\n")
        if end < 0:
            return data
        begin = end + 4 - before
        exchange.body = 0
    at = begin + fault.at - exchange.body
    exchange.body += len(data) - begin
    if begin <= at < len(data):
        return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
    return data


def _close(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits in recv
    each.close()
