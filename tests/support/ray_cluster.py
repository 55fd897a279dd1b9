"""A Ray cluster on this machine: each node in a network of its own where that is allowed, else as processes."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import psutil

MARK = "PENSTOCK_TEST_CLUSTER"  # in the environment of all that is started: how it is found again
HEAD = 0


class Cluster:
    """Three nodes; the first is the head, where drivers run. All that they start ends with them.

    code, unshared  folders that only the head has, where networks are apart: the scripts of drivers, and some other
    """

    def __init__(self, *, cpus: int = 1, token: str = "") -> None:
        self.name = secrets.token_hex(3)
        self.apart = os.geteuid() == 0 and shutil.which("ip") is not None and _networks_allowed(self.name)
        self.folder = Path(tempfile.mkdtemp(prefix="ps-", dir="/tmp"))  # short: sockets go there
        self.code, self.unshared, self.session = (self.folder / name for name in ("code", "unshared", "ray"))
        for each in (self.code, self.unshared, self.session):
            each.mkdir()
        self.cpus = cpus
        self.port = 6379 if self.apart else 20000 + secrets.randbelow(10000)
        self.subnet = f"10.213.{secrets.randbelow(200) + 1}"
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTHON", "CI"))
        }
        self.environment |= {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
        self.secret = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token} if token else {"RAY_AUTH_MODE": "disabled"}
        self.started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Cluster:
        try:
            if self.apart:
                _ip("link", "add", f"b{self.name}", "type", "bridge")
                _ip("link", "set", f"b{self.name}", "up")
                _ip("addr", "add", f"{self.outside}/24", "dev", f"b{self.name}")
            for node in range(3):
                self.add(node)
                if not self.apart or node == 2:  # nodes that share a folder for their sockets come one by one
                    self.wait_for(node + 1)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def address(self, node: int) -> str:
        """The address of a node."""
        return f"{self.subnet}.{node + 1}" if self.apart else "127.0.0.1"

    @property
    def outside(self) -> str:
        """The address by which nodes reach what runs on none of them."""
        return f"{self.subnet}.254" if self.apart else "127.0.0.1"

    def add(self, node: int, environment: Mapping[str, str] | None = None) -> None:
        """Start a node."""
        if self.apart:
            space, link = f"n{self.name}{node}", f"v{self.name}{node}"
            _ip("netns", "add", space)
            _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", link, "master", f"b{self.name}", "up")
            _ip("-n", space, "addr", "add", f"{self.address(node)}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "lo", "up")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "route", "add", "default", "dev", "eth0")  # by which Ray finds its own address
        ray = [
            sys.executable,
            "-m",
            "ray.scripts.scripts",
            "start",
            "--block",
            f"--node-ip-address={self.address(node)}",
        ]
        ray += [f"--num-cpus={self.cpus}", "--object-store-memory=100000000", "--disable-usage-stats"]
        if node == HEAD:
            ray += ["--head", f"--port={self.port}", f"--temp-dir={self.session}", "--include-dashboard=false"]
        else:
            self.wait_until(self._answers, 60, "no head")
            ray += [f"--address={self.address(HEAD)}:{self.port}"]
        if self.apart and node != HEAD:
            hidden = " && ".join(f"mount -t tmpfs none {folder}" for folder in (self.code, self.unshared, self.session))
            ray = ["sh", "-c", f'{hidden} && exec "$@"', "sh", *ray]
        log = open(self.folder / f"node{node}.log", "ab")  # noqa: SIM115  # the process has it
        told = self.environment | self.secret | {MARK: f"{self.name}-{node}"} | dict(environment or {})
        self.started.append(subprocess.Popen(self._in(node) + ray, env=told, stdout=log, stderr=log, cwd="/"))
        log.close()

    def _in(self, node: int) -> list[str]:
        return ["ip", "netns", "exec", f"n{self.name}{node}"] if self.apart else []

    def _answers(self) -> bool:
        probe = f"import socket; socket.create_connection(({self.address(HEAD)!r}, {self.port}), 1)"
        command = [*self._in(HEAD), sys.executable, "-c", probe]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def wait_for(self, nodes: int, seconds: float = 90) -> None:
        """Until the cluster has so many nodes."""
        count = "import ray, sys; ray.init(sys.argv[1], logging_level='error', log_to_driver=False); "
        count += "import time\nwhile sum(n['Alive'] for n in ray.nodes()) != int(sys.argv[2]): time.sleep(0.2)"
        command = ["-c", count, f"{self.address(HEAD)}:{self.port}", str(nodes)]
        done = self.drive(*command)
        try:
            _, errors = done.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"expected {nodes} nodes within {seconds} s\n{self.logs()}") from None
        assert done.returncode == 0, errors

    def drive(self, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Run Python on the head's node."""
        told = self.environment | self.secret | {MARK: f"{self.name}-driver"} | dict(environment or {})
        told["RAY_ADDRESS"] = f"{self.address(HEAD)}:{self.port}"
        command = [*self._in(HEAD), sys.executable, *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, env=told, cwd=self.code, text=True, **pipes)  # type: ignore[call-overload]

    def script(self, name: str, text: str) -> str:
        """A file that only the head has."""
        (self.code / name).write_text(text)
        return str(self.code / name)

    def processes(self, node: int | str) -> list[psutil.Process]:
        """All that runs on a node, or for its drivers."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == f"{self.name}-{node}":
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        return found

    def kill(self, node: int | str) -> None:
        """End a node as a power cut does, but that its network still answers."""
        self._signal(node, signal.SIGKILL)

    def cut(self, node: int) -> None:
        """Part a node from the others; it goes on. Where networks are not apart, it stands still instead."""
        if self.apart:
            _ip("link", "set", f"v{self.name}{node}", "down")
        else:
            self._signal(node, signal.SIGSTOP)

    def heal(self, node: int) -> None:
        """End what `cut` began."""
        if self.apart:
            _ip("link", "set", f"v{self.name}{node}", "up")
        else:
            self._signal(node, signal.SIGCONT)

    def remove(self, node: int) -> None:
        """End a node for good; another may come in its place."""
        self.kill(node)
        if self.apart:
            for command in (["link", "del", f"v{self.name}{node}"], ["netns", "del", f"n{self.name}{node}"]):
                subprocess.run(["ip", *command], capture_output=True, check=False)

    def _signal(self, node: int | str, number: int) -> None:
        for process in self.processes(node):
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue

    def wait_until(self, condition: Callable[[], object], seconds: float, otherwise: str) -> None:
        """Wait for something."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"{otherwise}\n{self.logs()}"
            time.sleep(0.05)

    def logs(self) -> str:
        """What the nodes have printed."""
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in sorted(self.folder.glob("node*.log")))

    def end(self) -> None:
        """End all of it."""
        for node in ("driver", 0, 1, 2, 3):
            self.kill(node)
        for process in self.started:
            process.wait(timeout=30)
        if self.apart:
            for node in range(4):
                subprocess.run(["ip", "netns", "del", f"n{self.name}{node}"], capture_output=True, check=False)
            subprocess.run(["ip", "link", "del", f"b{self.name}"], capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=30)


def _networks_allowed(name: str) -> bool:
    """Whether this process may make networks: a container often may not."""
    try:
        _ip("netns", "add", f"t{name}")
        _ip("netns", "del", f"t{name}")
        _ip("link", "add", f"t{name}", "type", "bridge")
        _ip("link", "del", f"t{name}")
    except (OSError, subprocess.SubprocessError):
        return False
    return True
