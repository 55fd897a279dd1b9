"""What AIStore can do besides keeping objects: shuffle and re-shard tars, and transform what is read."""

from __future__ import annotations

import json
import re
import tempfile
import time
from pathlib import Path
from typing import Any

from .errors import NotFoundError, SchemaError, StorageError
from .storage.aistore import AISStore, option
from .storage.open import open_store
from .storage.paths import expand

MOST_SHARDS = 10_000
_TARS = re.compile(r"(ais://[^/]+)/(.+?)(\.tar|\.tar\.gz|\.tgz|\.tar\.lz4|\.zip)")
_OPEN = re.compile(r"\{(\d*)\.\.\}")


def shuffle(
    source: str,
    destination: str,
    *,
    seed: int = 0,
    shard_bytes: int = 1 << 30,
    order: str = "shuffle",
    timeout: float = 3600,
) -> list[str]:
    """Shuffle the samples of tars, and write them into others, inside of an AIStore: no byte of them comes here.

    shuffle("ais://photos/train-{0..146}.tar.gz", "ais://photos/shuffled-{0000..}.tar", seed=7)

    source       tars of a bucket: a range, or one name
    destination  as many tars as are needed, numbered from where the range begins; their extension may be another
    seed         of the shuffle; its targets work at once, so the same one may give another order
    shard_bytes  about how many bytes the files of a tar have
    order        "shuffle", or "key" for that of the samples' keys
    timeout      seconds until this is given up; the cluster goes on

    The URLs of the tars that were written come back, in order. It runs as a job of the cluster, dSort.
    """
    if order not in ("shuffle", "key"):
        raise SchemaError(f'expected order "shuffle" or "key", got {order!r}', "shuffle")
    store, name, extension = _tars(source)
    other, pattern, suffix = _tars(destination)
    if store.client is not other.client:
        raise SchemaError(f"expected tars of one cluster, got those of another at {destination}", source)
    match = _OPEN.search(pattern)
    if match is None:
        hint = 'Say it as in "ais://photos/shuffled-{0000..}.tar"'
        raise SchemaError("expected a destination with a number that begins to count, got none", destination, hint)
    for url in expand(source):
        store.entry(url.removeprefix(f"{store.url}/"))  # the cluster leaves out what is not there, without a word
    before, after = pattern[: match.start()], pattern[match.end() :] + suffix
    if there := _written(other, before, after):
        hint = "Take them away, or give another name"
        raise StorageError(f"expected new tars, got one that is there - at {there[0]}. {hint}")
    first, width = int(match[1] or 0), len(match[1])
    numbers = f"{{{first:0{width}}..{first + MOST_SHARDS - 1:0{width}}}}"
    spec = {
        "input_bck": {"name": store.bucket, "provider": "ais"},
        "input_extension": extension,
        "input_format": {"template": name} if "{" in name else {"objnames": [name]},
        "output_bck": {"name": other.bucket, "provider": "ais"},
        "output_extension": suffix,
        "output_format": f"{before}{numbers}{pattern[match.end() :]}",
        "output_shard_size": f"{shard_bytes}B",
        "algorithm": {"kind": "shuffle", "seed": str(seed)} if order == "shuffle" else {"kind": "alphanumeric"},
        "description": "penstock.ais.shuffle",
    }
    _run(store, spec, timeout)
    return _written(other, before, after)


def transformed(url: str, etl: str) -> str:
    """The URL, or pattern of URLs, of objects that the cluster transforms as they are read, by an ETL of that name.

    tar(transformed("ais://photos/train-{0..146}.tar", etl="resize"))

    The ETL has to be there: AIStore runs it beside its targets, on Kubernetes. What it makes has no ranges, so objects
    are read as a whole.
    """
    if not re.fullmatch(r"[\w.-]+", etl):
        raise SchemaError(f"expected the name of an ETL, got {etl!r}", url)
    return option(url, "etl", etl)


def at(url: str, endpoint: str) -> str:
    """The URL, or pattern of URLs, of objects of the cluster at an address, whatever AIS_ENDPOINT says.

    load(at("ais://photos/train-{0..146}.tar", "http://other:8080"))
    """
    if not re.fullmatch(r"https?://[^/?#]+/?", endpoint):
        raise SchemaError(f"expected the address of an AIStore, as in http://localhost:8080, got {endpoint!r}", url)
    return option(url, "endpoint", endpoint.rstrip("/"))


def _tars(url: str) -> tuple[AISStore, str, str]:
    """The store of some tars, their name, and their extension."""
    match = _TARS.fullmatch(url)
    if match is None:
        raise SchemaError("expected tars of an AIStore, as in ais://bucket/train-{0..7}.tar.gz", url)
    store = open_store(match[1])[0]
    assert isinstance(store, AISStore)
    return store, match[2], match[3]


def _written(store: AISStore, before: str, after: str) -> list[str]:
    """The URLs of tars that a destination names, in order of their numbers."""
    wanted = re.compile(f"{re.escape(before)}(\\d+){re.escape(after)}")
    names = (entry.name for entry in store.list(before.rpartition("/")[0]))
    found = [(int(match[1]), name) for name in names if (match := wanted.fullmatch(name))]
    return [f"{store.url}/{name}" for _, name in sorted(found)]


def _run(store: AISStore, spec: dict[str, Any], timeout: float) -> None:
    """Start the job, and wait for its end."""
    job = store.client.dsort()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spec.json"
        path.write_text(json.dumps(spec))
        store.tried("dsort", lambda: job.start(path))
    deadline, pause = time.monotonic() + timeout, 0.1
    while True:
        try:
            parts = [part.metrics for part in store.tried("dsort", job.get_job_info).values()]
        except NotFoundError:
            hint = "Targets refuse such a job when their disks are nearly full: look at their logs"
            raise StorageError(f"expected tars to be shuffled, got no job - at {store.url}. {hint}") from None
        problems = [problem for part in parts for problem in part.errors or () if problem]
        if problems or any(part.aborted for part in parts):
            got = problems[0] if problems else "an end before it was done"
            raise StorageError(f"expected tars to be shuffled, got: {got} - at {store.url}")
        if parts and all(part.shard_creation.finished for part in parts):
            return
        if time.monotonic() > deadline:
            got = f"no end in {timeout:.0f} s - at {store.url}. It goes on as job {job.dsort_id}"
            raise StorageError(f"expected tars to be shuffled, got {got}")
        time.sleep(pause)
        pause = min(2 * pause, 2.0)
