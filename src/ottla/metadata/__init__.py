"""The cluster's metadata at work: the controller, its channels to the brokers, and the stores."""
