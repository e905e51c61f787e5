"""Maps of types at true parts: golden cases, and against scikit-learn."""

import dataclasses

import numpy as np
import pytest
from sklearn import linear_model, metrics, preprocessing

from tests.refusals import refused
from tests.trees import made
from tfcaps import rem
from tfcaps.rem.evaluation.named_parts import mutual_information, rand_index

GRID, TYPES, STEP = 6, 4, 10
CENTRES = STEP * np.moveaxis(np.indices((GRID, GRID)), 0, -1) + 4.5


def trees_of(activations):
    """Makes trees of activations `[n, rows, columns, types]`."""
    flat = np.reshape(activations, (len(activations), -1))
    places = np.repeat(CENTRES.reshape(-1, 2), TYPES, axis=0)
    types = np.arange(flat.shape[1]) % TYPES
    grid = (GRID, GRID, TYPES)
    return made(
        flat, types, places, in_tree=np.zeros(flat.shape, bool), grid=grid
    )


def of_map(types):
    """Makes trees whose type map is one that is given."""
    types = np.asarray(types)
    return trees_of(types[..., None] == np.arange(TYPES))


def test_the_most_active_type_is_on_the_map():
    activations = np.zeros((2, GRID, GRID, TYPES))
    activations[0, 2, 3] = 0.2, 0.9, 0.3, 0.0
    activations[0, 4, 1, 2] = 0.08  # less than a tenth of the image's most
    activations[1, 4, 1, 2] = 0.08
    found = trees_of(activations)
    expected = np.full((2, GRID, GRID), -1)
    expected[0, 2, 3], expected[1, 4, 1] = 1, 2
    np.testing.assert_array_equal(found.type_map, expected)
    np.testing.assert_array_equal(found[1:].type_map, expected[1:])
    with pytest.raises(ValueError, match="children that have positions"):
        _ = dataclasses.replace(found, grid=(9,)).type_map


def test_nmi_and_ari_are_those_of_scikit_learn(rng):
    types = rng.integers(-1, TYPES, (30, GRID, GRID))
    points = rng.uniform(0, GRID * STEP - 1, (30, 5, 2))
    points[rng.random((30, 5)) < 0.3] = np.nan
    # Some parts do have a type, most of the time.
    image, part = np.nonzero(np.isfinite(points[..., 0]))
    row, column = np.floor((points[image, part] + 0.5) / STEP).astype(int).T
    some = rng.random(len(part)) < 0.7
    types[image[some], row[some], column[some]] = part[some] % TYPES
    a, b = part, types[image, row, column]
    found = rem.keypoints(of_map(types), points)
    expected = metrics.normalized_mutual_info_score(a, b)
    assert found.information == pytest.approx(expected)
    assert found.rand_index == pytest.approx(metrics.adjusted_rand_score(a, b))
    assert found.points == len(a)
    assert found.covered == pytest.approx(np.mean(np.array(b) >= 0))
    assert found.information > 0.3 and found.consistency is None


def test_pixels_of_masks_count():
    types = np.zeros((1, GRID, GRID), int)
    types[:, :, 3:] = 1
    masks = np.zeros((1, 3, GRID * STEP, GRID * STEP), bool)
    masks[0, 0, :10, :25] = True
    masks[0, 1, 20:40, 28:38] = True  # 40 pixels on the other side
    found = rem.keypoints(of_map(types), masks)
    assert found.table == (
        (250, 40, 0),
        (0, 160, 0),
        (0,) * 3,
        (0,) * 3,
        (0,) * 3,
    )


@pytest.mark.parametrize(
    ("table", "nmi", "ari"),
    [
        ([[5, 0], [0, 5]], 1.0, 1.0),
        ([[5, 5]], 0.0, 0.0),
        ([[7]], 1.0, 1.0),
        (np.eye(4), 1.0, 1.0),
        ([[2, 2], [2, 2]], 0.0, -1 / 6),
        ([[4, 0], [2, 2]], 0.3437, 0.16),
    ],
)
def test_golden_tables(table, nmi, ari):
    table = np.asarray(table, int)
    assert mutual_information(table) == pytest.approx(nmi, abs=1e-4)
    assert rand_index(table) == pytest.approx(ari, abs=1e-4)


