"""Commands read their flags before they load anything that takes long."""

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_HEAVY = ("keras", "tensorflow", "jax", "numpy", "tfcaps", "matplotlib")
# Says what a command had loaded when it ended.
_PROBE = """
import runpy, sys
path, heavy = sys.argv[1], sys.argv[2].split(",")
sys.argv = sys.argv[1:2] + sys.argv[3:]
sys.path.insert(0, "replaced by the command")
try:
    runpy.run_path(path, run_name="__main__")
except SystemExit as stopped:
    status = stopped.code
print("loaded:", *(name for name in heavy if name in sys.modules))
sys.exit(status)
"""


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("training/run.py --help", 0),
        ("training/run.py --list-models", 0),
        ("training/run.py --list-datasets", 0),
        ("training/run.py --epochs none", 2),
        ("training/run.py --model unknown", 2),
        ("training/run.py --dataset nowhere/", 2),
        ("training/run.py --data-dir nowhere", 2),
        ("training/run.py --resume --out nowhere", 2),
        ("training/explain.py --help", 0),
        ("training/explain.py --run nowhere a.png", 2),
        ("export/run.py --help", 0),
        ("export/run.py --run nowhere --to served", 2),
        ("export/check.py --help", 0),
        ("export/check.py nowhere", 2),
        ("training/tables.py --help", 0),
        ("training/tables.py nowhere --to file", 2),
        ("training/pretrained.py --help", 0),
        ("training/pretrained.py nowhere", 2),
        ("experiments/run.py --help", 0),
        ("experiments/run.py table_99", 2),
        ("experiments/run.py table_9 --data-dir nowhere", 2),
        ("experiments/run.py --tables nowhere", 2),
        ("experiments/run.py", 2),
        ("benchmarks/run.py --help", 0),
        ("benchmarks/run.py --only unknown", 2),
        # An example for machines without tfcaps, with NumPy.
        ("export/client.py --help", 0),
        ("export/client.py --model m --url m a.png", 2),
    ],
)
def test_mistakes_are_answered_before_tensorflow_is_loaded(
    line, status, tmp_path
):
    command, *flags = line.split()
    light = {"numpy"} if command == "export/client.py" else set()
    ended = subprocess.run(
        [
            sys.executable, "-c", _PROBE, str(_ROOT / command),
            ",".join(name for name in _HEAVY if name not in light), *flags,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert ended.returncode == status, ended.stderr
    assert ended.stdout.splitlines()[-1] == "loaded:"
    assert len(ended.stderr.splitlines()) == bool(status)
