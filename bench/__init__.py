"""What `make bench` runs: each row a ratio against a peer or a limit, measured in one run."""
