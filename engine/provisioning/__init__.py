"""What-ifs: other nodes, loads, objectives and queries; the smallest and cheapest pool; survival and growth."""
