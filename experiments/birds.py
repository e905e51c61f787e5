"""Parts of birds from local evidence, found without a label of a part.

python experiments/birds.py birds40.npz --cache CACHE --to results/birds

computes features of tiles once, trains a network of parts for each seed on the
labels of classes alone, measures it on the test photos, and writes seeds.jsonl
and table.md. Keypoints and boxes are read for measuring only.
"""

import argparse
import io
import json
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # The repository's own packages, wherever the command is called from.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
from numpy.typing import NDArray

from cli import Parser, check_installed, run_command, start_quietly
from markdown_table import table, write_tables

Array = NDArray[Any]

# Heads and tails, by which the facing is measured; see `part_names`.
_EYE_OR_CROWN, _TAIL = "crown", "tail"
_WINDOW = 36 / 224  # of the box, half of what consistency looks at
_CONSISTENT = 0.8
_ROWS = (
    ("right, %", "accuracy"),
    ("right with leaves of all types", "all_leaves"),
    ("linear head on the whole photo", "linear"),
    ("linear head on the mean of the tiles", "tiles"),
    ("NMI at keypoints, tiles alone", "nmi"),
    ("ARI", "ari"),
    ("NMI, plan: the whole photo and the place", "nmi_plan"),
    ("ARI", "ari_plan"),
    ("NMI, place in the frame alone", "nmi_place"),
    ("ARI", "ari_place"),
    ("facing", "facing"),
    ("leaves of a photo", "leaves"),
    ("leaves in the box", "in_box"),
    ("share of the photo in the boxes", "box"),
    ("consistency", "consistency"),
    ("stability", "stability"),
    ("local truth", "local_truth"),
    ("with another window", "local_truth_random"),
    ("prediction", "prediction"),
    ("completeness", "completeness"),
    ("random windows", "completeness_random"),
    ("change", "change"),
    ("random windows", "change_random"),
    ("share of the photo in the windows", "area"),
    ("seconds of a run without features", "seconds"),
)


