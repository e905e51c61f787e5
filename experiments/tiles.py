"""Features of photos: of the whole, and of tiles that see nothing around them.

Each place of a map of tiles is made by the pixels of its own tile alone.
"""

from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from cli import progress
from training import efficientnet_lite0

Array = NDArray[Any]

SIDE = 320  # pixels of a photo, squashed to a square
TILE = 96
STRIDE = 32  # between tiles, and the side of what is taken of each
TILES = SIDE // STRIDE
CELL = 16  # pixels of a place of the finer map
PLACES = SIDE // CELL
_SAMPLE = 15_000  # places on which components are fitted


class Features:
    """Frozen EfficientNet-lite0 on photos `[n, 320, 320, 3]` of bytes."""

    def __init__(self) -> None:
        whole = efficientnet_lite0.build((SIDE, SIDE, 3))
        tile = keras.models.clone_model(
            whole, input_tensors=keras.Input((TILE, TILE, 3))
        )
        tile.set_weights(whole.get_weights())
        self.whole = _two_maps(whole, PLACES)
        self.tile = _two_maps(tile, TILE // CELL)

    def of_whole(self, photos: Array) -> tuple[Array, Array]:
        """Returns the maps `[n, 10, 10, 1280]` and `[n, 20, 20, 112]`."""
        deep, middle = self.whole.predict_on_batch(photos.astype("f4") / 255)
        return deep, middle

    def of_tiles(self, photo: Array) -> tuple[Array, Array]:
        """Returns the same of the tiles of one photo.

        The deep map is the mean over a tile, the other its central places. At
        the border a tile sees the mirrored photo, nothing that it does not
        have.
        """
        pad = (TILE - STRIDE) // 2
        wide = np.pad(photo, ((pad, pad), (pad, pad), (0, 0)), "reflect")
        starts = range(0, SIDE, STRIDE)
        tiles = np.stack(
            [wide[r : r + TILE, c : c + TILE] for r in starts for c in starts]
        )
        deep, middle = self.tile.predict_on_batch(tiles.astype("f4") / 255)
        edge, size = pad // CELL, STRIDE // CELL
        middle = middle[:, edge : edge + size, edge : edge + size]
        middle = middle.reshape(TILES, TILES, size, size, -1)
        middle = middle.swapaxes(1, 2).reshape(PLACES, PLACES, -1)
        return deep.mean((1, 2)).reshape(TILES, TILES, -1), middle


def cached(photos: Array, folder: Path) -> dict[str, Array]:
    """Returns the four maps of photos, computed unless a folder has them."""
    shapes = {
        "deep": (TILES, TILES, 1280),
        "middle": (PLACES, PLACES, 112),
        "tile_deep": (TILES, TILES, 1280),
        "tile_middle": (PLACES, PLACES, 112),
    }
    files = {name: folder / f"{name}.npy" for name in shapes}
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        maps = {
            name: np.lib.format.open_memmap(
                files[name], "w+", np.float16, (len(photos), *shape)
            )
            for name, shape in shapes.items()
        }
        features = Features()
        bar = keras.utils.Progbar(len(photos), verbose=progress() % 2)
        for k in range(len(photos)):
            whole = features.of_whole(photos[k : k + 1])
            maps["deep"][k], maps["middle"][k] = whole[0][0], whole[1][0]
            found = features.of_tiles(photos[k])
            maps["tile_deep"][k], maps["tile_middle"][k] = found
            bar.add(1)
        (folder / "complete").touch()
    return {name: np.load(path, mmap_mode="r") for name, path in files.items()}


class Reduction:
    """Principal components of a map, fitted on training photos."""

    def __init__(self, maps: Array, train: Array, size: int):
        draw = np.random.default_rng(0)
        rows = np.sort(draw.choice(np.flatnonzero(train), _SAMPLE))
        row, column = draw.integers(maps.shape[1], size=(2, _SAMPLE))
        sample = maps[rows, row, column].astype("f4")
        self.model = PCA(size, svd_solver="randomized", random_state=0)
        self.scale = self.model.fit_transform(sample).std()

    def __call__(self, maps: Array) -> Array:
        """Returns the components of maps `[n, rows, columns, channels]`."""
        reduced = [
            self.model.transform(m.reshape(-1, m.shape[-1]).astype("f4"))
            for m in maps
        ]
        shape = (*maps.shape[:3], -1)
        return np.stack(reduced).reshape(shape).astype("f4") / self.scale


class Joined:
    """Features of the places of the finer map, from the tiles' two maps."""

    def __init__(self, maps: dict[str, Array], train: Array):
        self.deep = Reduction(maps["tile_deep"], train, 96)
        self.middle = Reduction(maps["tile_middle"], train, 80)

    def __call__(self, deep: Array, middle: Array) -> Array:
        """Returns features `[n, 20, 20, 176]`."""
        ratio = PLACES // TILES
        coarse = self.deep(deep).repeat(ratio, 1).repeat(ratio, 2)
        return np.concatenate([coarse, self.middle(middle)], axis=-1)


def of_cells(deep: Array, cells: Array) -> Array:
    """Returns the features `[n, m, d]` of the tiles of places `[n, m]`."""
    ratio = PLACES // TILES
    row, column = cells // PLACES // ratio, cells % PLACES // ratio
    found = [m[r, c] for m, r, c in zip(deep, row, column, strict=True)]
    return np.stack(found).astype("f4")


def window(cell: int) -> tuple[slice, slice]:
    """Returns the pixels that make a place: those of its tile."""
    pad = (TILE - STRIDE) // 2
    starts = [k * CELL // STRIDE * STRIDE - pad for k in divmod(cell, PLACES)]
    row, column = (slice(max(k, 0), k + TILE) for k in starts)
    return row, column


def mask(windows: list[tuple[slice, slice]]) -> Array:
    """Tells which pixels lie in some of the windows."""
    under = np.zeros((SIDE, SIDE), bool)
    for part in windows:
        under[part] = True
    return under


def near(cell: int) -> Array:
    """Returns the place and those beside it."""
    row, column = divmod(cell, PLACES)
    places = np.arange(PLACES)
    rows = places[abs(places - row) <= 1]
    columns = places[abs(places - column) <= 1]
    return (rows[:, None] * PLACES + columns).ravel()


def _two_maps(model: keras.Model, places: int) -> keras.Model:
    """Returns a model of the last map, and of the last sum of a finer one."""
    sums = [
        layer.output
        for layer in model.layers
        if isinstance(layer, keras.layers.Add)
        and layer.output.shape[1] == places
    ]
    pair = keras.Model(model.inputs, [model.outputs[0], sums[-1]])
    if keras.backend.backend() == "tensorflow":
        pair.jit_compile = False
    return pair
