"""A tour of Penstock in a few seconds: `make demo`, or `python examples/demo.py` where penstock is installed.

The code that is shown on the way is the code that runs. Everything it makes goes to build/demo, anew each time.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import shutil
import struct
import sys
import textwrap
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

import penstock as ps
from penstock.cli import main as penstock_command
from penstock.cli.output import fits

ROWS = 100_000
LISTS = 20_000
PICTURES = 300
SIDE = 32
SHAPES = ("circle", "square", "stripes")

FOLDER = Path(os.path.relpath(Path(__file__).resolve().parent.parent / "build" / "demo"))
screen = Console(highlight=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 110)
measured: list[tuple[str, str]] = []
Model = np.ndarray[Any, Any]


# The steps of the tour: what is inside these functions is what the screen shows


def declare() -> ps.Schema:
    schema = ps.Schema(
        {
            "dense": "float32[13]",
            "category": "int64[26]",
            "label": ps.Field(dtype="int64", classes=("stays", "leaves")),
        }
    )
    return schema  # noqa: RET504


def write(schema: ps.Schema, columns: dict[str, Any]) -> None:
    codec = ps.Codec(schema)
    with ps.TFRecordWriter(FOLDER / "table.tfrecord", index=True) as writer:
        writer.write_columns(codec, columns)


def read_one(codec: ps.Codec) -> dict[str, Any]:
    reader = ps.TFRecordReader(FOLDER / "table.tfrecord")
    return reader.example(codec, 5)


def read_anywhere(codec: ps.Codec, order: list[int]) -> None:
    reader = ps.TFRecordReader(FOLDER / "table.tfrecord")
    for number in order:
        reader.example(codec, number)


def read_batches(codec: ps.Codec) -> int:
    reader = ps.TFRecordReader(FOLDER / "table.tfrecord")
    return sum(len(batch["label"]) for batch in reader.batches(codec, 256))


def ragged(sentences: list[dict[str, Any]]) -> tuple[ps.Ragged, Any]:
    schema = ps.Schema.infer(sentences)  # tokens: int64[?], language: str
    codec, gzip = ps.Codec(schema), ps.TFRecord(compression="gzip")
    with ps.TFRecordWriter(FOLDER / "tokens.tfrecord", gzip) as writer:
        writer.write_examples(codec, sentences)
    reader = ps.TFRecordReader(FOLDER / "tokens.tfrecord")
    tokens = reader.examples(codec, [0, 1, 2])["tokens"]
    return tokens, tokens.to_padded(value=-1)


def pictures(examples: list[dict[str, Any]]) -> dict[str, Any]:
    shape = ps.Field(dtype="int64", classes=SHAPES)
    codec = ps.Codec(ps.Schema.infer(examples, schema={"shape": shape}))
    with ps.TFRecordWriter(FOLDER / "pictures.tfrecord") as writer:
        writer.write_examples(codec, examples)
    reader = ps.TFRecordReader(FOLDER / "pictures.tfrecord")
    return reader.examples(codec, [0, 1, 2, 3])


def load_pictures() -> tuple[ps.Dataset, ps.Loader]:
    image = ps.Image(size=(16, 16), channels=1)
    data = ps.load(FOLDER / "dataset", decode={"image": image})
    loader = data["train"].shuffle(seed=7).batch(32)
    return data, loader


def train(loader: ps.Loader) -> Model:
    weights = np.zeros((256, len(SHAPES)))
    for _epoch in range(5):  # each in an order of its own
        for batch in loader:
            images = batch["image"].reshape(-1, 256) / 255
            scores = np.exp(images @ weights)
            chances = scores / scores.sum(1, keepdims=True)
            wrong = chances - np.eye(len(SHAPES))[batch["label"]]
            weights -= 0.1 * images.T @ wrong / len(images)
    return weights


def interrupt(loader: ps.Loader) -> bool:
    iterator = iter(loader.epoch(3))
    for _ in range(4):
        next(iterator)
    state = iterator.state()  # a small dict, for a checkpoint
    rest = [batch["label"].tolist() for batch in iterator]
    return rest == [batch["label"].tolist() for batch in loader.resume(state)]


def train_torch(loader: ps.Loader) -> Model:
    import torch

    model = torch.nn.Linear(256, len(SHAPES))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = loader.to_torch()
    for _epoch in range(5):
        for batch in data:
            optimizer.zero_grad()
            scores = model(batch["image"].reshape(-1, 256) / 255)
            torch.nn.functional.cross_entropy(scores, batch["label"]).backward()
            optimizer.step()
    return model.weight.detach().numpy().T


def train_keras(loader: ps.Loader) -> Model:
    import keras

    data = loader.to_tf().map(lambda batch: (batch["image"], batch["label"]))
    model = keras.Sequential(
        [
            keras.layers.Input((16, 16, 1)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Flatten(),
            keras.layers.Dense(len(SHAPES)),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss)
    model.fit(data, epochs=5, verbose=0, shuffle=False)
    return model.layers[-1].kernel.numpy()


def open_in_tfds() -> list[str]:
    import tensorflow_datasets as tfds

    # none of our code from here on
    builder = tfds.builder_from_directory(FOLDER / "dataset")
    names = builder.info.features["label"].names
    return [names[example["label"]] for example in builder.as_dataset("eval[:3]")]


def mistake(schema: ps.Schema) -> None:
    row = {"dense": np.zeros(13), "category": [0] * 26, "label": "stays"}
    schema.check(row, where="row 812")


# How it is shown


def title(text: str, words: str = "") -> None:
    screen.print()
    screen.rule(f"[bold cyan]{text}", align="left", style="cyan")
    if words:
        screen.print(words)


def say(words: str) -> None:
    """A sentence whose lines are all indented."""
    screen.print(Padding.indent(words, 2))


def code(function: Callable[..., Any]) -> None:
    """The body of a step."""
    lines = inspect.getsource(function).splitlines()
    body = textwrap.dedent("\n".join(line for line in lines[1:] if "noqa" not in line)).replace("\nreturn ", "\n")
    screen.print(Syntax(body, "python", theme="ansi_dark", background_color="default", padding=(1, 2), word_wrap=True))


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    started = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - started


def rate(what: str, count: int, seconds: float, more: str = "") -> None:
    figure = f"{count / seconds:,.0f} examples/s"
    measured.append((what, figure + more))
    say(f"[green]{count:,}[/green] in {seconds:.3f} s: [bold green]{figure}[/bold green]{more}")


def megabytes(name: str, seconds: float) -> str:
    return f", {(FOLDER / name).stat().st_size / 1e6 / seconds:,.0f} MB/s"


def show_example(example: dict[str, Any]) -> None:
    values = Table(box=None, show_header=False, padding=(0, 0, 0, 2))
    for name, value in example.items():
        line = np.array2string(value, precision=3, threshold=8, edgeitems=4) if np.ndim(value) else repr(value)
        values.add_row(f"[bold]{name}[/bold]", Text(line))
    screen.print(values)


# The data


def make_table() -> dict[str, Any]:
    random = np.random.default_rng(7)
    return {
        "dense": random.standard_normal((ROWS, 13), dtype=np.float32),
        "category": random.integers(0, 1 << 20, (ROWS, 26)),
        "label": random.integers(0, 2, ROWS),
    }


def make_sentences() -> list[dict[str, Any]]:
    random = np.random.default_rng(8)
    lengths = random.integers(2, 60, LISTS)
    lengths[:3] = (7, 3, 5)
    languages = ("en", "fr", "de")
    return [
        {"tokens": random.integers(0, 50_000, length), "language": languages[length % 3]} for length in lengths.tolist()
    ]


def png(pixels: np.ndarray[Any, Any]) -> bytes:
    """A picture as a PNG file, no library needed."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, _ = pixels.shape
    rows = np.zeros((height, 1 + 3 * width), np.uint8)
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows.tobytes()))
        + chunk(b"IEND", b"")
    )


