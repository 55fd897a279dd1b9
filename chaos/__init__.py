"""Faults on purpose: kills, damaged files, full disks, shared caches, rebuilds under a reader.

    python -m chaos                      every scenario, ten minutes in all
    python -m chaos damage --seconds 60  one scenario, a minute

A scenario repeats random rounds until its time ends. A round that loses data, delivers a wrong example without an
error, crashes or hangs is a failure, and its seed is printed: `--seed` repeats it.
"""
