"""Who may see and do what in the console: sessions, roles, masks, origins of requests, the audit log."""
