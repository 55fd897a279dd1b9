"""What every test shares: quiet peers, and one profile for Hypothesis."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import hypothesis
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from services import GCS, S3, AIStore, Azurite, FaultProxy, Nginx, UnavailableError, required
from services.server import Server

# A shell that runs the tests in the background has them ignore Ctrl-C, and the processes that they start too: tests of
# Ctrl-C need it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# TensorFlow reads these when it is first imported: no banner, no search for devices that are not there.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# CI must give the same answer twice; at a desk, each run looks somewhere new.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("desk", deadline=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "desk")


@pytest.fixture(autouse=True)
def _forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds use several processes, whichever tests have run TensorFlow before: test_fork_safety.py is for that."""
    monkeypatch.setattr(import_module("penstock.build.run"), "survives_fork", lambda: True)


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return Path(__file__).resolve().parent.parent


# Real servers. Each is started by the first test that asks for it and ends with the session; see services/.


class Servers:
    """The servers of a session, by what they are."""

    def __init__(self) -> None:
        self.running: dict[type[Server], Server | UnavailableError] = {}

    def start(self, kind: type[Server]) -> None:
        """Start one, without waiting for it."""
        if kind not in self.running:
            try:
                self.running[kind] = kind().start()
            except UnavailableError as reason:
                self.running[kind] = reason

    def get(self, kind: type[Server]) -> Any:
        """One that answers. Where it can't be had its tests are skipped, or fail if they must not be."""
        self.start(kind)
        server = self.running[kind]
        if isinstance(server, UnavailableError):
            if required():
                pytest.fail(str(server), pytrace=False)
            pytest.skip(str(server))
        return server.wait()

    def stop(self) -> None:
        """End them all."""
        for server in self.running.values():
            if isinstance(server, Server):
                server.stop()


SERVERS = pytest.StashKey[Servers]()


def pytest_configure(config: pytest.Config) -> None:
    """A session begins with no servers."""
    config.stash[SERVERS] = Servers()


def pytest_collection_finish(session: pytest.Session) -> None:
    """An AIStore takes its time: it starts while other tests run."""
    if not session.config.option.collectonly and any("ais_server" in item.fixturenames for item in session.items):
        session.config.stash[SERVERS].start(AIStore)


def pytest_unconfigure(config: pytest.Config) -> None:
    """No server outlives the session."""
    config.stash[SERVERS].stop()


@pytest.fixture(scope="session")
def s3_server(pytestconfig: pytest.Config) -> S3:
    """A real S3, versitygw."""
    return pytestconfig.stash[SERVERS].get(S3)


@pytest.fixture(scope="session")
def gs_server(pytestconfig: pytest.Config) -> GCS:
    """Google's protocol, before a real S3."""
    return pytestconfig.stash[SERVERS].get(GCS)


@pytest.fixture(scope="session")
def az_server(pytestconfig: pytest.Config) -> Azurite:
    """Azure's emulator."""
    return pytestconfig.stash[SERVERS].get(Azurite)


@pytest.fixture(scope="session")
def ais_server(pytestconfig: pytest.Config) -> AIStore:
    """A real AIStore: one proxy and two targets."""
    return pytestconfig.stash[SERVERS].get(AIStore)


@pytest.fixture(scope="session")
def http_server(pytestconfig: pytest.Config) -> Nginx:
    """A real nginx, with a folder whose files it serves."""
    return pytestconfig.stash[SERVERS].get(Nginx)


@pytest.fixture
def s3(s3_server: S3, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a new bucket, with the environment that finds it."""
    return _told(s3_server, monkeypatch).new_bucket()


@pytest.fixture
def gs(gs_server: GCS, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a new bucket, with the environment that finds it."""
    return _told(gs_server, monkeypatch).new_bucket()


@pytest.fixture
def az(az_server: Azurite, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a new container, with the environment that finds it."""
    return _told(az_server, monkeypatch).new_bucket()


@pytest.fixture
def ais(ais_server: AIStore, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a new bucket, with the environment that finds it."""
    return _told(ais_server, monkeypatch).new_bucket()


@pytest.fixture(params=["s3", "gs", "az"])
def bucket(request: pytest.FixtureRequest) -> str:
    """The URL of a new bucket, in each kind of store that goes through obstore."""
    return request.getfixturevalue(request.param)


def _told(server: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server


@pytest.fixture
def s3_faults(s3: str, s3_server: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """A proxy between the clients and the S3, which spoils what it is told to."""
    with FaultProxy(s3_server.port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        yield proxy
