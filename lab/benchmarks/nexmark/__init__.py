"""The queries of Nexmark as Flink SQL with generated events, imported, asked and driven to saturation."""
