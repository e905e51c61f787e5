"""Packs a finished run as a network that comes with the package.

python training/pretrained.py runs/figures-rem

writes `<data set>.keras`, the stripped REM model, and `.json`, its hash and the
numbers of the run's `rem.json`, into `tfcaps/models/pretrained`. The card,
`.md`, is written by hand.
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

_FOLDER = Path(__file__).parents[1] / "tfcaps" / "models" / "pretrained"
# Settings of the run that are told.
_SETTINGS = "dataset epochs rem_epochs warm_start data_seed seed".split()


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(prog="training/pretrained.py", description=__doc__)
    parser.add_argument("run", type=Path, help="folder of a run with --rem")
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
    path = _FOLDER / f"{config['dataset']}.keras"
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
        "measured": measured["models"]["rem"],
    }
    text = json.dumps(facts, indent=2, allow_nan=False)
    path.with_suffix(".json").write_text(f"{text}\n", "utf-8")
    print(path)


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
