"""Figures at any angle and size, asked of a network of upright ones."""

from types import SimpleNamespace

import numpy as np

from examples import viewpoints


def bars(angle=0.0, size=1.0):
    """Returns an image of a bar right of the middle, turned and resized."""
    image = np.zeros((1, 33, 33, 1))
    image[0, 15:18, 18:28] = 1.0
    return viewpoints.posed(image, angle, size)


def test_images_turn_against_the_clock_about_the_middle():
    upward = bars(90.0)
    assert upward[0, 5:15, 16].min() > 0.9 and upward[0, 20:].max() < 0.1
    assert bars(0.0, 0.5)[0, 16, 17:22].min() > 0.9
    assert bars(0.0, 0.5)[0, 16, 24:].max() < 0.1


def test_the_view_with_the_most_evidence_counts():
    upright = bars()

    def predict(images, **_):
        alike = (images * upright).sum(axis=(1, 2, 3)) / np.linalg.norm(
            images.reshape(len(images), -1), axis=1
        )
        return {"evidence": alike[:, None], "lengths": alike[:, None]}

    network = SimpleNamespace(learner=lambda: SimpleNamespace(predict=predict))
    poses = [(0.0, 1.0), (90.0, 1.0), (135.0, 1.33), (300.0, 0.75)]
    images = np.concatenate([bars(*pose) for pose in poses])
    lengths, angles, sizes = viewpoints.any_view(network, images)
    assert lengths.shape == (4, 1)
    assert [*zip(angles, sizes, strict=True)] == poses
