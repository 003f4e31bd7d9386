"""The used parts of python-mysql-replication, and the replacements for others.

The library speaks the protocol: it dumps the binlog by file or by GTIDs, and reads the frames of its events. What a
`table_map` reads table maps and rows from the same bytes. The library (1.0.17) reads labels and
UTF-16 in other character sets than the server, negative times with the wrong fraction and an empty SET as null; it
fails at compressed columns, JSON that is a lone text, 30 February and metadata that it does not know.
"""

from typing import Any, Final

from pymysqlreplication import constants
from pymysqlreplication.event import BinLogEvent
from pymysqlreplication.packet import BinLogPacketWrapper


class _RawEvent(BinLogEvent):  # type: ignore[misc]
    """An event as it came. body: what follows its header, without a checksum."""

    def __init__(self, from_packet: Any, event_size: int, table_map: Any, ctl_connection: Any, **settings: Any) -> None:
        super().__init__(from_packet, event_size, table_map, ctl_connection, **settings)
        self.body: bytes = from_packet.read(event_size)


class TableMapEvent(_RawEvent):
    """Describes the table of the rows that follow."""

    table_id: Final = 0

    def get_table(self) -> None:
        """What the library would keep; it needs none."""


class RowsEvent(_RawEvent):
    """Has rows of a table."""


_OWN: Final = {
    constants.TABLE_MAP_EVENT: TableMapEvent,
    **dict.fromkeys(
        (
            constants.WRITE_ROWS_EVENT_V1,
            constants.UPDATE_ROWS_EVENT_V1,
            constants.DELETE_ROWS_EVENT_V1,
            constants.WRITE_ROWS_EVENT_V2,
            constants.UPDATE_ROWS_EVENT_V2,
            constants.DELETE_ROWS_EVENT_V2,
        ),
        RowsEvent,
    ),
}
BinLogPacketWrapper._BinLogPacketWrapper__event_map.update(_OWN)  # it has no public way
