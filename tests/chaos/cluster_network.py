"""Hosts that are network namespaces of this machine, and a router between them that can drop chosen packets.

    clients  198.18.1.2 ---.                .--- 198.18.3.2  broker-1
                           router (namespace)
    zookeeper 198.18.2.2 --'                '--- 198.18.4.2  broker-2 ...

Every host has a link of its own to the router, which forwards. A rule `from A to B blackhole` there silently loses what
A sends to B, of old connections and new ones alike; the other direction is another rule. Nothing of it can be reached
from outside, and the machine's own network is not touched.

Needs root and iproute2, which `Network` says if they are missing. Namespaces carry the process id in their names: what
a run that was killed has left behind is removed by the next one.
"""

import ctypes
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

NAMESPACES: Final = Path("/run/netns")
_OWN: Final = re.compile(r"ottla-chaos-(\d+)-.+")
_ROUTER: Final = "router"
_CLONE_NEWNET: Final = 0x40000000


class NetworkUnavailable(RuntimeError):
    """This machine does not let us have network namespaces; the message says why and what to do."""


class Network:
    """Some hosts that all reach each other; inside `with`, they are there. Methods raise `NetworkUnavailable`."""

    def __init__(self, *hosts: str) -> None:
        """`hosts` are short names; nothing is made yet."""
        self._numbers = {host: number for number, host in enumerate(hosts, 1)}
        self._name = f"ottla-chaos-{os.getpid()}"
        self._cuts: dict[tuple[str, str, int | None], int] = {}
        self._rule_numbers: dict[tuple[str, ...], int] = {}

    def __enter__(self) -> Self:
        check_available()
        remove_leftovers()
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def address(self, host: str) -> str:
        """The address of a host, for the other hosts."""
        return f"198.18.{self._numbers[host]}.2"

    def prefix(self, host: str) -> tuple[str, ...]:
        """What runs a command on a host, in the place of this process."""
        return "nsenter", f"--net={NAMESPACES / self._namespace(host)}", "--"

    @contextmanager
    def entered(self, host: str) -> Iterator[None]:
        """This thread is on that host, and so are the threads and processes that it starts."""
        with Path("/proc/thread-self/ns/net").open() as before, (NAMESPACES / self._namespace(host)).open() as there:
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(before.fileno())

    def cut(self, sender: str, receiver: str, port: int | None = None) -> None:
        """Lose what `sender` sends to `receiver`, until `mend` was called as often.

        With `port` only what one of them has on that port: of connections to it, in the direction that is cut.
        """
        cuts = self._cuts.get((sender, receiver, port), 0)
        if not cuts:
            self._rules("add", sender, receiver, port)
        self._cuts[sender, receiver, port] = cuts + 1

    def mend(self, sender: str, receiver: str, port: int | None = None) -> None:
        """The opposite of one `cut`."""
        cuts = self._cuts.pop((sender, receiver, port))
        if cuts > 1:
            self._cuts[sender, receiver, port] = cuts - 1
        else:
            self._rules("del", sender, receiver, port)

    def _rules(self, verb: str, sender: str, receiver: str, port: int | None) -> None:
        ends = ("from", self.address(sender), "to", self.address(receiver))
        for what in [()] if port is None else [("ipproto", "tcp", end, str(port)) for end in ("sport", "dport")]:
            # By a number of its own: `del` takes the first rule that has all that is named, whatever else it has.
            number = self._rule_numbers.setdefault((sender, receiver, *what), 1 + len(self._rule_numbers))
            _ip("-n", self._namespace(_ROUTER), "rule", verb, "pref", str(number), *ends, *what, "blackhole")

    def _namespace(self, host: str) -> str:
        return f"{self._name}-{host}"

    def _make(self) -> None:
        router = self._namespace(_ROUTER)
        _ip("netns", "add", router)
        _ip("netns", "exec", router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        for host, number in self._numbers.items():
            own, link = self._namespace(host), f"to{number}"
            _ip("netns", "add", own)
            _ip("-n", own, "link", "set", "lo", "up")
            _ip("-n", router, "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", own)
            _ip("-n", router, "address", "add", f"198.18.{number}.1/30", "dev", link)
            _ip("-n", router, "link", "set", link, "up")
            _ip("-n", own, "address", "add", f"{self.address(host)}/30", "dev", "eth0")
            _ip("-n", own, "link", "set", "eth0", "up")
            _ip("-n", own, "route", "add", "default", "via", f"198.18.{number}.1")

    def _remove(self) -> None:
        for host in (*self._numbers, _ROUTER):
            _delete(self._namespace(host))


def check_available() -> None:
    """Raise `NetworkUnavailable` if it is plain that there can be no network here."""
    if os.geteuid() != 0:
        raise NetworkUnavailable("network namespaces need root: run it as root (sudo)")
    if shutil.which("ip") is None or shutil.which("nsenter") is None:
        raise NetworkUnavailable("`ip` and `nsenter` are needed (Debian: apt-get install iproute2 util-linux)")


def remove_leftovers() -> Iterable[str]:
    """Remove the namespaces of processes that are gone, and end what still runs in them; returns their names."""
    found = [path.name for path in NAMESPACES.glob("ottla-chaos-*")] if NAMESPACES.is_dir() else []
    left = [name for name in found if (own := _OWN.fullmatch(name)) and not Path(f"/proc/{own[1]}").exists()]
    for name in left:
        _delete(name)
    return left


def _delete(namespace: str) -> None:
    if (NAMESPACES / namespace).exists():
        for process in _ip("netns", "pids", namespace).split():
            with suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
        _ip("netns", "del", namespace)


def _ip(*arguments: str) -> str:
    done = subprocess.run(("ip", *arguments), capture_output=True, text=True, check=False, timeout=20)
    if done.returncode:
        raise NetworkUnavailable(f"`ip {' '.join(arguments)}` failed: {done.stderr.strip()}")
    return done.stdout


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET):
        raise NetworkUnavailable(f"setns failed: {os.strerror(ctypes.get_errno())}")
