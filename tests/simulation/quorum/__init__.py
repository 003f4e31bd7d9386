"""The metadata quorum, simulated: the pure machines of several nodes on a time, network and disks of their own."""
