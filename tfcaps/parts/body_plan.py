"""Estimates a body plan: types of parts that all classes share, and frames.

No label of a part is used, and no class but for the evidence:

1. The norm of a photo's deep map is the *mass* of its places; most of it is the
   object.
2. The object is longer one way, and its ends look different. Over all photos
   the moments `sum(mass * x * features)` point one way or the opposite, as the
   objects face; the first singular vector of these moments tells which, and
   what looks like the heavier end. This end is the origin of the object's own
   frame; its size, turn and mirror follow.
3. A network tells from appearance where in the frame a place is. It is asked of
   photos that it was not trained on. Types are clusters of what it tells, and
   of where the place is.
4. Another network tells the type from the features of a window alone.
5. A class is what its parts look like: logistic regression on the features of
   the leaves.
"""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from scipy import ndimage, optimize
from scipy.cluster.vq import kmeans2, vq

from tfcaps.ops import Array, parts_of
from tfcaps.parts.body_plan_caps import frame_of

_SHARE = 0.35  # of the places of a photo that have a mass
_HEAVY = 0.3  # of the greatest mass: surely a part
_SHARPNESS = 6.0  # of the end that is the origin
_TURN = 0.5  # share of the axis' turn that the frame follows
_FAR = 2.5  # sizes; what is farther is told apart less and less
_BINS, _BELL = 120, 0.1  # of the frame, and how softly places are of them
_PLACE = 0.5  # weight of a place beside what is told of it
_COMPONENTS = 48  # of a map of the whole photo
_SAMPLE = 15_000  # places on which components are fitted
_PLACES = 150_000  # on which types are told, at most
_STARTS = 5  # of clusters
UNITS = 512  # of the network that tells types
_ROUNDS = 12  # of the estimation of plans
_LEAST_SHARE = 1e-5  # of a component's variance in the first one's
_LEAST_SPREAD = 0.1  # of a part in its plan
_ROBUST = 4  # rounds, in which those far off lose their weight
_SURE = 3.0  # standard errors of a gain
_STRENGTHS = (3.0, 10.0, 30.0, 100.0)  # of the evidence, of which one is chosen
_FOLDS = 3  # of the photos, for that choice
BATCH = 64  # photos whose places are looked at at once


class Frames(NamedTuple):
    """The objects' own frames."""

    cells: Array  # indices of the places with a mass, `[n, cells]`
    mass: Array  # of all places, a share of the greatest, `[n, places]`
    coordinates: Array  # of the cells, complex `[n, cells]`
    facing: Array  # 1 if the heavier end is on the right, else -1, `[n]`
    appearance: Array  # of the whole photo at the cells, `[n, cells, d]`


class Components(NamedTuple):
    """The principal components of a map: `(x - mean) @ kernel`."""

    mean: Array
    kernel: Array

    def __call__(self, maps: Array) -> Array:
        """Returns those of maps `[n, ..., channels]`, photo by photo."""
        return np.stack(
            [(x.astype("f4") - self.mean) @ self.kernel for x in maps]
        )


def components(maps: Array, count: int, seed: int = 0) -> Components:
    """Returns components of a map, scaled to a deviation of 1 in all."""
    draw = np.random.default_rng(seed)
    rows = np.sort(draw.integers(len(maps), size=_SAMPLE))
    row, column = (draw.integers(m, size=_SAMPLE) for m in maps.shape[1:3])
    x = np.asarray(maps[rows, row, column], "f4")
    mean = x.mean(axis=0)
    x = x - mean
    values, vectors = np.linalg.eigh((x.T @ x).astype("f8"))
    # Others are noise, which their network would scale up.
    count = min(count, int((values > _LEAST_SHARE * values[-1]).sum()))
    kernel = vectors[:, ::-1][:, :count].astype("f4")
    return Components(mean, kernel / ((x @ kernel).std() + 1e-9))


