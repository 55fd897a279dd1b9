#!/usr/bin/env python3
"""Run the core's tests under ThreadSanitizer and AddressSanitizer, and the Python tests on an AddressSanitizer build.

scripts/sanitize.py [thread] [address] [extension]

thread     the threaded part of the core's tests, and rust/core/tests/threads.rs
address    all of the core's tests
extension  tests/ that exercise the native module, on a build of it with AddressSanitizer, in .venv-test

No nightly compiler is needed: RUSTC_BOOTSTRAP=1 enables the options. Where the component rust-src is installed
(`rustup component add rust-src`), the standard library is instrumented too. Without it the sanitizers miss accesses
within the standard library; CONTRIBUTING.md describes the effect.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = "x86_64-unknown-linux-gnu"
FOLDER = ROOT / "target" / "sanitize"
# Dependencies are compiled again for each sanitizer: quickly, rather than for speed.
QUICK = ["--config", 'profile.dev.package."*".opt-level=1', "--config", "profile.dev.opt-level=1"]
THREADED = ["queue", "feed", "gather", "batches", "once", "recent", "held", "spare", "interrupt", "shards", "publish"]
PYTHON_TESTS = [
    "records/test_codec",
    "schema/test_columns",
    "records/test_tfrecord",
    "records/test_array_record",
    "records/test_tar",
    "core/test_feed",
    "core/test_image",
]


def environment(sanitizer: str) -> dict[str, str]:
    """Cargo's environment for one sanitizer."""
    flags = f"-Zsanitizer={sanitizer} -Cunsafe-allow-abi-mismatch=sanitizer -Cforce-frame-pointers=yes"
    return {
        **os.environ,
        "RUSTC_BOOTSTRAP": "1",
        "RUSTFLAGS": flags,
        "CARGO_TARGET_DIR": str(FOLDER / sanitizer),
        "TSAN_OPTIONS": f"halt_on_error=0 exitcode=66 suppressions={ROOT / 'scripts' / 'thread_sanitizer.txt'}",
        "ASAN_OPTIONS": "detect_leaks=0 quarantine_size_mb=64 allocator_may_return_null=1",
        # Fewer cases: each takes some ten times as long.
        "PENSTOCK_CASES": os.environ.get("PENSTOCK_CASES", "15"),
    }


@cache
def has_std_source() -> bool:
    """Whether the standard library can be compiled with a sanitizer."""
    root = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True).stdout.strip()
    return (Path(root) / "lib" / "rustlib" / "src" / "rust" / "library").is_dir()


def cargo(sanitizer: str, *command: str) -> int:
    """Run a cargo command for one sanitizer."""
    std = ["-Zbuild-std"] if has_std_source() else []
    line = ["cargo", command[0], "--quiet", "--target", TARGET, *std, *QUICK, *command[1:]]
    return subprocess.run(line, cwd=ROOT, env=environment(sanitizer), check=False, stdin=subprocess.DEVNULL).returncode


def thread() -> int:
    """ThreadSanitizer on the core's threads."""
    if (status := cargo("thread", "test", "-p", "penstock-core", "--lib", "--", *THREADED)) != 0:
        return status
    return cargo("thread", "test", "-p", "penstock-core", "--test", "threads")


def address() -> int:
    """AddressSanitizer on the core."""
    return cargo("address", "test", "-p", "penstock-core")


def extension() -> int:
    """AddressSanitizer on the native module."""
    runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    if not os.path.isabs(library := runtime.stdout.strip()):
        print("penstock: the native module needs gcc's libasan, which is not installed", file=sys.stderr)
        return 2
    if (status := cargo("address", "build", "-p", "penstock-python")) != 0:
        return status
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "penstock"
        shutil.copytree(ROOT / "src" / "penstock", package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        shutil.copy(FOLDER / "address" / TARGET / "debug" / "lib_core.so", package / "_core.abi3.so")
        tests = [f"tests/{name}.py" for name in PYTHON_TESTS]
        python = ROOT / ".venv-test" / "bin" / "python"
        return subprocess.run(
            [python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
            cwd=ROOT,
            env={
                **os.environ,
                "LD_PRELOAD": library,
                "PYTHONPATH": folder,
                "PYTHONMALLOC": "malloc",  # so that memory of Python is watched, too
                "ASAN_OPTIONS": "detect_leaks=0 allocator_may_return_null=1",
            },
            check=False,
            stdin=subprocess.DEVNULL,
        ).returncode


KINDS = {"thread": thread, "address": address, "extension": extension}


def main() -> int:
    """Run the sanitizers that are named, or all."""
    names = sys.argv[1:] or list(KINDS)
    if unknown := sorted(set(names) - set(KINDS)):
        print(f"penstock: no sanitizer {', '.join(unknown)}; there are: {', '.join(KINDS)}", file=sys.stderr)
        return 2
    seen = "is instrumented" if has_std_source() else "is not instrumented (no rust-src)"
    print(f"penstock: the standard library {seen}", flush=True)
    failed = []
    for name in names:
        print(f"penstock: {name}", flush=True)
        if KINDS[name]() != 0:
            failed.append(name)
    print(f"penstock: {len(names) - len(failed)} passed, {len(failed)} failed{': ' * bool(failed)}{', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
