"""Workers that carry out runs, and the executors that start them."""
