"""What the cluster consists of, who decides about it, and where that is kept."""
