"""What is measured.  A scenario gives one set of figures for one peer and one round."""
