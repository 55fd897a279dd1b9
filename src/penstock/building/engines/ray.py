"""The engine of a cluster: Ray runs the tasks on its machines. Everything else is as on one machine."""

from __future__ import annotations

import os
import pickle
import platform
import secrets
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Generic, Protocol, TypedDict

from ..._core import __version__
from ...dataset.manifest import ATTEMPT, WORK
from ...errors import BuildError, MissingDependencyError, SchemaError
from ...storage.open import open_store
from ...storage.store import STORE_VARIABLES, is_url, join_url
from .engine import Advance, Function, Item, Progress, Result, Shared, ignore_progress
from .local import Local, WorkerTraceback, portable

# Ray reads these when it is imported. A machine that vanishes without a word is missed after 15 s, not after minutes;
# and Ray tells nobody that it is used, unless the user has said otherwise.
ENVIRONMENT = {
    "RAY_grpc_client_keepalive_time_ms": "10000",
    "RAY_grpc_client_keepalive_timeout_ms": "5000",
    "RAY_USAGE_STATS_ENABLED": "0",
}
ANSWER = 120.0  # seconds that a machine has to answer before a build begins


class _Node(TypedDict):
    """A machine, as Ray describes it."""

    NodeID: str
    NodeManagerAddress: str
    Alive: bool
    Resources: dict[str, float]


class _TaskOptions(TypedDict):
    num_cpus: float
    max_retries: int
    retry_exceptions: bool


class ObjectRef(Protocol):
    """A reference of Ray to an object in its store."""

    def hex(self) -> str:
        """Return its name."""


