"""The command line: one file for each command, thin: options, one call, one print."""
