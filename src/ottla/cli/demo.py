"""`ottla demo`: handed on as it is to the demo, which has its own options and needs the extra it names."""

import click

from ottla.cli import exits


@click.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> int:
    """Run real flights through a topic and Spark; --help shows the options."""
    from ottla.pipeline.demo import main

    try:
        return main(list(arguments))
    except SystemExit as leaving:  # its option parser ends that way
        return leaving.code if isinstance(leaving.code, int) else exits.FAILED
