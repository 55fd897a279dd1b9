"""The engine of a cluster: Ray runs the tasks, on whichever of its machines; all else is as on one machine."""

from __future__ import annotations

import os
import platform
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...dataset.manifest import ATTEMPT, WORK
from ...errors import BuildError, MissingDependencyError, SchemaError
from ...storage.open import open_store
from ...storage.store import STORE_VARIABLES, is_url, join_url
from ..progress import Progress as State
from .local import Progress, silent
from .ray_cluster import LOOK, Cluster, first_line

# Ray reads these when it is imported. A machine that vanishes without a word is missed after 15 s, not after minutes;
# and Ray tells nobody that it is used, unless the user has said otherwise.
ENVIRONMENT = {
    "RAY_grpc_client_keepalive_time_ms": "10000",
    "RAY_grpc_client_keepalive_timeout_ms": "5000",
    "RAY_USAGE_STATS_ENABLED": "0",
}
ANSWER = 120.0  # seconds that a machine has to answer before a build begins


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
    runtime_env: Mapping[str, Any] | None = field(default=None, kw_only=True)
    progress: Callable[[State], None] | None = field(default=None, kw_only=True, repr=False, compare=False)

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
            options = {"num_cpus": self.cpus, "max_retries": self.retries, "retry_exceptions": False}
            yield Cluster(ray, options, self.workers, self.max_memory, environment)
        finally:
            if ours:
                ray.shutdown()

    def call(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Run a function of each item on the machines; the results come in the order of the items."""
        ray, ours = self._connected()
        try:
            options = {"num_cpus": self.cpus, "max_retries": self.retries, "retry_exceptions": False}
            cluster = Cluster(ray, options, self.workers, self.max_memory, _environment(ray))
            with closing(cluster.map(_called, (function, items), range(len(items)), silent)) as results:
                found = dict(results)
        finally:
            if ours:
                ray.shutdown()
        return [found[number] for number in range(len(items))]

    def _connected(self) -> tuple[Any, bool]:
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
        self, ray: Any, machines: list[dict[str, Any]], destination: Path | str, environment: dict[str, str]
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
        self, ray: Any, machines: list[dict[str, Any]], mark: str, environment: dict[str, str]
    ) -> list[tuple[dict[str, Any], dict[str, Any]]]:
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


def _called(shared: tuple[Callable[[Any], Any], Sequence[Any]], number: int, progress: Progress) -> Any:
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


def _question() -> Callable[[str, dict[str, str]], dict[str, Any]]:
    """A function that runs where penstock may not be: one that has no name here is sent as it is."""

    def answer(mark: str, environment: dict[str, str]) -> dict[str, Any]:
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
                from .ray_cluster import see

                see(mark, environment)
            except Exception as error:  # noqa: BLE001  # the process that builds says it
                missed = f"{type(error).__name__}: {error}"
        return {"penstock": found, "machine": platform.node(), "missed": missed}

    return answer


def _environment(ray: Any) -> dict[str, str]:
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
