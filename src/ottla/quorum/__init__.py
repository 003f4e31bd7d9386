"""PURE. The Raft protocol of Kafka's metadata quorum: `machine.QuorumMachine` decides, its host acts.

KIP-595 (elections, replication by fetches), KIP-630 (snapshots), KIP-853 (voters that change), KIP-996 (pre-votes).
"""
