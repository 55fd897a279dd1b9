"""One file of records: its container, its index, and the codec between examples and records."""
