"""`ottla quorum recover`: let one surviving controller go on alone when the majority of the voters is lost.

Works on the files of a node that does not run.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.brokers.node_settings import node_settings, settings_options
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import confirm, json_option, note, print_facts, print_json, yes_option
from ottla.cli.terminal.times import format_instant
from ottla.errors import CorruptMessage, InvalidConfig, KafkaStorageError, sentence

if TYPE_CHECKING:
    from ottla.metadata.quorum.recovery import Survivor


@click.command()
@settings_options
@click.option(
    "--give-up",
    metavar="NODES",
    help="Act: make this node the only voter, without these, which are all other voters; such as 1,3.",
)
@yes_option
@json_option
def recover(file: Path, overrides: tuple[str, ...], give_up: str | None, yes: bool, as_json: bool) -> None:
    """Let one surviving controller go on alone when the majority of the voters is lost for good (unsafe).

    Runs on the survivor's machine, while no node runs there. Without --give-up it only shows what would be kept and
    what would be lost. Metadata that only the given-up voters have is lost; they must never run again with their
    present metadata logs.
    """
    from ottla.clock import SystemClock
    from ottla.log.fs import RealFileSystem
    from ottla.metadata.quorum import recovery

    named = None if give_up is None else _node_ids(give_up)
    fs, clock = RealFileSystem(), SystemClock()
    try:
        config = node_settings(file, overrides)
        with recovery.locked(fs, clock, config):
            survivor = recovery.examine(fs, config)
            voter = recovery.only_voter(survivor, config)
            facts = _facts(survivor)
            if as_json:
                print_json(facts)
            else:
                print_facts(facts.items())
            _check(survivor)
            given_up = sorted(each.key.node_id for each in survivor.others)
            if named is None:
                note(f"nothing was changed: {_consequences(survivor)}; add --give-up {_listed(given_up)} to do so")
                return
            if named != given_up:
                raise CommandFailed(
                    f"--give-up names {_listed(named)}, and the other voters are {_listed(given_up)}: name all of them"
                )
            confirm(f"{_consequences(survivor)}. Make node {survivor.own.node_id} the only voter?", yes=yes)
            recovery.recover(fs, clock, survivor, voter)
    except (InvalidConfig, KafkaStorageError, CorruptMessage, OSError) as problem:
        raise CommandFailed(sentence(problem)) from None
    note(
        f"node {survivor.own.node_id} is the only voter from epoch {survivor.next_epoch} on. Start it, then restart "
        f"all brokers. Format the directories of {_listed(given_up)} anew before they start again, with the cluster id "
        f"{survivor.cluster_id} and --no-initial-controllers, and add them with `ottla quorum add`"
    )


def _facts(survivor: "Survivor") -> dict[str, object]:
    """What the files show, in the words of `ottla quorum status`."""
    last = survivor.last_append_ms
    return {
        "node": survivor.own.node_id,
        "directory": survivor.directory,
        "directory_id": survivor.directory_id,
        "cluster_id": survivor.cluster_id,
        "log_end_offset": survivor.end.offset,
        "log_end_epoch": survivor.end.epoch,
        "last_append": None if last is None else format_instant(last),
        "epoch": survivor.epoch,
        "committed_at_least": survivor.committed,
        "damaged": survivor.torn,
        "voters": sorted(survivor.voters.ids),
        "is_voter": survivor.is_voter,
        "given_up": sorted(voter.key.node_id for voter in survivor.others),
    }


def _check(survivor: "Survivor") -> None:
    """Raise CommandFailed where no record can change the voters."""
    if not survivor.end.offset:
        raise CommandFailed(
            f"the metadata log in {survivor.directory} is empty: there is nothing to recover here; use another node, "
            "or format the directories for a new cluster"
        )
    if not survivor.kraft_version:
        raise CommandFailed(
            "controller.quorum.voters names the voters of this quorum (kraft.version 0), and nothing in its log does. "
            "To go on without a majority, stop every node, set controller.quorum.voters to the survivors alone on all "
            "controllers and brokers, and start these. A single survivor that is a broker, too, also needs all "
            "controllers' addresses in controller.quorum.bootstrap.servers: else it is a cluster by itself. What only "
            "the lost voters had is lost then, and a lost voter that comes back with its old settings makes a second "
            "cluster of the same id: format its directories first"
        )
    if not survivor.others:
        raise CommandFailed(f"node {survivor.own.node_id} is the only voter already: start it")


def _consequences(survivor: "Survivor") -> str:
    end, epoch = survivor.end
    return (
        f"metadata behind offset {end} of epoch {epoch} is lost if only other voters have it, and records here from "
        f"offset {min(survivor.committed, end)} on count as committed, which files cannot prove"
    )


def _node_ids(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and len(word) < 11 for word in words):
        raise click.UsageError(f"--give-up takes ids of nodes, such as 1,3, not {text!r}")
    return sorted({int(word) for word in words})


def _listed(node_ids: list[int]) -> str:
    return ",".join(map(str, node_ids))
