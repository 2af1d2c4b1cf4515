"""The canary in a container or on this host, and its report judged against the lockfile."""
