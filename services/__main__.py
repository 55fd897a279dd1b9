"""`python -m services`: the servers, until Ctrl-C; `python -m services build`: their programs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from services import GCS, S3, AIStore, Azurite, Nginx, UnavailableError, required
from services.programs import compile_program, install_azurite, install_nginx

PROGRAMS: tuple[Callable[[], object], ...] = (
    partial(compile_program, "versitygw"),
    partial(compile_program, "aisnode"),
    install_azurite,
    install_nginx,
)


def build() -> int:
    """Build what can be built; say what can't."""
    missing = 0
    for program in PROGRAMS:
        try:
            program()
        except UnavailableError as reason:
            print(f"penstock: {reason}", file=sys.stderr)
            missing += 1
    return 1 if missing and required() else 0


def serve() -> int:
    """Start all, and stay."""
    with ExitStack() as stack:
        for kind in (AIStore, S3, GCS, Azurite, Nginx):
            try:
                server = stack.enter_context(kind())
            except UnavailableError as reason:
                print(f"penstock: {reason}", file=sys.stderr)
                continue
            print(f"# {kind.__name__}: {server.endpoint}")
            for name, value in getattr(server, "environment", {}).items():
                print(f"export {name}={value}")
            if isinstance(server, S3 | Nginx):
                print(f"# its files: {server.root}")
            sys.stdout.flush()
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        print("# Ctrl-C ends them", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print()
    return 0


def main() -> int:
    """Build, and serve unless only building was asked for."""
    words = sys.argv[1:]
    if words not in ([], ["build"]):
        print(f"penstock: expected `python -m services [build]`, got {' '.join(words)}", file=sys.stderr)
        return 2
    return build() or (0 if words else serve())


if __name__ == "__main__":
    sys.exit(main())
