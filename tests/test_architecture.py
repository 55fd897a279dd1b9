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

# From the ground up. A package imports its own modules and the packages below it.
LAYERS = [
    ("_core",),
    ("errors", "thread_pool"),
    ("schema",),
    ("storage",),
    ("records",),
    ("dataset",),
    ("sources", "loading"),
    ("building",),
    ("ais", "frameworks"),
    ("compat", "recipes"),
    ("cli",),
    ("__main__",),
]
# Methods that import from a layer above, or from a module that imports theirs, inside of the method. Type-only imports
# may point up everywhere.
UPWARD = {
    ("loading.loader", "frameworks.jax"): "Loader.to_jax()",
    ("loading.loader", "frameworks.tensorflow"): "Loader.to_tf()",
    ("loading.loader", "frameworks.torch"): "Loader.to_torch()",
    ("schema.schema", "schema.inference"): "Schema.widen()",
}
MAY_IMPORT_CORE = {"schema", "records", "dataset", "sources", "building", "loading", "thread_pool"}
BASE_PACKAGES = {"numpy"}
CLI_PACKAGES = BASE_PACKAGES | {"click", "rich"}
# Packages of an extra, each with the one package that imports it (inside a function: never when penstock is imported).
OPTIONAL_PACKAGES = {
    "ml_dtypes": {"schema", "records"},
    "pyarrow": {"sources"},
    "torch": {"frameworks"},
    "tensorflow": {"frameworks"},  # compat imports it from there
    "tensorflow_datasets": {"sources"},
    "jax": {"frameworks"},
    "keras": {"frameworks"},
    "h5py": {"sources"},
    "ray": {"building"},
    "obstore": {"storage"},
    "aistore": {"storage"},
    # dependencies of aistore's SDK, whose errors pass through it
    **{name: {"storage"} for name in ("msgspec", "pydantic", "requests", "tenacity", "urllib3")},
}
# Only a method imports these packages, so their modules may import what they are made for at the top.
LEAVES = {"frameworks"}

PUBLIC = [
    "ArgumentError", "Array", "ArrayRecord", "ArrayRecordReader", "ArrayRecordWriter", "BuildError", "Built", "Bytes",
    "Codec", "CorruptionError", "Dataset", "Example", "ExampleError", "Field", "IgnoreExample", "Image",
    "IndexMismatchError", "Info", "Interleave", "Iteration", "Label", "LoadError", "Loader", "Local",
    "MissingDependencyError", "NotFoundError", "PenstockError", "Place", "Profile", "Quarantine", "Ragged", "Ray",
    "RecordIndexError", "Records",
    "Schema", "SchemaError", "SequenceCodec", "Skip", "Split", "Splits", "StorageError", "TFRecord",
    "TFRecordReader", "TFRecordWriter", "Text", "__version__", "array_records", "build", "coco", "convert",
    "crc32c", "csv", "dedupe", "examples", "image_classification", "image_folder", "json", "jsonl", "load",
    "masked_crc32c", "max_row_bytes", "mix", "parquet", "place_of_record", "places_of", "split", "splits", "table",
    "tar", "text_classification", "tfds", "tfrecords", "voc_detection", "voc_segmentation",
]  # fmt: skip

LONGEST_MODULE = 600  # lines
MOST_MODULES = 146
MOST_ANY = 450
MOST_ANY_DICTS = 40
VAGUE_NAMES = {"base", "common", "helper", "helpers", "manager", "misc", "util", "utils"}

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "penstock"
MODULES = sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    """Return the dotted name below penstock: `records.codec`, `records` for a package, "" for penstock itself."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").rstrip(".")


def package_of(path: Path) -> str:
    """Return the package of a module: `records` for records/codec.py, `errors` for errors.py."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """Yield each module that a file imports at run time, its line, and whether importing the file imports it too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = ["penstock", *path.relative_to(PACKAGE).parts[:-1]]
    typing = {id(node) for block in ast.walk(tree) if is_typing_block(block) for node in ast.walk(block)}
    inner = {
        id(node)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(outer)
    }
    for node in ast.walk(tree):
        if id(node) in typing:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            # `from . import errors` names a module in its last word.
            names = [full if (full := f"{module}.{alias.name}") in NAMES else module for alias in node.names]
        else:
            continue
        for name in dict.fromkeys(names):
            yield name, node.lineno, id(node) not in inner


