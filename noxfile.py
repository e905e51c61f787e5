"""Tests with the lowest and the newest supported versions: `nox`.

On each Python that is installed, from 3.11 to 3.13, in a fresh environment.
`nox -- tests/routing` runs a part of the tests.
"""

import configparser
import tempfile
from pathlib import Path

import nox
from packaging.requirements import Requirement

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


@nox.session(python=("3.11", "3.12", "3.13"))
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


def lowest(python: str) -> list[str]:
    """Returns a pin of the lowest version of each requirement on a Python."""
    config = configparser.ConfigParser()
    config.read(Path(__file__).with_name("setup.cfg"))
    extras = config["options.extras_require"]
    names = ("data", "serving", "tensorflow", "tfds", "tfmot", "viz")
    needed = [extras[name] for name in names]
    lines = "\n".join([*needed, config["options"]["install_requires"]])
    pins = {}
    for line in filter(None, lines.splitlines()):
        wanted = Requirement(line)
        bounds = {bound.operator: bound.version for bound in wanted.specifier}
        applies = wanted.marker is None or wanted.marker.evaluate(
            {"python_version": python}
        )
        if applies and ">=" in bounds:
            pins[wanted.name] = f"{wanted.name}=={bounds['>=']}.*"
    return list(pins.values())
