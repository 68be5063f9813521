"""Studies: data, models and recipes put together, and the pages that show what came of them."""
