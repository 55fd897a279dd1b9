"""What a newcomer pays: the size of the base install, and the time of the first import."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

BASE_MB = 150
IMPORT_SECONDS = 0.15

# What `import penstock` must leave alone: frameworks, optional packages, and what only the command line shows.
NOT_IMPORTED = [
    "PIL", "array_record", "click", "etils", "fsspec", "google.protobuf", "grain", "h5py", "jax", "ml_dtypes",
    "obstore", "pandas", "pyarrow", "ray", "requests", "rich", "tensorflow", "tensorflow_datasets", "torch",
    "webdataset", "xarray",
]  # fmt: skip

TOOLS = Path(sys.executable).parent


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """The command's output. It inherits nothing that changes what Python imports or how."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def clean_python(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment that holds the wheel and what it requires, at the locked versions."""
    if not (TOOLS / "uv").exists() or not (TOOLS / "maturin").exists():
        pytest.skip("uv and maturin are not beside this Python; `make test` puts them there")
    wheels = tmp_path_factory.mktemp("wheels")
    venv = tmp_path_factory.mktemp("clean") / "venv"
    run(
        sys.executable,
        root / "scripts" / "shared.py",
        TOOLS / "maturin",
        "build",
        "--quiet",
        "--release",
        "--out",
        wheels,
        cwd=root,
    )
    run(TOOLS / "uv", "venv", "--quiet", "--python", sys.executable, venv)
    python = venv / "bin" / "python"
    locked = root / "requirements" / "demo.txt"
    run(TOOLS / "uv", "pip", "install", "--quiet", "--python", python, "--constraints", locked, *wheels.iterdir())
    return python


@pytest.mark.timeout(400)  # a second, unless the release build is still to be made
def test_the_base_install_is_small(clean_python: Path) -> None:
    venv = clean_python.parent.parent
    sizes = {path: path.stat().st_size for path in venv.rglob("*") if path.is_file() and not path.is_symlink()}
    total = sum(sizes.values()) / 1e6
    largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:5]
    assert total < BASE_MB, f"{total:.0f} MB; the largest files: {', '.join(path.name for path in largest)}"


def test_the_base_install_works_by_itself(clean_python: Path, tmp_path: Path) -> None:
    said = run(clean_python, "-c", "import penstock; print(penstock.crc32c(b'123456789'))", cwd=tmp_path)
    assert int(said) == 0xE3069283
    assert "verify" in run(clean_python.parent / "penstock", "--help", cwd=tmp_path)


def test_the_wheel_carries_the_notices_of_what_is_in_it(clean_python: Path) -> None:
    (said,) = clean_python.parent.parent.rglob("penstock_data-*.dist-info/licenses/THIRD-PARTY-LICENSES")
    assert "based in part on the work of the Independent JPEG Group" in said.read_text()
    assert "Redistributions in binary form must reproduce" in said.read_text()


def test_the_base_install_needs_numpy_and_the_command_line_only() -> None:
    base = [line for line in requires("penstock-data") or [] if "extra ==" not in line]
    assert sorted(line.split(">=")[0] for line in base) == ["click", "numpy", "rich"]


def test_no_text_advises_installing_the_unrelated_package_named_penstock(root: Path) -> None:
    """`penstock` on PyPI is another project: hints, docs and scripts install `penstock-data`."""
    wrong = re.compile(r"pip install [^\n`]*?[\"' ]penstock(?![-_\w/])|\bpenstock\[[a-z]")
    texts = [path for part in ("src", "docs", "examples", "scripts", "rust") for path in (root / part).rglob("*")]
    found = [
        f"{path.relative_to(root)}: {match.group()}"
        for path in [*texts, *root.glob("*.md"), root / "Makefile", root / "pyproject.toml"]
        if path.suffix in {".md", ".py", ".rs", ".toml", ".yml", ""} and path.is_file()
        for match in wrong.finditer(path.read_text(encoding="utf-8", errors="ignore"))
    ]
    assert not found, found


def test_code_looks_up_its_own_distribution(root: Path) -> None:
    wrong = re.compile(r"""(?:version|distribution|requires|metadata|package_name)(?:\(|=)["']penstock["']""")
    files = [path for part in ("src", "tests", "benchmarks", "scripts") for path in (root / part).rglob("*.py")]
    assert not [path.name for path in files if wrong.search(path.read_text(encoding="utf-8"))]


@pytest.mark.alone
def test_import_is_quick() -> None:
    code = "import time; start = time.perf_counter(); import penstock; print(time.perf_counter() - start)"
    best = math.inf
    for _ in range(20):  # other work on the machine makes it slower, nothing makes it faster
        best = min(best, float(run(sys.executable, "-c", code)))
        if best < IMPORT_SECONDS:
            break
    assert best < IMPORT_SECONDS, f"`import penstock` takes {best:.3f} s at best; see python -X importtime"


def test_import_brings_no_framework() -> None:
    code = f"import penstock, sys; print([name for name in {NOT_IMPORTED} if name in sys.modules])"
    assert run(sys.executable, "-c", code).strip() == "[]"


@pytest.mark.alone
def test_import_starts_no_thread() -> None:
    if not Path("/proc/self/task").is_dir():
        pytest.skip("threads are counted in /proc")
    count = "import os; print(len(os.listdir('/proc/self/task')))"
    ours = run(sys.executable, "-c", f"import penstock; {count}")
    assert int(ours) == 1
