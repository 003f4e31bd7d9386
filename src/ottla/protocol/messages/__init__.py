"""One module per API, holding its request, its response and the structures they are made of.

A module is imported when its API is first used; see `ottla.protocol.api`.
"""
