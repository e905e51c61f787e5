"""Trains every network for a short equal budget and writes one table.

python training/compare.py --data-dir ~/tensorflow_datasets

Each network is a run of `training/run.py --rem`, baseline and REM, on the same
number of images for the same number of epochs. Runs that are finished are not
repeated. The table says that every network trains and what a step costs, not
how good it gets: that takes hours, not minutes.
"""

import argparse
import dataclasses
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tfcaps.cli import Parser, UserError, run_command  # noqa: E402
from tfcaps.files import write_atomically  # noqa: E402
from training.configs import config_from  # noqa: E402
from training.tables import TITLES, markdown  # noqa: E402

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

_HEAD = (
    "network",
    "data set",
    "images",
    "model",
    "parameters",
    "s / step",
    "loss, first epoch",
    "last",
    "accuracy, %",
    "quantised, %",
    "entropy, bits",
    "ceiling",
    "off uniform, %",
    "T-score",
    "sparsity, %",
)


def compare(options: argparse.Namespace) -> None:
    """Runs what is not there yet, and writes the table."""
    for name in options.networks:
        folder = options.runs / name
        if folder.exists():
            _check_budget(name, folder, options)
        if not (folder / "rem.json").exists():
            _run(name, folder, options)
    results = [_result(options.runs / name) for name in options.networks]
    text = page(results)
    page_path, data_path = (
        options.to.with_name(options.to.name + end) for end in (".md", ".json")
    )
    with write_atomically(page_path, "w") as file:
        file.write(text)
    with write_atomically(data_path, "w") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
    print(text)


def page(results: Sequence[Mapping[str, Any]]) -> str:
    """Returns the table in Markdown, made of what the JSON file holds."""
    config = results[0]["config"]
    budget = (
        "As many training images as stated and at most as many test images, "
        f"{config['epochs']} epochs in batches of {config['batch_size']}; REM "
        f"with a final sparsity of {config['final_sparsity']} and a decay of "
        f"{config['decay']}, without the coupling loss. Seconds are the median "
        "over steps. The table shows that every network trains and what a step "
        "costs, not how good it gets: that takes hours."
    )
    rows = [_HEAD, *(row for result in results for row in _rows(result))]
    table = markdown(rows, left=2)
    return (
        f"# Every network after a short equal budget\n\n{budget}\n\n{table}\n"
    )


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
    command = [sys.executable, str(ROOT / "training" / "run.py"), "--rem"]
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
    """Returns what the table needs of a run."""

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


def _rows(result: dict[str, Any]) -> list[tuple[str, ...]]:
    config = result["config"]
    return [
        (
            config["model"],
            config["dataset"],
            str(config["samples"]),
            TITLES[name],
            f"{model['total_parameters']:,}",
            f"{model['seconds_per_step']:.3f}",
            f"{model['first_loss']:.3f}",
            f"{model['last_loss']:.3f}",
            f"{100 * model['accuracy']:.1f}",
            f"{100 * model['accuracy_quantized']:.1f}",
            f"{model['entropy_bits']:.2f}",
            f"{model['ceiling_bits']:.2f}",
            f"{100 * model['nonuniform_share']:.1f}",
            f"{model['t_score']:.3f}",
            f"{100 * model['sparsity']:.1f}",
        )
        for name, model in result["models"].items()
    ]


def make_parser() -> Parser:
    parser = Parser(
        prog="training/compare.py", description=__doc__.splitlines()[0]
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
    return parser


if __name__ == "__main__":
    sys.exit(run_command(make_parser(), compare))