class Windows(NamedTuple):
    """Components of the features of windows, laid out as these are.

    A window has some of its deep map, and some of each place of the finer map
    in its middle, `ratio` along a side and a `margin` around them.
    """

    maps: Array  # `[n, h, w, deep + (ratio + 2 margin)^2 fine]`
    deep: int
    ratio: int
    margin: int

    def at(self, photos: Any, cells: Array) -> Array:
        """Returns those of photos `[n]` at places of the finer map `[n, m]`.

        These are of the window, and of the place and what is in the margin
        around it, `[n, m, deep + (2 margin + 1)^2 fine]`.
        """
        side, near = self.ratio + 2 * self.margin, 2 * self.margin + 1
        fine = (self.maps.shape[-1] - self.deep) // side**2
        photos = np.asarray(photos)
        seen = np.empty((*cells.shape, self.deep + near**2 * fine), "f4")
        around = np.add.outer(np.arange(near) * side, np.arange(near)).ravel()
        for some in parts_of(len(cells), BATCH):
            row, column = np.divmod(
                cells[some], self.maps.shape[2] * self.ratio
            )
            row, y = np.divmod(row, self.ratio)
            column, x = np.divmod(column, self.ratio)
            windows = self.maps[photos[some, None], row, column]
            seen[some, :, : self.deep] = windows[..., : self.deep]
            first = (y * side + x)[..., None]
            places = np.take_along_axis(
                windows[..., self.deep :].reshape(*row.shape, side**2, fine),
                (first + around)[..., None],
                axis=2,
            )
            seen[some, :, self.deep :] = places.reshape(*row.shape, -1)
        return seen


