"""The benchmark works, and its verdicts can be trusted. How fast anything is, is not tested here."""

from __future__ import annotations

import importlib.util
import io
import itertools
import json
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import data, report, runner, sources, suite, verdict  # noqa: E402
from benchmarks.data import Data, Size  # noqa: E402
from benchmarks.rows import FASTEST, OURS, Contender, Job, Limit, Row, Setting, Target, is_ours, select  # noqa: E402

RADAR_DIGEST = "6ba4ab90c87cda79d0552483c14353569065f730146bab725250e02212ad571c"
TINY = Size("tiny", w1=100, w2=50, w3=12, w5=2)


def needs(*modules: str) -> pytest.MarkDecorator:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def bench(cache: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", "--quick", "--cache", str(cache), *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)


# the data


def test_generated_numbers_are_always_the_same() -> None:
    assert data.digest(data.tabular(100)) == "7b30343285c4b6d6e602a1644963f780cecc10391b16ca53ddd4ae489a15146a"
    assert data.digest(data.tokens(100)) == "c4a01ab8e6274538bda8c6a1a0317af0b583d3d93010e3cafb6abd85f642d573"


def test_generated_numbers_are_what_the_workloads_say() -> None:
    w1, w2 = data.tabular(1000), data.tokens(1000)
    assert w1["cat"].shape == (1000, 26)
    assert w1["cat"].dtype == np.int64
    assert 0 <= w1["cat"].min() < w1["cat"].max() < 1 << 20
    assert w1["dense"].shape == (1000, 13)
    assert w1["dense"].dtype == np.float32
    lengths = np.diff(w2["row_splits"])
    assert 10 <= lengths.min() < lengths.max() <= 500
    assert w2["values"].max() < 50_000
    assert len(w2["values"]) == w2["row_splits"][-1]


@needs("PIL")
def test_images_are_distinct_valid_and_always_the_same() -> None:
    from PIL import Image

    files = list(data.images(20))
    assert files == list(data.images(20))
    assert len({file for file, _ in files}) == 20
    for file, label in files:
        assert data.IMAGE_BYTES[0] <= len(file) <= data.IMAGE_BYTES[1]
        assert 0 <= label < data.IMAGE_CLASSES
        with Image.open(io.BytesIO(file)) as picture:
            picture.load()
            assert picture.size == (500, 375)


@needs("PIL")
def test_data_is_made_once_and_kept_also_as_files(tmp_path: Path) -> None:
    kept = Data(TINY, tmp_path)
    for artifact in data.GENERATED.values():
        kept.make(artifact)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    for artifact in data.GENERATED.values():
        kept.make(artifact)
    assert before == {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    files = sorted(kept.path(data.GENERATED["w3"]).glob("images/*/*.jpg"), key=lambda file: file.name)
    assert [file.read_bytes() for file in files] == kept.images()
    labels = [int(file.parent.name.removeprefix("class_")) for file in files]
    assert labels == kept.columns("w3")["label"].tolist()


def test_an_artifact_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(kept: Data, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError("disk full")

    kept = Data(TINY, tmp_path)
    with pytest.raises(OSError, match="disk full"):
        kept.make(data.Artifact("broken", fail))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_check_takes_batches_of_the_same_values_and_no_others() -> None:
    columns = data.tokens(10)
    splits = columns["row_splits"]

    def batch(a: int, b: int) -> data.Columns:
        return {"values": columns["values"][splits[a] : splits[b]], "row_splits": splits[a : b + 1] - splits[a]}

    data.check(columns, [batch(0, 4), batch(4, 10)])
    with pytest.raises(ValueError, match="column values"):
        data.check(columns, [batch(0, 4), batch(4, 9)])
    with pytest.raises(ValueError, match="expected int64, got int32"):
        data.check(columns, [{"values": columns["values"].astype(np.int32), "row_splits": splits}])


@needs("pandas")
def test_every_source_gives_all_of_its_examples_in_any_split(tmp_path: Path) -> None:
    kept = Data(TINY, tmp_path)
    expected = {
        "images": TINY.w3,
        "thumbnails": TINY.w3,
        "csv": TINY.w1,
        "w1": TINY.w1,
        "w5": TINY.w5,
        "tornet": TINY.w5,
    }
    for name, source in sources.SOURCES.items():
        for artifact in source.needs:
            kept.make(artifact)
        found = list(source.examples(source.items(kept)))
        assert len({sources.fingerprint(example) for example in found}) == len(found) == expected[name]
    rows = list(sources.SOURCES["csv"].examples(sources.SOURCES["csv"].items(kept)))
    assert [len(rows[0]), {type(value) for value in rows[0].values()}] == [40, {int, float, str}]
    half = sources.SOURCES["csv"].part(kept, 0.5)
    assert [stop - start for _, start, stop in half] == [25, 25]
    assert len(sources.SOURCES["w5"].part(kept, 0.5)) == 1


def test_radar_is_always_the_same_and_can_be_compressed() -> None:
    tensors = sources.radar(0)
    assert tensors.shape == (7, 4, 120, 240, 2)
    assert data.digest({"0": tensors}) == RADAR_DIGEST
    assert 4 < tensors.nbytes / len(zlib.compress(tensors.tobytes(), 1)) < 12


def test_a_built_dataset_has_to_be_the_one_of_its_source() -> None:
    expected = [{"x": number, "text": "é"} for number in range(10)]
    sources.check_built(expected, 10, [{"x": np.int64(3), "text": "é".encode()}])
    with pytest.raises(ValueError, match="expected 10 examples, got 9"):
        sources.check_built(expected, 9, expected)
    for others in ([*expected, {"x": 10, "text": "é"}], []):
        with pytest.raises(ValueError, match="expected examples of the source"):
            sources.check_built(expected, 10, others)


# the verdicts


@pytest.mark.parametrize(
    ("ratio", "spread", "expected"),
    [
        (13.0, 0.0, "aim"),
        (12.9, 0.0, "must"),
        (8.0, 0.0, "must"),
        (7.9, 0.0, "missed"),
        (7.9, 0.02, "within spread"),
        (7.0, 0.10, "missed"),
        (7.0, 0.15, "within spread"),
        (0.1, 0.5, "missed"),
    ],
)
def test_a_must_is_missed_when_the_ratio_is_below_it_by_more_than_its_spread(
    ratio: float, spread: float, expected: str
) -> None:
    assert verdict.verdict(ratio, spread, must=8, aim=13) == expected


def test_a_row_without_a_must_has_no_verdict() -> None:
    assert verdict.verdict(0.5, 0.0, must=None, aim=None) == ""
    assert verdict.verdict(5, 0.0, must=None, aim=4) == "aim"


def test_spread_is_between_the_quartiles() -> None:
    assert verdict.spread([100, 100, 100, 100, 1000]) == 0  # one bad run does not make a row noisy
    assert verdict.spread([80, 90, 100, 110, 120]) == pytest.approx(0.2)
    assert verdict.spread([5]) == 0


def test_ratio_is_of_medians_and_its_spread_is_that_of_the_rounds() -> None:
    ours, peer = [10.0, 20, 30, 40, 50], [1.0, 2, 3, 4, 5]
    assert verdict.ratio(ours, peer) == (10, 0)  # the machine got faster for both
    assert verdict.ratio(ours, peer, less_is_better=True)[0] == pytest.approx(0.1)
    assert verdict.ratio([4.0, 2, 2, 8], [2.0, 1])[0] == 2, "whoever is slow has fewer rounds"


def job(setting: Setting) -> Job:
    return Job(lambda: 1.0)


def row(**changes: Any) -> Row:
    contenders = {OURS: Contender(job), "peer": Contender(job)}
    return Row("name", "title", "examples/s", contenders, **{"targets": {"peer": Target(must=2, aim=4)}, **changes})


def made(*rows: report.RowResult, size: str = "full") -> report.Report:
    machine: Any = {
        "processor": "p", "cores": 2, "memory_gb": 1, "kernel": "k", "python": "3", "packages": {}, "load": 0
    }  # fmt: skip
    settings: report.Settings = {"size": size, "repetitions": 3, "seconds": 0.1, "threads": 2}
    return {"date": "today", "machine": machine, "settings": settings, "rows": list(rows)}


def test_a_missed_must_fails_the_run_and_says_by_how_much() -> None:
    slow = runner.result(row(), {OURS: [15.0, 15, 15], "peer": [10.0, 10, 10]}, {})
    fast = runner.result(row(), {OURS: [45.0, 45, 45], "peer": [10.0, 10, 10]}, {})
    assert report.failures(made(fast)) == []
    assert report.failures(made(fast, slow)) == ["name: must 2x, got 1.50x of peer (spread 0%)"]
    slow["comparisons"][0]["must"] = 2 / 1.3
    assert report.failures(made(slow)) == ["name: must 1.54x, got 1.50x of peer (spread 0%)"]
    assert "MUST MISSED" in report.markdown(made(slow))
    assert report.failures(made(slow, size="quick")) == []  # too short to judge by


def test_a_limit_fails_the_run_when_it_is_passed() -> None:
    bounded = Row("memory", "memory", "MB", {OURS: Contender(job)}, limit=Limit(must=300), fresh=True)
    assert report.failures(made(runner.result(bounded, {OURS: [250.0, 260]}, {}))) == []
    assert report.failures(made(runner.result(bounded, {OURS: [350.0, 350]}, {}))) == [
        "memory: must < 300 MB, got 350 MB"
    ]


def test_a_missing_peer_is_named_and_gets_no_figure() -> None:
    result = runner.result(row(), {OURS: [1.0]}, {"peer": "peer is not installed"})
    assert "not measured: peer is not installed" in report.markdown(made(result))
    assert result["comparisons"][0]["ratio"] is None
    assert report.failures(made(result)) == []


def test_a_row_without_our_figure_fails_the_run() -> None:
    result = runner.result(row(), {"peer": [1.0]}, {OURS: "ValueError: wrong answer"})
    assert report.failures(made(result)) == ["name: penstock was not measured: ValueError: wrong answer"]


def against_the_fastest(**figures: list[float]) -> report.RowResult:
    contenders = {
        OURS: Contender(job),
        "a": Contender(job),
        "b": Contender(job),
        "copy": Contender(job, yardstick=True),
    }
    made_row = Row("name", "title", "examples/s", contenders, {FASTEST: Target(must=2), "copy": Target(aim=1)})
    reasons = {name: "it broke" for name in contenders if name not in figures}
    return runner.result(made_row, figures, reasons)


def test_a_target_for_the_fastest_peer_is_for_whoever_it_turns_out_to_be() -> None:
    result = against_the_fastest(penstock=[10.0], a=[4.0], b=[6.0], copy=[20.0])
    assert [(c["peer"], c["must"], c["verdict"]) for c in result["comparisons"]] == [
        ("a", None, ""),
        ("b", 2, "missed"),
        ("copy", None, ""),  # no peer: a copy has a target of its own
    ]
    assert report.failures(made(result)) == ["name: must 2x, got 1.67x of b (spread 0%)"]
    alone = against_the_fastest(penstock=[10.0], a=[4.0], copy=[20.0])
    assert [c["must"] for c in alone["comparisons"]] == [2, None, None]
    nobody = against_the_fastest(penstock=[10.0], copy=[20.0])
    assert nobody["comparisons"][0]["verdict"] == "not measured: it broke"
    assert report.failures(made(nobody)) == []


def test_ours_done_another_way_has_to_have_a_figure_too() -> None:
    other = f"{OURS}, 1 worker"
    contenders = {OURS: Contender(job), other: Contender(job, yardstick=True)}
    made_row = Row("name", "title", "examples/s", contenders, {other: Target(must=1.7)})
    assert made_row.peers == []
    assert report.failures(made(runner.result(made_row, {OURS: [17.0], other: [10.0]}, {}))) == []
    assert report.failures(made(runner.result(made_row, {OURS: [17.0]}, {other: "it broke"}))) == [
        "name: penstock, 1 worker was not measured: it broke"
    ]
    assert not is_ours("penstock-like peer")


def test_a_slow_row_has_fewer_repetitions_and_the_report_says_so() -> None:
    plan = runner.Plan("full", Path(), repetitions=7)
    assert [plan.rounds(row()), plan.rounds(row(repetitions=5)), plan.rounds(row(repetitions=9))] == [7, 5, 7]
    slow = runner.result(row(repetitions=2), {OURS: [1.0, 1], "peer": [1.0, 1]}, {})
    assert (
        "medians of 3 interleaved repetitions of at least 0.1 s (name 2), 3 of what takes over 15 s;"
        in report.about(made(slow))[-1]
    )


def test_a_peer_whose_environment_is_missing_is_told_how_to_make_it() -> None:
    assert runner.interpreter("test") == sys.executable
    with pytest.raises(runner.NotMeasuredError, match="`scripts/venv nowhere` makes it"):
        runner.interpreter("nowhere")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0123, "0.0123"), (12.34, "12.3"), (999.7, "1000"), (1500, "1.5k"), (507_123, "507k"), (4_612_000, "4.61M")],
)
def test_figures_have_three_digits(value: float, text: str) -> None:
    assert report.figure(value) == text


