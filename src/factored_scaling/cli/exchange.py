"""fsc import, fsc export"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click

from factored_scaling.cli.output import OutputFile
from factored_scaling.cli.show import plural, say, write_out
from factored_scaling.cli.target import Target, left_out, study_argument
from factored_scaling.errors import InvalidInput


@click.command("import")
@study_argument
@click.argument("file", type=click.Path(path_type=Path))
def import_command(study: str, file: Path) -> None:
    """Import FILE into the study: a results.csv, or the JSON of a whole study that `fsc export` wrote.

    Each CSV row goes to the run with its training set and seed (0 where none is given), which is then finished. The
    JSON form needs a STUDY that does not exist yet. The same file twice changes nothing.

    \b
    fsc import my-study results.csv
    my-evaluation --csv | fsc import my-study -
    fsc import copy-of-study study.json
    """
    if file.suffix.lower() == ".json":
        _load(study, file)
        return
    target = Target.parse(study)
    results = target.snapshot(str(file)).results  # before a record is made that a bad file would leave
    with target.study() as opened:
        new, known = opened.take_in(results, file.name)
        say(f"{plural(new, 'new score')} in {plural(len(results.rows), 'row')}")
        if known:
            from factored_scaling.study.observations import known_already

            say(known_already(known), err=True)


@click.command("export")
@study_argument
@click.option("--out", type=OutputFile(dash=True), help="File to write. Default: standard output.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["csv", "json"]),
    help="csv: scores. json: the whole record. Default: by the file's ending, else csv.",
)
@click.option("--partial", is_flag=True, help="With csv: also scores of runs that are not finished.")
def export_command(study: str, out: Path | None, kind: str | None, partial: bool) -> None:
    """Write the study's scores as results.csv (general form), or the whole record as JSON.

    \b
    fsc export my-study > results.csv
    fsc export my-study --out study.json       rounds, runs, trials and all; `fsc import` reads it back
    """
    from factored_scaling.io.files import results_csv
    from factored_scaling.io.text import write_text

    form = kind or ("json" if out is not None and out.suffix.lower() == ".json" else "csv")
    with Target.parse(study).study() as opened:
        if form == "json":
            data = opened.store.dump(opened.id)
            data["rounds"][-1]["spec"] = opened.spec.to_mapping()  # the record does not hear of edits of study.yaml
            text = json.dumps(data, indent=1) + "\n"
        else:
            text = results_csv(opened.results(partial).rows, opened.spec)
            unfinished = [] if partial else [run.id for run in opened.unfinished()]
            if unfinished:
                say(f"warning: {left_out(unfinished)}", err=True)
    if out is None or str(out) == "-":
        write_out(text)
        return
    write_text(out, text)
    say(f"wrote {out}")


def _load(study: str, file: Path) -> None:
    from factored_scaling.cli.folder import DECLARED, RECORD, new_study
    from factored_scaling.io.files import write_study
    from factored_scaling.io.text import read_json
    from factored_scaling.store import Store
    from factored_scaling.store.coherence import check_export
    from factored_scaling.study import Study

    data = read_json(file)
    folder = Path(study)
    try:
        if "://" in study or folder.suffix == ".db":
            address, _, name = study.partition("#")
            with Store.create(address, lambda store: store.load(data, name or None, check_export))[0] as store:
                say(f"loaded into {store.place}")
            return
        with new_study(folder) as place:
            with Store.open(place / RECORD) as store:
                store.load(data, None, check_export)
            with Study.open(place / RECORD) as opened:
                first, now = opened.store.rounds(opened.id)[0].spec, opened.spec
                began = [replace(factor, demos=first.sizes[factor.name]) for factor in now.factors]
                write_study(now.changed(factors=began, nominal=first.nominal), place / DECLARED)
    except InvalidInput as error:
        raise error.at(str(file)) from None
    say(f"wrote {folder / RECORD} and {folder / DECLARED}")
