"""Transactions: what their coordinator decides, and what it has written at the end of each. PURE."""
