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
def test_importing_with_another_keras_is_the_clear_error(version, tmp_path):
    (tmp_path / "keras.py").write_text(f"__version__ = {version!r}\n")
    done = subprocess.run(
        [sys.executable, "-c", "import tfcaps"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": ""},
    )
    assert done.returncode == 1
    *_, last = done.stderr.strip().splitlines()
    assert last == (
        "ImportError: tfcaps works with keras >= 3.12, < 4. Found: keras "
        f'{version}. Run: pip install "keras>=3.12,<4"'
    )
