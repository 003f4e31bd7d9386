"""`ottla pipeline graph`: a job's topics, views, flows and sinks, as text, JSON or a drawing."""

from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from ottla.cli.pipeline.options import job_parameters, needs_spark, param_option
from ottla.cli.terminal.output import columns_of, json_option, on_terminal, print_json, print_rows

_COLUMNS: Final = columns_of("source kind target")


@click.command("graph")
@click.argument("job_file", metavar="JOB.PY", type=click.Path(path_type=Path))
@click.option(
    "--svg", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Write a drawing, for a browser."
)
@param_option
@json_option
def command(job_file: Path, svg: Path | None, params: tuple[str, ...], as_json: bool) -> None:
    """Show what a job reads and writes: for each output, the flow that writes it, its views, and what they read.

    Piped, a line per edge. The job file is loaded, but none of its functions runs, and no broker is asked. A view's
    dead letters are shown if its function declares that it returns Checked (`-> Checked`).
    """
    needs_spark()
    from ottla.pipeline.graph import as_tree, graph_of
    from ottla.pipeline.graph_svg import to_svg
    from ottla.pipeline.job_file import load_job

    graph = graph_of(load_job(job_file, job_parameters(params)))
    if svg is not None:
        svg.write_text(to_svg(graph), encoding="utf-8")
    if as_json:
        nodes = [asdict(node) for node in graph.nodes.values()]
        print_json({"job": graph.job, "nodes": nodes, "edges": [asdict(edge) for edge in graph.edges]})
    elif svg is None and on_terminal():
        click.echo("\n".join(as_tree(graph)))
    elif svg is None:
        rows = [
            {"source": graph.nodes[edge.source].label, "kind": edge.kind, "target": graph.nodes[edge.target].label}
            for edge in graph.edges
        ]
        print_rows(rows, _COLUMNS)