def frames(deep: Array, middle: Array) -> Frames:
    """Returns the frames of photos, from their maps as a whole.

    These are `[n, h, w, channels]`, and a finer one, `[n, r h, r w, channels]`.
    """
    n, rows, columns = middle.shape[:3]
    times = (1, rows / deep.shape[1], columns / deep.shape[2])
    norms = [np.linalg.norm(photo.astype("f4"), axis=-1) for photo in deep]
    norm = ndimage.zoom(np.stack(norms), times, order=1).reshape(n, -1)
    mass = norm - np.quantile(norm, 1 - _SHARE, axis=1, keepdims=True)
    mass = np.clip(mass, 0, None)
    mass /= mass.max(axis=1, keepdims=True) + 1e-9
    cells = np.argsort(-mass, axis=1)[:, : int(_SHARE * rows * columns)]
    coarse = components(deep, _COMPONENTS)(deep)
    near = at(ndimage.zoom(coarse, (*times, 1), order=1), cells)
    fine = at(components(middle, _COMPONENTS)(middle), cells)
    weight = at(mass, cells) + 1e-9  # all alike where nothing stands out
    weight /= weight.sum(axis=1, keepdims=True)
    z = (cells % columns + 1j * (cells // columns)) + (0.5 + 0.5j)
    centre = (weight * z).sum(axis=1, keepdims=True)
    size = np.sqrt((weight * abs(z - centre) ** 2).sum(axis=1, keepdims=True))
    r = (z - centre) / size
    unit = near - (weight[..., None] * near).sum(axis=1, keepdims=True)
    unit /= np.linalg.norm(unit, axis=-1, keepdims=True) + 1e-6
    moments = ((weight * r.real)[..., None] * unit).sum(axis=1)
    moments /= np.linalg.norm(moments, axis=1, keepdims=True) + 1e-9
    axis = np.linalg.svd(moments, full_matrices=False)[2][0]
    end = unit @ axis
    if (weight * end).sum(axis=1).mean() < end.mean():
        end = -end
    direction = (weight * end * r).sum(axis=1)
    facing = np.where(direction.real > 0, 1.0, -1.0)
    pull = weight * np.exp(_SHARPNESS * end)
    origin = (pull * z).sum(axis=1) / pull.sum(axis=1)
    turn = np.angle(abs(direction.real) + 1j * direction.imag)
    turn = _TURN * (turn - np.median(turn))
    u = (z - origin[:, None]) / size
    u = (u.real * facing[:, None] + 1j * u.imag) * np.exp(-1j * turn)[:, None]
    u = u / (1 + abs(u) / _FAR)
    appearance = np.concatenate([near, fine], axis=-1)
    return Frames(cells, mass, u, facing, appearance)


def told_places(found: Frames, local: Windows, seed: int) -> Array:
    """Returns where in the frame appearance tells that places are.

    Complex `[n, cells]`, of each half of the photos told by a network that was
    trained on the other, by what windows show too.
    """
    u, draw = found.coordinates, np.random.default_rng(seed)
    bins = clusters(plane(u), _BINS, seed) @ np.array([1, 1j])
    fold = draw.permutation(len(u)) % 2
    told = np.zeros_like(u)

    def seen(photos: Array, cells: Array) -> Array:
        near = local.at(photos, at(found.cells[photos], cells))
        x = at(found.appearance[photos], cells)
        return np.concatenate([x, near], axis=-1)

    for k in (0, 1):
        own, asked = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        count = min(50, u.shape[1])
        j = np.stack([draw.choice(u.shape[1], count, False) for _ in own])
        near = np.take_along_axis(u[own], j, axis=1).ravel()
        target = np.exp(-(abs(near[:, None] - bins) ** 2) / (2 * _BELL**2))
        target /= target.sum(axis=1, keepdims=True) + 1e-12
        x = seen(own, j).reshape(len(near), -1)
        model = network(x, target, 256, 4, seed)
        every = np.arange(u.shape[1])
        for some in parts_of(len(asked), BATCH):
            rows = asked[some]
            cells = np.tile(every, (len(rows), 1))
            told[rows] = predicted(model, seen(rows, cells)) @ bins
    return told


def types_of(found: Frames, told: Array, count: int, seed: int) -> Array:
    """Returns the type of each place, `[n, places]`, `count` of nothing.

    Types are clusters of what appearance tells of a place, and of the place.
    """
    u = found.coordinates
    points = np.concatenate([plane(told), _PLACE * plane(u)], axis=-1)
    kinds, _ = vq(points.reshape(-1, 4), clusters(points, count, seed))
    types = np.full(found.mass.shape, count)
    np.put_along_axis(types, found.cells, kinds.reshape(u.shape), axis=1)
    return types


def local_network(
    found: Frames, types: Array, local: Windows, count: int, seed: int
) -> keras.Model:
    """Trains the network that tells a type from what a window shows.

    Where the mass is small, it is to tell "nothing" rather than the type.
    """
    draw = np.random.default_rng(seed)
    places = types.shape[1]
    share = min(1.0, _PLACES / (110 * len(types)))
    few = min(int(40 * share), places)
    on = np.stack(
        [draw.permutation(row)[: int(70 * share)] for row in found.cells]
    )
    j = np.stack([draw.choice(places, few, False) for _ in types])
    j = np.concatenate([on, j], axis=1)
    target = np.eye(count + 1, dtype="f4")[at(types, j)]
    sure = np.clip(at(found.mass, j) / _HEAVY, 0, 1)[..., None]
    target = target * sure + (1 - sure) * np.eye(count + 1)[count]
    target = target.reshape(-1, count + 1)
    x = local.at(np.arange(len(types)), j).reshape(len(target), -1)
    return network(x, target, UNITS, 8, seed)


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
        # XLA takes longer to compile it than it takes to train.
        jit_compile=keras.backend.backend() == "jax",
    )
    model.fit(x, target, batch_size=1024, epochs=epochs, verbose=0)
    return model


def predicted(model: keras.Model, x: Array) -> Array:
    """Returns what a network tells of features `[..., d]`."""
    flat = model.predict(
        x.reshape(-1, x.shape[-1]), batch_size=16_384, verbose=0
    )
    return flat.reshape(*x.shape[:-1], -1)


class Evidence(NamedTuple):
    """A class is what its parts look like: a sum over leaves."""

    kernel: Array  # what a leaf's features say for a class, `[t, d, j]`
    constants: Array  # what a leaf says by being there, `[t, j]`
    bias: Array  # `[j]`

    def __call__(self, leaves: Array, active: Array) -> Array:
        """Returns what each leaf says for each class, `[n, t, j]`."""
        says = np.einsum("ntd,tdj->ntj", leaves, self.kernel, optimize=True)
        return active[..., None] * (says + self.constants)

    def accuracy(self, leaves: Array, active: Array, labels: Array) -> float:
        """Returns the share of images of whose class the sum is the most."""
        total = self(leaves, active).sum(axis=1) + self.bias
        return float(np.mean(total.argmax(axis=-1) == labels))


def evidence(
    leaves: Array,
    active: Array,
    labels: Array,
    classes: int,
    strengths: Sequence[float],
) -> list[Evidence]:
    """Learns what leaves say for classes, by logistic regression.

    It is on the features `[n, t, d]` of all leaves times how active they are,
    `[n, t]`, those of each type apart and their mean; one matrix for each type
    in the end. Strengths are inverse weights of the penalty.
    """
    n, count, size = leaves.shape
    mean = leaves.mean(axis=0)
    kinds = (leaves - mean) * active[..., None]
    scales = [kinds.std(axis=0) + 0.01, kinds.mean(axis=1).std(axis=0) + 0.01]
    apart = (kinds / scales[0]).reshape(n, -1)
    joint = kinds.mean(axis=1) / scales[1]
    norms = [np.sqrt((part**2).sum() / n) for part in (apart, joint)]
    x = np.concatenate([apart / norms[0], joint / norms[1]], axis=1)
    learnt = []
    for weights, bias in logistic(x, labels, classes, strengths):
        kernel = weights[: count * size].reshape(count, size, -1)
        kernel = kernel / scales[0][..., None] / norms[0]
        shared = weights[count * size :] / scales[1][:, None] / norms[1]
        kernel = (kernel + shared / count).astype("f4")
        constants = -np.einsum("td,tdj->tj", mean, kernel)
        learnt.append(Evidence(kernel, constants, bias.astype("f4")))
    return learnt


def best_evidence(
    leaves: Array, active: Array, labels: Array, classes: int, seed: int
) -> tuple[Evidence, float, float]:
    """Learns what leaves say, with the penalty that is best on held-out images.

    Each image is held out once. Returns that, the strength, and the share of
    held-out images that are right.
    """

    def learnt(rows: Array, *strengths: float) -> list[Evidence]:
        return evidence(
            leaves[rows], active[rows], labels[rows], classes, strengths
        )

    fold = np.random.default_rng(seed).permutation(len(labels)) % _FOLDS
    tried = np.zeros(len(_STRENGTHS))
    for k in range(_FOLDS):
        held = fold == k
        for j, says in enumerate(learnt(~held, *_STRENGTHS)):
            right = says.accuracy(leaves[held], active[held], labels[held])
            tried[j] += right * held.mean()
    strength = _STRENGTHS[int(np.argmax(tried))]
    (says,) = learnt(np.ones(len(labels), bool), strength)
    return says, strength, float(tried.max())


def linear_accuracy(
    maps: Array, labels: Array, asked: Array, truth: Array, classes: int
) -> float:
    """Returns the share of images that a linear head has right.

    It is learnt from the mean of the maps `[n, h, w, d]`, and `asked` of
    others.
    """
    x, new = (
        np.stack([each.mean((0, 1), dtype="f4") for each in some])[:, None]
        for some in (maps, asked)
    )
    says, *_ = best_evidence(x, np.ones((len(x), 1)), labels, classes, 0)
    return says.accuracy(new, np.ones((len(new), 1)), truth)


def logistic(
    x: Array, labels: Array, classes: int, strengths: Sequence[float]
) -> list[tuple[Array, Array]]:
    """Returns weights `[d, j]` and bias `[j]` of logistic regressions.

    In coordinates of their own, as many as there are rows, or columns if these
    are fewer.
    """
    wide = len(x) < x.shape[1]
    squares, u = np.linalg.eigh((x @ x.T if wide else x.T @ x).astype("f8"))
    keep = squares > 1e-6 * squares[-1]
    basis = x.T @ (u[:, keep] / np.sqrt(squares[keep])) if wide else u[:, keep]
    own = (x @ basis).astype("f4")
    target = np.eye(classes, dtype="f4")[labels]
    shape = (own.shape[1] + 1, classes)

    def loss(flat: Array, strength: float) -> tuple[float, Array]:
        w = flat.reshape(shape).astype("f4")
        logits = own @ w[:-1] + w[-1]
        logits -= logits.max(axis=1, keepdims=True)
        odds = np.exp(logits)
        total = odds.sum(axis=1, keepdims=True)
        cost = (np.log(total[:, 0]) - (logits * target).sum(1)).sum(dtype="f8")
        slope = odds / total - target
        gradient = np.concatenate([own.T @ slope, slope.sum(0, keepdims=True)])
        gradient[:-1] += w[:-1] / strength
        cost += (w[:-1] ** 2).sum(dtype="f8") / (2 * strength)
        return cost, gradient.ravel().astype("f8")

    found, start = [], np.zeros(shape).ravel()
    for strength in strengths:  # each begins with the one before
        start = optimize.minimize(
            loss,
            start,
            (strength,),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 200},
        ).x
        w = start.reshape(shape)
        found.append((basis @ w[:-1], w[-1]))
    return found


