"""Bytes on a local disk or in an object store, behind one Store protocol."""
