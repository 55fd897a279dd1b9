"""Datum's datasets: what its metadata say, and how ours are told to its reader."""
