"""The epochs of fetch sessions (KIP-227) and share sessions (KIP-932)."""

from typing import Final

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_EPOCH: Final = 2**31 - 1
