"""Damage: a flipped bit, a cut or an edited input is reported, or changes nothing that is read."""

from __future__ import annotations

from chaos.scenario import Round, run_child

DAMAGES = 100  # by one process


def damaged_files(round: Round) -> None:
    """Damage the files of a small dataset, one at a time, and read it."""
    round.add(run_child("read_damaged", round.folder, round.rng.randrange(1 << 30), DAMAGES))


def mutated_inputs(round: Round) -> None:
    """Build from raw files with random edits."""
    round.add(run_child("build_mutated", round.folder, round.rng.randrange(1 << 30), DAMAGES))
