"""Exports networks to TensorFlow Serving, ONNX Runtime, LiteRT and OpenVINO.

| signature | from `images` `[b, h, w, c]` to |
|---|---|
| `serving_default` | `lengths` `[b, j]`, `poses` `[b, j, d]`, `classes` `[b]` |
| `explain` | `lengths`, `classes`, `couplings` `[b, i]`, `saliency` |
| `encode` | `poses` |

What the network takes need not be images: signals, rows of a table and volumes
have that name too. Couplings are those towards the predicted class; the
saliency map `[b, h, w]` is there if the network takes images and the children
of the class capsules have positions. Whether it explains anything was measured
if the manifest has `saliency`. Floats are float32, classes int64. Every
row depends on its own image alone.
"""

from tfcaps.export.checking import check as check
from tfcaps.export.runtimes import ExportError as ExportError
from tfcaps.export.saving import save as save
