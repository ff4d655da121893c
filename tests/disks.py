"""Disks that are full or read-only: to be put in the place of `open`."""

from __future__ import annotations

import errno
import io
import os


class FullDisk(io.FileIO):
    def write(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_disk(path, mode="r"):
    return FullDisk(path, mode)


def read_only(path, mode="r"):
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))
