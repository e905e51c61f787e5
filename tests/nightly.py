"""What takes too long for CI: `NIGHTLY=1 make test` runs it."""

import os

import pytest

NIGHTLY = bool(os.environ.get("NIGHTLY"))
nightly = pytest.mark.skipif(
    not NIGHTLY, reason="takes long: NIGHTLY=1 runs it"
)
