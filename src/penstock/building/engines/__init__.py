"""Where the tasks of a build run: processes and threads of this machine, or a Ray cluster."""