def pixels_of(file: bytes) -> np.ndarray[Any, Any]:
    """The pixels of a PNG that `png` made."""
    start = file.index(b"IDAT") + 4
    rows = np.frombuffer(zlib.decompressobj().decompress(file[start:]), np.uint8)
    return rows.reshape(SIDE, 1 + 3 * SIDE)[:, 1:].reshape(SIDE, SIDE, 3)


def make_pictures() -> list[dict[str, Any]]:
    random = np.random.default_rng(9)
    y, x = np.mgrid[-1 : 1 : SIDE * 1j, -1 : 1 : SIDE * 1j]
    masks = (x**2 + y**2 < 0.6, (abs(x) < 0.65) & (abs(y) < 0.65), np.sin(9 * (x + y)) > 0)
    examples = []
    for number in range(PICTURES):
        paper, ink = random.integers(0, 90, 3), random.integers(120, 256, 3)
        shade = 1 - 0.35 * np.hypot(x - 0.5, y + 0.5)[..., None] / 2
        drawn = np.where(masks[number % 3][..., None], ink, paper) * shade + random.normal(0, 4, (SIDE, SIDE, 3))
        examples.append({"image": png(drawn.clip(0, 255).astype(np.uint8)), "shape": number % 3})
    return examples


def draw(pictures: list[np.ndarray[Any, Any]]) -> Text:
    """Pictures side by side, two pixels to a letter."""
    text = Text()
    for row in range(0, SIDE, 4):
        text.append("  ")
        for picture in pictures:
            for column in range(0, SIDE, 2):
                upper, lower = (f"rgb({','.join(map(str, picture[y, column]))})" for y in (row, row + 2))
                text.append("▀", style=f"{upper} on {lower}")
            text.append("  ")
        text.append("\n")
    return text


