"""The benchmark: our rows against their peers, measured in one run on one machine. `python -m benchmarks --help`."""
