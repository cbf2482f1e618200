"""How figures look: tables in every format, and the HTML report."""
