"""The search space: domains, branches, expressions, and configs made of them."""
