"""A job as a graph: nodes, edges, the tree, and the drawing's layers and boxes. No function of a job runs."""

import random
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tools.docs.markdown import ROOT, blocks

from ottla.pipeline.graph import LATE, READS, REJECTED, WRITES, Edge, Graph, Node, as_tree, graph_of
from ottla.pipeline.graph_svg import layers_of, to_svg
from ottla.pipeline.inputs import files, topic
from ottla.pipeline.job import Job
from ottla.pipeline.job_file import load_job
from ottla.pipeline.rows import Checked, table
from ottla.pipeline.sinks import delta

SVG = "{http://www.w3.org/2000/svg}"


def never(*_rows: Any) -> Any:
    raise AssertionError("a graph needs no rows")


def sales() -> Job:
    job = Job("sales")

    @job.view(orders=topic("orders,returns"))
    def valid(orders: Any) -> Checked:
        raise AssertionError

    @job.view(orders=valid, customers=table("customers", key="id", schema="name STRING"))
    def enriched(orders: Any, customers: Any) -> Any:
        never(orders, customers)

    @job.flow(
        orders="enriched",
        checked=valid,
        lands=files("lands.csv"),
        to=topic("hourly"),
        late=topic("late"),
        mode="update",
    )
    def hourly(orders: Any, checked: Any, lands: Any) -> Any:
        never(orders, checked, lands)

    job.sql_flow("days", "SELECT 1", hourly=topic("hourly"), to=delta("/d/days"), trigger="available-now")
    return job


def edges(graph: Graph, kind: str) -> set[tuple[str, str]]:
    return {(edge.source, edge.target) for edge in graph.edges if edge.kind == kind}


def test_nodes_and_edges() -> None:
    graph = graph_of(sales())

    assert {node.label for node in graph.nodes.values()} == {
        "topic orders",
        "topic returns",
        "topic hourly",
        "topic late",
        "topic sales.dead-letters",
        "table customers",
        "csv files lands.csv",
        "view valid",
        "view enriched",
        "flow hourly (update, every 1 second)",
        "flow days (append, available-now)",
        "Delta table /d/days",
    }
    assert edges(graph, READS) == {
        ("topic:orders", "view:valid"),
        ("topic:returns", "view:valid"),
        ("view:valid", "view:enriched"),
        ("topic:customers", "view:enriched"),
        ("view:enriched", "flow:hourly"),
        ("view:valid", "flow:hourly"),
        ("files:csv files lands.csv", "flow:hourly"),
        ("topic:hourly", "flow:days"),
    }
    assert edges(graph, WRITES) == {("flow:hourly", "topic:hourly"), ("flow:days", "sink:Delta table /d/days")}
    assert edges(graph, LATE) == {("flow:hourly", "topic:late")}
    assert edges(graph, REJECTED) == {("view:valid", "topic:sales.dead-letters")}


@pytest.mark.parametrize("annotation", ["Checked", "DataFrame | Checked", Checked])
def test_rows_are_rejected_by_what_a_function_declares(annotation: object) -> None:
    def paid(orders: Any) -> Any:
        never(orders)

    paid.__annotations__["return"] = annotation
    job = Job("sales", dead_letters="letters")
    job.flow(orders=topic("orders"), to=topic("paid"))(paid)
    assert edges(graph_of(job), REJECTED) == {("flow:paid", "topic:letters")}


def test_a_topic_that_is_read_as_a_table_is_one_node() -> None:
    job = Job("names")
    lands = table("lands", key="id", schema="name STRING")
    job.sql_flow("made", "SELECT 1", raw=topic("raw"), to=topic("lands"))
    job.sql_flow("used", "SELECT 1", raw=topic("raw"), lands=lands, to=topic("named"))

    graph = graph_of(job)

    assert graph.nodes["topic:lands"].label == "table lands"
    assert [edge.source for edge in graph.before("topic:lands")] == ["flow:made"]
    assert [edge.target for edge in graph.after("topic:lands")] == ["flow:used"]


