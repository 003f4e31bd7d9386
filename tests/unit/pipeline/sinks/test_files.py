"""Names of partitions, and files that differ a little."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ottla.pipeline.sinks.base import SinkError
from ottla.pipeline.sinks.parquet_compaction import compact
from ottla.pipeline.sinks.staging import partition_path


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        ("UA", "UA"),
        ("", "__HIVE_DEFAULT_PARTITION__"),
        (None, "__HIVE_DEFAULT_PARTITION__"),
        ("a/b", "a%2Fb"),
        (0, "0"),
    ],
)
def test_every_value_has_a_directory_that_spark_reads(value: object, spelled: str) -> None:
    assert partition_path(("carrier",), (value,)) == f"carrier={spelled}/"


def test_files_with_other_nullability_and_order_of_columns_are_compacted(tmp_path: Path) -> None:
    strict = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    pq.write_table(pa.table({"id": [1], "name": ["a"]}, strict), tmp_path / "1.parquet")
    pq.write_table(pa.table({"name": ["b"], "id": pa.array([None], pa.int64())}), tmp_path / "2.parquet")

    assert compact(tmp_path) == "2 files became 1"

    (made,) = tmp_path.glob("*.parquet")
    assert pq.read_table(made).to_pylist() == [{"id": 1, "name": "a"}, {"id": None, "name": "b"}]


def test_files_with_other_columns_are_left_alone(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"id": [2], "name": ["b"]}), tmp_path / "2.parquet")

    with pytest.raises(SinkError, match=r"2\.parquet has not the columns of .*1\.parquet"):
        compact(tmp_path)

    assert len(list(tmp_path.glob("*.parquet"))) == 2
