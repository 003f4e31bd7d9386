"""`ottla doctor`: looks at a cluster as a client, and at the settings and machine of a broker."""

from pathlib import Path

import click

from ottla.cli.brokers.client import Connection, connection_options
from ottla.cli.doctor.remarks import Remark, Verdict, worst
from ottla.cli.terminal import exits
from ottla.cli.terminal.output import columns_of, json_option, print_rows
from ottla.client.addresses import parse_addresses


@click.command()
@click.argument("properties_file", metavar="[SERVER.PROPERTIES]", required=False, type=click.Path(path_type=Path))
@click.option("--server-only", is_flag=True, help="Look at the settings and this machine alone, not at a cluster.")
@json_option
@connection_options
def command(connection: Connection, properties_file: Path | None, server_only: bool, as_json: bool) -> int:
    """Check names, ports, advertised addresses, versions and partitions of a cluster, and say what to do.

    With SERVER.PROPERTIES, also what a broker with these settings finds on this machine: settings without effect,
    listeners, log directories, limits. Exit code 1 if something is wrong; warnings leave it 0.
    """
    remarks: list[Remark] = []
    if properties_file is not None:
        from ottla.cli.doctor.server_checks import check_server

        remarks += check_server(properties_file)
    elif server_only:
        raise click.UsageError("--server-only needs SERVER.PROPERTIES")
    if not server_only:
        from ottla.cli.doctor.cluster_checks import check_cluster

        servers = str(connection.properties.get("bootstrap.servers", connection.bootstrap))
        try:
            addresses = parse_addresses(servers)
        except ValueError as problem:
            raise click.UsageError(str(problem)) from None
        remarks += check_cluster(addresses, connection.properties)
    rows = [
        {"verdict": each.verdict.value, "subject": each.subject, "found": each.text, "advice": each.advice or None}
        for each in remarks
    ]
    print_rows(rows, columns_of("verdict subject found~ advice~"), as_json=as_json, empty="nothing was looked at")
    return exits.FAILED if worst(remarks) is Verdict.WRONG else exits.OK
