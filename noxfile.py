"""Tests with the lowest and the newest supported versions: `nox`.

Each Python that is installed, from 3.11 to 3.13, and the wheel, installed into
a fresh environment. `nox -- tests/routing` runs a part of the tests.
"""

import configparser
import tempfile
from pathlib import Path

import nox
from packaging.requirements import Requirement

ROOT = Path(__file__).parent
PYTHONS = ("3.11", "3.12", "3.13")
# What CI runs in full; these stand for what differs between versions.
PART = (
    "tests/layers/test_contract_layers.py",
    "tests/routing/test_contract_routings.py",
    "tests/routing/test_execution.py",
    "tests/rem/evaluation/test_evaluate.py",
    "tests/export/test_save.py",
    "tests/losses/test_losses.py",
    "tests/models/test_networks.py",
    "tests/rem/pruning/test_pruning.py",
    "tests/training/test_run.py",
    "tests/rem/pruning/test_sensitivity.py",
    "tests/test_versions.py",
    "tests/viz/test_viz.py",
)

nox.options.default_venv_backend = "venv"
nox.options.error_on_missing_interpreters = False


@nox.session(python=PYTHONS)
@nox.parametrize("versions", ["lowest", "newest"])
def tests(session: nox.Session, versions: str) -> None:
    """Runs a part of the tests, or what is given after `--`."""
    session.install("--upgrade", "pip")
    with tempfile.TemporaryDirectory() as work:
        constraints = Path(work) / "constraints.txt"
        python = str(session.python)
        pins = lowest(python) if versions == "lowest" else []
        constraints.write_text("\n".join(pins), "utf-8")
        session.install("--constraint", str(constraints), "-e", ".[dev]")
    # Deprecations of newer versions are errors; older ones have others.
    strict = ["-W", "default"] if versions == "lowest" else []
    session.run("pytest", *strict, *(session.posargs or PART))


@nox.session(python=PYTHONS)
def wheel(session: nox.Session) -> None:
    """Installs the wheel and runs the example of the README with it."""
    with tempfile.TemporaryDirectory() as work:
        session.install("build")
        session.run("python", "-m", "build", "--wheel", "--outdir", work, ".")
        (built,) = Path(work).glob("*.whl")
        session.install(f"{built}[tensorflow]")
        session.chdir(work)
        session.run("python", "-c", example())


def lowest(python: str) -> list[str]:
    """Returns a pin of the lowest version of each requirement on a Python."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    extras = config["options.extras_require"]
    needed = [
        extras[extra]
        for extra in ("data", "serving", "tensorflow", "tfds", "tfmot", "viz")
    ]
    needed.append(config["options"]["install_requires"])
    lines = "\n".join(needed).splitlines()
    pins = {}
    for line in filter(None, lines):
        wanted = Requirement(line)
        bounds = {bound.operator: bound.version for bound in wanted.specifier}
        applies = wanted.marker is None or wanted.marker.evaluate(
            {"python_version": python}
        )
        if applies and ">=" in bounds:
            pins[wanted.name] = f"{wanted.name}=={bounds['>=']}.*"
    return list(pins.values())


def example() -> str:
    """Returns the first Python block of the README."""
    text = (ROOT / "README.md").read_text("utf-8")
    return text.split("```python\n", 1)[1].split("```", 1)[0]
