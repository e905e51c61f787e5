"""One body plan for all classes, and types of parts that stand in it.

No label of a part is used. The steps, of which the first has no seed:

1. The norm of the deep map is the *mass* of a photo; most of it is the object.
2. The object is longer one way, and its ends look different. Over all photos
   the moments `sum(mass * x * features)` point one way or the opposite, as the
   objects face; the first singular vector of these moments tells which, and
   what looks like the heavier end.
3. This end is the origin of the frame; its size, turn and mirror follow.
4. A network tells from appearance where in the frame a place is. It is asked of
   photos that it was not trained on. Types are clusters of what it tells, and
   of where the place is.
5. Another network tells the type from the features of a tile alone.
"""

from typing import Any, NamedTuple

import keras
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression

from experiments.tiles import Reduction

Array = NDArray[Any]

_SHARE = 0.35  # of the places of a photo that have a mass
_HEAVY = 0.3  # of the greatest mass: surely a part
_SHARPNESS = 6.0  # of the end that is the origin
_TURN = 0.5  # share of the axis' turn that the frame follows
_FAR = 2.5  # sizes; what is farther is told apart less and less
_BINS, _BELL = 40, 0.2  # of the frame, and how softly places are of them
_PLACE = 0.5  # weight of a place beside what is told of it
_FACTORS = 48


class Frames(NamedTuple):
    """The objects' own frames.

    Attributes:
        cells: Indices of the places with a mass, `[n, cells]`.
        mass: Of all places, as a share of the photo's greatest, `[n, places]`.
        coordinates: Of the cells, complex `[n, cells]`.
        facing: 1 if the heavier end is on the right, else -1, `[n]`.
        appearance: Features of the whole photo at the cells, `[n, cells, d]`.
    """

    cells: Array
    mass: Array
    coordinates: Array
    facing: Array
    appearance: Array


