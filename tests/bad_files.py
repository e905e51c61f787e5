"""Ways in which a file can be wrong."""

import zipfile

import numpy as np


def missing(path):
    path.unlink()


def empty(path):
    path.write_bytes(b"")


def truncated(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def flipped(path):
    """Changes a byte in the middle, where data are and no comment."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def another_kind(path):
    path.write_bytes(b"\x89PNG\r\n\x1a\nnothing of the kind" * 50)


def a_folder(path):
    path.unlink()
    path.mkdir()


def outside(path):
    """Adds a member whose name points out of the folder."""
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("../../outside.txt", "evil")


EVERY = (missing, empty, truncated, flipped, another_kind, a_folder)


def huge_array(path):
    """Writes an `.npz` whose images claim to be 7 PiB."""
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': "
    header += b"(8000000000000, 30, 30), }"
    header += b" " * (117 - len(header)) + b"\n"
    magic = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little")
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("x_train", "x_test"):
            archive.writestr(f"{name}.npy", magic + header + b"\0" * 100)
        for name in ("y_train", "y_test"):
            with archive.open(f"{name}.npy", "w") as file:
                np.save(file, np.arange(6) % 3)


def png_bomb(path):
    """Writes a PNG of a few bytes that claims to be 60,000 x 60,000."""
    import struct
    import zlib

    def chunk(kind, data):
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    size = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", size)
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )
