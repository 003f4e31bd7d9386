"""The rights of the console's users: sessions, roles, masks, origins of requests, the audit log."""