@dataclass(frozen=True)
class Ray:
    """Builds on the machines of a Ray cluster: the same tasks, journal and bytes as on one machine.

    build(source, "s3://bucket/photos", engine=Ray("auto"))
    build(source, "/mnt/data/photos", engine=Ray("auto", shared=True))

    address      "auto" for the cluster that this machine is part of, or the address of its head; None starts Ray here
    shared       the destination, where it is a path, is a mount that all machines have
    workers      how many tasks may be under way at once; as many as the cluster has room for unless told
    cpus         cores that a task counts for
    max_memory   bytes that the examples of a task may take while they are on their way; a share of its machine's unless
                 told
    retries      how often a task is given to another worker when its machine or its process ends
    runtime_env  what Ray installs or ships for the tasks; unless told, the modules that were imported from beside the
                 script. Penstock itself must be installed on the machines, in the same version
    progress     a function that is told now and then how far a build is
    """

    address: str | None = "auto"
    shared: bool = field(default=False, kw_only=True)
    workers: int | None = field(default=None, kw_only=True)
    cpus: float = field(default=1, kw_only=True)
    max_memory: int | None = field(default=None, kw_only=True)
    retries: int = field(default=3, kw_only=True)
    runtime_env: Mapping[str, object] | None = field(default=None, kw_only=True)
    progress: Callable[[Progress], None] | None = field(default=None, kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, least in (("workers", 1), ("max_memory", 1), ("retries", 0)):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < least):
                raise SchemaError(f"expected {name} to be {least} or more, got {value!r}")
        if isinstance(self.cpus, bool) or not isinstance(self.cpus, (int, float)) or not self.cpus > 0:
            raise SchemaError(f"expected cpus to be above 0, got {self.cpus!r}")

    @contextmanager
    def start(self, destination: Path | str) -> Iterator[Cluster]:
        """Connect, and see that every machine can do its part."""
        ray, ours = self._connected()
        try:
            machines = [node for node in ray.nodes() if node["Alive"]]
            environment = _environment(ray)
            self._check(ray, machines, destination, environment)
            options = self._task_options()
            yield Cluster(ray, options, self.workers, self.max_memory, environment)
        finally:
            if ours:
                ray.shutdown()

    def call(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Run a function of each item on the machines; the results come in the order of the items."""
        ray, ours = self._connected()
        try:
            options = self._task_options()
            cluster = Cluster(ray, options, self.workers, self.max_memory, _environment(ray))
            with closing(cluster.map(_called, (function, items), range(len(items)), ignore_progress)) as results:
                found = dict(results)
        finally:
            if ours:
                ray.shutdown()
        return [found[number] for number in range(len(items))]

    def _task_options(self) -> _TaskOptions:
        return {"num_cpus": self.cpus, "max_retries": self.retries, "retry_exceptions": False}

    def _connected(self) -> tuple[ModuleType, bool]:
        """Ray, and whether the connection is ours to end."""
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            import ray  # type: ignore[import-not-found]
        except ImportError:
            raise MissingDependencyError.needed("ray", "builds on a cluster", "ray") from None
        if ray.is_initialized():
            return ray, False
        runtime_env = self.runtime_env
        if runtime_env is None:
            modules = beside_script()
            runtime_env = {"py_modules": modules} if modules else {}
        try:
            ray.init(self.address, runtime_env=dict(runtime_env), log_to_driver=False, logging_level="warning")
        except Exception as error:
            with suppress(Exception):
                ray.shutdown()
            raise BuildError(
                f"expected a Ray cluster at {self.address!r}, got {first_line(error)}. {_hint()}"
            ) from error
        return ray, True

    def _check(
        self, ray: ModuleType, machines: list[_Node], destination: Path | str, environment: dict[str, str]
    ) -> None:
        """Before any work: that all machines have this version, and reach the destination."""
        addresses = sorted({node["NodeManagerAddress"] for node in machines})
        if len(addresses) > 1 and not self.shared and not is_url(destination):
            got = f"the path {destination} and a cluster of {len(addresses)} machines"
            hint = "Build into a URL (s3://...), or pass shared=True if it is a mount that all of them have"
            raise BuildError(f"expected a destination that every machine sees, got {got}. {hint}")
        with _mark(destination) as mark:
            answers = self._ask(ray, machines, mark, environment)
        ours = version("penstock-data")
        for node, answer in answers:
            where = f"{answer['machine']} ({node['NodeManagerAddress']})"
            if answer["penstock"] != ours:
                got = f"penstock {answer['penstock']}" if answer["penstock"] else "none"
                hint = f"Run there: pip install penstock-data=={ours}"
                raise BuildError(f"expected penstock {ours} on every machine, got {got} - at {where}. {hint}")
            if answer["missed"]:
                expected = (
                    "a store that every machine reaches" if is_url(destination) else "a mount that every machine has"
                )
                raise BuildError(f"expected {expected}, got {answer['missed']} - at {where}: {destination}")

    def _ask(
        self, ray: ModuleType, machines: list[_Node], mark: str, environment: dict[str, str]
    ) -> list[tuple[_Node, dict[str, str]]]:
        """What each machine says of itself."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # type: ignore[import-not-found]

        question = ray.remote(_question())
        told = ray.put(environment)
        asked = {}
        for node in machines:
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            reference = question.options(num_cpus=0, max_retries=1, scheduling_strategy=there).remote(mark, told)
            asked[reference] = node
        answers = []
        deadline = time.monotonic() + ANSWER
        while asked:
            ready, _ = ray.wait(list(asked), num_returns=len(asked), timeout=LOOK)
            alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
            for reference in ready:
                node = asked.pop(reference)
                try:
                    answers.append((node, ray.get(reference)))
                except ray.exceptions.RayError as error:
                    if node["NodeID"] in alive:
                        got = f"{first_line(error)} - at {node['NodeManagerAddress']}"
                        raise BuildError(f"expected a worker to start, got {got}") from error
            asked = {reference: node for reference, node in asked.items() if node["NodeID"] in alive}
            if asked and time.monotonic() > deadline:
                where = ", ".join(node["NodeManagerAddress"] for node in asked.values())
                raise BuildError(f"expected an answer within {ANSWER:.0f} s, got none - at {where}")
        return answers


def _called(shared: tuple[Callable[[Item], Result], Sequence[Item]], number: int, advance: Advance) -> Result:
    function, items = shared
    return function(items[number])


@contextmanager
def _mark(destination: Path | str) -> Iterator[str]:
    """Something in the destination that every machine must find."""
    name = f".{ATTEMPT}{secrets.token_hex(8)}.partial"
    if isinstance(destination, Path):
        folder = destination.absolute()
        mark = (folder / WORK if (folder / WORK).is_dir() else folder) / name
        mark.touch()
        try:
            yield str(mark)
        finally:
            mark.unlink(missing_ok=True)
    else:
        url = join_url(destination, f"{WORK}/{name}")
        store, place = open_store(url)
        store.publish(place, b"a machine that finds this can take part in the build")
        try:
            yield url
        finally:
            store.delete(place)


def _question() -> Callable[[str, dict[str, str]], dict[str, str]]:
    """A function that runs where penstock may not be: one that has no name here is sent as it is."""

    def answer(mark: str, environment: dict[str, str]) -> dict[str, str]:
        import importlib.metadata

        try:
            found = importlib.metadata.version("penstock-data")
        except importlib.metadata.PackageNotFoundError:
            found = ""
        missed = ""
        if "://" not in mark:
            missed = "" if os.path.exists(mark) else "none there"
        elif found:
            try:
                from .ray import see

                see(mark, environment)
            except Exception as error:  # noqa: BLE001  # the process that builds says it
                missed = f"{type(error).__name__}: {error}"
        return {"penstock": found, "machine": platform.node(), "missed": missed}

    return answer


def _environment(ray: ModuleType) -> dict[str, str]:
    """How this process finds object stores, for the tasks; but for what Ray was told to set for them."""
    told = ray.get_runtime_context().runtime_env.get("env_vars", {})
    return {name: value for name, value in os.environ.items() if name.startswith(STORE_VARIABLES) and name not in told}


def beside_script() -> list[str]:
    """What was imported from the folder of the script, or of `python -m`: modules as files, packages as folders."""
    main = sys.modules["__main__"]
    script = getattr(main, "__file__", None) if getattr(main, "__spec__", None) is None else None
    folder = os.path.dirname(os.path.realpath(script)) if script else os.path.realpath(os.getcwd())
    found = set()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not file or "." in name or name == "__main__":
            continue
        path = os.path.realpath(file)
        path = os.path.dirname(path) if os.path.basename(path) == "__init__.py" else path
        if os.path.dirname(path) == folder:
            found.add(path)
    return sorted(found)


def _hint() -> str:
    """What may help: Ray does not tell a wrong address from a missing token."""
    start = "Start one with `ray start --head`, or give the address of its head"
    where = "in RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token"
    token = f"If it asks for a token: set RAY_AUTH_MODE=token, and have the token {where}"
    return start if os.environ.get("RAY_AUTH_MODE") == "token" else f"{start}. {token}"


# The workers, while a build has them
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

    remote = True

    def __init__(
        self,
        ray: ModuleType,
        options: _TaskOptions,
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
    def driver(self) -> Local:
        """Engine for the work of the driver, in its own process alone: Ray's threads do not survive a fork."""
        return Local(workers=1)

    def map(
        self, function: Function[Shared, Item, Result], shared: Shared, items: Iterable[Item], advance: Advance
    ) -> Generator[tuple[Item, Result], None, None]:
        """Run `function(shared, item, advance)` for each item; results come as they are ready, each item's once.

        Progress is told when an item is done. Items that are a deque may be added to meanwhile.
        """
        waiting = items if isinstance(items, deque) else deque(items)
        if not waiting:
            return
        flights: _Flights[Item] = _Flights(self, (function, shared, os.getcwd(), self.environment))
        try:
            while waiting or flights.under_way:
                while waiting and len(flights.under_way) < self.window:
                    flights.begin(waiting.popleft())
                for item, told in flights.landed():
                    advance(told.examples, told.bytes)
                    result: Result = told.result  # type: ignore[assignment]  # of the function
                    yield item, result
        finally:
            flights.end()


@dataclass(frozen=True)
class _Answer:
    """What became of an item: a result, or an error. An error is not raised remotely: it might lose its type."""

    result: object = None
    examples: int = 0
    bytes: int = 0
    error: BaseException | None = None
    trace: str = ""


@dataclass(eq=False)
class _Flight(Generic[Item]):
    """An item in flight, and the attempts at it that may still return."""

    number: int
    item: Item
    attempts: int = 0
    begun: float = 0.0
    references: list[object] = field(default_factory=list)


class _Flights(Generic[Item]):
    """The items of one `map`, each under way once; where a machine was lost, perhaps twice."""

    def __init__(self, cluster: Cluster, held: object) -> None:
        self.cluster = cluster
        self.ray = cluster.ray
        self.under_way: dict[int, _Flight[Item]] = {}
        self._owners: dict[object, _Flight[Item]] = {}
        self._name = secrets.token_hex(8)
        self._held = self._sent(held)
        self._perform = self.ray.remote(perform).options(scheduling_strategy="SPREAD", **cluster.options)
        self._count = 0
        self._looked = time.monotonic()
        self._known = set(cluster.alive)
        self._lost: dict[str, float] = {}  # machines, and since when

    def _sent(self, held: object) -> object:
        try:
            reference: object = self.ray.put(held)
            return reference
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise BuildError(
                f"expected a source that can be sent to other machines, got {first_line(error)}"
            ) from error

    def begin(self, item: Item) -> None:
        """Send an item on its way."""
        flight = _Flight(self._count, item)
        self._count += 1
        self.under_way[flight.number] = flight
        self._send(flight)

    def _send(self, flight: _Flight[Item]) -> None:
        flight.attempts += 1
        flight.begun = time.monotonic()
        reference = self._perform.remote([self._held], flight.item, self._key(flight), __version__)
        flight.references.append(reference)
        self._owners[reference] = flight

    def _key(self, flight: _Flight[Item]) -> str:
        """What the latest attempt at an item is known by."""
        return f"{self._name}/{flight.number}/{flight.attempts}"

    def landed(self) -> Iterator[tuple[Item, _Answer]]:
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
            if told.error is not None:
                raise told.error from WorkerTraceback(told.trace)
            yield flight.item, told
        self._watch()

    def _told(self, flight: _Flight[Item], reference: object) -> _Answer | None:
        """What an attempt tells; None where it was lost and another one is under way."""
        lost = self.ray.exceptions
        try:
            told: _Answer = self.ray.get(reference)
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

    def _place(self, flight: _Flight[Item]) -> str | None:
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

    def _cancel(self, reference: object, *, force: bool) -> None:
        with suppress(Exception):  # it is over, or nobody can be reached
            self.ray.cancel(reference, force=force)


def first_line(error: BaseException) -> str:
    """An error in short: Ray's go on for pages."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


# What runs on the machines
Held = tuple[Function[object, object, object], object, str, dict[str, str]]  # function, shared, folder, environment
_held: tuple[str, Held] | None = None


def perform(held: list[ObjectRef], item: object, key: str, version: str) -> _Answer:
    """Run an item, and tell what became of it: small and plain. An error is told: raised, it might lose its type."""
    from ray import get_runtime_context
    from ray.experimental.internal_kv import _internal_kv_put

    counts = [0, 0]

    def advance(examples: int, size: int) -> None:
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
        result = function(shared, item, advance)
    except Exception as error:  # noqa: BLE001  # the process that builds raises it
        return _Answer(error=portable(error, item), trace=traceback.format_exc())
    return _Answer(result, counts[0], counts[1])


def see(mark: str, environment: dict[str, str]) -> None:
    """Read an object, as the tasks will: an error where this machine cannot."""
    os.environ.update(environment)
    store, name = open_store(mark)
    store.read(name)


def _received(reference: ObjectRef) -> Held:
    """What all items share: received once by each worker."""
    global _held
    name = reference.hex()
    if _held is None or _held[0] != name:
        from ray import get

        _held = name, get(reference)
    return _held[1]
