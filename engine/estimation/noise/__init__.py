"""Realised latencies: what random costs, arrivals inside slices and sampling error add to Mace-Flow."""
