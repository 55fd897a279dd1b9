"""What an example holds: fields and their types, inference, coercion, columns, example classes."""
