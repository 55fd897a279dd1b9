"""The shape of the code, held by tests: who may import whom, what is public, how long a module may be."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock

# From the ground up. A module may import from its own layer and from those below it.
LAYERS: list[set[str]] = [
    {"errors", "dtypes", "_core", "thread_pool"},
    {"values"},
    {"field"},
    {"columns", "schema", "inference", "storage", "image", "example", "identity", "info"},
    {"moments", "subset", "ais"},
    {"records", "manifest", "tfds"},
    {"splitting", "sources", "provenance"},
    {"build", "load", "datum"},
    {"frameworks", "compat", "recipes"},
    {"cli", "__main__"},
]
MAY_IMPORT_CORE = {"image", "records", "sources", "build", "load", "thread_pool"}
BASE_PACKAGES = {"numpy"}
CLI_PACKAGES = BASE_PACKAGES | {"click", "rich"}
# Packages of an extra, each with the one place that imports it (inside a function: never when penstock is imported).
OPTIONAL_PACKAGES = {
    "ml_dtypes": {"columns", "field", "records"},
    "pyarrow": {"sources"},
    "torch": {"frameworks"},
    "tensorflow": {"frameworks"},  # doors take it from there
    "tensorflow_datasets": {"sources"},
    "jax": {"frameworks"},
    "keras": {"frameworks"},
    "h5py": {"sources"},
    "ray": {"build"},
    "obstore": {"storage"},
    "aistore": {"storage"},
    # what aistore's SDK is made of: errors of theirs come through it
    **{name: {"storage"} for name in ("msgspec", "pydantic", "requests", "tenacity", "urllib3")},
}
# Leaves that nothing imports but a method that opens them: what they are made for may stand at their head.
LEAVES = {"frameworks"}
# The one door upwards: `loader.to_torch()` and its like, inside of the method.
DOORS = {("load", "frameworks")}

PUBLIC = [
    "Array", "ArrayRecord", "ArrayRecordReader", "ArrayRecordWriter", "BuildError", "Built", "Bytes", "Codec",
    "CorruptionError", "Dataset", "Example", "ExampleError", "Field", "IgnoreExample", "Image",
    "IndexMismatchError", "Info", "Interleave", "Label", "LoadError", "Loader", "Local", "MissingDependencyError",
    "NotFoundError", "PenstockError", "Place", "Quarantine", "Ragged", "Ray", "RecordIndexError", "Records",
    "Schema", "SchemaError", "SequenceCodec", "Skip", "Split", "Splits", "StorageError", "TFRecord",
    "TFRecordReader", "TFRecordWriter", "Text", "__version__", "array_records", "build", "coco", "convert",
    "crc32c", "csv", "dedupe", "examples", "image_classification", "image_folder", "json", "jsonl", "load",
    "masked_crc32c", "max_row_bytes", "mix", "parquet", "place_of_record", "places_of", "split", "splits", "table",
    "tar", "text_classification", "tfds", "tfrecords", "voc_detection", "voc_segmentation",
]  # fmt: skip

LONGEST_MODULE = 600  # lines; at 400, look whether it is two rooms
VAGUE_NAMES = {"base", "common", "helper", "helpers", "manager", "misc", "util", "utils"}

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "penstock"
MODULES = sorted(PACKAGE.rglob("*.py"))


def part(path: Path) -> str:
    """The part of the package that a module belongs to: `records` for records/codec.py, `schema` for schema.py."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """Each module that a file imports, with its line and whether importing the file imports it too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = ["penstock", *path.relative_to(PACKAGE).parts[:-1]]
    inner = {
        id(node)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or is_typing_block(outer)
        for node in ast.walk(outer)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            # `from penstock import errors` names a module in its last word.
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "penstock" else [module]
        else:
            continue
        for name in names:
            yield name, node.lineno, id(node) not in inner


def is_typing_block(node: ast.AST) -> bool:
    """Whether the node is `if TYPE_CHECKING:`, whose imports never run."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def layer(name: str) -> int:
    """The height of a part."""
    heights = [height for height, parts in enumerate(LAYERS) if name in parts]
    assert heights, f"penstock.{name} is in no layer: give it a place in LAYERS"
    return heights[0]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    importer = part(path)
    for name, line, at_import in imports(path):
        words = name.split(".")
        if words[0] != "penstock":
            continue
        where = f"{path.name}:{line}"
        assert len(words) > 1, f"{where} imports penstock itself: import from the part that has the name"
        imported = words[1]
        if imported == "_core":
            assert importer in MAY_IMPORT_CORE, f"{where}: only {sorted(MAY_IMPORT_CORE)} may import penstock._core"
        if importer != "__init__":  # the public names come from every part
            door = (importer, imported) in DOORS and not at_import
            assert door or layer(imported) <= layer(importer), (
                f"{where}: {importer} may not import {imported}, a layer above it"
            )


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_packages_are_imported_where_they_belong(path: Path) -> None:
    importer = part(path)
    allowed = CLI_PACKAGES if importer == "cli" else BASE_PACKAGES
    for name, line, at_import in imports(path):
        package = name.split(".")[0]
        if package in sys.stdlib_module_names or package in allowed or package == "penstock":
            continue
        where = f"{path.name}:{line}"
        assert importer in OPTIONAL_PACKAGES.get(package, ()), f"{where}: {importer} may not import {package}"
        assert not at_import or importer in LEAVES, f"{where}: import {package} inside the function that needs it"


def test_each_layer_names_its_parts_once() -> None:
    names = [name for parts in LAYERS for name in parts]
    assert len(names) == len(set(names))


def test_public_names_are_this_list() -> None:
    assert sorted(penstock.__all__) == PUBLIC
    for name in PUBLIC:
        assert not inspect.ismodule(getattr(penstock, name)), f"a module hides penstock.{name}"
    names = {name for name, value in vars(penstock).items() if not inspect.ismodule(value) and not name.startswith("_")}
    assert names - {"annotations", "import_module", "Any", "TYPE_CHECKING"} == set(PUBLIC) - {"__version__"}
    assert penstock.ais.shuffle.__doc__  # a room, not a name
    with pytest.raises(AttributeError, match="no attribute 'biuld'"):
        penstock.biuld  # noqa: B018


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if is_typing_block(node))
    seen = {
        alias.name: node.module for node in ast.walk(block) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert seen == penstock._MODULES
    assert sorted(seen) == PUBLIC


@pytest.mark.parametrize("name", [name for name in PUBLIC if not name.startswith("_")])
def test_public_names_are_documented(name: str) -> None:
    value = getattr(penstock, name)
    # A dataclass without a docstring shows its signature instead: that is not one.
    written = value.__doc__ if callable(value) else None
    assert written, f"penstock.{name} has no docstring"
    assert not written.startswith(f"{name}("), f"penstock.{name} has no docstring of its own"
    if inspect.isclass(value):
        for member, attribute in vars(value).items():
            if not member.startswith("_") and (callable(attribute) or isinstance(attribute, property | classmethod)):
                assert inspect.getdoc(getattr(value, member)), f"penstock.{name}.{member} has no docstring"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_modules_are_short_and_well_named(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_MODULE
    assert not VAGUE_NAMES & set(re.split(r"[_/.]", str(path.relative_to(PACKAGE))))


def test_the_stub_of_the_native_module_is_true(root: Path) -> None:
    command = [sys.executable, "-m", "mypy.stubtest", "penstock._core", "--mypy-config-file", "pyproject.toml"]
    environment = os.environ | {"MYPYPATH": "src"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_file_names_a_machine_or_a_registry(root: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("this is not a git checkout")
    forbidden = re.compile(
        rb"(?<![\w.])/(?:work|root|home/\w+|Users/\w+)(?:/|\b)"  # someone's folders
        rb"|\bpypi\.|\bpythonhosted\b|\bcrates\.io/api|\bindex\.crates\b|\bstatic\.crates\b|\bproxy\.golang\b|\bdebian\.org"
    )
    found = []
    for name in filter(None, listed.stdout.split(b"\0")):
        path = root / os.fsdecode(name)
        if path == Path(__file__).resolve() or not path.is_file():
            continue
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            if match := forbidden.search(line):
                found.append(f"{os.fsdecode(name)}:{number}: {match.group().decode()}")
    assert not found, "\n".join(found)
