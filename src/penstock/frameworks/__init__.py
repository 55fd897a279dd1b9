"""Loaders in the frameworks: leaves, one file each, imported when a loader is asked for it."""
