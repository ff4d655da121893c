"""The attack on mossp: random problems, hostile files and arguments, kills, long processes.

`make attack` runs all of it (`python -m tests.adversarial`); a small share runs as ordinary tests.
Nothing here calls mossp to judge mossp.
"""
