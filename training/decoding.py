"""Trains a decoder on the capsules of a run that no longer change."""

import keras

import tfcaps
from training import devices, networks, objectives
from training.datasets import Data
from training.devices import Strategy
from training.feeding import epoch_starter, stream, training_batches
from training.finite import StopIfNotFinite, guarded
from training.folder import RunFolder
from training.progress import progress


def decoded_model(
    model: keras.Model,
    data: Data,
    folder: RunFolder,
    strategy: Strategy | None,
) -> keras.Model | None:
    """Returns the model with its decoder, or None if there is to be none.

    A frozen decoder is trained now, or taken from the folder if that was done
    before.
    """
    config = folder.config
    if config.decoder != "frozen":
        return model if config.decoder == "joint" else None
    path = folder.model_path("decoder")
    if path.exists():
        return folder.load_model("decoder")
    print("\nDecoder on the frozen capsules", flush=True)
    keras.utils.set_random_seed(config.seed)
    with devices.scope(strategy):
        # A copy from the file, because freezing changes the layers.
        encoder = folder.load_model(config.model_names[-1])
        decoded = networks.with_decoder(config.model, encoder, frozen=True)
        batches = training_batches(decoded, data, config)
        loss = tfcaps.losses.ReconstructionLoss(config.reconstruction_weight)
        optimizer = keras.optimizers.Adam(
            objectives.learning_rate(config, batches.num_batches)
        )
        decoded.compile(
            guarded(optimizer), {"lengths": None, "reconstruction": loss}
        )
        decoded.fit(
            stream(batches),
            epochs=config.epochs,
            verbose=progress(),
            shuffle=False,
            callbacks=[epoch_starter(batches), StopIfNotFinite(batches)],
        )
    folder.save_model("decoder", decoded)
    return decoded
