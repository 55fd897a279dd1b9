"""Records and the files that hold them: what the native core does, in Python's words."""
