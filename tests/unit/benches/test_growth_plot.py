"""The table and the plot of how cost grows."""

import json
from pathlib import Path

import pytest
from benches.benchmarks.growth import FIGURES
from benches.growth_plot import main


def test_a_row_for_each_size_and_a_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured = {
        f"growth-{brokers}x{partitions}": {
            "figures": {figure.name: {"contestants": {"ottla": {"median": brokers * partitions}}} for figure in FIGURES}
        }
        for brokers in (1, 2)
        for partitions in (100, 4000)
    }
    (tmp_path / "r.json").write_text(json.dumps({"benchmarks": measured}))
    main([str(tmp_path / "r.json"), str(tmp_path / "p.svg")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| brokers | partitions | creating the partitions (s) |")
    assert [line.split(" | ")[:3] for line in lines[2:]] == [
        ["| 1", "100", "100.0"],
        ["| 1", "4,000", "4,000"],
        ["| 2", "100", "200.0"],
        ["| 2", "4,000", "8,000"],
    ]
    assert (tmp_path / "p.svg").read_text().count("</svg>") == 1
