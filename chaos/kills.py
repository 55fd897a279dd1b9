"""Kills: a build that is killed anywhere continues, and ends with the bytes of one that was never killed."""

from __future__ import annotations

import json
import time
from pathlib import Path

from chaos.scenario import Child, Round, run_child

KINDS = ["tfrecord", "array_record", "stream", "files.tfrecord", "files.array_record"]


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder, of a manifest everything but the time and its own checksum."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            if path.name == "penstock.json":
                manifest = json.loads(content)
                del manifest["made"], manifest["crc32c"]
                content = json.dumps(manifest).encode()
            found[str(path.relative_to(folder))] = content
    return found


def is_complete(build: Child, folder: Path, expected: dict[str, bytes]) -> bool:
    """Return True if a build refused plain files because all of them exist: the kill came in the very last clean-up."""
    return "expected a new file" in build.errors and contents(folder) == expected


def killed_builds(round: Round) -> None:
    """Kill a build several times, at file operations and at random moments, then let it finish."""
    kind = round.rng.choice(KINDS)
    whole, killed = round.folder / "whole", round.folder / "killed"
    whole.mkdir()
    killed.mkdir()
    started = time.monotonic()
    operations = run_child("build_rows", whole, kind, 0)
    seconds = time.monotonic() - started
    expected = contents(whole)
    for _ in range(round.rng.randrange(1, 4)):
        if contents(killed) == expected:
            break  # the kill came after the end: plain files that are complete are not built again
        if round.rng.random() < 0.5:
            build = Child("build_rows", killed, kind, round.rng.randrange(1, operations + 1))
            status = build.wait()
            well = status in (-9, 0) or is_complete(build, killed, expected)
            round.expect(well, f"{kind}: exit code {status}: {build.errors if status != -9 else ''}")
        else:
            build = Child("build_rows", killed, kind, 0)
            time.sleep(seconds * round.rng.random())
            build.kill()
        round.count("kills")
    if contents(killed) != expected:
        last = Child("build_rows", killed, kind, 0)
        status = last.wait()
        round.expect(status == 0 or is_complete(last, killed, expected), f"{kind}: exit code {status}: {last.errors}")
    found = contents(killed)
    names = sorted(set(expected) ^ set(found)) or [name for name in expected if expected[name] != found[name]]
    round.expect(not names, f"{kind}: other bytes after the kills: {names[:5]}")


def killed_overwrites(round: Round) -> None:
    """Kill an overwrite of plain files: what loads is the old files or the new ones, or an error."""
    old, new = round.rng.sample(range(2, 9), 2)
    target, twin = round.folder / "files", round.folder / "twin"
    for folder in (target, twin):
        folder.mkdir()
        run_child("overwrite_files", folder, 1, old, 0)
    operations = run_child("overwrite_files", twin, 2, new, 0)
    Child("overwrite_files", target, 2, new, round.rng.randrange(max(1, operations // 2), operations + 1)).wait()
    round.count("kills")
    loaded = run_child("read_versions", target)
    if "error" in loaded:
        round.count("refused until the rerun")
    else:
        allowed = [{"versions": [1], "records": 40 * old}, {"versions": [2], "records": 40 * new}]
        round.expect(loaded in allowed, f"after a killed overwrite {loaded} was loaded, expected one of {allowed}")
    run_child("overwrite_files", target, 2, new, 0)
    round.expect(contents(target) == contents(twin), "other bytes after the rerun of a killed overwrite")
