"""A job's graph as a drawing: layers from left to right, boxes, and curves between them. PURE.

The layers are those of the longest path to each node. An edge over several layers passes through a point in each of
them, which has a place of its own in the layer, so that no edge crosses a box. An edge that closes a circle runs back.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final
from unicodedata import east_asian_width
from xml.sax.saxutils import escape

from ottla.pipeline.graph import FLOW, READS, VIEW, WRITES, Edge, Graph, Node

_CHARACTER: Final = 7.3
"""The width of a character of the font, which has 12 pixels."""
_LONGEST: Final = 36
"""Characters of a name that are shown; the whole name is the box's tooltip."""
_BOX_HEIGHT: Final = 40
_POINT_HEIGHT: Final = 12
_PADDING: Final = 12
_GAP: Final = 18
"""Between two boxes of a layer."""
_LAYER_GAP: Final = 70
_MARGIN: Final = 20
_SWEEPS: Final = 4
_FORBIDDEN: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_STYLE: Final = """\
  svg { color-scheme: light dark; background: #ffffff; font: 12px ui-monospace, Menlo, Consolas, monospace; }
  text { fill: #1f2328; } text.kind { fill: #59636e; font-size: 10px; }
  rect { fill: #f6f8fa; stroke: #59636e; } rect.flow { fill: #ddf4ff; stroke: #0969da; }
  rect.view { fill: #fff8c5; stroke: #9a6700; } path { fill: none; stroke: #818b98; stroke-width: 1.5; }
  marker path { fill: #818b98; stroke: none; } path.aside { stroke-dasharray: 5 4; }
  @media (prefers-color-scheme: dark) {
    svg { background: #0d1117; } text { fill: #f0f6fc; } text.kind { fill: #9198a1; }
    rect { fill: #151b23; stroke: #9198a1; } rect.flow { fill: #0c2d6b; stroke: #4493f8; }
    rect.view { fill: #3b2300; stroke: #d29922; }
  }
"""


@dataclass(slots=True)
class _Place:
    """A box, or a point through which an edge passes if it has no `node`. `y` is its top."""

    layer: int
    node: Node | None
    width: float = 0.0
    x: float = 0.0
    y: float = 0.0

    @property
    def height(self) -> int:
        return _POINT_HEIGHT if self.node is None else _BOX_HEIGHT

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class _Route:
    """An edge by the places that it passes, from its source to its target."""

    edge: Edge
    places: Sequence[_Place]


def to_svg(graph: Graph) -> str:
    """A drawing that is readable on light and on dark backgrounds."""
    layers = layers_of(graph)
    boxes = {name: _Place(layer, graph.nodes[name], _width(graph.nodes[name])) for name, layer in layers.items()}
    routes = [_route(edge, boxes) for edge in graph.edges]
    columns = _columns(boxes, routes)
    width, height = _arrange(columns, routes)
    shapes = [_curve(route) for route in routes] + [_box(place) for place in boxes.values()]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img">\n<title>{_escaped(graph.job)}</title>\n<style>\n{_STYLE}</style>\n'
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z"/></marker></defs>\n' + "\n".join(shapes) + "\n</svg>\n"
    )


def layers_of(graph: Graph) -> dict[str, int]:
    """The layer of each node: the length of the longest path to it, over edges that close no circle."""
    layers: dict[str, int] = {}
    open_nodes: set[str] = set()

    def visit(name: str) -> int:
        if name not in layers:
            open_nodes.add(name)
            before = [edge.source for edge in graph.before(name) if edge.source not in open_nodes]
            layers[name] = max((visit(source) + 1 for source in before), default=0)
            open_nodes.discard(name)
        return layers[name]

    for name in graph.nodes:
        visit(name)
    return layers


def _route(edge: Edge, boxes: Mapping[str, _Place]) -> _Route:
    source, target = boxes[edge.source], boxes[edge.target]
    return _Route(edge, [source, *(_Place(layer, None) for layer in range(source.layer + 1, target.layer)), target])


