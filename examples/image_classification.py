"""Trains a small network to tell images apart, in PyTorch, Keras and JAX, from one dataset.

    python examples/image_classification.py              # on pictures that are drawn
    python examples/image_classification.py photos/      # on a folder of yours: photos/cat/1.jpg, photos/dog/2.jpg ...

Each framework sees the same batches in the same order. Those that are installed take part:
pip install penstock-data[torch].
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import penstock as ps

SIDE = 32
SHAPES = ("circle", "square", "stripes")


def draw(count: int) -> Iterator[dict[str, Any]]:
    """Pictures of shapes, somewhere on a noisy ground."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    for number in range(count):
        label = number % len(SHAPES)
        y, x = rng.integers(10, SIDE - 10, 2)
        inside = [
            (rows - y) ** 2 + (columns - x) ** 2 < 64,
            (abs(rows - y) < 7) & (abs(columns - x) < 7),
            (rows - y) % 6 < 3,
        ][label]
        ground = rng.integers(0, 120, (SIDE, SIDE, 3))
        yield {"image": (ground + 130 * inside[..., None]).astype(np.uint8), "label": label}


def build(photos: str | None, count: int, path: Path) -> ps.Dataset:
    """The dataset, split by the hash of each example's key; images come as uint8[32, 32, 3]."""
    if photos is not None:
        ps.build(ps.split(ps.image_folder(photos), train=0.8, eval=0.2), path)
        return ps.load(path, decode={"image": ps.Image(size=(SIDE, SIDE))})
    schema = {"image": f"uint8[{SIDE},{SIDE},3]", "label": ps.Field(dtype="int64", classes=SHAPES)}
    ps.build(ps.split(list(draw(count)), train=0.8, eval=0.2), path, schema=schema)
    return ps.load(path)


def scaled(batch: dict[str, Any]) -> tuple[Any, Any]:
    """Pixels from -1 to 1, and labels: a function of whole batches, for all three frameworks."""
    return batch["image"].astype(np.float32) / 127.5 - 1, batch["label"]


def train_torch(train: ps.Loader, held: ps.Loader, classes: int, epochs: int) -> float:
    """The share of images that were not trained on and are told apart."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv2d(3, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 5, stride=2), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, classes)),
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    batches = train.to_torch()
    for _ in range(epochs):
        for image, label in batches:
            loss = nn.functional.cross_entropy(network(image.permute(0, 3, 1, 2)), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        right = [(network(image.permute(0, 3, 1, 2)).argmax(1) == label).float() for image, label in held.to_torch()]
    return float(torch.cat(right).mean())


def train_keras(train: ps.Loader, held: ps.Loader, classes: int, epochs: int) -> float:
    """The share of images that were not trained on and are told apart."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(0)
    network = keras.Sequential([
        *(keras.Input((SIDE, SIDE, 3)), layers.Conv2D(16, 5, strides=2, activation="relu")),
        *(layers.Conv2D(32, 5, strides=2, activation="relu"), layers.GlobalAveragePooling2D(), layers.Dense(classes)),
    ])  # fmt: skip
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    network.compile(keras.optimizers.Adam(3e-3), loss, metrics=["accuracy"])
    network.fit(train.to_tf(), epochs=epochs, shuffle=False, verbose=0)  # the loader shuffles
    return float(network.evaluate(held.to_tf(), verbose=0)[1])


def train_jax(train: ps.Loader, held: ps.Loader, classes: int, epochs: int) -> float:
    """The share of images that were not trained on and are told apart."""
    import jax
    from jax import numpy as jnp

    def layer(key: Any, *shape: int) -> Any:
        return jax.random.normal(key, shape) * np.sqrt(2 / np.prod(shape[:-1]))

    def network(weights: Any, image: Any) -> Any:
        for kernel in weights["kernels"]:
            form = ("NHWC", "HWIO", "NHWC")
            image = jax.nn.relu(jax.lax.conv_general_dilated(image, kernel, (2, 2), "VALID", dimension_numbers=form))
        return image.mean((1, 2)) @ weights["last"]

    def loss(weights: Any, image: Any, label: Any) -> Any:
        return -jnp.take_along_axis(jax.nn.log_softmax(network(weights, image)), label[:, None], 1).mean()

    @jax.jit
    def step(weights: Any, speed: Any, image: Any, label: Any) -> Any:
        slope = jax.grad(loss)(weights, image, label)
        speed = jax.tree.map(lambda v, g: 0.9 * v + g, speed, slope)
        return jax.tree.map(lambda w, v: w - 0.05 * v, weights, speed), speed

    keys = jax.random.split(jax.random.key(0), 3)
    weights = {"kernels": [layer(keys[0], 5, 5, 3, 16), layer(keys[1], 5, 5, 16, 32)]}
    weights |= {"last": layer(keys[2], 32, classes)}
    speed = jax.tree.map(jnp.zeros_like, weights)
    batches = train.to_jax()
    for _ in range(epochs):
        for image, label in batches:
            weights, speed = step(weights, speed, image, label)
    right = [(network(weights, image).argmax(1) == label) for image, label in held.to_jax()]
    return float(jnp.concatenate(right).mean())


FRAMEWORKS = {"torch": train_torch, "keras": train_keras, "jax": train_jax}


def main() -> None:
    """Build the dataset, then train in each framework that is there."""
    parser = argparse.ArgumentParser(description="Train a small network in three frameworks.")
    parser.add_argument("photos", nargs="?", help="a folder of images, one folder for each class; drawn unless told")
    parser.add_argument("--count", type=int, default=1200, help="how many pictures are drawn")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--only", choices=list(FRAMEWORKS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = build(options.photos, options.count, Path(folder) / "pictures")
        label = data.schema["label"]
        assert isinstance(label, ps.Field)
        classes = label.classes or ()
        print(f"{len(data['train'])} images to train on, {len(data['eval'])} to judge by: {', '.join(classes)}")
        train = data["train"].shuffle(seed=7).batch(32, drop_remainder=True).map(scaled)
        held = data["eval"].batch(32).map(scaled)
        for name, learn in FRAMEWORKS.items():
            if options.only in (None, name) and importlib.util.find_spec(name):
                print(f"{name}: {learn(train, held, len(classes), options.epochs):.0%} told apart")


if __name__ == "__main__":
    main()
