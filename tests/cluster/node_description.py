"""Where a test session keeps the description of the cluster's nodes."""

import pytest

NODES = pytest.StashKey[str]()  # description of the cluster's nodes
