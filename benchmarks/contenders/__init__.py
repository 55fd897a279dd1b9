"""The contenders, one file each. A module here imports its library inside the functions that run in its own process."""
