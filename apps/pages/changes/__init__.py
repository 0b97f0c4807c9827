"""Pages of the ledger: what was changed, by whom, and taking it back."""
