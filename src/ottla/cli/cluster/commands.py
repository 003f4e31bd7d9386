"""`ottla cluster`. Each command is imported alone: others would show in the time that it takes to start a cluster."""

from typing import Final

import click

from ottla.cli.app import LazyVerbs, Place

VERBS: Final = {
    "demo": "Run four brokers on this machine, kill some of them under load, and count what was lost.",
    "elect": "Elect the preferred leader (the first replica) of partitions, in all topics unless some are named.",
    "features": "Show the feature levels of the cluster, or change some: all that are given, or none.",
    "info": "Show the cluster's id, its machines and brokers, and the health of its partitions.",
    "reassign": "Move partitions to other brokers while they are read and written.",
    "start": "Run a cluster on this machine until Ctrl-C.",
    "watch": "Watch the cluster until Ctrl-C: live brokers, leaders, in-sync replicas, and the lag of followers.",
}


@click.group(
    cls=LazyVerbs,
    places={verb: Place(f"ottla.cli.cluster.{verb}", verb, text) for verb, text in VERBS.items()},
)
def command() -> None:
    """Look at the cluster and watch it, change features, elect leaders, move partitions, start one on this machine."""
