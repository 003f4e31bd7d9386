"""Many clients that connect with TLS at once, as a process of its own with the lowest priority.

`python -m tests.support.tls_storm HOST PORT CLIENTS` prints how many have connected, once all have or have not.
"""

import asyncio
import os
import ssl
import sys

LIMIT_S = 120.0


async def storm(host: str, port: int, clients: int) -> int:
    """How many of them have connected; each holds its connection until all have tried."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def connect() -> asyncio.StreamWriter:
        _, writer = await asyncio.open_connection(host, port, ssl=context, ssl_handshake_timeout=LIMIT_S)
        return writer

    opened = await asyncio.gather(*(connect() for _ in range(clients)), return_exceptions=True)
    writers = [each for each in opened if isinstance(each, asyncio.StreamWriter)]
    for writer in writers:
        writer.transport.abort()
    return len(writers)


if __name__ == "__main__":
    os.nice(19)
    print(asyncio.run(storm(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
