"""Training that converges globally at a linear rate [Ling23]: the condition, and gradient descent under it."""
