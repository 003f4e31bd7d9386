"""`ottla cluster elect`: have partitions led by their preferred replica, or by any that is left (KIP-460)."""

import click
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition

from ottla.cli.brokers.client import Connection, connection_options, known_topics, partitions_of
from ottla.cli.brokers.failures import explain
from ottla.cli.terminal.exits import CommandFailed
from ottla.cli.terminal.output import Row, columns_of, json_option, print_rows


@click.command()
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
@click.option(
    "--unclean",
    is_flag=True,
    help="Where no replica in sync is alive, have any other lead: the records that it lacks are lost.",
)
@json_option
@connection_options
def elect(connection: Connection, topics: tuple[str, ...], unclean: bool, as_json: bool) -> None:
    """Elect the preferred leader (the first replica) of partitions, in all topics unless some are named.

    Shows each partition that needed an election and its result; fails if an election could not be held.
    """
    if unclean and not topics:
        raise click.UsageError("an unclean election loses records: name the topics it is for")
    admin = connection.admin()
    metadata = connection.metadata(admin)
    found = known_topics(metadata, topics) if topics else list(metadata.topics.values())
    wanted = [TopicPartition(at.topic, at.partition) for at in partitions_of(found)]
    election = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    elected = admin.elect_leaders(election, wanted)  # the client library takes no time limit here
    answers = connection.wait(elected, "no leader can be elected")
    rows: list[Row] = []
    failed = 0
    for at, problem in sorted(answers.items(), key=lambda answer: (answer[0].topic, answer[0].partition)):
        error = problem.args[0] if isinstance(problem, KafkaException) else problem
        if error is not None and error.code() == KafkaError.ELECTION_NOT_NEEDED:
            continue
        failed += error is not None
        rows.append(
            {
                "topic": at.topic,
                "partition": at.partition,
                "elected": error is None,
                "reason": None if error is None else explain(error),
            }
        )
    columns = columns_of("topic partition# elected reason")
    print_rows(rows, columns, as_json=as_json, empty="no partition needs an election")
    if failed:
        raise CommandFailed(f"{failed} of {len(rows)} partitions that need a leader have not got the one asked for")
