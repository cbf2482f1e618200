"""The results folder: immutable records, and what finds, joins, checks and hands them on."""
