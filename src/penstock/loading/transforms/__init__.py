"""The steps of a loader that change examples or batches."""
