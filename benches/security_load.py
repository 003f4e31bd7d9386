"""Handshakes and logins, in a process of its own: `python -m benches.security_load handshakes|logins|bystander ...`.

Prints one line of JSON. The cost of SCRAM for a client is taken out: its hash of the password is kept.
"""

import argparse
import asyncio
import functools
import hashlib
import json
import os
import select
import socket
import ssl
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ottla.client.addresses import Address, parse_addresses
from ottla.client.asynchronous import AsyncConnection
from ottla.client.blocking import Connection
from ottla.client.sansio.handshake import handshake
from ottla.client.security import mechanism_of
from ottla.protocol.messages.metadata import MetadataRequest

_THREADS = 8
_LOGIN_S = 120.0
_EVERY_S = 0.005


def handshakes(address: Address, count: int, authority: str, own: str) -> dict[str, float]:
    """So many full handshakes of TLS 1.3 with certificates on both ends, each with one request behind it."""
    context = ssl.create_default_context(cafile=authority)
    context.load_cert_chain(own)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    request = bytes.fromhex("0000000a 0012 0000 00000001 ffff")

    def once(_: int) -> None:
        with (
            socket.create_connection(address, 30) as opened,
            context.wrap_socket(opened, server_hostname="localhost") as tls,
        ):
            tls.sendall(request)
            assert tls.recv(4), "the broker hung up"

    started = time.perf_counter()
    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(once, range(count)))
    return {"seconds": time.perf_counter() - started}


def logins(address: Address, count: int, user: str, password: str) -> dict[str, float]:
    """So many logins by SCRAM-SHA-512, all at once: seconds until the last is done."""
    hashlib.pbkdf2_hmac = functools.cache(hashlib.pbkdf2_hmac)  # type: ignore[assignment]
    os.nice(10)  # what is measured of another client is not to wait for this process
    mechanism = mechanism_of("SCRAM-SHA-512", user, password)

    async def all_at_once() -> float:
        connections = [
            AsyncConnection(*address, "load", handshake=lambda: handshake(mechanism())) for _ in range(count)
        ]
        started = time.perf_counter()
        await asyncio.gather(*(each.open(timeout_s=_LOGIN_S) for each in connections))
        seconds = time.perf_counter() - started
        for each in connections:
            each.close()
        return seconds

    return {"seconds": asyncio.run(all_at_once())}


def bystander(address: Address) -> dict[str, float]:
    """Requests of another client, every 5 ms until standard input ends: the longest wait, in ms."""
    worst_ms = 0.0
    with Connection(address, client_id="bystander", timeout_s=60) as connection:
        request: Any = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        connection.ask(request)
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], _EVERY_S)[0]:
            asked = time.perf_counter()
            connection.ask(request)
            worst_ms = max(worst_ms, (time.perf_counter() - asked) * 1000)
    return {"worst_ms": worst_ms}


def main() -> None:
    """Run one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("handshakes", "logins", "bystander"))
    parser.add_argument("bootstrap")
    parser.add_argument("rest", nargs="*")
    given = parser.parse_args()
    (address,) = parse_addresses(given.bootstrap)
    if given.what == "bystander":
        found = bystander(address)
    else:
        count, *rest = given.rest
        found = (handshakes if given.what == "handshakes" else logins)(address, int(count), *rest)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