def at(maps: Array, cells: Array) -> Array:
    """Returns maps `[n, places, ...]` or `[n, h, w, d]` at places `[n, m]`."""
    if maps.ndim == 2:
        return np.take_along_axis(maps, cells, axis=1)
    flat = maps.reshape(len(maps), -1, maps.shape[-1])
    return np.take_along_axis(flat, cells[..., None], axis=1)


def clusters(points: Array, count: int, seed: int) -> Array:
    """Returns the centres of clusters of points `[n, m, d]`.

    They are the closest of a few starts; one may be empty. There are fewer if
    fewer points differ.
    """
    flat = points.reshape(-1, points.shape[-1])
    some = flat[:: min(9, max(1, len(flat) // (20 * count)))]
    count = min(count, len(np.unique(some, axis=0)))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "One of the clusters is empty")
        tried = [
            kmeans2(some, count, minit="++", seed=seed + 1000 * k)[0]
            for k in range(_STARTS)
        ]
    errors = [np.square(vq(some, centres)[1]).mean() for centres in tried]
    return tried[int(np.argmin(errors))]


def plane(points: Array) -> Array:
    """Returns complex numbers as two real ones."""
    return np.stack([points.real, points.imag], axis=-1).astype("f4")


class Plans(NamedTuple):
    """Where parts stand in the frame of an object."""

    places: Array  # `[p, t, 2]`, in the mean size of an object
    spreads: Array  # deviations of parts from there, `[p, t]`
    # How far, in each held-out photo, parts are from where the others have them
    # by the plan: logarithms of shares of the image's side.
    errors: Array

    @property
    def error(self) -> float:
        """The geometric mean of the distances, as a share of the side."""
        return float(np.exp(self.errors.mean()))

    def gains(self, errors: Array) -> bool:
        """Tells whether errors are surely lower than others."""
        apart = errors - self.errors
        spread = apart.std() / np.sqrt(len(apart)) + 1e-9
        return bool(apart.mean() / spread > _SURE)


def plans_of(
    places: Array,
    active: Array,
    facing: Array,
    held: Array,
    count: int,
    side: float,
    seed: int,
) -> Plans:
    """Estimates plans from where parts are, by expectation-maximisation.

    The frame of each photo, with its plan and mirror, is latent; it is found as
    at inference, see `frame_of`. Photos that are `held` out measure the error.
    The first guess parts photos at random, and turns them as `facing`, 1 or -1,
    says. Places `[n, t, 2]` and the image's side are in pixels.
    """
    draw = np.random.default_rng(seed)
    number = draw.integers(count, size=len(places))
    middle = np.average(places, axis=1, weights=active[..., None] + 0 * places)
    turned = (places - middle[:, None]) / (side / 4)
    turned[..., 1] *= facing[:, None]
    plans, spreads = _means(turned, active, number, ~held, count)
    for _ in range(_ROUNDS):
        frame = _frame(places, active, plans, spreads)
        turned = (places - frame[0][:, None]) / frame[1][:, None, None]
        turned[..., 1] *= frame[2][:, None]
        plans, spreads = _means(turned, active, frame[3], ~held, count)
    logs = np.zeros(active[held].shape)
    for t in range(places.shape[1]):
        others = np.where(np.arange(places.shape[1]) == t, 0.0, active[held])
        expected = _frame(places[held], others, plans, spreads)[4][:, t]
        logs[:, t] = log_distance(expected, places[held, t], side)
    return Plans(plans, spreads, weighted(logs, active[held]))


def middle_errors(
    places: Array, active: Array, held: Array, side: float
) -> Array:
    """Returns the errors of `Plans` if parts are expected amid the others."""
    at, sure = places[held], active[held][..., None] + 1e-6
    total, sums = sure.sum(axis=1), (sure * at).sum(axis=1)
    middle = (sums[:, None] - sure * at) / (total[:, None] - sure + 1e-9)
    return weighted(log_distance(middle, at, side), active[held])


def log_distance(first: Array, second: Array, side: float) -> Array:
    """Returns logarithms of distances, of a pixel at least, in sides."""
    return np.log((np.linalg.norm(first - second, axis=-1) + 1.0) / side)


def weighted(values: Array, active: Array) -> Array:
    """Returns the mean over parts `[n, t]` by how sure they are, `[n]`."""
    weights = active + 1e-6
    return (values * weights).sum(axis=1) / weights.sum(axis=1)


def _frame(*tensors: Array) -> tuple[Array, ...]:
    frame = frame_of(*(np.asarray(x, "float32") for x in tensors))
    return tuple(keras.ops.convert_to_numpy(x) for x in frame)


def _means(
    turned: Array, active: Array, number: Array, used: Array, count: int
) -> tuple[Array, Array]:
    """Returns the plans, of mean size 1, and spreads."""
    plans, spreads = [], []
    for k in range(count):
        own = used & (number == k)
        own = own if own.sum() > 1 else used
        weights = fits = active[own] + 1e-6
        for _ in range(_ROBUST):
            mean = np.einsum("nt,ntd->td", fits, turned[own])
            mean = mean / fits.sum(axis=0)[:, None]
            apart = np.sum((turned[own] - mean) ** 2, axis=-1)
            spread = np.sqrt([np.median(x) / 1.39 for x in apart.T])
            fits = weights / (1 + apart / (spread**2 + 1e-9))
        mean = mean - mean.mean(axis=0)
        size = np.sqrt((mean**2).sum(axis=-1).mean()) + 1e-9
        plans.append(mean / size)
        spreads.append(np.maximum(spread / size, _LEAST_SPREAD))
    return np.stack(plans), np.stack(spreads)