def test_the_tree_has_a_root_for_each_output() -> None:
    assert list(as_tree(graph_of(sales()))) == [
        "topic sales.dead-letters",
        "└── view valid, rejected rows",
        "topic hourly",
        "└── flow hourly (update, every 1 second)",
        "    ├── view enriched",
        "    │   ├── view valid",
        "    │   │   ├── topic orders",
        "    │   │   └── topic returns",
        "    │   └── table customers",
        "    ├── view valid (as above)",
        "    └── csv files lands.csv",
        "topic late",
        "└── flow hourly (update, every 1 second), late rows",
        "Delta table /d/days",
        "└── flow days (append, available-now)",
        "    └── topic hourly",
    ]


def test_the_tree_of_the_documentation_is_that_of_its_example(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8")
    (example,) = (
        block.text for block in blocks(page, "python") if "job = Job(" in block.text and "late=" in block.text
    )
    (shown,) = (block.text for block in blocks(page, "console") if "ottla pipeline graph" in block.text)
    (tmp_path / "delays.py").write_text(example)
    assert list(as_tree(graph_of(load_job(tmp_path / "delays.py")))) == shown.splitlines()[1:]


def test_layers_are_those_of_the_longest_path() -> None:
    layers = layers_of(graph_of(sales()))
    assert (layers["topic:orders"], layers["view:valid"], layers["view:enriched"]) == (0, 1, 2)
    assert (layers["flow:hourly"], layers["topic:hourly"], layers["flow:days"]) == (3, 4, 5)


def number(element: ElementTree.Element, name: str) -> float:
    return float(str(element.get(name)))


def test_the_drawing_has_each_name_escaped_and_each_edge() -> None:
    job = Job("sales")
    job.sql_flow("a", "SELECT 1", orders=topic("orders"), to=delta("/d/<x> & y"))
    job.sql_flow("b", "SELECT 1", orders=topic("orders"), to=delta("/d/" + 50 * "long"))
    job.sql_flow("c", "SELECT 1", orders=topic("orders"), to=delta("/d/\x00\x1b\ud800"))

    root = ElementTree.fromstring(to_svg(graph_of(job)))

    texts = {text.text for text in root.iter(f"{SVG}text")}
    assert {"orders", "a", "Delta table /d/<x> & y", "Delta table /d/\ufffd\ufffd\ufffd"} <= texts
    assert max(len(str(text)) for text in texts) == 36
    assert "Delta table /d/" + 50 * "long" in {title.text for title in root.iter(f"{SVG}title")}
    assert len(root.findall(f"{SVG}path")) == 6
    assert "prefers-color-scheme: dark" in str(root.findtext(f"{SVG}style"))


def test_boxes_of_any_graph_neither_overlap_nor_leave_the_drawing() -> None:
    chance = random.Random(7)
    for _ in range(50):
        names = [f"n{number}" for number in range(chance.randint(1, 15))]
        graph = Graph("any", {name: Node(name, "view", name * chance.randint(1, 5)) for name in names})
        for _ in range(chance.randint(0, 30)):  # circles, and edges from a node to itself, among them
            graph.edges.append(Edge(chance.choice(names), chance.choice(names), READS))
        root = ElementTree.fromstring(to_svg(graph))
        places = [
            (number(box, "x"), number(box, "y"), number(box, "width"), number(box, "height"))
            for box in root.iter(f"{SVG}rect")
        ]
        assert len(places) == len(names)
        assert len(root.findall(f"{SVG}path")) == len(graph.edges)
        for index, (x, y, width, height) in enumerate(places):
            assert 0 < x < x + width < number(root, "width")
            assert 0 < y < y + height < number(root, "height")
            for other_x, other_y, other_width, other_height in places[:index]:
                beside = x >= other_x + other_width or other_x >= x + width
                assert beside or y >= other_y + other_height or other_y >= y + height


def test_an_edge_that_closes_a_circle_does_not_move_its_target() -> None:
    job = Job("ring")
    job.sql_flow("turn", "SELECT 1", start=topic("start"), ring=topic("ring"), to=topic("ring"))
    layers = layers_of(graph_of(job))
    assert (layers["topic:start"], layers["topic:ring"], layers["flow:turn"]) == (0, 0, 1)
