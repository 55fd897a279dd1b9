"""Packs texts of any length into rows of one length without padding, and trains a small language model on them.

    python examples/token_packing.py              # on the texts that come with Python
    python examples/token_packing.py text.jsonl   # on yours: {"text": "..."} on each line

It needs torch: pip install penstock-data[torch].
"""

from __future__ import annotations

import argparse
import pydoc_data.topics
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

import penstock as ps

LENGTH = 128
SCHEMA = {"tokens": "uint8[?]"}


def texts(path: str | None) -> Iterator[str]:
    """Each text on its own."""
    if path is None:
        yield from pydoc_data.topics.topics.values()
    else:
        yield from (row["text"] for row in ps.jsonl(path))


def train(rows: ps.Loader, epochs: int) -> list[float]:
    """The loss of each epoch, in bits per byte: what follows, from the byte and the one before it."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    here, before, last = nn.Embedding(256, 64), nn.Embedding(256, 64), nn.Linear(64, 256)
    optimizer = torch.optim.Adam([*here.parameters(), *before.parameters(), *last.parameters()], lr=3e-3)
    batches = rows.to_torch()
    losses = []
    for _ in range(epochs):
        total = count = 0.0
        for batch in batches:
            tokens, segments = batch["tokens"].long(), batch["segment_ids"]
            found = last(torch.relu(here(tokens[:, 1:-1]) + before(tokens[:, :-2])))
            # Three bytes of one text: neither across two texts nor in what is filled up, whose segment is 0.
            inside = (segments[:, 2:] == segments[:, :-2]) & (segments[:, 2:] > 0)
            loss = nn.functional.cross_entropy(found[inside], tokens[:, 2:][inside])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, count = total + loss.item() * int(inside.sum()), count + int(inside.sum())
        losses.append(total / count / np.log(2))
    return losses


def main() -> None:
    """Build a dataset of tokens, pack it, train."""
    parser = argparse.ArgumentParser(description="Pack texts, and train a small language model.")
    parser.add_argument("texts", nargs="?", help="a file of JSON lines with a field text; Python's own unless told")
    parser.add_argument("--take", type=int, default=10_000, help="at most so many texts")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # Bytes are the tokens here; a tokenizer's numbers go the same way, as uint16 or int32.
        chosen = islice(texts(options.texts), options.take)
        rows = [{"tokens": np.frombuffer(text.encode(), np.uint8)} for text in chosen]
        ps.build(rows, Path(folder) / "tokens", schema=SCHEMA)
        split = ps.load(Path(folder) / "tokens")["train"]
        total = sum(len(batch["tokens"].values) for batch in split.batch(256))
        packed = split.shuffle(seed=7).pack(LENGTH, segments=True).batch(32)
        used = sum(int((batch["segment_ids"] > 0).sum()) for batch in packed)
        print(f"{len(split)} texts, {total:,} tokens, {used:,} of them in rows of {LENGTH}")
        print("bits per byte:", *(f"{loss:.2f}" for loss in train(packed, options.epochs)))


if __name__ == "__main__":
    main()