# the rows


def test_rows_have_names_of_their_own_and_targets_for_peers_they_have() -> None:
    names = [row.name for row in suite.ROWS]
    assert len(set(names)) == len(names)
    for made_row in suite.ROWS:
        assert set(made_row.targets) <= {*made_row.others, FASTEST}
        assert FASTEST not in made_row.targets or made_row.peers


def test_rows_are_selected_by_name_or_by_how_it_begins() -> None:
    assert [row.name for row in select(suite.ROWS, ["crc32c", "decode_w1"])] == [
        "decode_w1",
        "crc32c_1mb",
        "crc32c_268b",
    ]
    assert select(suite.ROWS, []) == list(suite.ROWS)
    with pytest.raises(ValueError, match="no row is called nonsense"):
        select(suite.ROWS, ["nonsense"])


# a run from end to end


def check_report(text: str, *names: str) -> report.Report:
    made: report.Report = json.loads(text)
    assert [row["name"] for row in made["rows"]] == list(names)
    assert made["machine"]["cores"] >= 1
    return made


def test_a_limit_of_the_machine_runs_end_to_end(tmp_path: Path) -> None:
    done = bench(tmp_path, "limit_copy", "--json")
    assert done.returncode == 0, done.stderr
    made = check_report(done.stdout, "limit_copy")
    for measured in made["rows"][0]["contenders"].values():
        assert len(measured["figures"]) == 3
        assert min(measured["figures"]) > 0
    assert made == json.loads((tmp_path / "latest-quick.json").read_text())
    assert not list(tmp_path.glob("scratch-*"))
    shown = bench(tmp_path, "--show", str(tmp_path / "latest-quick.json"), "--markdown")
    assert "| limit: memory copy | GB/s |" in shown.stdout


