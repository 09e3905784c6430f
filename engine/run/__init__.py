"""What happens to arrays: inputs, weights, places, which compile serves a length, and whether the results are right."""