def make_parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(prog="experiments/birds.py", description=__doc__)
    parser.add_argument("photos", type=Path, metavar="PHOTOS.npz")
    parser.add_argument("--cache", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--types", type=int, default=8)
    parser.add_argument(
        "--leaves", type=int, default=4, help="types that speak for a class"
    )
    parser.add_argument(
        "--pixels", type=int, default=30, help="photos that are changed"
    )
    return parser


def run(options: argparse.Namespace) -> None:
    """Trains and measures a network for each seed, and writes the table."""
    check_installed(data="sklearn PIL scipy")
    start_quietly()
    from experiments import body_plan, tiles

    data = Photos(options.photos, tiles.SIDE)
    maps = tiles.cached(data.images, options.cache)
    frames = body_plan.frames(maps["deep"], maps["middle"], data.train)
    local = tiles.Joined(maps, data.train)
    features = local(maps["tile_deep"], maps["tile_middle"])
    same = {
        "linear": linear(maps["deep"], data),
        "tiles": linear(maps["tile_deep"], data),
        "facing": data.facing(frames.facing),
        "box": float(data.in_box(grid(tiles.PLACES))[~data.train].mean()),
    }
    rows = []
    for seed in options.seeds:
        start = time.perf_counter()
        types, places = body_plan.types_of(
            frames, features, data.train, options.types, seed
        )
        network = body_plan.local_network(
            frames, types, features, data.train, seed
        )
        presence = body_plan.predicted(network, features)[..., :-1]
        presence = presence.reshape(len(features), -1, options.types)
        # The types that stand where the mass is, on training photos.
        cells = presence.argmax(axis=1)
        mass = np.take_along_axis(frames.mass, cells, axis=1)[data.train]
        spoken = np.argsort(-mass.mean(axis=0))[: options.leaves]
        row = {"seed": seed, **same}
        for name, kinds in (
            ("all_leaves", np.arange(options.types)),
            ("accuracy", spoken),
        ):
            seen = tiles.of_cells(maps["tile_deep"], cells[:, kinds])
            evidence = body_plan.Evidence(
                seen[data.train], data.labels[data.train]
            )
            says = evidence(seen).sum(axis=1) + evidence.bias
            right = says.argmax(axis=-1) == data.labels
            row[name] = 100 * float(right[~data.train].mean())
        row["seconds"] = time.perf_counter() - start
        for tag, kind in (
            ("", presence.argmax(axis=-1)),
            ("_plan", types),
            ("_place", places),
        ):
            row[f"nmi{tag}"], row[f"ari{tag}"] = data.agreement(kind)
        stands = cells[:, spoken]
        row["leaves"] = float(len(spoken))
        row["in_box"] = float(
            data.in_box(centres(stands, tiles.PLACES))[~data.train].mean()
        )
        hits = data.hits(centres(cells, tiles.PLACES))
        row["consistency"] = data.consistency(hits)
        if seed == options.seeds[0]:
            ask = Pixels(network, local, evidence, spoken)
            row.update(ask(data, options.pixels))
        print(json.dumps(row), flush=True)
        rows.append(row)
        options.to.mkdir(parents=True, exist_ok=True)
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (options.to / "seeds.jsonl").write_text(lines)
        write_tables(options.to / "table.md", summary(rows))


class Photos:
    """Photos with classes, and with keypoints and boxes to measure by."""

    def __init__(self, path: Path, side: int):
        from PIL import Image

        with np.load(path) as file:
            self.labels = file["labels"].astype(int)
            self.train = file["is_train"] > 0
            names = list(map(str, file["part_names"]))
            scale = side / file["size"][:, :2].astype("f8")
            points = file["keypoints"].astype("f8")
            self.visible = points[..., 2] > 0
            self.points = points[..., :2] * scale[:, None]
            boxes = file["boxes"].astype("f8")
            self.boxes = np.concatenate(
                [boxes[:, :2] * scale, boxes[:, 2:] * scale], axis=1
            )
            jpeg, ends = file["jpeg"].tobytes(), file["offsets"]
        self.images = np.empty((len(self.labels), side, side, 3), "u1")
        for k in range(len(self.labels)):
            coded = io.BytesIO(jpeg[ends[k] : ends[k + 1]])
            photo = Image.open(coded).convert("RGB")
            size, how = (side, side), Image.Resampling.BICUBIC
            self.images[k] = np.asarray(photo.resize(size, how))
        self.side = side
        self.ends = names.index(_EYE_OR_CROWN), names.index(_TAIL)

    def facing(self, facing: Array) -> float:
        """Returns in how many test photos the bird faces this way."""
        head, tail = self.ends
        both = self.visible[:, head] & self.visible[:, tail] & ~self.train
        way = self.points[:, head, 0] - self.points[:, tail, 0]
        both &= way != 0
        return float(np.mean(np.sign(way[both]) == facing[both]))

    def agreement(self, types: Array) -> tuple[float, float]:
        """Returns NMI and ARI of types `[n, places]` at test keypoints."""
        from tfcaps.rem.evaluation.named_parts import (
            mutual_information,
            rand_index,
        )

        n, part = np.nonzero(self.visible & ~self.train[:, None])
        side = int(np.sqrt(types.shape[1]))
        cells = (self.points[n, part] * side / self.side).astype(int)
        cells = np.clip(cells, 0, side - 1)
        kinds = types[n, cells[:, 1] * side + cells[:, 0]]
        counts = np.zeros((types.max() + 1, self.visible.shape[1]), int)
        np.add.at(counts, (kinds, part), 1)
        return mutual_information(counts), rand_index(counts)

    def in_box(self, centres: Array) -> Array:
        """Tells which centres `[n, m, 2]`, x and y, lie in the box."""
        low, size = self.boxes[:, None, :2], self.boxes[:, None, 2:]
        return np.all((centres >= low) & (centres <= low + size), axis=-1)

    def hits(self, centres: Array, rows: Any = slice(None)) -> Array:
        """Tells which parts are near centres: `[n, m, parts]`."""
        far = abs(centres[:, :, None] - self.points[rows, None])
        near = np.all(far <= _WINDOW * self.boxes[rows, None, None, 2:], -1)
        return near & self.visible[rows, None]

    def consistency(self, hits: Array) -> float:
        """Returns how many types have one part in 80 % of the test photos."""
        seen = self.visible[~self.train].sum(axis=0)
        shares = hits[~self.train].sum(axis=0) / np.maximum(seen, 1)
        return float(np.mean(shares.max(axis=1) >= _CONSISTENT))


class Pixels:
    """What the network says of photos of which windows are changed."""

    def __init__(
        self, network: Any, local: Any, evidence: Any, spoken: Array
    ) -> None:
        from experiments import tiles

        self.network, self.local = network, local
        self.evidence, self.spoken = evidence, spoken
        self.backbone = tiles.Features()

    def look(self, photo: Array) -> tuple[Array, Array, Array]:
        """Returns presence `[places, types]`, leaves, and what each says."""
        from experiments import body_plan, tiles

        deep, middle = (m[None] for m in self.backbone.of_tiles(photo))
        found = body_plan.predicted(self.network, self.local(deep, middle))
        presence = found[0, ..., :-1].reshape(tiles.PLACES**2, -1)
        cells = presence.argmax(axis=0)
        seen = tiles.of_cells(deep, cells[None, self.spoken])
        return presence, cells, self.evidence(seen)[0]

    def __call__(self, data: Photos, count: int) -> dict[str, float]:
        """Asks some test photos; what is taken out is the mean colour."""
        from scipy.stats import spearmanr

        from experiments import tiles

        draw = np.random.default_rng(0)
        rows = draw.permutation(np.flatnonzero(~data.train))[:count]
        grey = data.images[rows].mean((0, 1, 2)).astype("u1")
        stays: dict[str, list[Any]] = {}
        stated, fall = [], []
        bias = self.evidence.bias
        noisy = []

        def note(name: str, value: Any) -> None:
            stays.setdefault(name, []).append(float(value))

        for number, row in enumerate(rows):
            photo = data.images[row]
            other = data.images[rows[number - 1]]
            presence, cells, says = self.look(photo)
            answer = (says.sum(axis=0) + bias).argmax()
            leaves = cells[self.spoken]
            windows = [tiles.window(cell) for cell in leaves]
            random = [
                tiles.window(cell)
                for cell in draw.integers(len(presence), size=len(leaves))
            ]
            for tag, boxes in (("", windows), ("_random", random)):
                under = tiles.mask(boxes)[..., None]
                if not tag:
                    note("area", under.mean())
                alone = self.look(np.where(under, photo, grey))[2]
                left = self.look(np.where(under, grey, photo))[2]
                same = (alone.sum(axis=0) + bias).argmax() == answer
                note(f"completeness{tag}", same)
                gone = (left.sum(axis=0) + bias).argmax() != answer
                note(f"change{tag}", gone)
            for k, box in enumerate(windows):
                under = tiles.mask([box])[..., None]
                left = self.look(np.where(under, grey, photo))[2]
                stated.append(says[k, answer])
                fall.append((says - left)[:, answer].sum())
            # One leaf of each photo, in another photo.
            k = number % len(windows)
            kind, near = self.spoken[k], tiles.near(leaves[k])
            least = presence[leaves[k], kind] / 2
            for tag, box in (("", windows[k]), ("_random", random[k])):
                under = tiles.mask([box])[..., None]
                found = self.look(np.where(under, photo, other))[0]
                # Another window is asked where it is.
                note(f"local_truth{tag}", found[near, kind].max() >= least)
            noise = np.clip(draw.normal(0, 0.2, photo.shape), -0.25, 0.25)
            changed = np.clip(photo + noise * 128, 0, 255).astype("u1")
            noisy.append((cells, self.look(changed)[1]))
        before, after = (
            data.hits(centres(np.stack(cells), tiles.PLACES), rows)
            for cells in zip(*noisy, strict=True)
        )
        measures = {name: float(np.mean(v)) for name, v in stays.items()}
        measures["stability"] = float(np.all(before == after, -1).mean())
        measures["prediction"] = float(spearmanr(stated, fall).statistic)
        return measures


def linear(maps: Array, data: Photos) -> float:
    """Returns how many a linear head on the mean of a map has right."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x = np.stack([photo.mean((0, 1), dtype="f4") for photo in maps])
    head = LogisticRegression(C=0.003, max_iter=500)
    model = make_pipeline(StandardScaler(), head)
    model.fit(x[data.train], data.labels[data.train])
    return float(100 * model.score(x[~data.train], data.labels[~data.train]))


def centres(cells: Array, side: int) -> Array:
    """Returns x and y in pixels of indices of places."""
    from experiments import tiles

    xy = np.stack([cells % side, cells // side], axis=-1)
    return (xy + 0.5) * (tiles.SIDE / side)


def grid(side: int) -> Array:
    """Returns the centres of all places, `[1, places, 2]`."""
    return centres(np.arange(side**2)[None], side)


def summary(rows: list[dict[str, float]]) -> str:
    """Returns the means and deviations over seeds as a table."""
    lines = []
    for title, name in _ROWS:
        values = [row[name] for row in rows if name in row]
        if values:
            lines.append(
                {
                    "title": title,
                    "mean": float(np.mean(values)),
                    "deviation": float(np.std(values)),
                    "seeds": len(values),
                }
            )
    columns = (
        ("test photos", "{title}"),
        ("mean", "{mean:.3f}"),
        ("deviation", "{deviation:.3f}"),
        ("seeds", "{seeds}"),
    )
    return table(lines, columns)


if __name__ == "__main__":
    sys.exit(run_command(make_parser(), run))
