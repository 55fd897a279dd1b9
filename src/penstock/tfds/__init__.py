"""The metadata of TensorFlow Datasets, both ways: what we build opens there, what it prepared opens here."""
