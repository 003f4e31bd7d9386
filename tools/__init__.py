"""Programs that build and try what the project publishes: the site, the pictures, the distributions."""