# The tour


def table() -> tuple[ps.Schema, ps.Codec]:
    title("1  Say what an example holds")
    code(declare)
    schema, columns = declare(), make_table()

    title(
        "2  Write it", f"{ROWS:,} rows as tf.Example records in a TFRecord file, from columns. No TensorFlow anywhere."
    )
    code(write)
    _, seconds = timed(write, schema, columns)
    rate("write a table", ROWS, seconds, megabytes("table.tfrecord", seconds))

    codec = ps.Codec(schema)
    title("3  Read any record", "TFRecord files can only be read from the front, people say. Record 5, please:")
    code(read_one)
    show_example(read_one(codec))
    say("\nAnd in any order, one example at a time:")
    code(read_anywhere)
    order = np.random.default_rng(1).permutation(ROWS)[:20_000].tolist()
    _, seconds = timed(read_anywhere, codec, order)
    rate("random single reads", len(order), seconds)

    title("4  Read all of it", "In batches of NumPy arrays, decoded ahead on all cores, each CRC checked.")
    code(read_batches)
    count, seconds = timed(read_batches, codec)
    rate("batches of 256", count, seconds, megabytes("table.tfrecord", seconds))
    count, seconds = timed(read_batches, codec.select("label"))
    say("Only the labels, [bold]codec.select('label')[/bold]: the other bytes are skipped.")
    rate("batches, one column", count, seconds)
    return schema, codec


def lists_and_pictures() -> None:
    title("5  Rows that differ in length", f"{LISTS:,} token lists, gzip this time, the schema inferred.")
    code(ragged)
    (column, padded), seconds = timed(ragged, make_sentences())
    rate("infer + write token lists", LISTS, seconds)
    say(f"{column}")
    screen.print()
    screen.print(textwrap.indent(str(padded), "  "))

    title("6  Pictures", f"{PICTURES} PNG files and their labels. Bytes that begin as an image are one.")
    code(pictures)
    batch = pictures(make_pictures())
    wide = SIDE // 2 + 2
    room = max(1, (screen.width - 2) // wide)
    for start in range(0, len(batch["shape"]), room):
        files, labels = batch["image"][start : start + room], batch["shape"][start : start + room]
        if screen.color_system in ("256", "truecolor"):
            screen.print(draw([pixels_of(file) for file in files]), end="")
        screen.print("  " + "".join(f"{SHAPES[label]:{wide}}" for label in labels).rstrip())


def whole_dataset() -> None:
    folder, dataset = FOLDER / "folder", FOLDER / "dataset"
    title(
        "7  A whole dataset",
        f"The same {PICTURES} pictures as files in folders: recognised, checked, cut into shards on every core.",
    )
    for number, example in enumerate(make_pictures()):
        split = "eval" if number % 5 == 0 else "train"
        file = folder / split / SHAPES[example["shape"]] / f"{number:03}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(example["image"])
    shell("build", str(folder), str(dataset), "--shards", "4")
    file.write_bytes(make_pictures()[0]["image"])
    changed = file.relative_to(folder)
    say(f"\nOne file changes ({changed}). The same command brings the dataset up to date:")
    shell("build", str(folder), str(dataset), "--shards", "4")


def training() -> None:
    title("8  Feed a model", "Pictures decoded and resized in the core, shuffled over the whole split, batches ahead.")
    code(load_pictures)
    data, loader = load_pictures()
    screen.print(textwrap.indent(str(data), "  "))
    code(train)
    weights, seconds = timed(train, loader)
    say(f"{right(data, weights)} after five epochs in NumPy, {seconds:.2f} s.")
    say("\nA job is cut off in the middle of an epoch. It goes on with the very next example:")
    code(interrupt)
    say(f"The same batches as without the interruption: [bold green]{interrupt(loader)}[/bold green]")
    for package, function in (("torch", train_torch), ("tensorflow", train_keras)):
        if importlib.util.find_spec(package) is not None:
            os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}  # it talks a lot
            code(function)
            say(f"{right(data, function(loader.epoch(0)))} from the same loader.")
    if importlib.util.find_spec("tensorflow_datasets") is not None:
        code(open_in_tfds)
        ours = [SHAPES[example["label"]] for example in data["eval[:3]"]]
        same = "as we do" if open_in_tfds() == ours else "otherwise than we do"
        say(f"TensorFlow Datasets reads the directory {same}: [bold green]{', '.join(ours)}[/bold green].")


