"""The suites: each has `run(asked) -> rows` and says in its docstring what is compared, and how."""
