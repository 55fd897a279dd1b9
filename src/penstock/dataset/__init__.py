"""A directory of shards, shared by building and loading: the manifest, the shards, third-party layouts."""
