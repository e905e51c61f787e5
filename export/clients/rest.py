"""Asks a served network by REST, with the standard library alone."""

import contextlib
import http.client
import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote

import numpy as np

from export.clients.server import (
    Array,
    ClientError,
    Outputs,
    Server,
    Signature,
)


def predict_rest(
    url: str,
    model: str,
    images: Array,
    *,
    signature: str | Signature = "serving_default",
    version: int | None = None,
    timeout: float = 10.0,
) -> Outputs:
    """Returns the outputs of a served network, by REST.

    Args:
        url: Such as `"http://localhost:8501"`.
        model: Name of the model.
        images: `[b, h, w, c]`, uint8 in 0..255 or float in [0, 1].
        signature: Its name, or what `signature_rest` returned for it.
        version: Int. Defaults to the server's choice, the newest.
        timeout: Seconds to wait for an answer.

    Raises:
        ClientError: If no outputs come, or the images do not fit.
    """
    return RestServer(url, model, version, timeout).predict(images, signature)


def signature_rest(
    url: str,
    model: str,
    *,
    signature: str = "serving_default",
    version: int | None = None,
    timeout: float = 10.0,
) -> Signature:
    """Returns what a signature takes and returns; see `predict_rest`."""
    return RestServer(url, model, version, timeout).signature(signature)


class RestServer(Server):
    """A model of a server that is asked by REST, at `"http://host:8501"`."""

    def definitions(self) -> dict[str, Any]:
        keys = ("metadata", "signature_def", "signature_def")
        found: dict[str, Any] = self._ask("/metadata", None, *keys)
        return found

    def run(self, images: Array, signature: Signature) -> Outputs:
        inputs = {"images": images.tolist()}
        request = {"signature_name": signature.name, "inputs": inputs}
        outputs = self._ask(":predict", request, "outputs")
        types = signature.outputs
        if not isinstance(outputs, dict):  # a single output loses its name
            outputs = {next(iter(types)): outputs}
        return {k: np.array(outputs[k], types.get(k)) for k in sorted(outputs)}

    def _ask(self, what: str, content: Any, *keys: str) -> Any:
        """Returns a part of the answer to a POST, or to a GET of nothing."""
        status, text = self._send(what, content)
        with contextlib.suppress(ValueError, KeyError, TypeError):
            answer = json.loads(text)
            if status == 200:
                for key in keys:
                    answer = answer[key]
                return answer
            text = answer["error"]
        name = {404: "NOT_FOUND"}.get(status, f"HTTP {status}")
        raise self.error(name, text)

    def _send(self, what: str, content: Any) -> tuple[int, str]:
        """Returns status and text of the server's answer."""
        if not self.address.startswith(("http://", "https://")):
            raise ClientError(f"{self.address!r} must begin with http://.")
        url = f"{self.address.rstrip('/')}/v1/models/{quote(self.model, '')}"
        if self.version is not None:
            url += f"/versions/{self.version}"
        data = None if content is None else json.dumps(content).encode()
        headers = {"Content-Type": "application/json"}
        try:
            request = urllib.request.Request(url + what, data, headers)
            try:
                answer = urllib.request.urlopen(request, timeout=self.timeout)
            except urllib.error.HTTPError as error:
                answer = error  # which can be read too
            with answer:
                return answer.status, answer.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            late = isinstance(reason, TimeoutError)
            status = "DEADLINE_EXCEEDED" if late else "UNAVAILABLE"
            raise self.error(status, str(reason)) from error
