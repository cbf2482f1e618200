"""The results folder: immutable records, their index, and the records that come with xfbench."""
