"""`ottla top`: a broker at work, as it changes."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import json_option, on_terminal, print_json
from ottla.cli.top.rates import Look, Rates, own_figures, rates
from ottla.errors import sentence

if TYPE_CHECKING:
    from rich.console import RenderableType

DEFAULT: Final = "http://127.0.0.1:9644"
TIMEOUT_S: Final = 10.0
ROWS: Final = 10
SLOW_ROWS: Final = 5


@click.command()
@click.argument("address", metavar="[URL]", default=DEFAULT)
@click.option("--once", is_flag=True, help="Show the rates of one interval, and end.")
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(min=0.1, max=3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="The interval.",
)
@json_option
def command(address: str, once: bool, every_s: float, as_json: bool) -> None:
    """Watch a broker until Ctrl-C: rates, busiest topics and clients, slowest requests.

    URL is one of the broker's metrics.listeners, on this machine. [default: http://127.0.0.1:9644]
    """
    if not address.startswith("http://"):
        raise click.UsageError(f"URL is an address of metrics.listeners, such as {DEFAULT}, not {address!r}")
    looks = _looks(address.rstrip("/"), every_s)
    if once or as_json or not on_terminal():
        for look, found in looks:
            _print(look, found, as_json=as_json)
            if once:
                return
        return
    from rich.live import Live

    with Live(auto_refresh=False, screen=False) as live:
        for look, found in looks:
            live.update(_picture(look, found), refresh=True)


def _looks(address: str, every_s: float) -> Iterator[tuple[Look, Rates]]:
    before = _look(address)
    while True:
        time.sleep(every_s)
        now = _look(address)
        yield now, rates(before, now)
        before = now


def _look(address: str) -> Look:
    try:
        with urllib.request.urlopen(f"{address}/debug", timeout=TIMEOUT_S) as answer:
            page: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        raise CommandFailed(f"{address} refuses: {error.read(1000).decode(errors='replace').strip()}") from None
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else sentence(error)
        raise CommandFailed(
            f"no broker shows its metrics at {address} ({reason}); "
            "start it with metrics.listeners=http://127.0.0.1:9644, or name another address"
        ) from None
    if "throughput" not in page:
        raise CommandFailed(f"the broker at {address} does not serve clients yet: {page.get('phase', 'no phase')}")
    return page


def _print(look: Look, found: Rates, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "requests": found.requests,
                **found.total._asdict(),
                "event_loop_delay_seconds": look["event_loop_delay_seconds"][1],
                "topics": [each._asdict() for each in found.topics],
                "clients": [each._asdict() for each in found.clients],
                "slowest_requests": look["slowest_requests"],
                "client_metrics": look["client_metrics"],
            }
        )
        return
    total = found.total
    print(
        f"{found.requests:.0f} requests/s\t{total.records_in:.0f} records/s in\t{total.bytes_in:.0f} bytes/s in\t"
        f"{total.bytes_out:.0f} bytes/s out\t{look['event_loop_delay_seconds'][1] * 1000:.1f} ms event loop delay",
        flush=True,
    )


def _picture(look: Look, found: Rates) -> "RenderableType":
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    total = found.total
    head = Text(
        f"{found.requests:,.0f} requests/s   {total.records_in:,.0f} records/s in   {_rate(total.bytes_in)} in   "
        f"{_rate(total.bytes_out)} out   event loop delay {look['event_loop_delay_seconds'][1] * 1000:.1f} ms (99 %)   "
        f"{sum(look['connections'].values())} connections",
        style="bold",
    )
    topics = Table("TOPIC", "RECORDS/S", "IN", "OUT", box=None, header_style="dim")
    for topic in found.topics[:ROWS]:
        topics.add_row(topic.topic, f"{topic.records_in:,.0f}", _rate(topic.bytes_in), _rate(topic.bytes_out))
    clients = Table("CLIENT", "ADDRESS", "REQUESTS/S", "OF THE CORE", "IN", "OUT", box=None, header_style="dim")
    for client in found.clients[:ROWS]:
        clients.add_row(
            Text(client.client_id),
            client.address,
            f"{client.requests:,.0f}",
            f"{client.busy:.1%}",
            _rate(client.bytes_in),
            _rate(client.bytes_out),
        )
    slow = Table("SLOWEST OF THE LAST HOUR", "MS", "AT", "CLIENT", box=None, header_style="dim")
    for each in look["slowest_requests"][:SLOW_ROWS]:
        slow.add_row(each["request"], f"{each['milliseconds']:,.1f}", each["at"][11:23], Text(each["client_id"]))
    parts: list[RenderableType] = [head, Text(), topics, Text(), clients, Text(), slow]
    if look["client_metrics"]:
        parts += [Text(), _of_clients(look)]
    return Group(*parts)


def _of_clients(look: Look) -> "RenderableType":
    """What clients measure themselves (KIP-714)."""
    from rich.table import Table
    from rich.text import Text

    table = Table("CLIENTS' OWN METRICS", "SOFTWARE", "SERIES", "LATENCY MS", "LONGEST", "THROTTLED", "AGO",
                  box=None, header_style="dim")  # fmt: skip
    for each in look["client_metrics"][:SLOW_ROWS]:
        found = own_figures(each["gauges"])
        table.add_row(
            Text(each["client_id"]),
            Text(each["software"]),
            f"{each['series']}",
            *("" if value is None else f"{value:,.1f}" for value in found),
            f"{each['seconds_ago']:.0f} s",
        )
    return table


def _rate(bytes_per_s: float) -> str:
    for unit in ("B", "kB", "MB"):
        if bytes_per_s < 1000:
            return f"{bytes_per_s:,.1f} {unit}/s"
        bytes_per_s /= 1000
    return f"{bytes_per_s:,.1f} GB/s"
