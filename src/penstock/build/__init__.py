"""From a source to a published dataset: list, decide the schema, plan, run the tasks, commit."""
