"""Studies of a match on data, and the pictures and pages that show them."""
