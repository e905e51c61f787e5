"""A folder in the place of the Hugging Face Hub, for Keras' `hf://`."""

import shutil
import types
from pathlib import Path


def install(folder, monkeypatch):
    """Has Keras read and write `folder` where it would ask the Hub."""

    class HfApi:
        def __init__(self, **about):
            assert about["library_name"] == "keras"

        def create_repo(self, name, exist_ok):
            (folder / name).mkdir(parents=True, exist_ok=exist_ok)
            return types.SimpleNamespace(repo_id=name)

        def upload_folder(self, repo_id, folder_path, commit_message):
            shutil.copytree(folder_path, folder / repo_id, dirs_exist_ok=True)

    def snapshot_download(repo_id, **about):
        assert Path(folder / repo_id).is_dir()
        return str(folder / repo_id)

    hub = types.SimpleNamespace(
        HfApi=HfApi, snapshot_download=snapshot_download
    )
    # Keras has looked for the package when it was imported itself.
    monkeypatch.setattr("keras.src.saving.saving_lib.huggingface_hub", hub)
    # With pydot, which nncf brings, it would draw the model by Graphviz.
    monkeypatch.setattr(
        "keras.src.saving.saving_lib.check_pydot", lambda: False
    )
