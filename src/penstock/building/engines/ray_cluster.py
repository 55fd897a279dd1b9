"""The workers of a Ray cluster, while a build has them: items on their way, and what to do when machines vanish."""

from __future__ import annotations

import os
import pickle
import secrets
import time
import traceback
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..._core import __version__
from ...errors import BuildError
from ...storage.open import open_store
from .local import Function, Item, Local, Progress, Result, Shared, WorkerTraceback, portable

NAMESPACE = b"penstock"
AHEAD = 3  # items on their way for each that is worked on: workers do not wait for the next, and the driver holds few
LOOK = 2.0  # seconds between two looks at which machines there are
PATIENCE = 30.0  # seconds that Ray has to give the items of a lost machine to others; then we do
GRACE = 2.0  # seconds that items have to end by themselves when nobody wants them any more


class Cluster:
    """The machines of a cluster, as workers of a build.

    options      those of Ray for a task
    environment  variables that are set for a task
    """

    apart = True

    def __init__(
        self,
        ray: Any,
        options: dict[str, Any],
        workers: int | None,
        max_memory: int | None,
        environment: dict[str, str],
    ) -> None:
        self.ray = ray
        self.options = options
        self.environment = environment
        self._workers = workers
        self._max_memory = max_memory
        self.alive: set[str] = set()
        self._room = 1
        self._memory = 1 << 30
        self.look()

    def look(self) -> None:
        """See which machines there are, and what they have."""
        nodes = [node for node in self.ray.nodes() if node["Alive"]]
        self.alive = {node["NodeID"] for node in nodes}
        having = [node["Resources"] for node in nodes if node["Resources"].get("CPU", 0) >= self.options["num_cpus"]]
        rooms = [int(each["CPU"] // self.options["num_cpus"]) for each in having]
        self._room = max(1, sum(rooms))
        shares = [int(each.get("memory", 1 << 30)) // room for each, room in zip(having, rooms, strict=True)]
        self._memory = min(shares, default=1 << 30)

    @property
    def processes(self) -> int:
        """How many items are worked on at once."""
        return self._workers or self._room

    @property
    def window(self) -> int:
        """How many items are on their way at most."""
        return self._workers or AHEAD * self._room

    @property
    def worker_memory(self) -> int:
        """The share of a worker."""
        return self._share.worker_memory

    @property
    def chunk_bytes(self) -> int:
        """What a worker gathers before it encodes."""
        return self._share.chunk_bytes

    @property
    def sync(self) -> bool:
        """Always: a machine may be lost at any time."""
        return True

    @property
    def _share(self) -> Local:
        return Local(workers=1, max_memory=self._max_memory or max(1, self._memory // 4))

    @property
    def here(self) -> Local:
        """For what is done in the process that builds, and in that alone: Ray's threads do not survive a fork."""
        return Local(workers=1)

    def map(
        self, function: Function[Shared, Item, Result], shared: Shared, items: Iterable[Item], progress: Progress
    ) -> Generator[tuple[Item, Result], None, None]:
        """Run `function(shared, item, progress)` for each item; results come as they are ready, each item's once.

        Progress is told when an item is done. Items that are a deque may be added to meanwhile.
        """
        waiting = items if isinstance(items, deque) else deque(items)
        if not waiting:
            return
        flights = _Flights(self, (function, shared, os.getcwd(), self.environment))
        try:
            while waiting or flights.under_way:
                while waiting and len(flights.under_way) < self.window:
                    flights.begin(waiting.popleft())
                for item, told in flights.landed():
                    progress(told["examples"], told["bytes"])
                    yield item, told["result"]
        finally:
            flights.end()


@dataclass(eq=False)
class _Flight:
    """An item on its way, and the attempts at it that may still come back."""

    number: int
    item: Any
    attempts: int = 0
    begun: float = 0.0
    references: list[Any] = field(default_factory=list)


class _Flights:
    """The items of one `map`, each under way once; where a machine was lost, perhaps twice."""

    def __init__(self, cluster: Cluster, held: Any) -> None:
        self.cluster = cluster
        self.ray = cluster.ray
        self.under_way: dict[int, _Flight] = {}
        self._owners: dict[Any, _Flight] = {}
        self._name = secrets.token_hex(8)
        self._held = self._sent(held)
        self._perform = self.ray.remote(perform).options(scheduling_strategy="SPREAD", **cluster.options)
        self._count = 0
        self._looked = time.monotonic()
        self._known = set(cluster.alive)
        self._lost: dict[str, float] = {}  # machines, and since when

    def _sent(self, held: Any) -> Any:
        try:
            return self.ray.put(held)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise BuildError(
                f"expected a source that can be sent to other machines, got {first_line(error)}"
            ) from error

    def begin(self, item: Any) -> None:
        """Send an item on its way."""
        flight = _Flight(self._count, item)
        self._count += 1
        self.under_way[flight.number] = flight
        self._send(flight)

    def _send(self, flight: _Flight) -> None:
        flight.attempts += 1
        flight.begun = time.monotonic()
        reference = self._perform.remote([self._held], flight.item, self._key(flight), __version__)
        flight.references.append(reference)
        self._owners[reference] = flight

    def _key(self, flight: _Flight) -> str:
        """What the latest attempt at an item is known by."""
        return f"{self._name}/{flight.number}/{flight.attempts}"

    def landed(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Wait a little, and give what is done: all of it. Raises the error of an item."""
        flying = list(self._owners)
        ready, _ = self.ray.wait(flying, num_returns=1, timeout=LOOK)
        if ready:
            ready, _ = self.ray.wait(flying, num_returns=len(flying), timeout=0)
        for reference in ready:
            flight = self._owners.pop(reference, None)
            if flight is None:  # another attempt at the item came first
                continue
            flight.references.remove(reference)
            told = self._told(flight, reference)
            if told is None:
                continue
            del self.under_way[flight.number]
            for other in flight.references:
                del self._owners[other]
                self._cancel(other, force=True)
            if "error" in told:
                raise told["error"] from WorkerTraceback(told["trace"])
            yield flight.item, told
        self._watch()

    def _told(self, flight: _Flight, reference: Any) -> dict[str, Any] | None:
        """What an attempt tells; None where it was lost and another one is under way."""
        lost = self.ray.exceptions
        try:
            told: dict[str, Any] = self.ray.get(reference)
            return told
        except lost.RayTaskError as error:  # what is sent could not be read there: the library itself catches the rest
            cause = error.cause if isinstance(getattr(error, "cause", None), Exception) else error
            hint = " Install it there, or ship it: Ray(runtime_env=...)" if isinstance(cause, ImportError) else ""
            raise BuildError(f"{first_line(cause)} - in {flight.item}.{hint}") from error
        except lost.RayError as error:
            if flight.references:
                return None
            ended = f"{self.cluster.options['max_retries'] + 1} that ended on it"
            got = f"{ended}, the last with {first_line(error)}"
            raise BuildError(f"expected a worker to finish {flight.item}, got {got}") from error

    def _watch(self) -> None:
        """Give what a lost machine was working on to others, where Ray has not done so in time."""
        now = time.monotonic()
        if now - self._looked < LOOK:
            return
        self._looked = now
        self.cluster.look()
        alive = self.cluster.alive
        for node in self._known - alive:
            self._lost[node] = now
        self._known = set(alive)
        for node, since in list(self._lost.items()):
            if now - since < PATIENCE:
                continue
            del self._lost[node]
            for flight in self.under_way.values():
                if flight.begun < since and self._place(flight) in (node, None):
                    self._send(flight)

    def _place(self, flight: _Flight) -> str | None:
        """The machine that works on the latest attempt at an item, if one has begun."""
        from ray.experimental.internal_kv import _internal_kv_get  # type: ignore[import-not-found]

        found = _internal_kv_get(self._key(flight), namespace=NAMESPACE)
        return None if found is None else found.decode()

    def end(self) -> None:
        """Leave nothing running: ask first, then insist. One that is in a long call does not hear what is asked."""
        from ray.experimental.internal_kv import _internal_kv_del

        flying = list(self._owners)
        for reference in flying:
            self._cancel(reference, force=False)
        if flying:
            _, deaf = self.ray.wait(flying, num_returns=len(flying), timeout=GRACE)
            for reference in deaf:
                self._cancel(reference, force=True)
        with suppress(Exception):
            _internal_kv_del(f"{self._name}/", del_by_prefix=True, namespace=NAMESPACE)

    def _cancel(self, reference: Any, *, force: bool) -> None:
        with suppress(Exception):  # it is over, or nobody can be reached
            self.ray.cancel(reference, force=force)


def first_line(error: BaseException) -> str:
    """An error in short: Ray's go on for pages."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


# What runs on the machines
_held: tuple[str, Any] = ("", None)


def perform(held: list[Any], item: Any, key: str, version: str) -> dict[str, Any]:
    """Run an item, and tell what became of it: small and plain. An error is told: raised, it might lose its type."""
    from ray import get_runtime_context  # type: ignore[import-not-found]
    from ray.experimental.internal_kv import _internal_kv_put

    counts = [0, 0]

    def progress(examples: int, size: int) -> None:
        counts[0] += examples
        counts[1] += size

    try:
        if version != __version__:
            raise BuildError(f"expected penstock {version} on every machine, got {__version__} on one")
        with suppress(Exception):  # it only helps to find out who worked on what
            _internal_kv_put(key, get_runtime_context().get_node_id(), namespace=NAMESPACE)
        function, shared, folder, environment = _received(held[0])
        os.environ.update(environment)
        with suppress(OSError):  # where the folder is there too, relative paths of a source mean the same
            os.chdir(folder)
        result = function(shared, item, progress)
    except Exception as error:  # noqa: BLE001  # the process that builds raises it
        return {"error": portable(error, item), "trace": traceback.format_exc()}
    return {"result": result, "examples": counts[0], "bytes": counts[1]}


def see(mark: str, environment: dict[str, str]) -> None:
    """Read an object, as the tasks will: an error where this machine cannot."""
    os.environ.update(environment)
    store, name = open_store(mark)
    store.read(name)


def _received(reference: Any) -> Any:
    """What all items share: received once by each worker."""
    global _held
    name = reference.hex()
    if _held[0] != name:
        from ray import get

        _held = name, get(reference)
    return _held[1]
