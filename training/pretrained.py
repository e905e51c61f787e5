"""Packs a finished run as a network that comes with the package.

python training/pretrained.py runs/figures-rem

writes `<data set>.keras`, the stripped REM model, and `.json`, its hash and the
numbers of the run's `rem.json`, into `tfcaps/models/pretrained`, and the table
of all such networks, `results/pretrained/table.md`. The card, `.md`, is written
by hand.
"""

import argparse
import hashlib
import json
import sys
import zipfile
from pathlib import Path

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from cli import Parser, UserError, read_model, run_command, start_quietly
from markdown_table import narrow
from training.tables import columns

_ROOT = Path(__file__).parents[1]
_FOLDER = _ROOT / "tfcaps" / "models" / "pretrained"
_TABLE = _ROOT / "results" / "pretrained" / "table.md"
# How the facts of a network name its models, and what of each is shown.
_MODELS = {"before": "baseline", "measured": "REM"}
_COLUMNS = columns("pretrained")
# Settings of the run that are told.
_SETTINGS = "dataset epochs rem_epochs warm_start data_seed seed".split()


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(prog="training/pretrained.py", description=__doc__)
    add = parser.add_argument
    add("run", type=Path, help="folder of a run with --rem")
    add("--name", help="of the network, if not that of its data set")
    return parser


def main(options: argparse.Namespace) -> None:
    """Packs the network, and writes what the run measured beside it."""
    config, data, environment, measured = (
        json.loads((options.run / f"{name}.json").read_text("utf-8"))
        for name in ("config", "data", "environment", "rem")
    )
    if not config["rem"]:
        raise UserError(f"{options.run} is no run with --rem.")
    start_quietly()
    path = _FOLDER / f"{options.name or config['dataset']}.keras"
    pack(options.run / "model.keras", path)
    model = read_model(path)
    facts = {
        **{name: config[name] for name in _SETTINGS},
        "classes": data["classes"],
        "seconds": measured["seconds"],
        "commit": environment["commit"],
        "keras": environment["packages"]["keras"],
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "bytes": path.stat().st_size,
        "network": model.name,
        "image": list(model.input.shape[1:]),
        "parameters": model.count_params(),
        "before": measured["models"].get("baseline"),
        "measured": measured["models"]["rem"],
    }
    text = json.dumps(facts, indent=2, allow_nan=False)
    path.with_suffix(".json").write_text(f"{text}\n", "utf-8")
    _TABLE.write_text(table(), "utf-8")
    print(path)


def table() -> str:
    """Returns the table of the networks that come with the package."""
    heads = ["name", "network", "model", *(c.title for c in _COLUMNS), "kB"]
    lines = [heads]
    for path in sorted(_FOLDER.glob("*.json")):
        facts = json.loads(path.read_text("utf-8"))
        size = f"{facts['bytes'] / 1000:.0f}"
        for key, title in _MODELS.items():
            if model := facts.get(key):
                cells = (column.write([model]) for column in _COLUMNS)
                kept = size if key == "measured" else "–"
                lines.append([path.stem, facts["network"], title, *cells, kept])
    return (
        "# Networks that come with the package\n\nMade by `python "
        "training/pretrained.py` from `tfcaps/models/pretrained/*.json`, one "
        "network each; what was not measured is a dash. The cards there say "
        "how each was made. Of children in the tree and answers 2,000 test "
        f"images, of accuracy and entropy all.\n\n{narrow(lines, left=3)}\n"
    )


def pack(model: Path, path: Path) -> None:
    """Compresses a `.keras` file, which Keras does not, and reads as well."""
    from tfcaps.files import write_atomically

    with (
        zipfile.ZipFile(model) as old,
        write_atomically(path) as file,
        zipfile.ZipFile(file, "w") as new,
    ):
        for name in old.namelist():
            # Without the time, the same run makes the same file.
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o644 << 16
            new.writestr(entry, old.read(name), zipfile.ZIP_DEFLATED, 9)


if __name__ == "__main__":
    sys.exit(run_command(make_parser(), main))
