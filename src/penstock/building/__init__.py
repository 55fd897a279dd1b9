"""From a source to a published dataset: list, sample, plan, write, commit."""
