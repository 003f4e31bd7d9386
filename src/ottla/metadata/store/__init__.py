"""Where the cluster's metadata is kept."""
