"""The constants of a problem, and the step sizes and penalties that follow from them."""
