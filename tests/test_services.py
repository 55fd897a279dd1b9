"""The servers that other tests talk to, and the proxy that spoils what they say."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from services import GCS, S3, AIStore, Azurite, FaultProxy, Nginx, UnavailableError, programs
from services.faults import Answer, Corrupt, Cut, Delay, Stall
from services.server import Server

BODY = bytes(range(256)) * 400


@pytest.fixture
def url(http_server: Nginx) -> str:
    (http_server.root / "file").write_bytes(BODY)
    return "/file"


def get(proxy: FaultProxy, path: str, timeout: float = 5) -> bytes:
    with urllib.request.urlopen(proxy.endpoint + path, timeout=timeout) as answer:
        return answer.read()


def test_nginx_serves_ranges(http_server: Nginx, url: str) -> None:
    request = urllib.request.Request(http_server.endpoint + url, headers={"Range": "bytes=1000-1099"})
    with urllib.request.urlopen(request, timeout=5) as answer:
        assert (answer.status, answer.read()) == (206, BODY[1000:1100])


def test_the_proxy_passes_on_what_it_is_not_told_to_spoil(http_server: Nginx, url: str) -> None:
    with FaultProxy(http_server.port) as proxy:
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=5)
        for _ in range(3):  # over one connection
            connection.request("GET", url)
            assert connection.getresponse().read() == BODY
        connection.close()
        assert proxy.requests == [url] * 3


@pytest.mark.alone
def test_each_fault_happens_as_often_as_it_is_told(http_server: Nginx, url: str) -> None:
    with FaultProxy(http_server.port) as proxy:
        proxy.spoil(Answer(503))
        with pytest.raises(urllib.error.HTTPError, match="503"):
            get(proxy, url)
        proxy.spoil(Cut(after=5000), times=2)
        for _ in range(2):
            with pytest.raises((http.client.IncompleteRead, ConnectionError)):
                get(proxy, url)
        proxy.spoil(Corrupt(at=70_000))
        spoilt = get(proxy, url)
        assert [at for at, (one, other) in enumerate(zip(spoilt, BODY, strict=True)) if one != other] == [70_000]
        proxy.spoil(Delay(0.3))
        began = time.monotonic()
        assert get(proxy, url) == BODY
        assert time.monotonic() - began > 0.3
        proxy.spoil(Stall(), times=None, path="elsewhere")
        assert get(proxy, url) == BODY, "the fault of another path"
        with pytest.raises(TimeoutError):
            get(proxy, "/elsewhere", timeout=0.3)
        proxy.heal()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(proxy, "/elsewhere")


def test_the_s3_has_buckets(s3: str, s3_server: S3) -> None:
    assert s3.startswith("s3://")
    assert os.environ["AWS_ENDPOINT_URL"] == s3_server.endpoint
    assert (s3_server.root / s3.removeprefix("s3://")).is_dir()


def test_the_door_to_googles_protocol_keeps_no_generations(gs: str, gs_server: GCS) -> None:
    bucket, answers = gs.removeprefix("gs://"), []
    with closing(http.client.HTTPConnection("127.0.0.1", gs_server.port, timeout=5)) as connection:
        for generation in ("0", "0", "7"):
            headers = {"x-goog-if-generation-match": generation}
            connection.request("PUT", f"/{bucket}/a%2Fb", f"at {generation}".encode(), headers)
            answer = connection.getresponse()
            answer.read()
            answers.append(answer.status)
    assert answers == [200, 412, 501]
    assert (gs_server.root / bucket / "a" / "b").read_bytes() == b"at 0"


def test_the_aistore_has_two_targets(ais: str, ais_server: AIStore) -> None:
    with urllib.request.urlopen(f"{ais_server.endpoint}/v1/daemon?what=smap", timeout=5) as answer:
        assert answer.read().count(b'"daemon_type":"target"') == 2
    assert ais.startswith("ais://")


def test_servers_end_with_their_owner_however_it_ends(root: Path, http_server: Nginx) -> None:
    code = "from services import Nginx; import time; print(Nginx().start().wait().port, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert int(owner.stdout.readline()) > 0
        family = psutil.Process(owner.pid).children(recursive=True)
        assert any("nginx" in process.name() for process in family)
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
    gone, alive = psutil.wait_procs(family, timeout=10)
    assert len(gone) >= 2
    assert not alive


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(programs, "CACHE", tmp_path)
    with pytest.raises(UnavailableError, match="versitygw is not compiled yet: run `make services`"):
        S3()
    with pytest.raises(UnavailableError, match="azurite is not installed yet: run `make services`"):
        Azurite()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="Go is needed to compile aisnode"):
        programs.compile_program("aisnode")
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".lock"]


def test_a_server_that_does_not_come_up_says_why() -> None:
    class Broken(Server):
        def launch(self) -> None:
            self.run("broken", ["sh", "-c", "echo no such disk; exit 3"])

    with pytest.raises(RuntimeError, match=r"Broken ended: no such disk"):
        Broken().start().wait()
