"""Familiar doors: the calls of other systems, translated to ours. Nothing here reads or writes by itself."""
