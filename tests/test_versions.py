"""An unsupported Keras is a clear error; it is that of the requirements."""

import subprocess
import sys
from pathlib import Path

import pytest

from tfcaps import versions

ROOT = Path(__file__).parents[1]


def test_the_range_is_that_of_the_package():
    first, end = versions.KERAS
    setup = (ROOT / "setup.cfg").read_text("utf-8")
    assert f"\n    keras>={first},<{end}\n" in setup


@pytest.mark.parametrize("version", ["2.15.0", "3.3.1", "4.0.0rc1"])
def test_other_versions_are_an_error_that_says_what_to_install(version):
    with pytest.raises(ImportError) as error:
        versions.check(version)
    assert str(error.value).endswith(
        f'Found: keras {version}. Run: pip install "keras>=3.12,<4"'
    )


def test_versions_between_are_accepted():
    for version in ("3.12.0", "3.15.1", "3.100.0.dev1"):
        versions.check(version)


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
