"""`python -m xfbench` is the `xfbench` command."""

from xfbench.cli import main

main()
