"""Asks how small a network of parts may be that still names parts of figures.

python -m examples.smallest --seeds 1 --draw results/named_parts/smallest.png

One network is trained for each seed, and REM takes ever more of it away: single
weights (polynomial), or whole filters (structured). Beside it as many random
weights leave, and networks with as few filters are trained from new weights,
for as many epochs. A line for each seed is added to
results/named_parts/smallest.jsonl, and smallest.md made of all.
"""

import argparse
import itertools
import json
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cli import Parser
from examples import seeds

# Shares that are taken away, one after the other: of the weights, and of the
# multiply-adds of both convolutions.
WEIGHTS = (0.7, 0.95, 0.98, 0.99)
FILTERS = (0.5, 0.8, 0.95)
_BATCH, _TIMED = 64, 5
# What is drawn, and how it is called.
_DRAWN = {
    "accuracy": "accuracy, %",
    "once": "parts found once, %",
    "information": "NMI of types and parts, %",
}
_BITS = {"places": "by place", "offsets": "by offset", "types": "by type"}
_PANELS = {
    "weights left": ("weights", "random weights", "weights"),
    "multiply-adds left": ("filters", "built small", "adds"),
}


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = seeds.make_parser("smallest", __doc__, 7200, 6, 500)
    about = "epochs of REM for each share"
    parser.add_argument("--rem-epochs", type=int, default=1, help=about)
    for name, shares in (("weights", WEIGHTS), ("filters", FILTERS)):
        about = f"shares of the {name} to take away (default: %(default)s)"
        add = partial(parser.add_argument, type=float, nargs="*")
        add(f"--{name}", default=shares, help=about)
    return parser


def measured(options: argparse.Namespace, seed: int) -> seeds.Row:
    """Trains a network of one seed, and prunes it further and further."""
    import keras

    from training.datasets import load

    keras.utils.set_random_seed(seed)
    data = load("figures", seed=seed).reduced(options.samples)
    lines = []
    for what, share, model in _networks(options, data, seed):
        line = {"what": what, "share": share}
        lines.append({**line, **_measures(model, data, options.tested)})
        print(json.dumps(lines[-1]), flush=True)
    row = {"images": len(data.train.labels), "lines": lines}
    row |= {"epochs": options.epochs, "rem_epochs": options.rem_epochs}
    if options.draw:
        draw(options.draw, [*_before(options.to), row])
    return row


def _networks(
    options: argparse.Namespace, data: Any, seed: int
) -> Iterator[tuple[str, float, Any]]:
    """Yields what is taken away, the share of it, and what is left."""
    import keras

    from tfcaps import rem
    from tfcaps.models import constellation_capsnet
    from tfcaps.parts import without_spare_types

    images, labels = data.train.images[:], data.train.labels
    size = images.shape[1:], data.num_classes

    def fit(model: Any, epochs: int, *callbacks: Any) -> None:
        model.fit(
            *(images, labels, _BATCH, epochs), verbose=0, callbacks=callbacks
        )

    def again() -> Any:
        model = keras.models.clone_model(whole)
        model.set_weights(whole.get_weights())
        model.compile()
        model.go_on_from(whole)
        return model

    first: Any = constellation_capsnet(*size)
    fit(first, options.epochs)
    whole: Any = without_spare_types(first)
    yield "nothing", 0.0, whole
    epochs = options.rem_epochs
    model = again()
    for share in options.weights:
        fit(model, epochs, rem.Prune(share, begin=0.0, end=0.5))
        yield "weights", share, rem.compact(model)
    model, trained = again(), options.epochs
    adds = rem.multiply_adds(whole)
    inner = adds.per_layer["conv1"] + adds.per_layer["conv2"]
    convolutions = inner / adds.total
    for share in options.filters:
        of_all = share * convolutions
        prune = rem.Prune(of_all, "structured", begin=0.0, end=0.5)
        fit(model, epochs, prune)
        small = rem.compact(model)
        yield "filters", share, small
        trained += epochs
        filters = [small.get_layer(f"conv{k}").filters for k in (1, 2)]
        fresh: Any = constellation_capsnet(*size, filters=filters)
        fit(fresh, trained)
        yield "built small", share, without_spare_types(fresh)
    model, order = again(), np.random.default_rng(seed)
    shares = [0.0, *options.weights]
    for before, share in itertools.pairwise(shares):
        # Of those that are left so many leave that as many are left.
        _zero_some(model, (share - before) / (1.0 - before), order)
        rem.keep_zeros(model)
        fit(model, epochs)
        rem.strip_pruning(model)
        yield "random weights", share, model


