"""Jobs of Flink's DataStream API, one for each of its kinds, imported, asked and driven to saturation."""
