"""Unsupported versions are a clear error; one place says which they are."""

import configparser
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from tfcaps import versions

ROOT = Path(__file__).parents[1]


def requirements():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = config["options"]["install_requires"].splitlines()
    ranges = [line for line in lines if ">=" in line and ";" not in line]
    return {line.split(">=")[0]: line for line in ranges}


def test_the_ranges_are_those_of_the_package():
    for name, (first, end) in versions.SUPPORTED.items():
        assert requirements()[name] == f"{name}>={first},<{end}"


def test_what_runs_here_is_supported():
    loaded = versions.loaded()
    assert loaded["keras"] == keras.__version__
    assert loaded["numpy"] == np.__version__
    versions.check(loaded)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("keras", "2.15.0"),
        ("keras", "3.3.1"),
        ("keras", "4.0.0rc1"),
        ("numpy", "1.26.4"),
        ("tensorflow", "2.16.2"),
        ("tensorflow", "2.22.0-rc0"),
    ],
)
def test_other_versions_are_an_error_that_says_what_to_install(name, version):
    with pytest.raises(ImportError) as error:
        versions.check({name: version})
    assert f"Found: {name} {version}. Run: pip install" in str(error.value)


@pytest.mark.parametrize("version", ["3.12.0", "3.15.1", "3.100.0.dev1"])
def test_versions_between_are_accepted(version):
    versions.check({"keras": version, "other": "0.1"})


def test_importing_with_an_old_keras_is_the_clear_error(tmp_path):
    (tmp_path / "keras.py").write_text("__version__ = '2.15.0'\n")
    done = subprocess.run(
        [sys.executable, "-c", "import tfcaps"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": ""},
    )
    assert done.returncode == 1
    *_, last = done.stderr.strip().splitlines()
    assert last.startswith("ImportError: tfcaps works with keras >= ")