def _zero_some(model: Any, share: float, draw: Any) -> None:
    """Sets a share of the kernels' weights that are not 0 to 0, at random."""
    kernels = [v for v in model.trainable_variables if v.name == "kernel"]
    arrays = [np.array(kernel) for kernel in kernels]
    flat = np.concatenate([array.ravel() for array in arrays])
    left = draw.permutation(np.flatnonzero(flat))
    flat[left[: round(share * len(left))]] = 0.0
    parts = np.split(flat, np.cumsum([array.size for array in arrays])[:-1])
    for kernel, array, part in zip(kernels, arrays, parts, strict=True):
        kernel.assign(part.reshape(array.shape))


def _measures(model: Any, data: Any, tested: int) -> seeds.Row:
    import keras

    from tfcaps import rem
    from training.sample import Sample

    sample = Sample(data)
    images, labels = sample.images[:], sample.labels
    named: Any = rem.named_parts(sample.trees(model), sample.masks)
    report = rem.evaluate(model, (images, labels))
    used = rem.faithfulness(model, (images[:tested], labels[:tested]))
    plain = keras.Model(model.input, model.output)
    weights = b"".join(np.array(w).tobytes() for w in plain.weights)
    seconds = []
    for _ in range(_TIMED):
        start = time.perf_counter()
        plain.predict(images, 500, verbose=0)
        seconds.append(time.perf_counter() - start)
    return {
        "weights": report.nonzero_parameters,
        "filters": [model.get_layer(f"conv{k}").filters for k in (1, 2)],
        "bytes": len(zlib.compress(weights, 9)),
        "adds": report.multiply_adds,
        "milliseconds": 1e6 * min(seconds) / len(images),
        "accuracy": 100 * report.accuracy,
        "information": 100 * named.information,
        "once": 100 * named.found_once,
        "places": report.entropy_bits,
        "offsets": report.offset_entropy_bits,
        "types": report.type_entropy_bits,
        "changes": 100 * used.answer_changes["zero"],
    }


def _before(folder: Path) -> list[seeds.Row]:
    path = folder / "smallest.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [*map(json.loads, lines)]


def draw(path: Path, rows: Sequence[seeds.Row]) -> None:
    """Draws what is measured by how much is left, a line a measure."""
    import matplotlib.pyplot as plt

    page = plt.figure(figsize=(10, 6), layout="constrained")
    panels = page.subplots(2, 2, sharey="row", sharex="col")
    for column, (title, names) in enumerate(_PANELS.items()):
        what, control, of = names
        lines = [
            line
            for row in rows
            for line in row["lines"]
            if line["what"] in ("nothing", what, control)
        ]
        for panel, drawn in zip(
            panels[:, column], (_DRAWN, _BITS), strict=True
        ):
            for tint, (key, head) in enumerate(drawn.items()):
                for kind, style in ((what, "-o"), (control, ":x")):
                    if kind == control and drawn is _BITS:
                        continue
                    left, middles, ends = _curve(lines, kind, of, key)
                    label = head if kind == what else f"{head}, {control}"
                    panel.errorbar(
                        *(left, middles, ends), fmt=style, color=f"C{tint}",
                        label=label, ms=5, lw=1.2, capsize=2,
                    )  # fmt: skip
            top = 103 if drawn is _DRAWN else None
            panel.set(xscale="log", ylim=(0, top))
            panel.minorticks_off()
            left, _, _ = _curve(lines, what, of, "accuracy")
            panel.set_xticks(left, [f"{x:,.0f}" for x in left], rotation=30)
            panel.legend(fontsize=7, loc="lower left")
        panels[0, column].set(title=f"{what} taken away, {control} beside")
        panels[1, column].set(xlabel=title)
        panels[0, column].invert_xaxis()
    panels[1, 0].set(ylabel="entropy, bits")
    page.savefig(path, dpi=80)
    plt.close(page)


def _curve(
    lines: Sequence[seeds.Row], what: str, of: str, key: str
) -> tuple[list[Any], list[Any], Any]:
    """Returns what is left by share, means over seeds and lowest, highest."""
    shares = sorted({x["share"] for x in lines if x["what"] == what})
    left, middles, ends = [], [], []
    for name, share in (("nothing", 0.0), *((what, s) for s in shares)):
        group = [x for x in lines if (x["what"], x["share"]) == (name, share)]
        values = [x[key] for x in group]
        left.append(np.mean([x[of] for x in group]))
        middles.append(np.mean(values))
        ends.append((middles[-1] - min(values), max(values) - middles[-1]))
    return left, middles, np.array(ends).T


if __name__ == "__main__":
    sys.exit(seeds.main("smallest", make_parser(), measured))
