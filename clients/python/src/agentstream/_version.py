"""The version of the package, which `make release` replaces by that of the program."""

__version__ = "0.0.0"
