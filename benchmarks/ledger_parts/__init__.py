"""Parts of `gyre bench ledger`."""
