"""xfbench: which framework trains this network fastest here, and how sure are we?"""

__version__ = "0.1.0"
