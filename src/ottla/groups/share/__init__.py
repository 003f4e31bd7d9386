"""PURE: share groups (KIP-932): membership, assignment, and whose state the share coordinator keeps."""