def frames(deep: Array, middle: Array, train: Array) -> Frames:
    """Returns the frames of photos, from their maps as a whole."""
    n, side = len(deep), middle.shape[1]
    times = (1, side // deep.shape[1], side // deep.shape[2])
    norms = [np.linalg.norm(photo.astype("f4"), axis=-1) for photo in deep]
    norm = ndimage.zoom(np.stack(norms), times, order=1).reshape(n, -1)
    mass = norm - np.quantile(norm, 1 - _SHARE, axis=1, keepdims=True)
    mass = np.clip(mass, 0, None)
    mass /= mass.max(axis=1, keepdims=True)
    cells = np.argsort(-mass, axis=1)[:, : int(_SHARE * side * side)]
    coarse = Reduction(deep, train, _FACTORS)(deep)
    near = at(ndimage.zoom(coarse, (*times, 1), order=1), cells)
    fine = at(Reduction(middle, train, _FACTORS)(middle), cells)
    weight = at(mass, cells)
    weight /= weight.sum(axis=1, keepdims=True)
    z = (cells % side + 1j * (cells // side)) + (0.5 + 0.5j)
    centre = (weight * z).sum(axis=1, keepdims=True)
    size = np.sqrt((weight * abs(z - centre) ** 2).sum(axis=1, keepdims=True))
    r = (z - centre) / size
    unit = near - (weight[..., None] * near).sum(axis=1, keepdims=True)
    unit /= np.linalg.norm(unit, axis=-1, keepdims=True) + 1e-6
    moments = ((weight * r.real)[..., None] * unit).sum(axis=1)
    moments /= np.linalg.norm(moments, axis=1, keepdims=True) + 1e-9
    axis = np.linalg.svd(moments[train], full_matrices=False)[2][0]
    end = unit @ axis
    if (weight * end).sum(axis=1).mean() < end.mean():
        end = -end
    direction = (weight * end * r).sum(axis=1)
    facing = np.where(direction.real > 0, 1.0, -1.0)
    pull = weight * np.exp(_SHARPNESS * end)
    origin = (pull * z).sum(axis=1) / pull.sum(axis=1)
    turn = np.angle(abs(direction.real) + 1j * direction.imag)
    turn = _TURN * (turn - np.median(turn[train]))
    u = (z - origin[:, None]) / size
    u = (u.real * facing[:, None] + 1j * u.imag) * np.exp(-1j * turn)[:, None]
    u = u / (1 + abs(u) / _FAR)
    appearance = np.concatenate([near, fine], axis=-1)
    return Frames(cells, mass, u, facing, appearance)


def types_of(
    found: Frames, local: Array, train: Array, count: int, seed: int
) -> tuple[Array, Array]:
    """Returns the type of each place, and that by its place alone.

    They are `[n, places]`, and `count` where nothing is.
    """
    u, rows = found.coordinates, np.flatnonzero(train)
    seen = np.concatenate([found.appearance, at(local, found.cells)], axis=-1)
    bins = clusters(_plane(u), rows, _BINS, seed)
    bins = bins.cluster_centers_ @ np.array([1, 1j])
    draw = np.random.default_rng(seed)
    fold = draw.permutation(len(u)) % 2
    told = np.zeros_like(u)
    for k in (0, 1):  # each half of the photos by a network of the other
        own, asked = rows[fold[rows] != k], fold == k
        j = np.stack([draw.choice(u.shape[1], 50, False) for _ in own])
        near = np.take_along_axis(u[own], j, axis=1).ravel()
        target = np.exp(-(abs(near[:, None] - bins) ** 2) / (2 * _BELL**2))
        target /= target.sum(axis=1, keepdims=True)
        x = seen[own[:, None], j].reshape(len(near), -1)
        model = network(x, target, 256, 4, seed)
        told[asked] = predicted(model, seen[asked]) @ bins
    maps = []
    both = np.concatenate([_plane(told), _PLACE * _plane(u)], axis=-1)
    for points in (both, _plane(u)):
        kinds = clusters(points, rows, count, seed).predict(
            points.reshape(-1, points.shape[-1])
        )
        types = np.full(found.mass.shape, count)
        np.put_along_axis(types, found.cells, kinds.reshape(u.shape), axis=1)
        maps.append(types)
    return maps[0], maps[1]


def local_network(
    found: Frames, types: Array, local: Array, train: Array, seed: int
) -> keras.Model:
    """Trains the network that tells a type from the features of a place.

    Where the mass is small, it is to tell "nothing" rather than the type.
    """
    count = int(types.max())
    rows = np.flatnonzero(train)
    draw = np.random.default_rng(seed)
    on = np.stack([draw.permutation(row)[:70] for row in found.cells[rows]])
    j = np.stack([draw.choice(types.shape[1], 40, False) for _ in rows])
    j = np.concatenate([on, j], axis=1)
    target = np.eye(count + 1, dtype="f4")[types[rows[:, None], j]]
    sure = np.clip(found.mass[rows[:, None], j] / _HEAVY, 0, 1)[..., None]
    target = target * sure + (1 - sure) * np.eye(count + 1)[count]
    x = local.reshape(*types.shape, -1)[rows[:, None], j]
    x = x.reshape(-1, x.shape[-1])
    return network(x, target.reshape(len(x), -1), 512, 8, seed)


def network(
    x: Array, target: Array, units: int, epochs: int, seed: int
) -> keras.Model:
    """Trains a network of one hidden layer to tell shares `target`."""
    keras.utils.set_random_seed(seed)
    scale = keras.layers.Normalization()
    scale.adapt(x[::5])
    model = keras.Sequential(
        [
            keras.Input(x.shape[1:]),
            scale,
            keras.layers.Dropout(0.1),
            keras.layers.Dense(units, activation="relu"),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(target.shape[1], activation="softmax"),
        ]
    )
    rate = keras.optimizers.schedules.CosineDecay(
        2e-3, epochs * -(-len(x) // 1024)
    )
    model.compile(
        keras.optimizers.AdamW(rate, weight_decay=1e-4),
        "categorical_crossentropy",
    )
    model.fit(x, target, batch_size=1024, epochs=epochs, verbose=0)
    return model


def predicted(model: keras.Model, x: Array) -> Array:
    """Returns what a network tells of features `[..., d]`."""
    flat = model.predict(
        x.reshape(-1, x.shape[-1]), batch_size=16_384, verbose=0
    )
    return flat.reshape(*x.shape[:-1], -1)


class Evidence:
    """A class is what its parts look like: a sum over leaves.

    Logistic regression on the features of all leaves, those of each type apart
    and their mean. It is one matrix for each type in the end.
    """

    def __init__(self, leaves: Array, labels: Array):
        """Takes features of leaves `[n, types, d]`, and classes `[n]`."""
        n, count, size = leaves.shape
        self.mean = leaves.mean(axis=0)
        kinds = leaves - self.mean
        scales = [
            kinds.std(axis=0) + 0.01,
            kinds.mean(axis=1).std(axis=0) + 0.01,
        ]
        apart = (kinds / scales[0]).reshape(n, -1)
        joint = kinds.mean(axis=1) / scales[1]
        norms = [np.sqrt((part**2).sum() / n) for part in (apart, joint)]
        x = np.concatenate([apart / norms[0], joint / norms[1]], axis=1)
        # There are fewer photos than features: in their own coordinates.
        squares, u = np.linalg.eigh((x @ x.T).astype("f8"))
        basis = u[:, squares > 1e-6 * squares[-1]]
        basis = basis / np.sqrt(squares[squares > 1e-6 * squares[-1]])
        basis = x.T @ basis
        model = LogisticRegression(C=30, max_iter=300).fit(x @ basis, labels)
        weights = basis @ model.coef_.T
        own = weights[: count * size].reshape(count, size, -1)
        self.matrices = own / scales[0][..., None] / norms[0]
        shared = weights[count * size :] / scales[1][:, None] / norms[1]
        self.matrices = (self.matrices + shared / count).astype("f4")
        self.bias = model.intercept_

    def __call__(self, leaves: Array) -> Array:
        """Returns what each leaf says for each class, `[n, types, classes]`."""
        return np.einsum(
            "ntd,tdj->ntj", leaves - self.mean, self.matrices, optimize=True
        )


def at(maps: Array, cells: Array) -> Array:
    """Returns maps `[n, ...]` at indices `[n, m]` of places."""
    if maps.ndim == 2:
        return np.take_along_axis(maps, cells, axis=1)
    flat = maps.reshape(len(maps), -1, maps.shape[-1])
    return np.take_along_axis(flat, cells[..., None], axis=1)


def clusters(points: Array, rows: Array, count: int, seed: int) -> KMeans:
    """Returns clusters of the points `[n, m, d]` of some photos."""
    own = points[rows].reshape(-1, points.shape[-1])[::9]
    return KMeans(count, n_init=1, random_state=seed).fit(own)


def _plane(points: Array) -> Array:
    return np.stack([points.real, points.imag], axis=-1).astype("f4")
