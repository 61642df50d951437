"""Reads safetensors files: a header of JSON, then little-endian values.

    with SafetensorsFile(path) as file:
        file.names
        values = file.floats("block0.mlp.norm.weight", (512,))    # the bytes of 512 floats
"""
import json
import math
import os
import struct


class SafetensorsFile:
    """Only F32, which is all that `ringzero train --dump-parameters` writes for a GPT. ValueError names file and tensor."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._size = os.fstat(self._fd).st_size
            (length,) = struct.unpack("<Q", self._read(0, 8, "the header's length"))
            self._values = 8 + length
            self._entries: dict = json.loads(self._read(8, length, "the header"))
        except BaseException:
            os.close(self._fd)
            raise
        self._entries.pop("__metadata__", None)

    def __enter__(self) -> "SafetensorsFile":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    @property
    def names(self) -> list[str]:
        return list(self._entries)

    def _read(self, begin: int, count: int, what: str) -> bytes:
        if begin + count > self._size:
            raise ValueError(f"{self._path}: truncated: {what} ends at byte {begin + count} of {self._size}")
        return os.pread(self._fd, count, begin)

    def floats(self, name: str, shape: tuple[int, ...]) -> bytes:
        """The values of tensor `name`, which must have this shape."""
        entry = self._entries.get(name)
        if entry is None:
            raise ValueError(f"{self._path}: has no tensor '{name}'")
        if entry["dtype"] != "F32" or tuple(entry["shape"]) != tuple(shape):
            raise ValueError(f"{self._path}: tensor '{name}' is {entry['dtype']} {entry['shape']}, "
                             f"wanted F32 {list(shape)}")
        begin, end = entry["data_offsets"]
        if end - begin != 4 * math.prod(shape):
            raise ValueError(f"{self._path}: tensor '{name}' has {end - begin} bytes, wanted {4 * math.prod(shape)}")
        return self._read(self._values + begin, end - begin, f"tensor '{name}'")
