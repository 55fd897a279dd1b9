"""Runs a command as long as the process that asked for it is there: keeper.py PID COMMAND ...

Tests can end in any way, by a signal that nobody can catch too. Their servers must not stay behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time


def main() -> int:
    """Starts the command, watches its owner and itself, and ends it."""
    owner = int(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    command = subprocess.Popen(sys.argv[2:])
    try:
        while command.poll() is None and os.getppid() == owner:
            time.sleep(0.1)
    finally:
        command.terminate()
        try:
            command.wait(5)
        except subprocess.TimeoutExpired:
            command.kill()
            command.wait()
    return command.returncode


if __name__ == "__main__":
    sys.exit(main())
