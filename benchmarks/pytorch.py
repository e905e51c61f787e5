"""DR-CapsNet as the public REM code computes it: in PyTorch, op by op.

Written afresh. A vote is a product of matrices of its own: the children are
tiled over the parents and multiplied with all maps by one `torch.matmul` that
broadcasts. The votes of all but the last iteration are constants.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

_LEARNING_RATE = 0.001  # Keras' Adam
_EPSILON = 1e-7  # Keras' Adam; also under the root of the squash
_TYPES = 32
_CHILD_DIM = 8


class CapsNet(nn.Module):
    """The published DR-CapsNet, without routing bias and decoder.

    The capsules of a map run row, column, type, as those of tfcaps, so that
    weights can be copied.

    Args:
        side: Int. Rows and columns of an image of one channel.
        classes: Int. Number of classes.
        class_dim: Int. Components of a class capsule.
        iterations: Int. Iterations of dynamic routing.
    """

    def __init__(
        self,
        side: int = 28,
        classes: int = 10,
        class_dim: int = 16,
        iterations: int = 3,
    ):
        super().__init__()
        self.iterations = iterations
        self.conv = nn.Conv2d(1, 256, 9)
        self.primary = nn.Conv2d(256, _TYPES * _CHILD_DIM, 9, stride=2)
        children = ((side - 16) // 2) ** 2 * _TYPES
        shape = (1, children, classes, class_dim, _CHILD_DIM)
        self.maps = nn.Parameter(0.1 * torch.randn(shape))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Returns lengths `[b, j]` of images `[b, 1, h, w]`."""
        features = self.primary(torch.relu(self.conv(images)))
        capsules = features.unflatten(1, (_TYPES, _CHILD_DIM))
        capsules = capsules.permute(0, 3, 4, 1, 2).flatten(1, 3)
        poses = self._route(self._votes(squash(capsules)))
        return torch.linalg.vector_norm(poses, dim=-1)

    def _votes(self, children: torch.Tensor) -> torch.Tensor:
        classes = self.maps.shape[2]
        columns = children[:, :, None, :, None].tile(1, 1, classes, 1, 1)
        return torch.matmul(self.maps, columns).squeeze(-1)

    def _route(self, votes: torch.Tensor) -> torch.Tensor:
        constant = votes.detach()
        logits = torch.zeros(votes.shape[:3], device=votes.device)
        for _ in range(self.iterations - 1):
            shares = torch.softmax(logits, dim=2)[..., None]
            poses = squash((shares * constant).sum(1))
            logits = logits + (constant * poses[:, None]).sum(-1)
        shares = torch.softmax(logits, dim=2)[..., None]
        return squash((shares * votes).sum(1))


def squash(sums: torch.Tensor) -> torch.Tensor:
    """Shrinks vectors to a length below one and keeps their direction."""
    square = sums.square().sum(-1, keepdim=True)
    return square / (1.0 + square) * sums / torch.sqrt(square + _EPSILON)


def margin_loss(lengths: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Returns the mean margin loss of lengths `[b, j]` and classes `[b]`."""
    present = nn.functional.one_hot(labels, lengths.shape[1])
    missed = torch.relu(0.9 - lengths).square()
    false = torch.relu(lengths - 0.1).square()
    costs = present * missed + 0.5 * (1 - present) * false
    return costs.sum(1).mean()


def make_network(on_gpu: bool) -> CapsNet:
    """Returns the network, on a GPU with the means that XLA has there.

    These are products rounded to TF32, and trying several ways to convolve.

    Raises:
        RuntimeError: If PyTorch finds no GPU.
    """
    if not on_gpu:
        return CapsNet()
    if not torch.cuda.is_available():
        raise RuntimeError("it finds no GPU.")
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    return CapsNet().to("cuda")


def make_step(
    network: nn.Module, images: Any, labels: Any
) -> Callable[[], float]:
    """Returns a training step that blocks until done and returns its loss.

    Args:
        network: From images to lengths, on the device where it shall train.
        images: NumPy array `[b, h, w, c]`, copied to the device in each step.
        labels: NumPy array of classes `[b]`, copied likewise.
    """
    device = next(network.parameters()).device
    optimizer = torch.optim.Adam(
        network.parameters(), _LEARNING_RATE, eps=_EPSILON
    )
    pixels = torch.from_numpy(images).movedim(-1, 1).contiguous()
    targets = torch.from_numpy(labels)

    def step() -> float:
        optimizer.zero_grad()
        lengths = network(pixels.to(device))
        loss = margin_loss(lengths, targets.to(device))
        loss.backward()
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return loss.item()

    return step


def peak_bytes(step: Callable[[], Any]) -> int:
    """Returns the most GPU memory that a step needs, once it has run."""
    step()
    torch.cuda.reset_peak_memory_stats()
    step()
    return torch.cuda.max_memory_allocated()
