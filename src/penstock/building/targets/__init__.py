"""Where a build writes: a directory, a store, plain files, tars."""
