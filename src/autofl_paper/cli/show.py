"""Results of studies on the screen: of the figures, of the joint planner, of the claims on real
radio.
"""

from importlib.util import find_spec
from pathlib import Path

from autofl.cli.screen import say, show_table
from autofl.cli.shared import print_json
from autofl.files import opening, quoted
from autofl.report.table import Table


def show_folder(
    results: Path, out: Path, page: Path | None, names: list[str] | None, as_json: bool
) -> None:
    """Redraw the results of whichever study is in a folder."""
    with opening(results, "results of a reproduction"):
        if any(results.glob("joint-*.json")):
            return show_joint(results, out, page, names, as_json)
        if (results / "radio.json").is_file():
            return show_radio(results, out, page, as_json)
        return show_reproduction(results, out, page, names, as_json)


def show_reproduction(
    results: Path, out: Path, page: Path | None, names: list[str] | None, as_json: bool
) -> None:
    """Pictures, tables and verdicts of a reproduction; on the screen those of the named figures, or
    all.
    """
    if find_spec("matplotlib") is None:
        return say(
            f"Matplotlib is missing: the tables are in {results}, and 'autofl reproduce --from {quoted(results)}' draws them"
            " elsewhere"
        )
    from autofl_paper.few_shot import read_adaptation
    from autofl_paper.page import data_of, judge_all
    from autofl_paper.page import report as report_all
    from autofl_paper.results import read_results

    say(f"drawing into {out}")
    lines = report_all(results, out, page, names)
    studies = read_results(results)
    judged = [
        one for one in judge_all(studies, read_adaptation(results)) if one.interval is not None
    ]
    if as_json:
        return print_json(
            {
                "figures": [
                    {
                        "name": x.figure,
                        "picture": str(x.picture),
                        "paper": x.says,
                        "measured": x.measured,
                    }
                    for x in lines
                ],
                "claims": [
                    {
                        "name": x.claim.name,
                        "claim": x.claim.words,
                        "data": data_of(x.claim, studies),
                        "measured": x.measured,
                        "verdict": x.verdict,
                    }
                    for x in judged
                ],
            }
        )
    claims = [[x.claim.words, data_of(x.claim, studies), x.measured, x.verdict] for x in judged]
    show_table(Table(["claim", "data", "median [interval]", "verdict"], claims))
    figures = [[x.figure, x.says, x.measured, str(x.picture)] for x in lines]
    show_table(Table(["figure", "the paper says", "measured", "picture"], figures))
    say(f"tables and claims: {out / 'report.md'}; pictures also as .svg")
    return None


def show_joint(
    results: Path, out: Path, page: Path | None, names: list[str] | None, as_json: bool
) -> None:
    """Picture and tables of the joint planner's studies; on the screen those of the named ones, or
    all.
    """
    from autofl_paper.joint_page import HOW, plain_results, report_joint
    from autofl_paper.joint_results import read_joint
    from autofl_paper.joint_tables import arm_table, limit_table, ratio_table

    say(f"drawing into {out}")
    files = report_joint(results, out, page)
    studies = {
        name: study for name, study in read_joint(results).items() if names is None or name in names
    }
    if as_json:
        return print_json(plain_results(studies))
    for name, study in studies.items():
        for table in (arm_table(study), ratio_table(study), limit_table(study)):
            say(name)
            show_table(table)
    say(HOW.replace("\n", " "))
    say(f"written: {', '.join(str(path) for path in files)}")
    return None


def show_radio(results: Path, out: Path, page: Path | None, as_json: bool) -> None:
    """Picture and verdicts of the study `radio`."""
    from autofl_paper.radio_page import (
        HOW,
        air_table,
        budget_table,
        claim_table,
        plain_results,
        radius_table,
        report_radio,
    )
    from autofl_paper.radio_results import read_radio

    say(f"drawing into {out}")
    files = report_radio(results, out, page)
    study = read_radio(results)
    if as_json:
        return print_json(plain_results(study))
    for table in (claim_table(study), air_table(study), radius_table(study), budget_table(study)):
        show_table(table)
    say(HOW.replace("\n", " "))
    say(f"written: {', '.join(str(path) for path in files)}")
    return None
