"""The suites: each has `run(asked) -> Outcome`; its docstring says what is compared, and how."""
