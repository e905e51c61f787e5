"""The notebooks run from top to bottom, are small, and show what they do.

python -m tests.test_notebooks    # runs them, and keeps what they show
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_docs import agrees

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LARGEST = 300_000  # bytes
# How far a number may be from the kept one: a network that is trained, the
# second, differs between processors.
TOLERANCES = {
    "first_tree": {"rel": 0.02, "abs": 0.02},
    "own_photos": {"rel": 0.2, "abs": 15, "share": 0.3},
}


def cells_of(path, kind):
    """Returns the sources of the cells of a kind, in order."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return ["".join(c["source"]) for c in cells if c["cell_type"] == kind]


def shown_by(path):
    """Returns what the code of a notebook printed when it was kept."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    outputs = [o for c in cells for o in c.get("outputs", [])]
    return "".join("".join(o["text"]) for o in outputs if o.get("text"))


def render(path):
    """Runs a notebook and writes it with what it shows; needs `.[docs]`."""
    import nbclient
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    folder = {"metadata": {"path": str(path.parent)}}
    nbclient.NotebookClient(notebook, timeout=600, resources=folder).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":  # without what TensorFlow says
            kept = [o for o in cell.outputs if o.get("name") != "stderr"]
            cell.outputs = kept
    nbformat.write(notebook, path)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_from_top_to_bottom(path, tmp_path):
    script = "\n".join(cells_of(path, "code"))
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
    agrees(done.stdout, shown_by(path), TOLERANCES[path.stem])


@pytest.mark.parametrize("name", TOLERANCES)
def test_notebook_is_small_and_was_run_in_order(name):
    path = FOLDER / f"{name}.ipynb"
    text = path.read_text("utf-8")
    assert path.stat().st_size < LARGEST
    cells = json.loads(text)["cells"]
    counts = [c["execution_count"] for c in cells if c["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))
    outputs = [o for c in cells for o in c.get("outputs", [])]
    shown = [o for o in outputs if "image/png" not in o.get("data", {})]
    assert len(shown) < len(outputs)
    assert not any(o["output_type"] == "error" for o in outputs)
    for place in (str(ROOT), str(Path.home()), "/tmp"):
        assert place not in json.dumps(shown)
    text = "\n".join(cells_of(path, "markdown"))
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert links and all((FOLDER / link).exists() for link in links), links


if __name__ == "__main__":
    for notebook in NOTEBOOKS:
        render(notebook)
