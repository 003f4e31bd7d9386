"""A job as a graph: what it reads, by which views and flows, and what it writes. PURE: no function of the job runs.

    topic orders ──▶ view valid ──▶ flow hourly ──▶ topic hourly ──▶ flow worst ──▶ Delta table worst
                          └───────▶ topic sales.dead-letters

A topic is one node, whether the job reads it, writes it, or both. Whether a function rejects rows is known before it
runs if it declares that it returns `Checked`.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from ottla.pipeline.inputs import Files, Input, Topic
from ottla.pipeline.job import Flow, Job, View
from ottla.pipeline.rows.table import Table
from ottla.pipeline.sinks.base import Sink

TOPIC: Final = "topic"
TABLE: Final = "table"
FILES: Final = "files"
VIEW: Final = "view"
FLOW: Final = "flow"
SINK: Final = "sink"
SOURCE: Final = "source"
"""The kinds of nodes. A table is a compacted topic that the job reads as one; a sink is anything but a topic."""

READS: Final = "reads"
WRITES: Final = "writes"
LATE: Final = "late rows"
REJECTED: Final = "rejected rows"
"""What goes along an edge; `READS` for all that a view or flow reads."""


@dataclass(frozen=True, slots=True)
class Node:
    """`id` is unique within a graph; `detail` is the mode and the trigger of a flow."""

    id: str
    kind: str
    name: str
    detail: str = ""

    @property
    def label(self) -> str:
        """In a phrase: `flow hourly (update)`; sinks and files describe themselves."""
        text = self.name if self.kind in (SINK, FILES, SOURCE) else f"{self.kind} {self.name}"
        return f"{text} ({self.detail})" if self.detail else text


@dataclass(frozen=True, slots=True)
class Edge:
    """Rows go from the node with the id `source` to the one with the id `target`."""

    source: str
    target: str
    kind: str


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes by id and edges, both in the order of the job file."""

    job: str
    nodes: dict[str, Node] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)

    def before(self, node: str) -> list[Edge]:
        """The edges that lead to a node."""
        return [edge for edge in self.edges if edge.target == node]

    def after(self, node: str) -> list[Edge]:
        """The edges that leave a node."""
        return [edge for edge in self.edges if edge.source == node]


def graph_of(job: Job) -> Graph:
    """The graph of a job that has been checked. Raises PipelineError for a sink that cannot be described."""
    building = _Building(job, Graph(job.name))
    for view in job.views.values():
        building.add_view(view)
    return building.graph


@dataclass(frozen=True, slots=True)
class _Building:
    job: Job
    graph: Graph

    def add_view(self, view: View) -> None:
        own = self._node(_view_node(view))
        for parameter in view.inputs:
            given = self.job.input_of(view, parameter)
            read = [_view_node(given)] if isinstance(given, View) else _input_nodes(given)
            for node in read:
                self._edge(self._node(node), own, READS)
        if view.function is not None and _may_reject(view.function):
            self._edge(own, self._node(_topic_node(self.job.dead_letters.name)), REJECTED)
        if isinstance(view, Flow):
            self._edge(own, self._node(_sink_node(view.to)), WRITES)
            if view.late_topic is not None:
                self._edge(own, self._node(_topic_node(view.late_topic.name)), LATE)

    def _node(self, node: Node) -> str:
        """Add a node unless it is there; a topic becomes a table when it is read as one."""
        if node.id not in self.graph.nodes or node.kind == TABLE:
            self.graph.nodes[node.id] = node
        return node.id

    def _edge(self, source: str, target: str, kind: str) -> None:
        edge = Edge(source, target, kind)
        if edge not in self.graph.edges:
            self.graph.edges.append(edge)


def _view_node(view: View) -> Node:
    if not isinstance(view, Flow):
        return Node(f"view:{view.name}", VIEW, view.name)
    return Node(f"flow:{view.name}", FLOW, view.name, f"{view.mode}, {_trigger(view.trigger)}")


def _trigger(trigger: str) -> str:
    return f"every {trigger}" if trigger[0].isdigit() else trigger


def _input_nodes(given: Input) -> Iterator[Node]:
    if isinstance(given, Files):
        yield Node(f"files:{given.describe()}", FILES, given.describe())
    elif given.topics:
        for name in given.topics:
            yield _topic_node(name, TABLE if isinstance(given, Table) else TOPIC)
    else:
        yield Node(f"source:{given.describe()}", SOURCE, given.describe())


def _sink_node(sink: Sink) -> Node:
    if isinstance(sink, Topic):
        return _topic_node(sink.name)
    return Node(f"sink:{sink.describe()}", SINK, sink.describe())


def _topic_node(name: str, kind: str = TOPIC) -> Node:
    return Node(f"topic:{name}", kind, name)


def _may_reject(function: Callable[..., object]) -> bool:
    """Whether it declares that it returns `Checked`, alone or among others, as a class or as text."""
    return "Checked" in str(inspect.signature(function).return_annotation)


# -- as text -------------------------------------------------------------------------------------------------------


def as_tree(graph: Graph) -> Iterator[str]:
    """For each output of the job, the lines of a tree of what it is made of.

    A topic that the job writes itself has a tree of its own, and stands alone in the others. So does a view that stands
    above it in the same tree, and what late and rejected rows are made of.
    """
    written = [node for node in graph.nodes.values() if any(edge.kind != READS for edge in graph.before(node.id))]
    for node in written:
        yield node.label
        yield from _branches(graph, node.id, "", set())


def _branches(graph: Graph, node: str, indent: str, shown: set[str]) -> Iterator[str]:
    edges = graph.before(node)
    for edge in edges:
        is_last = edge is edges[-1]
        source = graph.nodes[edge.source]
        is_aside = edge.kind in (LATE, REJECTED)
        note = f", {edge.kind}" if is_aside else " (as above)" if source.id in shown else ""
        yield f"{indent}{'└── ' if is_last else '├── '}{source.label}{note}"
        if source.kind in (VIEW, FLOW) and source.id not in shown and not is_aside:
            shown.add(source.id)
            yield from _branches(graph, source.id, indent + ("    " if is_last else "│   "), shown)
