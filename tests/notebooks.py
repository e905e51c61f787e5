"""The notebooks of the docs: their code, and a command that runs them.

python -m tests.notebooks        # runs them, and keeps what they show

needs the packages of `.[docs]`.
"""

import json
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def cells_of(path, kind):
    """Returns the sources of the cells of a kind, in order."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return ["".join(c["source"]) for c in cells if c["cell_type"] == kind]


def script_of(path):
    """Returns the code of all cells as a program."""
    return "\n".join(cells_of(path, "code"))


def render(path):
    """Runs a notebook and writes it with what it shows."""
    import nbclient
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    folder = {"metadata": {"path": str(path.parent)}}
    nbclient.NotebookClient(notebook, timeout=600, resources=folder).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [_shortened(o) for o in cell.outputs if _told(o)]
    nbformat.write(notebook, path)


def _told(output):
    # What TensorFlow says of the machine, and the carriage returns of progress.
    return output.get("name") != "stderr"


def _shortened(output):
    """Leaves out the numbers beside a picture."""
    if "image/png" in (data := output.get("data", {})):
        data["text/plain"] = "a picture"
    return output


if __name__ == "__main__":
    for notebook in NOTEBOOKS:
        render(notebook)
        print(f"{notebook.name}: {notebook.stat().st_size:,} bytes")
