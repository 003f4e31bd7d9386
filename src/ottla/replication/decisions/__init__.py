"""PURE: the in-sync set, and what is committed by that; how fast a replica may catch up."""
