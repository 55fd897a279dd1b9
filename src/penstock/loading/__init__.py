"""From a dataset to batches: splits, loaders, order, state, epochs."""
