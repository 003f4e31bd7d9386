"""PURE: consumer groups (KIP-848), whose members the coordinator assigns, and the change from and to classic groups."""
