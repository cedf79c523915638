"""Which tests run a second time with the book behind a server: those that use only the public API.

`make test` runs a share of them, `make faults` all: `COMMONPLACE_TEST_SERVED=all`.
"""

from __future__ import annotations

import os
from typing import cast

import pytest

BEHIND_A_SERVER = "served"

SHARE = ("test_work_story", "test_threads", "test_scopes", "test_events", "test_history")
MORE = (
    "test_memory", "test_items", "test_access", "test_work", "test_claims", "test_prompts", "test_digest", "test_state",
    "test_search", "test_resume", "test_lifecycle", "test_checklists", "test_hygiene", "test_verified",
    "test_work_context", "test_work_reads", "test_work_board", "test_work_roles", "test_reflection", "test_curation",
)  # fmt: skip

EXCLUDED: dict[str, tuple[str, ...]] = {
    "it records drafts, which are the library's own": ("test_an_actor_forges_nothing_with_a_draft",),
    "it uses what lies below the verbs, or a handle that only the book itself has": (
        "test_a_broken_index_is_done_without_and_the_answer_says_so",
        "test_a_child_run_goes_one_level_deeper_within_the_limit",
        "test_a_claim_is_gone_on_with_in_another_process",
        "test_a_late_holder_is_refused_whatever_others_did_meanwhile",
        "test_a_run_is_not_begun_under_an_id_that_is_taken",
        "test_a_task_that_nobody_was_given_is_anybodys_after_a_crash",
        "test_a_turn_has_all_that_an_actor_has",
        "test_a_turn_keeps_its_rules_in_the_scopes_below_its_run",
        "test_an_actors_export_holds_what_it_may_see_and_can_be_taken_in",
        "test_an_agents_file_can_switch_its_memory_or_its_search_off",
        "test_an_assignment_ends_by_whoever_plans_or_by_the_policy_reassign",
        "test_any_past_position_can_be_read_forked_compared_and_rebuilt",
        "test_asking_for_another_ones_view_is_a_right_and_is_recorded",
        "test_cqrs_reads_a_projection_that_lags_and_says_as_of_where",
        "test_each_moment_reads_and_writes_what_the_table_says",
        "test_erasing_reaches_what_forks_and_merges_have_carried_on",
        "test_event_sourced_state_is_what_its_events_say",
        "test_nobody_finishes_what_another_one_holds",
        "test_scopes_travel_with_copies_and_exports",
        "test_secret_fields_are_redacted_in_event_views_errors_and_audit",
        "test_the_id_of_a_run_in_another_scope_cannot_be_used",
        "test_what_a_late_holder_decides_or_finds_is_refused",
        "test_what_an_actor_reads_costs_at_most_twice_what_the_owner_reads",
        "test_what_is_erased_is_gone_from_state_and_from_every_fork",
        "test_what_was_completed_in_time_is_answered_again_later",
        "test_whom_tasks_are_for_is_rebuilt_from_the_ledger",
    ),
    "it gives a function to a verb, which runs on the server": (
        "test_budgets_are_strict_and_what_does_not_fit_is_told",
        "test_lines_of_a_digest_and_of_memory_md_are_echoes",
    ),
    "it uses a verb that is not served: files, leads, blocking watches": (
        "test_a_leader_that_takes_long_over_a_step_stays_in_the_lead",
        "test_a_roles_task_is_on_the_board_and_comes_to_whoever_leads",
        "test_a_task_is_completed_and_the_next_one_claimed_in_one_commit",
        "test_a_work_that_is_over_can_be_discarded",
        "test_anybody_can_follow_a_work",
        "test_each_does_what_its_role_allows_and_sees_what_it_may",
        "test_members_follow_their_private_work_and_nobody_else_does",
        "test_the_same_file_can_be_imported_into_two_scopes",
        "test_whoever_leads_is_told_in_order",
        "test_whoever_leads_later_is_told_what_waits_and_each_thing_once",
    ),
    "it calls the tools of the process itself": ("test_the_tools_answer_with_their_envelopes",),
    "it uses a helper that goes below the verbs, or a refusal that a server makes earlier": (
        "test_a_fork_goes_its_own_way_and_is_merged_back_with_conflicts_shown",
        "test_a_handler_that_returns_nonsense_fails_its_task_and_hears_what_is_urgent",
        "test_a_roles_task_goes_to_agents_of_that_role_and_to_the_next_one_after_a_crash",
        "test_a_stale_writer_gets_both_versions_and_other_keys_never_conflict",
        "test_a_strict_contract_asks_for_confidence_and_a_partial_write_may_wait_with_the_rest",
        "test_an_actor_reads_the_run_as_itself_and_cannot_take_anothers_turn",
        "test_an_assigned_task_stays_its_agents_whatever_becomes_of_a_claim",
        "test_an_output_that_breaks_its_contract_is_refused_by_field_and_rule",
        "test_another_takes_the_lead_when_the_first_dies_and_nothing_is_done_twice",
        "test_bisect_tells_what_a_run_would_have_been_told_without_one_memory",
        "test_limits_refuse_the_write_that_would_pass_them_and_keep_the_state",
        "test_nobody_acts_in_a_scope_without_a_name",
        "test_one_of_several_alternatives_is_chosen_and_the_others_are_cancelled",
        "test_start_values_come_from_the_caller_then_auto_inject_then_the_file",
        "test_the_limits_are_kept_count_of_through_removals_erasures_forks_and_merges",
        "test_verbs_on_runs_take_the_run_itself_and_their_answers_read_as_sentences",
        "test_what_follows_from_the_last_task_is_done_by_whoever_comes_after_a_dead_leader",
        "test_whoever_takes_over_is_not_offered_what_was_dispatched_or_sent_back",
    ),
}
"""Tests of these modules that do not run so, by the reason."""


def is_behind_a_server(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    return call is not None and call.params.get("engine_name") == BEHIND_A_SERVER


def is_served_story(item: pytest.Item) -> bool:
    function = cast(pytest.Function, item)
    uses = set(function.fixturenames)
    if "book" not in uses or "any_engine" in uses:
        return False
    if function._fixtureinfo.name2fixturedefs["book"][-1].baseid.endswith(".py"):
        return False  # the module opens its book in another way
    every = os.environ.get("COMMONPLACE_TEST_SERVED") == "all"
    chosen = (*SHARE, *MORE) if every else SHARE
    module = function.module.__name__.rpartition(".")[2]
    return module in chosen and not any(function.originalname in names for names in EXCLUDED.values())
