"""The known workload: generator, cases, signatures, traced models, and the report of one run."""
