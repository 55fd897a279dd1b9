"""Disks: full ones that get space again, caches that two processes share, datasets rebuilt under a reader."""

from __future__ import annotations

import errno
import os
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
from services import S3
from services import UnavailableError as NoServerError

import penstock as ps
from chaos.kills import contents
from chaos.scenario import Child, Round, UnavailableError


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """Mount a small file system in memory."""
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise UnavailableError(f"a small tmpfs cannot be mounted here ({done.stderr.strip()}); root can")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, leave: int) -> Path:
    """Fill a file system but for `leave` bytes and return the file that does it."""
    filler = folder / "filler"
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    filler.write_bytes(bytes(max(0, free - leave)))
    return filler


def is_full(error: BaseException | None) -> bool:
    """Return whether an error, or one of its causes, is ENOSPC."""
    while error is not None:
        if getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def full_disks(round: Round) -> None:
    """Let a disk run full under a build and under a loader's cache; free it; both end with the right data."""
    rows = [{"i": i, "x": np.full(3000, i, np.int64)} for i in range(400)]
    with small_disk(round.folder / "disk", 40 << 20) as disk:
        ps.build(rows, round.folder / "whole" / "data", shards=8, workers=1)
        filler = fill(disk, round.rng.randrange(100_000, 9_000_000))
        try:
            ps.build(rows, disk / "data", shards=8, workers=1)
        except (ps.PenstockError, OSError) as error:
            round.expect(is_full(error), f"a full disk was reported as {error!r}")
            round.count("builds stopped by a full disk")
        filler.unlink()
        ps.build(rows, disk / "data", shards=8, workers=1)
        round.expect(
            contents(disk / "data") == contents(round.folder / "whole" / "data"), "other bytes after a full disk"
        )

        filler = fill(disk, round.rng.randrange(50_000, 9_000_000))
        loader = (
            ps.load(round.folder / "whole" / "data")["train"].cache(folder=disk / "cache").shuffle(seed=1).batch(20)
        )
        warnings.simplefilter("ignore", UserWarning)  # a full cache is a warning
        for _ in range(4):
            seen = []
            try:
                for batch in loader:
                    for i, x in zip(batch["i"], batch["x"], strict=True):
                        round.expect(bool((x == i).all()), f"example {i} has values {sorted(set(x.tolist()))[:5]}")
                        seen.append(int(i))
            except (ps.PenstockError, OSError) as error:
                round.expect(is_full(error), f"a full disk was reported as {error!r}")
                round.count("epochs stopped by a full disk")
                filler.unlink(missing_ok=True)
                continue
            round.expect(sorted(seen) == list(range(400)), f"an epoch delivered {len(seen)} of 400 examples")
            round.count("epochs with every example")


@cache
def s3() -> S3:
    """Start the S3 server once; it ends with this process."""
    try:
        server = S3().start().wait()
    except NoServerError as reason:
        raise UnavailableError(str(reason)) from None
    os.environ |= server.environment
    return server


def shared_caches(round: Round) -> None:
    """Let two processes read one remote dataset through one small cache, and kill a third."""
    bucket = s3().new_bucket()
    rows = [{"x": i, "data": [i] * 5000} for i in range(200)]
    ps.build(rows, f"{bucket}/data", shards=10, workers=1)
    cache_folder = round.folder / "cache"
    cache_folder.mkdir()
    foreign = cache_folder.parent / "photo.jpg"
    foreign.write_bytes(b"of the user")
    size = round.rng.choice([900_000, 1_500_000, 100_000_000])
    seeds = [round.rng.randrange(1 << 30) for _ in range(3)]
    children = [Child("cached_epochs", f"{bucket}/data", cache_folder, size, seed, 2) for seed in seeds]
    children[2].kill()
    round.count("kills")
    for child in children[:2]:
        wrong = child.result()
        round.expect(not wrong, "; ".join(wrong))
        round.count("epochs with every example", 2)
    round.expect(foreign.read_bytes() == b"of the user", "a file of the user was changed")


def rebuilt_datasets(round: Round) -> None:
    """Rebuild a dataset under an open handle: it delivers the old examples, or an error; never a mix."""
    target = round.folder / "data"
    count, shards = round.rng.randrange(200, 2000), round.rng.randrange(1, 12)
    blob = bytes(round.rng.choice([10, 2000]))
    rows = {version: [{"x": i, "v": version, "b": blob} for i in range(count)] for version in (1, 2)}
    ps.build(rows[1], target, shards=shards, workers=1)
    split = ps.load(target)["train"]
    loader = split.shuffle(seed=1).batch(50) if round.rng.random() < 0.5 else split.batch(50)
    touched = round.rng.choice(["nothing", "one example", "half an epoch"])
    versions: set[int] = set()
    iterator = None
    if touched == "one example":
        versions.add(int(split[round.rng.randrange(count)]["v"]))
    elif touched == "half an epoch":
        iterator = iter(loader)
        for _ in range(count // 100):
            versions |= set(next(iterator)["v"].tolist())
    ps.build(rows[2], target, shards=round.rng.choice([shards, shards + 1]), workers=1, overwrite=True)
    try:
        for batch in iterator if iterator is not None else loader:
            versions |= set(batch["v"].tolist())
        for _ in range(20):
            versions.add(int(split[round.rng.randrange(count)]["v"]))
    except ps.PenstockError:
        round.count("refused")
    else:
        round.count("delivered")
    finally:
        if iterator is not None:
            iterator.close()
    round.expect(len(versions) < 2, f"after {touched}, examples of both builds were delivered")