@needs("penstock", "google_crc32c")
def test_ours_against_a_peer_runs_end_to_end(tmp_path: Path) -> None:
    done = bench(tmp_path, "crc32c", "--json", "--output", str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stderr
    about, *begun = done.stderr.splitlines()
    assert about.startswith("2 of ")
    assert "about 1 minute on two cores" in about
    assert [line.split()[1] for line in begun] == ["crc32c_1mb:", "crc32c_268b:"]
    made = check_report(done.stdout, "crc32c_1mb", "crc32c_268b")
    for row, name in itertools.product(made["rows"], (OURS, "google-crc32c")):
        assert row["contenders"][name].get("not_measured") is None
    assert (tmp_path / "out.json").exists()


@needs("penstock", "tensorflow")
def test_a_whole_shard_is_decoded_end_to_end(tmp_path: Path) -> None:
    done = bench(tmp_path, "decode_w1", "--json")
    assert done.returncode == 0, done.stderr
    for measured in check_report(done.stdout, "decode_w1")["rows"][0]["contenders"].values():
        assert measured.get("not_measured") is None


@needs("penstock", "PIL")
def test_a_build_and_its_memory_are_measured_end_to_end(tmp_path: Path) -> None:
    done = bench(tmp_path, "build_workers", "memory_build_w1", "--json", "--repetitions", "1")
    assert done.returncode == 0, done.stderr
    workers, memory = check_report(done.stdout, "build_workers", "memory_build_w1")["rows"]
    assert list(workers["contenders"]) == [OURS, f"{OURS}, 1 worker"]
    assert 20 < memory["contenders"][OURS]["median"] < 1000


def test_an_unknown_row_is_a_usage_error(tmp_path: Path) -> None:
    done = bench(tmp_path, "nonsense")
    assert done.returncode == 2
    assert "There are: decode_w1" in done.stderr
