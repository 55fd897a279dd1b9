"""Trains a small network to tell tornadoes from TorNet, in PyTorch and in Keras, from the same dataset.

    python examples/tornet_cnn.py                  # on files like those of TorNet, made from a seed
    python examples/tornet_cnn.py $TORNET_ROOT     # on the real ones

It needs torch or Keras, and h5py: pip install penstock-data[netcdf,torch].
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.recipes import tornet

VARIABLES = ["DBZ", "VEL", "KDP", "RHOHV", "ZDR", "WIDTH"]
KEYS = [*VARIABLES, "coordinates"]
WEIGHTS = {"wN": 1.0, "w0": 1.0, "w1": 2.0, "w2": 2.0, "wW": 0.5}


def train_torch(examples: ps.Loader, epochs: int) -> list[float]:
    """The loss of each epoch."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    ranges = torch.tensor([tornet.RANGES[name] for name in VARIABLES])
    low, span = (part.repeat_interleave(2)[None, :, None, None] for part in (ranges[:, 0], ranges[:, 1] - ranges[:, 0]))
    network = nn.Sequential(
        *(nn.Conv2d(14, 8, 5, stride=4), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=4), nn.ReLU()),
        *(nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(16, 1)),
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    batches = tornet.loader(examples, "torch", 8, weights=WEIGHTS, select_keys=KEYS, tilt_last=False)
    losses = []
    for _ in range(epochs):
        total = count = 0.0
        for x, y, w in batches:
            radar = torch.cat([x[name] for name in VARIABLES], dim=1)
            radar = ((radar - low) / span).nan_to_num(-1)  # where nothing is seen
            found = network(torch.cat([radar, x["coordinates"]], dim=1))[:, 0]
            loss = nn.functional.binary_cross_entropy_with_logits(found, y.float(), weight=w.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, count = total + loss.item() * len(y), count + len(y)
        losses.append(total / count)
    return losses


def train_keras(examples: ps.Split, epochs: int) -> list[float]:
    """The loss of each epoch."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(0)
    inputs = {name: keras.Input((120, 240, 2), name=name) for name in KEYS}
    scaled = []
    for name in VARIABLES:
        low, high = tornet.RANGES[name]
        scaled.append(layers.Rescaling(1 / (high - low), -low / (high - low))(inputs[name]))
    radar = keras.ops.nan_to_num(layers.Concatenate()(scaled), nan=-1.0)  # where nothing is seen
    found = layers.Concatenate()([radar, inputs["coordinates"]])
    for filters in (8, 16):
        found = layers.Conv2D(filters, 5, strides=4, activation="relu")(found)
    network = keras.Model(inputs, layers.Dense(1)(layers.GlobalMaxPooling2D()(found)))
    network.compile(keras.optimizers.Adam(3e-3), keras.losses.BinaryCrossentropy(from_logits=True))
    batches = tornet.loader(examples, "keras", 8, weights=WEIGHTS, select_keys=KEYS)
    return list(map(float, network.fit(batches, epochs=epochs, verbose=0).history["loss"]))


def main() -> None:
    """Build the dataset, then train."""
    parser = argparse.ArgumentParser(description="Train a small network on TorNet.")
    parser.add_argument("root", nargs="?", help="where the files of TorNet are; like ones are made unless told")
    parser.add_argument("--files", type=int, default=16, help="how many are made for each year")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--only", choices=["torch", "keras"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = options.root or tornet.write_sample(Path(folder) / "files", files=options.files, years=[2013])
        built = tornet.build(root, Path(folder) / "tornet" / tornet.VERSION, years=[2013], format="array_record")
        train: Any = built["train-2013"]
        print(f"{len(train)} examples, built in {built.seconds:.1f} s")
        if options.only != "keras":
            print("torch", *(f"{loss:.3f}" for loss in train_torch(train.shuffle(seed=7), options.epochs)))
        if options.only != "torch":
            print("keras", *(f"{loss:.3f}" for loss in train_keras(train, options.epochs)))


if __name__ == "__main__":
    main()
