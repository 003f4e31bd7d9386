"""Kafka's wire protocol: bytes to messages and back. Pure: no sockets, no clocks, no threads.

`schema` is how a message is declared, `messages` holds the declarations, `codec` and `compiled` translate
(slowly and obviously, or fast), `framing` adds headers and lengths, `api` finds classes by API key and
`versioned` handles messages that carry their own version, such as coordinator records.
"""
