"""From arguments to a result: `solve`, and what runs it many times: path, grid, online runs."""
