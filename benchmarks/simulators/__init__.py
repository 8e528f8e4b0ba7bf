"""Makes what benchmarks measure: log lines, clusters, faults and situations, the same ones for the same seed. Measures nothing."""
