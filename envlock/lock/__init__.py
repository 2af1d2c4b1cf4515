"""From a spec to a lockfile: resolving, and bringing what was locked into the store."""
