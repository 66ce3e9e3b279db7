"""`python -m devtools.pictures`: makes the pictures of the documentation, or checks that none is stale."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from devtools.pictures import airflow, approval, gallery, prefect, report, stale
from devtools.pictures.browser import open_browser

GROUPS = ("gallery", "report", "airflow", "approval", "prefect", "prefect-approval")


def main(argv: Sequence[str] | None = None) -> int:
    """Make the pictures of some groups, or check all; 1 where a picture is stale."""
    parser = argparse.ArgumentParser(prog="python -m devtools.pictures", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"{', '.join(GROUPS)}; default: all")
    parser.add_argument("--example", choices=gallery.EXAMPLES, help="of the gallery, this one only")
    parser.add_argument(
        "--redraw", action="store_true", help="reports of the gallery from the data in them; no sweep runs"
    )
    parser.add_argument("--check", action="store_true", help="make nothing; say which are stale")
    given = parser.parse_args(argv)
    unknown = sorted(set(given.groups) - set(GROUPS))
    if unknown:
        parser.error(f"unknown group {', '.join(unknown)}; use {', '.join(GROUPS)}")
    if given.check:
        problems = stale.find_problems()
        print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")  # noqa: T201
        return 1 if problems else 0
    with open_browser() as browser:
        for group in given.groups or GROUPS:
            match group:
                case "gallery":
                    for name in (given.example,) if given.example else gallery.EXAMPLES:
                        (gallery.redraw if given.redraw else gallery.make)(name, browser)
                        stale.record((f"gallery-{name}.html",))
                case "report":
                    report.make(browser)
                case "airflow":
                    airflow.make(browser)
                case "approval":
                    approval.make(browser)
                case "prefect":
                    prefect.make(browser)
                case "prefect-approval":
                    prefect.make_approval(browser)
            stale.record(browser.taken)
    return 0


if __name__ == "__main__":
    sys.exit(main())
