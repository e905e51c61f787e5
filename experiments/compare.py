"""Trains every network for a short equal budget and writes what it costs.

python experiments/compare.py --data-dir ~/tensorflow_datasets
python experiments/compare.py --page             from the JSON file alone

Each network is a run of `training/run.py --rem`, baseline and REM, on the same
number of images for the same number of epochs. Runs that are finished are not
repeated. The table says how large a network is and what a step takes, not how
good it gets: that takes hours, not minutes.
"""

import argparse
import dataclasses
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from cli import Parser, UserError, check_installed, run_command
from markdown_table import table
from training.configs import config_from
from training.quiet import start_quietly

ROOT = Path(__file__).resolve().parents[1]

_NETWORKS = (
    "dr_capsnet_small",
    "dr_capsnet",
    "affine_capsnet",
    "multilayer_capsnet",
    "gamma_capsnet",
    "efficient_capsnet",
    "deepcaps",
    "deepcaps_rem",
    "em_capsnet",
    "efficient_conv_capsnet",
)
# Networks whose images must be larger than MNIST's.
_DATASETS = {"efficient_conv_capsnet": "imagenette_128px"}
# Its steps take ten times as long as others, so it gets fewer images.
_MOST_SAMPLES = {"efficient_conv_capsnet": 96}

# Milder than the main job's, which are chosen for 80 epochs of its own network.
_SPARSITY = 0.5
_DECAY = 0.001

_COLUMNS = (
    ("network", "{config[model]}"),
    ("data set", "{config[dataset]}"),
    ("images", "{config[samples]}"),
    ("parameters", "{baseline[total_parameters]:,}"),
    ("MB", "{bytes!M:.1f}"),
    ("not zero after REM", "{rem[nonzero_parameters]:,}"),
    ("s / step, baseline", "{baseline[seconds_per_step]:.3f}"),
    ("s / step, REM", "{rem[seconds_per_step]:.3f}"),
    ("images / s, baseline", "{rates[baseline]:.1f}"),
    ("images / s, REM", "{rates[rem]:.1f}"),
)
_BYTES = 4  # of a parameter, float32


def compare(options: argparse.Namespace) -> None:
    """Trains networks whose results are missing, and writes the table.

    Raises:
        UserError: If a run failed or has another budget, or if only the page
            is asked for and its data are not there.
    """
    page_path, data_path = (
        options.to.with_name(options.to.name + end) for end in (".md", ".json")
    )
    results = _read(data_path) if options.page else _train(options)
    start_quietly()
    from tfcaps.files import write_atomically

    text = page(results)
    with write_atomically(page_path, "w") as file:
        file.write(text)
    if not options.page:
        with write_atomically(data_path, "w") as file:
            json.dump(results, file, indent=1)
            file.write("\n")
    print(text)


def _train(options: argparse.Namespace) -> list[dict[str, Any]]:
    if options.data_dir is not None and not Path(options.data_dir).is_dir():
        raise UserError(f"--data-dir {options.data_dir!r} is not a folder.")
    check_installed(data="PIL", tensorflow="tensorflow", viz="matplotlib")
    for name in options.networks:
        folder = options.runs / name
        if folder.exists():
            _check_budget(name, folder, options)
        if not (folder / "rem.json").exists():
            _run(name, folder, options)
    return [_result(options.runs / name) for name in options.networks]


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"there is no {path}: run without --page.") from error
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}.") from error


def page(results: Sequence[Mapping[str, Any]]) -> str:
    """Returns the table in Markdown, made from the JSON file."""
    from experiments.table import device

    config = results[0]["config"]
    devices = {device(result["environment"]) for result in results}
    budget = (
        f"What a network costs on {' and '.join(sorted(devices))}, and how "
        "large it is. Each was trained on as many images as stated, "
        f"{config['epochs']} epochs in batches of {config['batch_size']}; REM "
        f"with a final sparsity of {config['final_sparsity']} and a decay of "
        f"{config['decay']}, without the coupling loss. Seconds are the median "
        "over steps, and images per second follow from them. MB are those of "
        "all parameters as float32."
    )
    why = (
        "There are no accuracies or entropies here: after so few images most "
        "networks are near chance and hardly route, so that such numbers would "
        "say nothing of what they reach. That takes hours."
    )
    rows = table(list(map(_record, results)), _COLUMNS, left=2)
    title = "# What every network costs"
    return "\n\n".join([title, budget, why, rows]) + "\n"


