"""`python -m chaos`: run the scenarios and print the outcomes.

Exit code 1 if a round failed, 2 for an unknown scenario.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from chaos.damage import damaged_files, mutated_inputs
from chaos.disks import full_disks, rebuilt_datasets, shared_caches
from chaos.kills import killed_builds, killed_overwrites
from chaos.scenario import Round, Tally, repeat

SCENARIOS: dict[str, Callable[[Round], None]] = {
    scenario.__name__: scenario
    for scenario in (
        killed_builds,
        killed_overwrites,
        damaged_files,
        mutated_inputs,
        full_disks,
        shared_caches,
        rebuilt_datasets,
    )
}


def main(words: Sequence[str] | None = None) -> int:
    """Run the chosen scenarios, each for its share of the time."""
    parser = argparse.ArgumentParser("python -m chaos", description="Run fault scenarios against Penstock.")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"default: all of {', '.join(SCENARIOS)}")
    parser.add_argument("--seconds", type=float, default=540.0, help="time for all scenarios (default 540)")
    parser.add_argument("--seed", type=int, help="seed of the first round (default: from the clock)")
    parser.add_argument("--json", action="store_true", help="print one JSON object in place of the table")
    options = parser.parse_args(words)
    unknown = [name for name in options.scenarios if name not in SCENARIOS]
    if unknown:
        print(f"chaos: expected scenarios among {', '.join(SCENARIOS)}, got {', '.join(unknown)}", file=sys.stderr)
        return 2
    names = options.scenarios or list(SCENARIOS)
    seed = options.seed if options.seed is not None else int(time.time())
    tallies: dict[str, Tally] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-chaos-") as folder:
        for name in names:
            print(f"{name}: {options.seconds / len(names):.0f} s, seed {seed}", file=sys.stderr, flush=True)
            tallies[name] = repeat(SCENARIOS[name], options.seconds / len(names), seed, Path(folder))
    if options.json:
        print(json.dumps({name: asdict(tally) for name, tally in tallies.items()}, indent=1))
    else:
        for name, tally in tallies.items():
            counts = ", ".join(f"{times:,} {outcome}" for outcome, times in sorted(tally.outcomes.items()))
            print(f"{name:18} {'skipped: ' + tally.skipped if tally.skipped else counts}")
    for name, tally in tallies.items():
        for failure in tally.failures:
            print(f"FAILED {name} {failure}", file=sys.stderr)
    return 1 if any(tally.failures for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
