"""Secrets for libraries that read files only."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def secret_file(content: bytes) -> Iterator[str]:
    """The path of a file with this content, for a moment: in memory where the system can, else one that no other user
    can read."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("ottla", os.MFD_CLOEXEC)
        path = f"/proc/self/fd/{descriptor}"
    else:
        descriptor, path = tempfile.mkstemp()
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield path
    finally:
        os.close(descriptor)
        if not hasattr(os, "memfd_create"):
            os.unlink(path)
