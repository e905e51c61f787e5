"""Who may import whom, and what every source file has."""

import ast
import configparser
import copy
from pathlib import Path

import pytest

import tfcaps

ROOT = Path(__file__).parents[1]
FILES = sorted(
    path.relative_to(ROOT)
    for folder in (
        "tfcaps",
        "training",
        "export",
        "benchmarks",
        "experiments",
    )  # fmt: skip
    for path in (ROOT / folder).rglob("*.py")
)
TREES = {path: ast.parse((ROOT / path).read_text("utf-8")) for path in FILES}

# The parts of tfcaps that each part may import, besides itself and the helpers.
PARTS = {
    "memory": set(),
    "ops": set(),
    "routing": {"ops"},
    "layers": {"ops", "routing"},
    "graphs": {"ops", "routing", "layers"},
    "models": {"ops", "routing", "layers", "graphs"},
    "losses": {"ops"},
    "callbacks": {"layers"},
    "rem": {"ops", "routing", "layers", "graphs"},
    "viz": {"ops", "rem"},
    "export": {"ops", "routing", "graphs", "rem"},
}
# The same of the parts of `tfcaps.rem`, from the lowest to the highest.
PARTS_OF_REM = {
    "finite": set(),
    "labels": set(),
    "results": set(),
    "sharpness": set(),
    "batches": {"finite"},
    "parse": {"batches"},
    "multiply_adds": {"parse"},
    "compaction": {"finite"},
    "pruning": {
        *("batches", "compaction", "finite", "labels", "multiply_adds", "parse")
    },
    "maps": {"batches", "finite", "labels", "parse", "results"},
    "evaluation": {
        *("batches", "finite", "labels", "maps", "multiply_adds", "parse"),
        *("pruning", "results"),
    },
    "deprecated": {"batches", "labels", "parse"},
}
HELPERS = {"files", "versions"}
PACKAGES = {
    "tfcaps": {"tfcaps"},
    "training": {"tfcaps", "training", "export"},
    "export": {"tfcaps", "export"},
    "benchmarks": {"tfcaps", "training", "export", "benchmarks"},
    "experiments": {
        "tfcaps",
        "training",
        "export",
        "benchmarks",
        "experiments",
    },  # fmt: skip
}
TENSORFLOW = {
    "tfcaps/routing/execution.py",
    # Gradients of images have no name in `keras.ops`.
    "tfcaps/rem/maps/attribution.py",
    "tfcaps/routing/loop.py",
    "tfcaps/export/graph.py",
    "tfcaps/export/int8.py",
    "tfcaps/export/networks.py",
    "tfcaps/export/serving.py",
}
PRUNING_TOOLKIT = {"training/pruning.py"}

every_file = pytest.mark.parametrize("path", FILES, ids=str)


def imports(tree):
    """Yields the full dotted name of everything that is imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno} is a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def packages(names):
    return {name.partition(".")[0] for name in names}


def parts(names):
    """Returns the parts of tfcaps among the names, "" for tfcaps itself."""
    own = [name.split(".") for name in names if packages([name]) == {"tfcaps"}]
    return {name[1] if len(name) > 1 else "" for name in own}


def part_of(path):
    """Returns `rem` for `tfcaps/rem/batches.py`, `ops` for `tfcaps/ops.py`."""
    return Path(path.parts[1]).stem


class _WithoutFunctions(ast.NodeTransformer):
    """Keeps what runs when the module is imported."""

    def visit_FunctionDef(self, node):
        return None


def test_every_part_has_a_rule():
    found = {part_of(path) for path in FILES if path.parts[0] == "tfcaps"}
    assert found == {*PARTS, *HELPERS, "__init__"}


@every_file
def test_packages_import_only_what_lies_below_them(path):
    own = packages(imports(TREES[path])) & set(PACKAGES)
    assert own <= PACKAGES[path.parts[0]]


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in FILES
        if path.parts[0] == "tfcaps" and part_of(path) != "__init__"
    ],
    ids=str,
)
def test_parts_of_tfcaps_import_only_what_lies_below_them(path):
    part = part_of(path)
    allowed = set() if part in HELPERS else PARTS[part] | {part} | HELPERS
    assert parts(imports(TREES[path])) <= allowed


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in FILES
        if path.parts[:2] == ("tfcaps", "rem") and path.stem != "__init__"
    ],
    ids=str,
)
def test_parts_of_rem_import_only_what_lies_below_them(path):
    part = Path(path.parts[2]).stem
    names = [name.split(".") for name in imports(TREES[path])]
    own = {name[2] for name in names if name[:2] == ["tfcaps", "rem"]}
    assert own <= PARTS_OF_REM[part] | {part}


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_no_files_of_a_package_import_each_other_in_a_circle(package):
    below = {
        ".".join(path.with_suffix("").parts): {
            part
            for name in imports(tree)
            for part in (name, name.rpartition(".")[0])
        }
        for path, tree in TREES.items()
        if path.parts[0] == package and path.stem != "__init__"
    }
    while lowest := {m for m in below if not below[m] & below.keys()}:
        below = {m: own for m, own in below.items() if m not in lowest}
    assert not below


@every_file
def test_only_public_keras_3_is_used(path):
    names = set(imports(TREES[path]))
    names |= {
        ast.unparse(node)
        for node in ast.walk(TREES[path])
        if isinstance(node, ast.Attribute)
    }
    for name in names:
        for forbidden in ("keras.src", "tf.keras", "tensorflow.keras"):
            assert not f"{name}.".startswith(f"{forbidden}."), name
    assert "tf_keras" not in packages(names)


@every_file
def test_tensorflow_stands_where_it_must_and_loads_late(path):
    if path.parts[0] != "tfcaps":
        return
    if path.as_posix() not in TENSORFLOW:
        assert "tensorflow" not in packages(imports(TREES[path]))
    loaded = imports(_WithoutFunctions().visit(copy.deepcopy(TREES[path])))
    assert "tensorflow" not in packages(loaded)


@every_file
def test_pruning_toolkit_is_imported_in_one_place(path):
    if path.as_posix() not in PRUNING_TOOLKIT:
        names = packages(imports(TREES[path]))
        assert "tensorflow_model_optimization" not in names


@every_file
def test_docstring_begins_with_one_sentence(path):
    docstring = ast.get_docstring(TREES[path])
    assert docstring, "no module docstring"
    sentence, *more = docstring.splitlines()
    assert sentence.endswith(".")
    assert not more or more[0] == ""


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
