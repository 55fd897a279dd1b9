"""Ctrl-C ends every long call within a tenth of a second, as KeyboardInterrupt. Bounds allow for busy machines."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import penstock as ps

pytestmark = pytest.mark.alone  # measures time, memory, threads or signals

MOST = 1.0  # seconds from the signal to the exception

PRELUDE = """
    import os, signal, sys, threading, time
    import numpy as np
    import penstock as ps

    def interrupt(after):
        time.sleep(after)
        print(time.monotonic(), flush=True)
        os.kill(os.getpid(), signal.SIGINT)

    def interrupted(work, after=0.5):
        thread = threading.Thread(target=interrupt, args=(after,))
        thread.start()
        try:
            while True:
                work()
        except KeyboardInterrupt:
            print(time.monotonic(), flush=True)
        thread.join()
"""


def latency(script: str, *arguments: object, seconds: float = 100) -> float:
    """Seconds between a SIGINT and the KeyboardInterrupt in a process that runs a script."""
    source = textwrap.dedent(PRELUDE) + textwrap.dedent(script)
    command = [sys.executable, "-c", source, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    sent, ended = map(float, done.stdout.split())
    return ended - sent


CALLS = {
    "encode": """
        codec = ps.Codec({"x": ps.Field(dtype="float32", shape=(1000,), encoding="zlib")})
        columns = {"x": np.random.default_rng(0).random((100_000, 1000), dtype=np.float32)}
        interrupted(lambda: codec.encode(columns))
    """,
    "encode on one thread": """
        codec = ps.Codec({"x": ps.Field(dtype="float32", shape=(1000,), encoding="zlib")})
        columns = {"x": np.random.default_rng(0).random((100_000, 1000), dtype=np.float32)}
        interrupted(lambda: codec.encode(columns, threads=1))
    """,
    "decode": """
        codec = ps.Codec({"x": ps.Field(dtype="float32", shape=(1000,), encoding="zlib")})
        records = codec.encode({"x": np.ones((2000, 1000), np.float32)})
        records = ps.Records(list(records) * 100)
        interrupted(lambda: codec.decode(records))
    """,
    "encode examples": """
        codec = ps.Codec({"n": "int64"})
        examples = [{"n": number} for number in range(2_000_000)]
        interrupted(lambda: codec.encode_examples(examples))
    """,
    "write": """
        codec = ps.Codec({"x": ps.Field(dtype="float32", shape=(1000,))})
        columns = {"x": np.random.default_rng(0).random((100_000, 1000), dtype=np.float32)}
        writer = ps.TFRecordWriter(sys.argv[1] + "/w.tfrecord", ps.TFRecord(compression="gzip"))
        def write():
            writer.write_columns(codec, columns)
        interrupted(write)
        try:
            writer.write(b"more")
            raise SystemExit("expected a writer that is closed")
        except ps.PenstockError as error:
            assert "open shard" in str(error), error
        assert os.listdir(sys.argv[1]) == [], os.listdir(sys.argv[1])
    """,
    "write array_record": """
        codec = ps.Codec({"x": ps.Field(dtype="float32", shape=(1000,))})
        columns = {"x": np.random.default_rng(0).random((100_000, 1000), dtype=np.float32)}
        writer = ps.ArrayRecordWriter(sys.argv[1] + "/w.array_record")
        interrupted(lambda: writer.write_columns(codec, columns))
        assert os.listdir(sys.argv[1]) == [], os.listdir(sys.argv[1])
    """,
    "examples by number": """
        path = sys.argv[1] + "/r.tfrecord"
        codec = ps.Codec({"x": ps.Field(dtype="float32", shape=(1000,), encoding="zlib")})
        with ps.TFRecordWriter(path) as writer:
            writer.write_columns(codec, {"x": np.ones((1000, 1000), np.float32)})
        reader = ps.TFRecordReader(path)
        numbers = np.random.default_rng(0).integers(0, 1000, 1_000_000)
        interrupted(lambda: reader.examples(codec, numbers[:200_000]))
    """,
    "images": """
        path = sys.argv[1] + "/i"
        image = np.random.default_rng(0).integers(0, 255, (400, 400, 3), dtype=np.uint8)
        from PIL import Image
        import io
        out = io.BytesIO()
        Image.fromarray(image).save(out, "jpeg")
        ps.build([{"image": out.getvalue()}] * 20, path, schema={"image": ps.Field(dtype="bytes", kind="image")})
        split = ps.load(path)["train"]
        interrupted(lambda: split[np.arange(20_000) % 20])
    """,
    "order": """
        from penstock._core import Order
        order = Order.span(0, 400_000_000).shuffle(1)
        interrupted(lambda: order.numbers(0, 0, 100_000_000))
    """,
    "hashes": """
        from penstock._core import order_numbers
        interrupted(lambda: order_numbers(100_000_000, 1, "train"))
    """,
    "keys": """
        from penstock._core import hash_keys
        keys = [str(number) for number in range(100_000)] * 100
        interrupted(lambda: hash_keys(keys, 1, "train"))
    """,
    "checksum": """
        data = bytes(1 << 30) * 4
        interrupted(lambda: ps.crc32c(data))
    """,
    "file stamps": """
        from penstock._core import file_stamps
        paths = [sys.executable] * 2_000_000
        interrupted(lambda: file_stamps(paths))
    """,
    "open": """
        path = sys.argv[1] + "/o.tfrecord"
        with ps.TFRecordWriter(path, ps.TFRecord(compression="gzip", level=1)) as writer:
            for _ in range(300):
                writer.write(bytes(1 << 20))
        interrupted(lambda: ps.TFRecordReader(path, index=False))
    """,
    "load files": """
        gzip = ps.TFRecord(compression="gzip", level=1)
        for number in range(4):
            with ps.TFRecordWriter(sys.argv[1] + f"/o-{number}.tfrecord", gzip) as writer:
                for _ in range(300):
                    writer.write(bytes(1 << 20))
        def load():
            for name in os.listdir(sys.argv[1]):
                if name.endswith(".index"):
                    os.unlink(os.path.join(sys.argv[1], name))
            ps.load(sys.argv[1] + "/o-*.tfrecord", schema={"x": "bytes?"}, cache=sys.argv[1])
        interrupted(load)
    """,
    "csv": """
        path = sys.argv[1] + "/c.csv"
        with open(path, "w") as file:
            file.write("a,b,c\\n" + "1,2.5,some text\\n" * 2_000_000)
        from penstock._core import read_csv
        interrupted(lambda: read_csv([path], ",", None, 1 << 20, 2))
    """,
}


@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_ends_a_long_call(call: str, tmp_path: Path) -> None:
    assert latency(CALLS[call], tmp_path) < MOST


def test_ctrl_c_while_a_shard_is_waited_for_is_itself(tmp_path: Path) -> None:
    """A KeyboardInterrupt in the function that fetches a shard was a StorageError without a message."""
    path = tmp_path / "a.tfrecord"
    with ps.TFRecordWriter(path) as writer:
        writer.write_columns(ps.Codec({"n": "int64"}), {"n": np.arange(1000)})
    script = """
        from penstock._core import Shards
        def bring(path):
            time.sleep(0.05)
            return False
        plan = ps.Codec({"n": "int64"}).plan
        shards = Shards([(sys.argv[1], 1000, None, None)], bring)
        interrupted({
            "read": lambda: shards.read(3),
            "example": lambda: shards.example(plan, 3),
            "examples": lambda: shards.examples(plan, [3, 4, 5], None, 2),
            "records": lambda: shards.records([3, 4]),
        }[sys.argv[2]])
    """
    for call in ("read", "example", "examples", "records"):
        assert latency(script, path, call) < MOST


SERVER = """
    import http.server, os, threading

    class Stalls(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args): pass
        def do_HEAD(self):
            self.answer(b"")
        def do_GET(self):
            if self.path.endswith(".tfrecord") or self.path.endswith(".index"):
                time.sleep(15)
            self.answer(None)
        def answer(self, body):
            with open("." + self.path, "rb") as file:
                data = file.read()
            first, last = 0, len(data) - 1
            if asked := self.headers.get("Range"):
                first, _, end = asked.removeprefix("bytes=").partition("-")
                first, last = int(first), min(int(end or last), last)
            self.send_response(206 if asked else 200)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
            self.send_header("Content-Length", str(last + 1 - first))
            self.send_header("ETag", '"1"')
            self.end_headers()
            self.wfile.write(data[first : last + 1] if body is None else body)

    os.chdir(sys.argv[1])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stalls)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/d"
