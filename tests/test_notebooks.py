"""The notebooks run from top to bottom, are small, and show what they do."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nightly import NIGHTLY
from tests.notebooks import FOLDER, NOTEBOOKS, cells_of, script_of

ROOT = Path(__file__).parents[1]
LARGEST = 300_000  # bytes

each_notebook = pytest.mark.parametrize(
    "path", NOTEBOOKS, ids=lambda path: path.stem
)


def test_there_are_two():
    assert [n.stem for n in NOTEBOOKS] == ["first_tree", "own_photos"]


@pytest.mark.slow
@each_notebook
def test_notebook_runs_from_top_to_bottom(path, tmp_path):
    script = script_of(path)
    if not NIGHTLY:
        script = script.replace('"--epochs", 30', '"--epochs", 12')
    (tmp_path / "notebook.py").write_text(script, "utf-8")
    done = subprocess.run(
        [sys.executable, "notebook.py"],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "agg", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "learnt nothing" not in done.stdout


@each_notebook
def test_notebook_is_small_and_shows_a_picture(path):
    assert path.stat().st_size < LARGEST
    text = path.read_text("utf-8")
    outputs = [
        o for c in json.loads(text)["cells"] for o in c.get("outputs", [])
    ]
    assert any("image/png" in o.get("data", {}) for o in outputs)
    assert not any(o["output_type"] == "error" for o in outputs)
    shown = [o for o in outputs if "image/png" not in o.get("data", {})]
    for place in (str(ROOT), str(Path.home()), "/tmp"):
        assert place not in json.dumps(shown)


@each_notebook
def test_cells_were_run_in_order_and_their_links_lead_somewhere(path):
    cells = json.loads(path.read_text("utf-8"))["cells"]
    counts = [c["execution_count"] for c in cells if c["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))
    text = "\n".join(cells_of(path, "markdown"))
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert links
    for link in links:
        assert (FOLDER / link).exists(), link