def is_typing_block(node: ast.AST) -> bool:
    """Return whether the node is `if TYPE_CHECKING:`, whose imports never run."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def layer(name: str) -> int:
    """Return the height of a package."""
    heights = [height for height, parts in enumerate(LAYERS) if name in parts]
    assert heights, f"penstock.{name} is in no layer: add it to LAYERS"
    return heights[0]


NAMES = {f"penstock.{module_name(path)}" for path in MODULES} | {"penstock._core"}


def import_graph() -> dict[str, set[str]]:
    """Return the modules that each module imports at run time, without the methods that lead up on purpose."""
    graph: dict[str, set[str]] = {}
    for path in MODULES:
        importer = module_name(path)
        found = {name.removeprefix("penstock.") for name, _, _ in imports(path) if name in NAMES}
        graph[importer] = {name for name in found - {importer} if (importer, name) not in UPWARD}
    return graph


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    importer = package_of(path)
    for name, line, at_import in imports(path):
        words = name.split(".")
        if words[0] != "penstock" or path == PACKAGE / "__init__.py":
            continue
        where = f"{path.name}:{line}"
        assert len(words) > 1, f"{where} imports penstock itself: import from the module that defines the name"
        imported = words[1]
        if imported == "_core":
            assert importer in MAY_IMPORT_CORE, f"{where}: only {sorted(MAY_IMPORT_CORE)} may import penstock._core"
        if (module_name(path), ".".join(words[1:])) in UPWARD:
            assert not at_import, f"{where}: import {name} inside of the method"
            continue
        below = imported == importer or layer(imported) < layer(importer)
        assert below, f"{where}: {importer} may not import {imported}, which is not below it"


def test_no_import_cycles() -> None:
    graph = import_graph()
    left = set(graph)
    while free := {name for name in left if not graph[name] & left}:
        left -= free
    assert not left, f"these modules import each other: {sorted(left)}"


def test_upward_methods_are_those_of_the_list() -> None:
    found = {(module_name(path), name.removeprefix("penstock.")) for path in MODULES for name, _, _ in imports(path)}
    assert set(UPWARD) <= found


def test_types_are_named() -> None:
    """Few values may be anything: `Any` stands for what users give, and for objects of optional packages."""
    text = "".join(path.read_text(encoding="utf-8") for path in MODULES)
    assert len(re.findall(r"\bAny\b", text)) <= MOST_ANY
    assert text.count("dict[str, Any]") <= MOST_ANY_DICTS


def test_number_of_modules() -> None:
    assert len(MODULES) <= MOST_MODULES, "join modules, or say in docs/decisions.md why there are more"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_packages_are_imported_where_they_belong(path: Path) -> None:
    importer = package_of(path)
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
    assert names - {"annotations", "import_module"} == set(PUBLIC) - {"__version__"}
    assert penstock.ais.shuffle.__doc__  # a namespace, not a name
    with pytest.raises(AttributeError, match="no attribute 'biuld'"):
        penstock.biuld  # noqa: B018


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    seen = [alias.asname for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(name for name in seen if name not in ("ais", "recipes")) == PUBLIC
    # No `__getattr__`: a misspelt name is a type error.
    assert not any(isinstance(node, ast.FunctionDef) for node in tree.body)


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


@pytest.mark.timeout(600)
def test_the_picture_of_the_packages_is_that_of_todays_imports(root: Path) -> None:
    command = [sys.executable, "scripts/package_graph.py", "--check"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


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
