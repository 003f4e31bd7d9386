"""A whole cluster in one process: brokers, disks, network, ZooKeeper and clients; a seed decides everything."""