def drawn(count, seed, noise=4.0):
    """Returns trees whose types stand near parts, the parts and the boxes."""
    rng = np.random.default_rng(seed)
    first = rng.uniform(0, 10, (count, 1, 2))
    size = rng.uniform(40, 60, (count, 1, 2))
    inside = np.array([[0.1, 0.2], [0.5, 0.5], [0.9, 0.7], [0.2, 0.8]])
    points = first + size * inside
    activations = np.zeros((count, GRID, GRID, TYPES))
    near = points + rng.normal(0, noise, points.shape)
    cells = np.clip(np.floor(near / STEP), 0, GRID - 1).astype(int)
    for image, part in np.ndindex(count, 3):  # type 3 is nowhere
        if rng.random() < 0.9:
            at = *cells[image, part], part
            activations[image, *at] = rng.uniform(0.5, 1.0)
    points[rng.random((count, 4)) < 0.2] = np.nan
    boxes = np.concatenate([first, size], axis=-1)[:, 0]
    return trees_of(activations), points, boxes


def regressed(fit, ask):
    """Returns the error of keypoints, as the authors compute it."""
    centres, targets = [], []
    for trees, points, boxes in (fit, ask):
        first, size = boxes[:, None, :2], boxes[:, None, 2:]
        there = trees.activations.reshape(len(trees), -1, TYPES)
        at = trees.places.reshape(*there.shape, 2)
        with np.errstate(invalid="ignore"):
            mean = (there[..., None] * at).sum(1) / there.sum(1)[..., None]
        centres.append(((mean - first) / size).reshape(len(trees), -1))
        targets.append((points - first) / size)
    distances = []
    for part in range(targets[0].shape[1]):
        rows, others = (np.isfinite(t[:, part, 0]) for t in targets)
        x, y = centres[0][rows], targets[0][rows, part]
        of_x, of_y = (preprocessing.StandardScaler().fit(v) for v in (x, y))
        x, new = (
            np.nan_to_num(of_x.transform(v)) for v in (x, centres[1][others])
        )
        model = linear_model.LinearRegression(fit_intercept=False)
        model.fit(x, of_y.transform(y))
        guess = of_y.inverse_transform(model.predict(new))
        distances += [*np.linalg.norm(guess - targets[1][others, part], axis=1)]
    return np.mean(distances)


@pytest.mark.filterwarnings("ignore")  # of a type that is nowhere
def test_keypoints_are_regressed_as_the_authors_do():
    fit, ask = drawn(80, 0), drawn(50, 1)
    found = rem.keypoints(*ask, training=fit)
    assert found.regression_error == pytest.approx(regressed(fit, ask))
    assert found.regression_error < 0.1


def test_consistency_and_stability():
    trees, points, boxes = drawn(60, 2, noise=0.5)
    found = rem.keypoints(trees, points, boxes, noisy=trees)
    assert (found.consistency, found.stability) == (1.0, 1.0)
    # One of three types stands anywhere.
    moved = trees.activations.reshape(60, GRID, GRID, TYPES).copy()
    for image in range(60):
        moved[image, ..., 1] = np.roll(moved[image, ..., 1], image, (0, 1))
    other = trees_of(moved)
    wrong = rem.keypoints(other, points, boxes, noisy=trees)
    assert wrong.consistency == pytest.approx(2 / 3)
    assert 0.6 < wrong.stability < 0.9
    assert "consistent types" in str(wrong)


def test_leaves_in_the_box_are_counted():
    trees = of_map(np.zeros((1, GRID, GRID), int))
    inside = trees.in_tree.reshape(GRID, GRID, TYPES).copy()
    inside[[0, 1, 5], 2, 0] = True
    trees = dataclasses.replace(trees, in_tree=inside.reshape(1, -1))
    found = rem.keypoints(trees, np.ones((1, 3, 2)), [[0, 0, 30, 60]])
    assert found.in_box == pytest.approx(2 / 3)
    assert found.in_box_random == 0.5


TREES = of_map(np.zeros((2, GRID, GRID), int))
POINTS = np.ones((2, 3, 2))


test_what_does_not_fit_is_refused = refused(
    """
rem.keypoints(TREES, POINTS[:1])
  `parts` must be masks
rem.keypoints(TREES, POINTS * np.nan)
  must show a part
rem.keypoints(TREES, POINTS, np.ones((2, 3)))
  height and width
rem.keypoints(TREES, POINTS, noisy=TREES)
  need `boxes`
""",
    **{"rem": rem, "np": np, "TREES": TREES, "POINTS": POINTS},
)
