"""Sockets to handlers: connections, the routing table, and one thin module per API."""
