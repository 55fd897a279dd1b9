#!/usr/bin/env python3
"""Draw the package graph of docs/architecture.md from the imports in src/penstock.

scripts/package_graph.py           write docs/pictures/packages.svg
scripts/package_graph.py --check   exit with 1 if the picture is not that of today's imports

An arrow means "imports", anywhere in a module, functions included. Imports for type checkers alone are left out, and so
are arrows that a longer path implies. A package stands above everything that it imports: one that could not be placed
so would be part of a cycle, which is an error. Methods that import from above on purpose are drawn dashed: the list
`UPWARD` in tests/test_architecture.py names them.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "penstock"
PICTURE = ROOT / "docs" / "pictures" / "packages.svg"
Graph = dict[str, set[str]]
# Methods such as Loader.to_torch() import the layer above, inside of the method.
UPWARD = {("loading", "frameworks")}
NOT_DRAWN = {"errors", "__main__", "thread_pool"}  # imported by everyone; the entry point; a helper of few lines
WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 138, 46, 26, 46, 20


def unit(path: Path) -> str:
    """The package of a module, or its own name where it lies at the top."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py").removesuffix(".pyi")


def imported(path: Path) -> Iterator[str]:
    """The packages of Penstock that a module imports when it runs."""
    inside = path.relative_to(PACKAGE).parts[:-1]

    def visit(node: ast.AST) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
                for other in child.orelse:
                    yield from visit(other)
                continue
            if isinstance(child, ast.ImportFrom) and child.level:
                above = inside[: len(inside) - child.level + 1]
                module = (*above, *(child.module or "").split("."))
                names = [alias.name for alias in child.names] if not any(module) else [next(filter(None, module))]
                yield from names
            yield from visit(child)

    yield from visit(ast.parse(path.read_text(encoding="utf-8")))


def read_graph() -> tuple[Graph, dict[str, int]]:
    """What each package imports, and how many modules it has."""
    graph: Graph = {"_core": set()}
    sizes: dict[str, int] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = unit(path)
        if name in NOT_DRAWN or path == PACKAGE / "__init__.py":
            continue
        sizes[name] = sizes.get(name, 0) + (path.name != "__init__.py" or path.stat().st_size > 400)
        found = graph.setdefault(name, set())
        found.update(other for other in imported(path) if other != name and other not in NOT_DRAWN)
    for above, below in UPWARD:
        graph[above].discard(below)
    return graph, sizes


def levels(graph: Graph) -> dict[str, int]:
    """How high each package stands: one above the highest that it imports."""
    found: dict[str, int] = {}

    def level(name: str, path: tuple[str, ...]) -> int:
        if name in path:
            raise SystemExit(f"penstock: an import cycle: {' -> '.join([*path[path.index(name) :], name])}")
        if name not in found:
            found[name] = max((level(other, (*path, name)) + 1 for other in graph.get(name, ())), default=0)
        return found[name]

    for name in graph:
        level(name, ())
    return found


def reduced(graph: Graph) -> Iterator[tuple[str, str]]:
    """The arrows that no longer path implies."""

    def reach(name: str) -> set[str]:
        return {name}.union(*(reach(other) for other in graph.get(name, ())))

    for name, others in sorted(graph.items()):
        for other in sorted(others):
            if not any(other in reach(between) for between in others - {other}):
                yield name, other


def draw() -> str:
    """The picture."""
    graph, sizes = read_graph()
    rows: dict[int, list[str]] = {}
    for name, height in levels(graph).items():
        rows.setdefault(height, []).append(name)
    top, widest = max(rows), max(map(len, rows.values()))
    width = 2 * MARGIN + widest * WIDTH + (widest - 1) * GAP_X + 2 * GAP_X
    height = 2 * MARGIN + (top + 1) * HEIGHT + top * GAP_Y
    places: dict[str, tuple[float, float]] = {}
    for level, names in rows.items():
        left = (width - len(names) * WIDTH - (len(names) - 1) * GAP_X) / 2
        for number, name in enumerate(sorted(names)):
            places[name] = (left + number * (WIDTH + GAP_X), MARGIN + (top - level) * (HEIGHT + GAP_Y))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="system-ui, sans-serif" font-size="15">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>',
    ]
    arrows = [(pair, "") for pair in reduced(graph)] + [(pair, ' stroke-dasharray="5 4"') for pair in sorted(UPWARD)]
    for (start, end), style in arrows:
        (x1, y1), (x2, y2) = places[start], places[end]
        down = y2 > y1
        x1, x2 = x1 + WIDTH / 2, x2 + WIDTH / 2
        y1, y2 = (y1 + HEIGHT, y2 - 2) if down else (y1, y2 + HEIGHT + 2)
        if down and y2 - y1 > GAP_Y:  # past other rows: beside their boxes
            bend = x1 + (0.62 if x1 <= x2 else -0.62) * WIDTH
            curve = f"M{x1:g} {y1:g}C{bend:g} {y1 + GAP_Y:g} {bend:g} {y2 - GAP_Y:g} {x2:g} {y2:g}"
        else:
            middle = (y1 + y2) / 2
            curve = f"M{x1:g} {y1:g}C{x1:g} {middle:g} {x2:g} {middle:g} {x2:g} {y2:g}"
        parts.append(f'<path d="{curve}" fill="none" stroke="#667" stroke-width="1.4"{style} marker-end="url(#tip)"/>')
    for name, (x, y) in sorted(places.items()):
        fill = "#cfe3f7" if name == "_core" else "#fbeec2"
        count = "Rust" if name == "_core" else f"{sizes[name]} module{'s' if sizes[name] != 1 else ''}"
        box = f'x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="7"'
        parts.append(f'<rect {box} fill="{fill}" stroke="#889"/>')
        parts.append(
            f'<text x="{x + WIDTH / 2:g}" y="{y + 20:g}" text-anchor="middle" fill="#223">{name}</text>'
            f'<text x="{x + WIDTH / 2:g}" y="{y + 37:g}" text-anchor="middle" fill="#556" font-size="12">{count}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def main() -> int:
    """Write the picture, or compare it."""
    picture = draw()
    if sys.argv[1:] == ["--check"]:
        if not PICTURE.is_file() or PICTURE.read_text(encoding="utf-8") != picture:
            name = PICTURE.relative_to(ROOT)
            print(f"penstock: {name} is out of date: run scripts/package_graph.py", file=sys.stderr)
            return 1
        return 0
    PICTURE.write_text(picture, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
