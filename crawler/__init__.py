"""A web crawler for several machines and one shared folder."""

__version__ = "0.1.0"
