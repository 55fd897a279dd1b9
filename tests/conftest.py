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
from tests.support.servers import RemoteServers, Servers, SharedServers

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
    monkeypatch.setattr(import_module("penstock.building.run"), "survives_fork", lambda: True)


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return Path(__file__).resolve().parent.parent


# Real servers. Each is started by the first test that asks for it and ends with the session; see services/.

SERVERS = pytest.StashKey[Servers | RemoteServers]()


def pytest_configure(config: pytest.Config) -> None:
    """Begin with no servers; a worker of pytest-xdist uses those of the process that started it."""
    address = getattr(config, "workerinput", {}).get("servers")
    config.stash[SERVERS] = RemoteServers(address) if address else Servers()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a worker of pytest-xdist the address of the servers that all workers share."""
    if not isinstance(node.config.stash[SERVERS], SharedServers):
        node.config.stash[SERVERS] = SharedServers()
    node.workerinput["servers"] = node.config.stash[SERVERS].address


# Files of few tests that take long. Workers begin with them, so that none is left with one of them at the end.
LONG_FILES = (
    "loading/test_ranks.py",
    "test_architecture.py",
    "building/test_plain_file_commit.py",
    "building/test_fork_safety.py",
    "building/test_resume_after_kill.py",
    "dataset/test_metadata_damage.py",
    "frameworks/test_frameworks.py",
    "recipes/test_tornet.py",
    "schema/test_example_class.py",
    "test_benchmarks.py",
    "test_docs.py",
    "test_examples.py",
    "records/test_salvage.py",
    "building/test_build.py",
    "records/test_codec.py",
    "records/test_size_limits.py",
    "storage/test_aistore.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of LONG_FILES first."""
    here = Path(__file__).resolve().parent
    rank = {here / name: number for number, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start AIStore, which takes long, while other tests run."""
    if not session.config.option.collectonly and any("ais_server" in item.fixturenames for item in session.items):
        session.config.stash[SERVERS].start(AIStore)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the servers with the session."""
    config.stash[SERVERS].stop()


def _server(config: pytest.Config, kind: type[Server]) -> Any:
    """Return a server that answers. Where it is not available, skip its tests, or fail in CI."""
    try:
        return config.stash[SERVERS].get(kind)
    except UnavailableError as reason:
        if required():
            pytest.fail(str(reason), pytrace=False)
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def s3_server(pytestconfig: pytest.Config) -> S3:
    """A real S3, versitygw."""
    return _server(pytestconfig, S3)


@pytest.fixture(scope="session")
def gs_server(pytestconfig: pytest.Config) -> GCS:
    """Google's protocol, before a real S3."""
    return _server(pytestconfig, GCS)


@pytest.fixture(scope="session")
def az_server(pytestconfig: pytest.Config) -> Azurite:
    """Azure's emulator."""
    return _server(pytestconfig, Azurite)


@pytest.fixture(scope="session")
def ais_server(pytestconfig: pytest.Config) -> AIStore:
    """A real AIStore: one proxy and two targets."""
    return _server(pytestconfig, AIStore)


@pytest.fixture(scope="session")
def http_server(pytestconfig: pytest.Config) -> Nginx:
    """A real nginx, with a folder whose files it serves."""
    return _server(pytestconfig, Nginx)


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
