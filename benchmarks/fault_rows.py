"""What was once seen to go wrong, and the tests that inject it: the last list of
docs/reliability.md.
"""

SEEN: list[tuple[str, list[str]]] = [
    (
        "one device sends a finite 1e30; x1e3, sign flip x10, zeros",
        ["faults/test_liars.py::test_an_update_that_no_honest_device_makes_is_named_and_left_out"],
    ),
    (
        "replay of an old round",
        [
            "faults/test_liars.py::test_an_old_reply_is_refused_by_its_stamp_and_an_old_update_under_a_new_stamp_by_"
            "its_digest"
        ],
    ),
    (
        "pixel sums with squares = 2^50, num = 2^40",
        [
            "faults/test_liars.py::test_every_lie_in_an_introduction_is_seen",
            "faults/test_liars.py::test_plausible_sums_of_other_images_are_found_among_those_of_the_others",
        ],
    ),
    (
        "accuracy 5.0",
        ["faults/test_liars.py::test_an_evaluation_that_cannot_be_is_named_and_not_averaged"],
    ),
    (
        "400-digit data size, wrong sample shape, num-classes 100000, cpu_frequency 1e-300",
        [
            "faults/test_liars.py::test_a_device_that_introduces_itself_with_lies_is_named_and_the_others_go_on"
        ],
    ),
    (
        "`deploy run` killed, then `--resume`",
        [
            "deploy/test_deployment.py::test_one_run_at_a_time_and_a_killed_command_leaves_no_second_writer",
            "faults/test_lease.py::test_a_server_whose_command_is_gone_stops_itself_and_says_so",
            "faults/test_lease.py::test_a_server_that_another_attempt_has_replaced_writes_nothing_more",
        ],
    ),
    (
        "several `deploy run` at once; SIGTERM of one",
        [
            "faults/test_lease.py::test_a_second_run_is_refused_and_the_lease_ends_with_its_process_however_it_ends",
            "deploy/test_deployment.py::test_a_device_that_lies_is_named_and_sigterm_ends_the_training",
        ],
    ),
    (
        "two deployments and a `simulate` into one folder; a run that somebody else made meanwhile",
        [
            "deploy/test_deployment.py::test_of_two_deployments_and_a_simulation_into_one_folder_one_makes_its_run",
            "faults/test_lease.py::test_of_two_deployments_and_a_simulation_that_want_one_folder_one_makes_its_run",
            "faults/test_lease.py::test_a_run_that_somebody_else_made_meanwhile_stays_theirs",
            "faults/test_lease.py::test_a_run_folder_of_another_deployment_is_not_taken_from_it",
            "faults/test_lease.py::test_a_run_that_was_finished_meanwhile_is_not_begun_anew",
        ],
    ),
    (
        "two `simulate` into one folder; three started in the same second without `--out`",
        ["faults/test_store.py::test_a_folder_has_one_writer"],
    ),
    (
        "one bit flipped in the settings of an interrupted run, in the manifest or the tables of a finished one",
        [
            "faults/test_store.py::test_a_finished_run_whose_tables_changed_is_refused",
            "faults/test_store.py::test_a_manifest_without_its_seal_is_refused",
        ],
    ),
    (
        "a divergence that a few caused names nobody",
        [
            "faults/test_store.py::test_a_divergence_caused_by_a_few_is_rolled_back_and_names_them",
            "faults/test_store.py::test_a_suspect_is_far_longer_than_the_others",
            "deploy/test_status.py::test_a_deployment_that_diverged_names_its_suspects",
        ],
    ),
    (
        "killed between the manifest and the tables; `attack.scale=nan`; `--attack os:system`",
        [
            "faults/test_store.py::test_a_command_killed_between_its_manifest_and_its_tables_begins_anew",
            "faults/test_store.py::test_a_setting_of_an_attack_is_finite",
            "faults/test_store.py::test_a_function_of_pythons_own_is_no_part",
        ],
    ),
    (
        "one bit flipped in a checkpoint, a checkpoint cut short",
        ["faults/test_store.py::test_a_damaged_checkpoint_is_seen_and_the_older_one_used"],
    ),
    (
        "a store swept from another container",
        ["faults/test_store.py::test_a_run_is_alive_as_long_as_its_lock_is_held"],
    ),
    (
        "disk full",
        ["faults/test_store.py::test_a_full_disk_is_one_line_and_an_honest_manifest"],
    ),
    (
        "SIGTERM; a SIGTERM that a library drops",
        [
            "faults/test_store.py::test_a_run_told_to_end_leaves_a_checkpoint_and_the_reason",
            "faults/test_store.py::test_a_signal_that_a_library_drops_ends_the_run_after_the_round",
        ],
    ),
    (
        "little is enough: a lie that hides among the others",
        [
            "faults/test_evenness.py::test_in_a_run_every_liar_is_left_out_in_every_round_and_nobody_else"
        ],
    ),
    (
        "honest UEs left out once training had come to rest",
        [
            "faults/test_history.py::test_at_rest_where_everybody_opposes_the_others_nobody_is_left_out"
        ],
    ),
    (
        "`simulate`, `compare`, `pilot`, `reproduce` killed",
        ["faults/test_store.py::test_a_killed_command_goes_on_to_the_same_bytes"],
    ),
    (
        "fuzzed settings, run folders, data files",
        ["faults/test_store.py::test_a_broken_file_is_read_or_refused_in_one_line"],
    ),
    (
        "fuzzed command lines",
        ["faults/test_store.py::test_any_command_line_works_or_ends_in_one_line"],
    ),
    (
        "a 19 MB gzip takes 3.2 GB",
        ["faults/test_store.py::test_a_small_file_cannot_take_much_memory"],
    ),
    (
        "output to an ASCII terminal",
        ["faults/test_store.py::test_an_ascii_terminal_gets_the_whole_table"],
    ),
    (
        "`deploy run --set cell.num_ue=7` on three nodes",
        [
            "faults/test_lease.py::test_settings_for_other_devices_than_those_that_are_up_are_refused"
        ],
    ),
    (
        "`data.folder` of MNIST given as Fashion-MNIST",
        ["faults/test_store.py::test_mnist_is_not_taken_for_fashion_mnist"],
    ),
    (
        "a node's first reply lost",
        [
            "faults/test_liars.py::test_a_node_whose_first_replies_are_lost_is_asked_again_and_has_rows"
        ],
    ),
    (
        "honest updates left out by the bound of lengths, 2 of 600 with three UEs",
        ["robust/test_attacks.py::test_where_nobody_lies_the_bound_changes_no_bit"],
    ),
    (
        "hostile messages over the real transport: broken frames, 1 GB, 64 MB, wrong shape, NaN, 1e30, an old stamp, "
        "another device's number and certificate, byte by byte",
        [
            "faults/test_hostile.py::test_every_lie_on_the_stream_is_refused_and_named_and_the_run_goes_on"
        ],
    ),
    (
        "Ctrl-C while the workers of a comparison import",
        [
            "jobs/test_runs.py::test_a_comparison_interrupted_while_its_workers_still_import_ends_without_a_traceback"
        ],
    ),
    (
        "20,000 evaluations with a plateau rule",
        [
            "faults/test_store.py::test_the_stop_rules_cost_the_same_at_the_end_as_at_the_beginning",
            "faults/test_store.py::test_a_long_run_takes_no_more_memory_and_time_than_a_short_one",
        ],
    ),
    (
        "`compare --resume` took its compressor from AutoFL-J",
        [
            "config/test_brought.py::test_the_settings_of_a_comparison_read_back_give_every_algorithm_what_it_brings",
            "faults/test_store.py::test_a_killed_command_goes_on_to_the_same_bytes",
        ],
    ),
    (
        "a link as lock: what it points at was overwritten, by `report` too",
        [
            "faults/test_store.py::test_a_link_as_lock_is_refused_and_what_it_points_at_stays",
            "faults/test_lease.py::test_a_link_or_a_pipe_as_lease_is_refused_and_nothing_is_overwritten",
        ],
    ),
    (
        "Ctrl-C twice cost the checkpoint; SIGTERM at the very end",
        [
            "faults/test_store.py::test_a_run_told_to_end_leaves_a_checkpoint_and_the_reason",
            "faults/test_store.py::test_a_run_told_to_end_at_its_end_is_finished",
        ],
    ),
    (
        "`simulate --resume` of a deployment, `deploy run --resume` of a simulation; `deploy status` before round 1",
        [
            "deploy/test_status.py::test_a_simulation_is_not_resumed_on_devices_nor_a_deployment_by_a_simulation",
            "deploy/test_status.py::test_before_the_first_round_there_are_no_devices_to_list",
        ],
    ),
    (
        "a device that words its error as `ok`, `not connected`, a formula or nothing at all",
        [
            "faults/test_liars.py::test_an_error_that_a_device_words_itself_is_its_refusal_and_nothing_else"
        ],
    ),
    (
        "a shape of 5,000 digits; a reply that Flower cannot read; any other error while one reply is read",
        [
            "faults/test_liars.py::test_a_shape_of_5000_digits_is_refused_in_a_few_words",
            "deploy/test_post.py::test_a_reply_that_flower_cannot_read_is_refused_and_the_others_arrive",
            "faults/test_liars.py::test_an_error_nobody_thought_of_is_the_refusal_of_the_reply_it_was_in",
        ],
    ),
    (
        "an old update in other bytes: another header, type or order of its axes",
        [
            "faults/test_liars.py::test_the_same_numbers_are_the_same_update_however_they_are_written"
        ],
    ),
    (
        "honest devices called too even: two classes, many samples",
        [
            "faults/test_evenness.py::test_with_two_classes_many_samples_and_raw_pixels_no_honest_ue_is_left_out",
            "robust/test_attacks.py::test_where_nobody_lies_the_default_checks_change_no_bit_unless_they_shorten",
        ],
    ),
]


def seen_list() -> list[str]:
    """What went wrong, by the file whose test injects it first."""
    by_file: dict[str, list[str]] = {}
    for fault, tests in SEEN:
        by_file.setdefault(tests[0].partition("::")[0], []).append(fault)
    lines = ["Tests inject each of these; `benchmarks/fault_rows.py` names them all.", ""]
    for file, faults in by_file.items():
        lines += [f"- `tests/{file}`:", *(f"    - {fault}" for fault in faults)]
    return lines