def right(data: ps.Dataset, weights: Model) -> str:
    """How many pictures of the other split a model tells apart."""
    split = data["eval"]
    (batch,) = split.batch(len(split))
    found = (batch["image"].reshape(-1, 256) @ weights).argmax(1)
    return f"[bold green]{(found == batch['label']).sum()} of {len(split)}[/bold green] pictures that it has not seen"


def damage(schema: ps.Schema, codec: ps.Codec) -> None:
    whole, broken, saved = (FOLDER / name for name in ("table.tfrecord", "broken.tfrecord", "saved.tfrecord"))
    title("9  Something breaks", "One bit of a copy flips, as disks and cables do.")
    data = bytearray(whole.read_bytes())
    data[len(data) // 2] ^= 1
    broken.write_bytes(data)
    try:
        for _ in ps.TFRecordReader(broken).batches(codec, 256):
            pass
    except ps.CorruptionError as error:
        screen.print(Panel(Text(str(error)), title="CorruptionError", title_align="left", border_style="red"))
    shell("verify", str(broken))
    shell("salvage", str(broken), str(saved))
    say(f"\n{len(ps.TFRecordReader(saved)):,} of {ROWS:,} records are safe.")

    title(
        "10  Somebody makes a mistake", "Nothing is cast with a loss. The error says expected, got, where, what to do."
    )
    code(mistake)
    try:
        mistake(schema)
    except ps.SchemaError as error:
        screen.print(Panel(Text(str(error)), title="SchemaError", title_align="left", border_style="red"))


def shell(*words: str) -> None:
    typed = f"  $ penstock {' '.join(words)}"
    whole = {"break_long_words": False, "break_on_hyphens": False}
    lines = textwrap.wrap(typed, screen.width - 2, subsequent_indent="      ", **whole)  # and " \\" at their ends
    screen.print("\n[bold]" + " \\\n".join(lines) + "[/bold]")
    sys.stdout.flush()
    status = penstock_command(words)
    say(f"[dim]exit code {status}[/dim]")


def outlook(seconds: float) -> None:
    title("11  From the shell")
    shell("info", str(FOLDER / "table.tfrecord"), str(FOLDER / "tokens.tfrecord"), str(FOLDER / "pictures.tfrecord"))
    shell("head", str(FOLDER / "pictures.tfrecord"), "-n", "2")

    title("Measured just now, on this machine")
    figures = Table(box=None, show_header=False, padding=(0, 3, 0, 2))
    for what, figure in measured:
        figures.add_row(what, f"[green]{figure}[/green]")
    screen.print(figures)
    say(f"\nThe tour took {seconds:.1f} s. Its files are in [bold]{FOLDER}[/bold].")

    title("What to try next")
    tools = Path(os.path.relpath(sys.prefix)) / "bin"
    suggest(
        {
            "docs/tutorial.md": "from a folder of images to training, in ten minutes",
            f"{tools}/penstock head YOUR.tfrecord": "your own files: nothing has to be declared",
            f"{tools}/penstock build PHOTOS/ DATASET/": "a folder of images, a CSV file, JSON lines ...",
            f"{tools}/python": "then: import penstock as ps",
            "make test": "the tests, next to TensorFlow and the other peers",
            "make bench": "such figures against tf.data, TFDS and bagz",
            "docs/build.md, docs/load.md": "how it is used",
        }
    )


def suggest(steps: dict[str, str]) -> None:
    """Side by side, or one below the other where there is no room for that."""
    suggestions = Table(box=None, show_header=False, padding=(0, 3, 0, 2))
    suggestions.add_column(style="bold", no_wrap=True)
    for step, words in steps.items():
        suggestions.add_row(step, words)
    if fits(screen, suggestions):
        screen.print(suggestions)
        return
    for step, words in steps.items():
        screen.print(f"  [bold]{step}[/bold]", soft_wrap=True)
        screen.print(Padding.indent(words, 6))


def main() -> int:
    """The tour."""
    started = time.perf_counter()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    words = "Records at the speed of the machine, for any framework.\nA penstock is the pipe that feeds the turbine."
    screen.print(Panel(Text(words, justify="center"), title=f"[bold]penstock {ps.__version__}", border_style="cyan"))
    schema, codec = table()
    lists_and_pictures()
    whole_dataset()
    training()
    damage(schema, codec)
    outlook(time.perf_counter() - started)
    return 0


if __name__ == "__main__":
    sys.exit(main())
