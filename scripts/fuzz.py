#!/usr/bin/env python3
"""Runs every fuzz target: scripts/fuzz.py (--each SECONDS | --total SECONDS) [TARGET ...].

A target's inputs are fuzz/seeds/TARGET (kept in the repository) and fuzz/corpus/TARGET (what earlier runs found).
Fails on a finding and says which file reproduces it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CARGO_FUZZ = "0.13.2"
MAX_INPUT_BYTES = 16 * 1024
SLOWEST_INPUT_SECONDS = 10
# Deflate makes 16 MB at most of such an input: whatever takes much more was sized by a number that nothing backs.
MEMORY_MB = 512
ALLOCATION_MB = 256

ROOT = Path(__file__).resolve().parent.parent
FUZZ = ROOT / "fuzz"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"


def environment() -> dict[str, str]:
    """Cargo's environment: the address sanitizer also on a stable compiler, cargo-fuzz from our cache."""
    tools = CACHE / f"cargo-fuzz-{CARGO_FUZZ}"
    return {
        **os.environ,
        "PATH": f"{tools / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "RUSTC_BOOTSTRAP": "1",
        # The sanitizer keeps freed memory for a while, to catch who still uses it: a part of the limit, not all of it.
        "ASAN_OPTIONS": "quarantine_size_mb=32",
    }


def shared(*command: str) -> list[str]:
    """The command, with cargo's intermediate files in the shared cache."""
    return [sys.executable, str(ROOT / "scripts" / "shared.py"), *command]


def install_cargo_fuzz(env: dict[str, str]) -> None:
    """Installs cargo-fuzz into the cache unless this version of it is there."""
    found = shutil.which("cargo-fuzz", path=env["PATH"])
    if found:
        said = subprocess.run([found, "fuzz", "--version"], capture_output=True, text=True, check=False).stdout
        if CARGO_FUZZ in said:
            return
    print(f"penstock: installing cargo-fuzz {CARGO_FUZZ} into the cache", flush=True)
    folder = CACHE / f"cargo-fuzz-{CARGO_FUZZ}"
    command = ["cargo", "install", "--quiet", "--locked", "--root", str(folder), "--version", CARGO_FUZZ, "cargo-fuzz"]
    subprocess.run(command, check=True, env={k: v for k, v in env.items() if k != "RUSTC_BOOTSTRAP"})


def run(target: str, seconds: int, env: dict[str, str]) -> tuple[bool, str]:
    """Fuzzes one target; says whether it held, and what to read."""
    corpus, seeds, findings = FUZZ / "corpus" / target, FUZZ / "seeds" / target, FUZZ / "artifacts" / target
    for folder in (corpus, findings):
        folder.mkdir(parents=True, exist_ok=True)
    known = set(findings.iterdir())
    log = findings.with_suffix(".log")
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={MAX_INPUT_BYTES}",
        f"-timeout={SLOWEST_INPUT_SECONDS}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-malloc_limit_mb={ALLOCATION_MB}",
        "-print_final_stats=1",
    ]
    inputs = [str(corpus), *([str(seeds)] if seeds.is_dir() else [])]
    started = time.monotonic()
    with log.open("wb") as output:
        status = subprocess.run(
            shared("cargo", "fuzz", "run", target, *inputs, "--", *options),
            cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, check=False,
        ).returncode  # fmt: skip
    took = time.monotonic() - started
    said = log.read_text(errors="replace")
    if status == 0:
        executions = re.findall(r"number_of_executed_units:\s*(\d+)", said)
        coverage = re.findall(r"cov: (\d+)", said)
        return True, (
            f"{target}: no finding in {took:.0f} s, {int(executions[-1]) if executions else 0:,} inputs, "
            f"{coverage[-1] if coverage else '?'} edges covered"
        )
    new = sorted(set(findings.iterdir()) - known)
    lines = said.splitlines()
    if not new:
        return False, f"{target}: did not run (exit {status}); {log.relative_to(ROOT)} ends:\n{indented(lines[-30:])}"
    cause = next((n for n, line in enumerate(lines) if re.search(r"panicked at|ERROR: ", line)), 0)
    file = new[0].relative_to(ROOT)
    return False, (
        f"{target}: FOUND {file}\n{indented(lines[cause : cause + 12])}\n"
        f"  The rest is in {log.relative_to(ROOT)}. To see it again: RUSTC_BOOTSTRAP=1 cargo fuzz run {target} {file}"
    )


def indented(lines: list[str]) -> str:
    """The lines, set off from ours."""
    return "\n".join(f"    {line}" for line in lines)


def main() -> int:
    """Builds all targets, then runs them, as many at once as there are cores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    duration = parser.add_mutually_exclusive_group(required=True)
    duration.add_argument("--each", type=int, metavar="SECONDS", help="for each target")
    duration.add_argument("--total", type=int, metavar="SECONDS", help="split over the targets")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all of fuzz/fuzz_targets when not given")
    options = parser.parse_args()

    available = sorted(path.stem for path in (FUZZ / "fuzz_targets").glob("*.rs"))
    targets = options.targets or available
    unknown = sorted(set(targets) - set(available))
    if unknown or not targets:
        print(f"penstock: no fuzz target {', '.join(unknown)}; there are: {', '.join(available)}", file=sys.stderr)
        return 2
    cores = os.cpu_count() or 1
    at_once = min(cores, len(targets))
    rounds = -(-len(targets) // at_once)
    seconds = options.each or max(1, options.total // rounds)

    env = environment()
    install_cargo_fuzz(env)
    print(f"penstock: building {len(targets)} fuzz targets", flush=True)
    built = subprocess.run(shared("cargo", "fuzz", "build"), cwd=ROOT, env=env, check=False, stdin=subprocess.DEVNULL)
    if built.returncode:
        print("penstock: the fuzz targets do not compile; see above", file=sys.stderr)
        return 2
    print(f"penstock: fuzzing {len(targets)} targets for {seconds} s each, {at_once} at once", flush=True)
    held = 0
    with ThreadPoolExecutor(at_once) as pool:
        for good, message in pool.map(lambda target: run(target, seconds, env), targets):
            held += good
            print(message, flush=True)
    print(f"{held} passed, {len(targets) - held} failed")
    return 0 if held == len(targets) else 1


if __name__ == "__main__":
    sys.exit(main())
