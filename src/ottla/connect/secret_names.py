"""Settings that are secrets by their names, whatever connector, client, converter or transform they belong to. PURE."""

import re
from typing import Final

SECRET_NAMES: Final = re.compile(
    r"password|passwd|passphrase|secret|credential|jaas|token|authorization|user\.info|http\.headers|"
    r"(api|access|private|account|keystore|ssl)[._-]?key\b",
    re.IGNORECASE,
)
"""Names of settings that are secrets whatever their connector; those of clients, converters and transforms."""
