"""The contracts of imports in pyproject.toml, checked one by one, also on a graph that is wrong.

Tests use it: test_tidy.py checks that our imports keep the contracts, test_import_laws.py that each
contract breaks once an import is added that it forbids.
"""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import grimp
from importlinter.api import read_configuration
from importlinter.application.output import console
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.independence import IndependenceContract
from importlinter.contracts.layers import LayersContract

ROOT = Path(__file__).resolve().parent.parent.parent

CONTRACT_TYPES = {
    "acyclic_siblings": AcyclicSiblingsContract,
    "forbidden": ForbiddenContract,
    "independence": IndependenceContract,
    "layers": LayersContract,
}
LAWS = read_configuration(str(ROOT / "pyproject.toml"))
CONTRACTS = {contract["id"]: contract for contract in LAWS["contracts_options"]}


@cache
def import_graph() -> grimp.ImportGraph:
    """Return who imports whom, also for type checkers only and inside functions."""
    return grimp.build_graph("kraftrio", include_external_packages=True, cache_dir=None)


def broken_by(contract: dict[str, Any], *more_imports: str) -> str:
    """Return what breaks a contract on our imports and some more, "" if nothing does."""
    graph = deepcopy(import_graph())
    for arrow in more_imports:
        importer, imported = arrow.split(" -> ")
        if f"kraftrio.{imported}" in graph.modules:
            imported = f"kraftrio.{imported}"
        assert f"kraftrio.{importer}" in graph.modules, f"no module {importer}"
        if imported not in graph.modules:
            graph.add_module(imported, is_squashed=True)
        graph.add_import(importer=f"kraftrio.{importer}", imported=imported)
    kind: Any = CONTRACT_TYPES[contract["type"]]
    law = kind(contract["name"], LAWS["session_options"], contract)
    check = law.check(graph, verbose=False)
    if check.kept:
        return ""
    with console.capture() as printed:
        law.render_broken_contract(check)
    return printed.get()
