"""The command `penstock`, and `python -m penstock`: what a command needs takes a moment to import."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def main() -> int:
    """Run a command. Ctrl-C while it is still being imported ends it at once, as it does later: nothing is said."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from .cli import main as run

    signal.signal(signal.SIGINT, before)
    return run()


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(130)


if __name__ == "__main__":
    sys.exit(main())
