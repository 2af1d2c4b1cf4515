"""Fix the environment of a model, and prove that it is fixed.

Importing this package loads nothing: every command imports what it needs, so that
`envlock --help` and the agent that travels to a bare node start in milliseconds.
"""

__version__ = "0.1.0"
