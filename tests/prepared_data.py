"""Data sets as TensorFlow Datasets prepares them, of a few examples."""

import os

import pytest


def tfds_folder(folder, name, **splits):
    """Prepares examples as TensorFlow Datasets would; returns the folder."""
    tfds = pytest.importorskip("tensorflow_datasets")

    info = tfds.builder(name, data_dir=folder).info
    os.makedirs(info.data_dir)
    # What is not given is text, such as a file name.
    blank = dict.fromkeys(info.features, "")
    writer = tfds.core.SequentialWriter(info, max_examples_per_shard=1000)
    writer.initialize_splits(list(splits))
    writer.add_examples(
        {name: [blank | e for e in part] for name, part in splits.items()}
    )
    writer.close_all()
    return str(folder)
