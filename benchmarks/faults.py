"""Time and page faults of a training step, in a process of its own.

Whether memory is kept between steps holds for a whole process, see
`tfcaps.keep_memory`.
"""

import json
import resource
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from benchmarks.measure import call_elsewhere

# Steps before the first that is measured, in which the memory still grows, and
# at most so many after.
_WARM = 12
_STEPS = 30
# What makes TensorFlow do on any processor what it does on one without AVX-512.
AVX2 = {
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
}


class Cost(NamedTuple):
    """What a training step costs.

    Attributes:
        ms: Milliseconds by the clock.
        user_ms: Milliseconds of processors computing, of all cores.
        system_ms: Milliseconds of processors in the kernel, of all cores.
        faults: Page faults without reading from a disk.
        peak_mb: The most that the process has held, in 10^6 bytes.
        steps: How many steps were measured.
    """

    ms: float
    user_ms: float
    system_ms: float
    faults: float
    peak_mb: float
    steps: int

    @property
    def system_share(self) -> float:
        """The kernel's time, over that of computing."""
        return self.system_ms / self.user_ms


def of_training(
    name: str,
    *,
    kept: bool = True,
    batch: int | None = None,
    seconds: float = 10.0,
    environment: Mapping[str, str] | None = None,
) -> Cost:
    """Trains a network for a few steps of `fit` in a process of its own.

    Args:
        name: A name in `training.models.MODELS`.
        kept: Bool. Call `tfcaps.keep_memory` before. Defaults to `True`.
        batch: Int. Images in a step. Defaults to that of `benchmarks.models`.
        seconds: Time after which no further step is begun. Defaults to `10.0`.
        environment: Environment variables besides this process' own.

    Raises:
        RuntimeError: If the process fails.
    """
    found = call_elsewhere(
        "benchmarks.faults:measure",
        environment=environment,
        name=name,
        kept=kept,
        batch=batch,
        seconds=seconds,
    )
    return Cost(*found)


def measure(name: str, kept: bool, batch: int | None, seconds: float) -> Cost:
    """Trains in this process, which must have done nothing before."""
    import keras

    import tfcaps
    from benchmarks import models
    from training import networks
    from training.batches import Batches, stream
    from training.image_data import Images

    if kept:
        tfcaps.keep_memory()
    size = models.size_of(name, batch)
    if name == "parts_capsnet":
        size = size._replace(shape=(32, 32, 1))  # those of figures
    network = networks.build(name, size.shape, size.classes)
    model = models.to_train(network, name)
    count = size.batch * (_WARM + _STEPS)
    images, labels = models.random_data(size._replace(batch=count))

    class Probe(keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
        """Reads the clocks after the first steps and after the last one."""

        def on_train_batch_end(self, step: int, logs: Any = None) -> None:
            del logs
            if step == _WARM - 1:
                self.started = _clocks()
            elif step >= _WARM:
                self.ended, self.steps = _clocks(), step - _WARM + 1
                late = self.ended[0] - self.started[0] > 1000 * seconds
                self.model.stop_training = late

    probe = Probe()
    # As the main job feeds it: arrays of Keras' own leave the memory such that
    # glibc gives back much less.
    batches = stream(
        Batches(
            Images(images),
            labels,
            size.batch,
            arrange=lambda x, y: (x, models.targets(model, x, y)),
        )
    )
    model.fit(batches, verbose=0, shuffle=False, callbacks=[probe])
    both = zip(probe.started, probe.ended, strict=True)
    ms, user_ms, system_ms, faults = (
        (after - before) / probe.steps for before, after in both
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Cost(ms, user_ms, system_ms, faults, 1.024e-3 * peak, probe.steps)


def _clocks() -> tuple[float, float, float, float]:
    """Returns milliseconds by three clocks, and page faults so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (
        1000 * time.perf_counter(),
        1000 * used.ru_utime,
        1000 * used.ru_stime,
        used.ru_minflt,
    )


if __name__ == "__main__":
    print(json.dumps(measure(*json.loads(sys.argv[1]))))
