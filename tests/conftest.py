"""What every test shares: the checkout on the import path.

The tests' own helpers are imported by their full names, such as tests.conformance.broker_process.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