def _samples(name: str, options: argparse.Namespace) -> int:
    return min(options.samples, _MOST_SAMPLES.get(name, options.samples))


def _budget(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Returns the settings of a network's run."""
    return {
        "model": name,
        "dataset": _DATASETS.get(name, options.dataset),
        "samples": _samples(name, options),
        "epochs": options.epochs,
        "batch_size": options.batch_size,
        "final_sparsity": _SPARSITY,
        "decay": _DECAY,
        "coupling_spread": 0.0,
        "coupling_polarization": 0.0,
        "coupling_crowding": 0.0,
    }


def _check_budget(name: str, folder: Path, options: argparse.Namespace) -> None:
    try:
        text = (folder / "config.json").read_text("utf-8")
        config = dataclasses.asdict(config_from(json.loads(text)))
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} is not that of a run: {error}.") from error
    for setting, wanted in _budget(name, options).items():
        if config[setting] != wanted:
            raise UserError(
                f"{folder} has {setting}={config[setting]}, not {wanted}; give "
                "another --runs, or remove it."
            )


def _run(name: str, folder: Path, options: argparse.Namespace) -> None:
    command = [sys.executable, str(ROOT / "training" / "run.py")]
    command += ["--rem", "--bare"]
    if folder.exists():
        command += ["--resume"]
    else:
        for setting, value in _budget(name, options).items():
            command += [f"--{setting.replace('_', '-')}", str(value)]
        if options.data_dir is not None:
            command += ["--data-dir", options.data_dir]
    command += ["--out", str(folder)]
    print(f"\n{name}", flush=True)
    if subprocess.run(command).returncode:
        raise UserError(f"{name} failed, see above.")


def _result(folder: Path) -> dict[str, Any]:
    """Returns the measures that are kept of a run."""

    def read(name: str) -> Any:
        return json.loads((folder / name).read_text("utf-8"))

    lines = (folder / "metrics.jsonl").read_text("utf-8").splitlines()
    metrics = [json.loads(line) for line in lines]
    models = {}
    for name, report in read("rem.json")["models"].items():
        epochs = [row for row in metrics if row["model"] == name]
        models[name] = {
            **{k: v for k, v in report.items() if k != "per_class"},
            "first_loss": epochs[0]["loss"],
            "last_loss": epochs[-1]["loss"],
            "seconds_per_step": epochs[-1]["seconds_per_step"],
        }
    config = {**read("config.json"), "data_dir": None}
    environment = {**read("environment.json"), "platform": None}
    return {"config": config, "environment": environment, "models": models}


def _record(result: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the columns show of a network."""
    config, models = result["config"], result["models"]
    batch = min(config["samples"], config["batch_size"])
    return {
        **result,
        **models,
        "bytes": models["baseline"]["total_parameters"] * _BYTES,
        "rates": {
            name: batch / model["seconds_per_step"]
            for name, model in models.items()
        },
    }


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(
        prog="experiments/compare.py", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("--networks", nargs="+", choices=_NETWORKS, default=_NETWORKS)
    add("--dataset", default="mnist", help="for all that can use it")
    add("--data-dir", help="prepared TensorFlow Datasets")
    add("--samples", type=int, default=500)
    add("--epochs", type=int, default=4)
    add("--batch-size", type=int, default=32)
    add("--runs", type=Path, default=Path("runs/compare"))
    add(
        "--to",
        type=Path,
        default=ROOT / "results" / "networks",
        help="the table and its data, without suffix",
    )
    add(
        "--page",
        action="store_true",
        help="write the table from its data alone, and train nothing",
    )
    return parser


if __name__ == "__main__":
    sys.exit(run_command(make_parser(), compare))
