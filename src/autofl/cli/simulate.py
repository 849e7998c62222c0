"""autofl simulate: one run."""

from autofl.cli.screen import ProgressBar, say
from autofl.cli.shared import (
    AggregatorName,
    ArmName,
    Attack,
    Attackers,
    Config,
    Device,
    Force,
    Json,
    Out,
    PlannerName,
    Ray,
    Resume,
    Scenario,
    Set,
    device_for,
    folder_for,
    interruptible,
    load_planned,
    options,
    report_new_runs,
    resuming,
    say_foregone,
    settings_to_resume,
)

EXAMPLE = "Example: autofl simulate --arm autofl --set stop.rounds=50"


def command(
    config: Config = None,
    scenario: Scenario = None,
    arm: ArmName = None,
    planner: PlannerName = None,
    attack: Attack = None,
    attackers: Attackers = None,
    aggregator: AggregatorName = None,
    device: Device = None,
    ray: Ray = None,
    out: Out = None,
    force: Force = False,
    resume: Resume = None,
    overrides: Set = None,
    as_json: Json = False,
) -> None:
    """Simulate one arm and write its run folder."""
    from autofl.records import check_no_run

    chosen = options(
        {
            "arm": arm,
            "attack.name": attack,
            "attack.share": attackers,
            "aggregator.name": aggregator,
            "simulation.device": device_for(device, ray),
        }
    )
    said = [*(overrides or ()), *chosen]
    if resume is not None:
        settings = settings_to_resume(resume, True, config or scenario or planner, out, force, said)
        folder = resume
    else:
        settings = load_planned(config, scenario, said, planner)
        folder = folder_for(out, "simulate")
    keep = resume is None and not force
    if keep:
        # Now, since importing takes seconds, and again once nobody else can write there.
        check_no_run(folder)
    say(f"{settings.arm_name}, seed {settings.seed}, into {folder}")
    say_foregone(settings)
    from autofl.jobs.job import Job
    from autofl.jobs.many import run_with_progress

    label = f"{settings.arm_name} seed {settings.seed}"
    job = Job(settings, folder, label, resume=resume is not None, keep=keep)
    bar = ProgressBar(settings.stop.rounds, each_round=True)
    with bar, interruptible(folder, resuming("autofl simulate", folder, settings)):
        made = run_with_progress(job, bar, ray=ray)
    report_new_runs([made], folder, settings.compare.target_accuracy, as_json)
