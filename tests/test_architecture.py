"""Who may import whom; ruff knows what nobody may, see `ruff.toml`."""

import ast
import configparser
from pathlib import Path

import pytest

import tfcaps

ROOT = Path(__file__).parents[1]
# Each may import itself and those before it.
PACKAGES = ("tfcaps", "export", "training", "benchmarks", "examples")
FILES = sorted(
    path.relative_to(ROOT)
    for folder in PACKAGES
    for path in (ROOT / folder).rglob("*.py")
)
TENSORFLOW = {
    "tfcaps/routing/execution.py",
    "tfcaps/routing/loop.py",
    "tfcaps/export/checking.py",
    "tfcaps/export/int8.py",
    "tfcaps/export/networks.py",
    "tfcaps/export/runtimes.py",
}


def imports(path):
    """Yields the full names of all imports, also of those in functions."""
    for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


IMPORTS = {path: {*imports(path)} for path in FILES}


def under(*parts):
    """Yields the files of a package or a part of it, and their imports."""
    for path, names in IMPORTS.items():
        if path.parts[: len(parts)] == parts:
            yield path, names


def imported(names, *parts):
    """Returns what is imported from a package: `ops` for `tfcaps.ops.squash`.

    It is "" for the package itself.
    """
    below = [(*name.split("."), "") for name in names]
    depth = len(parts)
    return {name[depth] for name in below if name[:depth] == parts}


def test_packages_import_only_what_lies_below_them():
    for path, names in IMPORTS.items():
        own = imported(names) & set(PACKAGES)
        number = PACKAGES.index(path.parts[0])
        assert own <= set(PACKAGES[: number + 1]), path


def assert_one_way(below):
    """Checks that there is no circle; `below` are the imports of each."""
    while lowest := {m for m in below if not below[m] & below.keys()}:
        below = {m: own for m, own in below.items() if m not in lowest}
    assert not below


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_no_files_of_a_package_import_each_other_in_a_circle(package):
    assert_one_way(
        {
            ".".join(path.with_suffix("").parts): {
                part
                for name in names
                for part in (name, name.rpartition(".")[0])
            }
            for path, names in under(package)
            if path.stem != "__init__"
        }
    )


@pytest.mark.parametrize("parts", [("tfcaps",), ("tfcaps", "rem")], ids=str)
def test_no_parts_import_each_other_in_a_circle(parts):
    """Such as `ops` or `rem` of tfcaps, and `parse` of `tfcaps.rem`."""
    below = {}
    for path, names in under(*parts):
        part = Path(path.parts[len(parts)]).stem
        if part != "__init__":
            found = imported(names, *parts) - {part}
            below[part] = below.get(part, set()) | found
    assert {"ops", "losses"} <= below.keys() or parts[1:]
    assert not below.get("ops") and not below.get("configs")
    assert below.get("losses", set()) <= {"ops", "configs"}
    assert_one_way(below)


def test_tensorflow_stands_where_it_must():
    for path, names in under("tfcaps"):
        if path.as_posix() not in TENSORFLOW:
            assert "tensorflow" not in imported(names), path


def test_a_citation_is_of_this_version():
    text = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\nversion: {tfcaps.__version__}\n" in text


def test_the_wheel_has_every_file_of_the_package():
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", "utf-8")
    patterns = settings["options.package_data"]["tfcaps"].split()
    package = ROOT / "tfcaps"
    packed = {path for pattern in patterns for path in package.glob(pattern)}
    others = {
        path
        for path in package.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert packed == others
