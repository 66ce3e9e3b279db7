"""No module imports itself by way of others, imports inside functions counted."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp


def test_there_are_no_import_cycles() -> None:
    graph = grimp.build_graph(
        "raysweep", "raysweep_airflow", "raysweep_prefect", "devtools", exclude_type_checking_imports=True
    )
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 250
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from None
