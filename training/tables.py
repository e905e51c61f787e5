"""Prints a Markdown table of finished runs, averaged over seeds.

python training/tables.py results/*/*
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

_TITLES = {"baseline": "+Q", "rem": "+REM"}
_HEAD = (
    "data set",
    "model",
    "seeds",
    "epochs",
    "accuracy",
    "quantised",
    "entropy, bits",
    "ceiling",
    "keys",
    "off uniform",
    "T-score",
    "sparsity",
    "parameters",
    "seconds",
)


def table(folders: Iterable[Path]) -> str:
    """Returns a table with two rows for each setting, baseline and REM.

    Runs that differ in nothing but the seed make one row, mean ± standard
    deviation over seeds. Seconds are those of a whole run, both trainings,
    evaluation, figures and export.

    Args:
        folders: Run folders, or copies of their `config.json` and `rem.json`.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    configs = {}
    for folder in folders:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        result = json.loads((folder / "rem.json").read_text("utf-8"))
        # Where the data lay and which seed was used do not make a setting.
        setting = {**config, "seed": None, "data_dir": None}
        key = json.dumps(setting, sort_keys=True)
        configs[key] = config
        groups.setdefault(key, []).append(result)
    rows = [
        _row(configs[key], name, results)
        for key, results in groups.items()
        for name in results[0]["models"]
    ]
    return markdown([_HEAD, *rows], left=2)


def _row(config, name, results) -> tuple[str, ...]:
    models = [result["models"][name] for result in results]

    def cell(field: str, digits: int, factor: float = 1.0) -> str:
        return _spread([factor * m[field] for m in models], digits)

    return (
        Path(config["dataset"]).stem,
        _TITLES[name],
        str(len(results)),
        str(config["epochs"]),
        cell("accuracy", 2, 100),
        cell("accuracy_quantized", 2, 100),
        cell("entropy_bits", 2),
        cell("ceiling_bits", 2),
        cell("median_keys", 0),
        cell("nonuniform_share", 1, 100),
        cell("t_score", 3),
        cell("sparsity", 1, 100),
        f"{mean(m['nonzero_parameters'] for m in models):,.0f}",
        f"{mean(result['seconds'] for result in results):.0f}",
    )


def _spread(values: list[float], digits: int) -> str:
    text = f"{mean(values):.{digits}f}"
    return f"{text} ± {pstdev(values):.{digits}f}" if len(values) > 1 else text


def markdown(rows: list[tuple[str, ...]], *, left: int = 1) -> str:
    """Returns rows, the first of them the head, as a Markdown table.

    Args:
        rows: Cells as text.
        left: Int. How many columns are aligned to the left. Defaults to `1`.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(cells) -> str:
        padded = (
            cell.ljust(width) if k < left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return f"| {' | '.join(padded)} |"

    rule = [
        "-" * width if k < left else "-" * (width - 1) + ":"
        for k, width in enumerate(widths)
    ]
    return "\n".join(map(line, [rows[0], rule, *rows[1:]]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    sys.stdout.write(table(parser.parse_args().folders) + "\n")
