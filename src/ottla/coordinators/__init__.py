"""The coordinators of a broker: machines run on the partitions of their topics, and the methods that handlers call."""