def _columns(boxes: Mapping[str, _Place], routes: Sequence[_Route]) -> list[list[_Place]]:
    """The places of each layer from top to bottom, each near the middle of its neighbours in the layers beside it."""
    columns: list[list[_Place]] = [[] for _ in range(max((box.layer for box in boxes.values()), default=-1) + 1)]
    for place in [*boxes.values(), *(place for route in routes for place in route.places[1:-1])]:
        columns[place.layer].append(place)
    pairs = [pair for route in routes for pair in zip(route.places, route.places[1:], strict=False)]
    pairs = [(left, right) for left, right in pairs if left.layer < right.layer]
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        neighbours: dict[int, list[_Place]] = {}
        for left, right in pairs:
            near, far = (right, left) if forward else (left, right)
            neighbours.setdefault(id(near), []).append(far)
        for column in columns if forward else reversed(columns):
            ranks = {id(place): rank for each in columns for rank, place in enumerate(each)}
            column.sort(key=partial(_mean_rank, neighbours, ranks))
    return columns


def _mean_rank(neighbours: Mapping[int, Sequence[_Place]], ranks: Mapping[int, int], place: _Place) -> float:
    near = neighbours.get(id(place), [place])
    return sum(ranks[id(each)] for each in near) / len(near)


def _arrange(columns: Sequence[Sequence[_Place]], routes: Sequence[_Route]) -> tuple[float, float]:
    """Give each place its coordinates; returns the size of the drawing."""
    heights = [sum(place.height + _GAP for place in column) - _GAP for column in columns]
    tallest = max(heights, default=0)
    x = float(_MARGIN)
    for column, height in zip(columns, heights, strict=True):
        width = max(place.width for place in column)
        y = _MARGIN + (tallest - height) / 2
        for place in column:
            place.x, place.y = x, y
            place.width = width
            y += place.height + _GAP
        x += width + _LAYER_GAP
    runs_back = any(route.places[0].layer >= route.places[-1].layer for route in routes)
    return x - _LAYER_GAP + _MARGIN, tallest + 2 * _MARGIN + (_LAYER_GAP if runs_back else 0)


def _curve(route: _Route) -> str:
    first = route.places[0]
    path = [f"M{first.x + first.width:.1f} {first.middle:.1f}"]
    for left, right in zip(route.places, route.places[1:], strict=False):
        start, end = left.x + left.width, right.x
        if end > start:
            bend = (start + end) / 2
            path.append(f"C{bend:.1f} {left.middle:.1f} {bend:.1f} {right.middle:.1f} {end:.1f} {right.middle:.1f}")
        else:
            below = max(left.y, right.y) + _BOX_HEIGHT + _LAYER_GAP
            path.append(
                f"C{start + _LAYER_GAP:.1f} {below:.1f} {end - _LAYER_GAP:.1f} {below:.1f} {end:.1f} {right.middle:.1f}"
            )
        if right.node is None:
            path.append(f"H{right.x + right.width:.1f}")
    kind = "" if route.edge.kind in (READS, WRITES) else ' class="aside"'
    return f'<path{kind} d="{"".join(path)}" marker-end="url(#arrow)"><title>{_escaped(route.edge.kind)}</title></path>'


def _box(place: _Place) -> str:
    node = place.node
    assert node is not None
    x = place.x + _PADDING
    rounded = 6 if node.kind in (VIEW, FLOW) else 0
    return (
        f'<g><title>{_escaped(node.label)}</title><rect class="{node.kind}" x="{place.x:.1f}" y="{place.y:.1f}" '
        f'width="{place.width:.1f}" height="{place.height}" rx="{rounded}"/>'
        f'<text class="kind" x="{x:.1f}" y="{place.y + 15:.1f}">{_escaped(_kind(node))}</text>'
        f'<text x="{x:.1f}" y="{place.y + 31:.1f}">{_escaped(_shortened(node.name))}</text></g>'
    )


def _escaped(text: str) -> str:
    """Text for XML, with U+FFFD for each character that XML 1.0 has no way to write."""
    return escape(_FORBIDDEN.sub("\ufffd", text))


def _kind(node: Node) -> str:
    return f"{node.kind}, {node.detail}" if node.detail else node.kind


def _shortened(name: str) -> str:
    half = _LONGEST // 2
    return name if len(name) <= _LONGEST else f"{name[: half - 1]}…{name[-half:]}"


def _width(node: Node) -> float:
    def columns(text: str) -> int:
        return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)

    return max(columns(_shortened(node.name)), columns(_kind(node))) * _CHARACTER + 2 * _PADDING