"""


@pytest.mark.parametrize("call", ["example", "epoch"])
def test_ctrl_c_while_a_store_is_waited_for(call: str, tmp_path: Path) -> None:
    ps.build([{"n": n} for n in range(100)], tmp_path / "d")
    script = (
        SERVER
        + """
    split = ps.load(url, cache=sys.argv[2])["train"]
    def example():
        split[3]
    def epoch():
        for batch in split.batch(10):
            pass
    interrupted({"example": example, "epoch": epoch}[sys.argv[3]])
    os._exit(0)                 # the request that nobody waits for takes 15 s
    """
    )
    assert latency(script, tmp_path, tmp_path / "cache", call) < MOST


def test_one_read_within_another(tmp_path: Path) -> None:
    """Decoding a record may run Python, which may read another record on the same thread."""
    path = tmp_path / "a.tfrecord"
    codec = ps.Codec({"n": "int64", "x": "float32[3]"})
    with ps.TFRecordWriter(path) as writer:
        writer.write_columns(codec, {"n": np.arange(10), "x": np.zeros((10, 3), np.float32)})
    from penstock._core import Shards

    seen = []

    def bring(name: str) -> bool:
        if str(name).endswith("outer"):
            seen.append(int(inner.example(codec.plan, 4)["n"]))
        return True

    (tmp_path / "outer").write_bytes(path.read_bytes())
    inner = Shards([(str(path), 10, None, None)])
    outer = Shards([(str(tmp_path / "outer"), 10, None, None)], bring)
    assert outer.example(codec.plan, 3)["n"] == 3
    assert seen == [4]
