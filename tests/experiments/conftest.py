import pytest

from tests import experiment_runs


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """The rows of an experiment that tests may exchange."""
    return experiment_runs.install(tmp_path, monkeypatch)
