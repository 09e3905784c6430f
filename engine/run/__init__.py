"""What happens to arrays: inputs, weights, places, and whether the results are right."""
