"""PURE. Quotas of clients: whose they are, which of them holds for a request, and how much of it is used."""
