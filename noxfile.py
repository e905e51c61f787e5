"""Tests with the lowest and the newest supported versions: `nox`.

On each Python that is installed, from 3.11 to 3.13, in a fresh environment.
`nox -- tests/routing` runs a part of the tests.
"""

import configparser
import tempfile
from pathlib import Path

import nox
from packaging.requirements import Requirement

nox.options.error_on_missing_interpreters = False


@nox.session(python=("3.11", "3.12", "3.13"), venv_backend="venv")
@nox.parametrize("versions", ["lowest", "newest"])
def tests(session: nox.Session, versions: str) -> None:
    """Runs the fast tests, or what is given after `--`."""
    with tempfile.TemporaryDirectory() as work:
        constraints = Path(work) / "constraints.txt"
        pins = lowest(str(session.python)) if versions == "lowest" else []
        constraints.write_text("\n".join(pins), "utf-8")
        session.install("--constraint", str(constraints), "-e", ".[dev]")
    # Deprecations of newer versions are errors; older ones have others.
    strict = ["-W", "default"] if versions == "lowest" else []
    fast = ["-m", "not slow"]
    session.run("pytest", *strict, *(session.posargs or fast))


def lowest(python: str) -> list[str]:
    """Returns a pin of the lowest version of each requirement on a Python."""
    config = configparser.ConfigParser()
    config.read(Path(__file__).with_name("setup.cfg"))
    extras = config["options.extras_require"]
    names = ("data", "serving", "tensorflow", "tfds", "tfmot", "viz")
    needed = [extras[name] for name in names]
    lines = "\n".join([*needed, config["options"]["install_requires"]])
    pins = []
    for wanted in map(Requirement, filter(None, lines.splitlines())):
        bounds = {bound.operator: bound.version for bound in wanted.specifier}
        marker = wanted.marker
        applies = not marker or marker.evaluate({"python_version": python})
        if applies and ">=" in bounds:
            pins.append(f"{wanted.name}=={bounds['>=']}.*")
    return pins
