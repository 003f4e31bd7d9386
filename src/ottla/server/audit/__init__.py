"""The audit log: logins, refusals and changes, a line of JSON for each (docs/acls.md)."""
