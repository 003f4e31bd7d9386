"""What of a share group's records was delivered, and will be again."""

from ottla.admin import Deliveries, Partition, ShareProgress
from ottla.console.share_deliveries import Row, rows

ONE, TWO = Partition("t", 0), Partition("t", 1)


def test_records_by_their_fate() -> None:
    kept = [
        Deliveries(5, 9, "acknowledged", 1),  # before the start offset, and forgotten soon
        Deliveries(10, 12, "available", 3),
        Deliveries(13, 13, "available", 0),
        Deliveries(14, 20, "acknowledged", 1),
        Deliveries(21, 22, "archived", 5),
        Deliveries(23, 23, "available", 4),
    ]
    found = rows({TWO: ShareProgress(None, None), ONE: ShareProgress(10, 30)}, {ONE: kept}, {ONE: 2})
    assert found == [Row(ONE, 10, 30, 2, 4, 4, 10, 7, 2), Row(TWO, None, None, 0, 0, 0, None, 0, 0)]
