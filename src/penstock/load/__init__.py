"""Reading datasets: `load` opens one, a Split is a sequence of its examples, a Loader says how to feed them."""
