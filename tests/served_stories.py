"""Which tests run a second time with the book behind a server: those that use only the public API.

`make test` runs a share of them, `make faults` all of them: `COMMONPLACE_TEST_SERVED=all`, or `only` for nothing else.
"""

from __future__ import annotations

import os
from typing import cast

import pytest

BEHIND_A_SERVER = "served"

SHARE = ("test_work_story", "test_threads", "test_scopes", "test_events", "test_history", "test_aio")
EXCLUDED: dict[str, tuple[str, ...]] = {
    "`admin.proof` scans the raw files of the book's host; `admin.copy` takes a book that is opened there": (
        "test_a_pin_survives_rebuilding_exporting_and_copying",
        "test_a_scope_is_found_with_all_that_names_it_and_nothing_is_left",
        "test_scopes_travel_with_copies_and_exports",
        "test_the_id_of_a_message_remains_and_says_why",
        "test_what_belongs_to_a_scope_is_found_and_erased_with_its_name",
        "test_what_got_its_metadata_later_is_found_and_erased_with_it",
        "test_who_relied_on_something_that_was_erased_is_told_without_naming_it",
    ),
    "`book.mirror`: the markdown lies on the book's host": (
        "test_a_customer_is_found_erased_and_proven_gone",
        "test_a_remark_is_no_part_of_what_a_person_edits",
        "test_memory_md_shows_what_holds_and_marks_what_is_in_doubt",
        "test_what_is_pinned_stays_in_memory_md_when_it_is_full",
    ),
    "`runs.execute`: it runs programs of the book's host": (
        "test_a_manager_plans_and_workers_do",
        "test_the_rights_of_one_workflow_bind_its_own_runs_and_nothing_else",
        "test_the_same_run_gives_the_same_digests_on_any_engine",
        "test_the_second_run_begins_with_what_the_first_one_has_learned",
        "test_workers_tell_each_other_what_they_find",
    ),
    "`run.child` with a `policy`, which a workflow's files say": (
        "test_a_turn_keeps_its_rules_in_the_scopes_below_its_run",
        "test_the_id_of_a_run_in_another_scope_cannot_be_used",
    ),
    "a function is given to a verb that runs on the server: `count_tokens`, `matters`, `progress`": (
        "test_bisect_tells_what_a_run_would_have_been_told_without_one_memory",
        "test_budgets_are_strict_and_what_does_not_fit_is_told",
        "test_progress_is_told_on_the_loop",
    ),
    "`access.tokens.authenticate`: a server asks it, and no verb": (
        "test_a_client_acts_as_the_actor_of_its_token",
        "test_a_token_ends_when_it_expires_or_is_revoked",
        "test_an_erased_token_is_no_longer_valid_and_a_revoked_one_does_not_come_back",
        "test_nothing_tells_a_wrong_secret_from_an_unknown_token",
        "test_tokens_are_the_same_after_a_rebuild",
    ),
    "`session.services`: it throws the index away, or sets the folder that facts are checked against": (
        "test_a_broken_index_is_done_without_and_the_answer_says_so",
        "test_a_digest_a_prompt_and_a_context_leave_one_event_each",
        "test_a_run_that_is_opened_after_its_events_hides_what_fits_its_patterns",
        "test_each_moment_reads_and_writes_what_the_table_says",
        "test_logs_and_decisions_of_a_run_are_hidden_too",
        "test_many_pages_of_events_are_looked_at_once",
        "test_what_becomes_a_secret_later_leaves_every_search",
        "test_what_is_no_secret_any_more_because_it_was_erased_is_as_in_a_new_index",
    ),
    "it changes, drops or counts rows, trips and transactions of `book.ledger`": (
        "test_a_rule_whose_bytes_have_changed_is_corrupt_and_a_rebuild_mends_it",
        "test_a_rule_with_a_value_that_does_not_exist_is_no_rule_that_allows_more",
        "test_a_task_is_completed_and_the_next_one_claimed_in_one_commit",
        "test_memory_settings_that_cannot_be_read_are_no_defaults",
        "test_tasks_and_branches_whose_words_were_erased_can_be_gone_on_with",
        "test_views_deleted_and_rebuilt_answer_the_same",
        "test_what_an_actor_reads_costs_at_most_twice_what_the_owner_reads",
    ),
    "it makes `book.ledger.submit` or `Book.verify` fail in this process": (
        "test_a_worker_that_does_not_know_whether_its_failure_was_recorded_tells_it_once",
        "test_an_error_that_speaks_of_a_shutdown_is_raised_as_it_is",
        "test_ctrl_c_gives_back_what_the_book_has_just_claimed_for_a_worker",
    ),
    "it makes an object of the library itself: a draft of an event, a `Claim` of another agent's, a `WorkFocus`": (
        "test_nobody_finishes_what_another_one_holds",
        "test_an_actor_forges_nothing_with_a_draft",
        "test_the_line_is_not_quoted_once_its_reader_may_not_read_it",
    ),
    "it reads `aio.admin.facts` and `aio.ledger.snapshot` without a call": (
        "test_every_verb_answers_the_same",
    ),
    "a turn whose scope has lost its name: each call opens it anew, and is Denied, not NotFound": (
        "test_nobody_acts_in_a_scope_without_a_name",
    ),
    "it counts on a first call of less than 60 ms": (
        "test_a_digest_as_of_a_position_is_of_the_time_of_its_event",
    ),
}
"""Stories that do not run so, by the reason."""


def is_behind_a_server(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    return call is not None and call.params.get("engine_name") == BEHIND_A_SERVER


def is_chosen(item: pytest.Item) -> bool:
    """Whether a test runs: of those behind a server the stories of the share, or all of them ("all"); with "only",
    all of them and nothing else."""
    asked = os.environ.get("COMMONPLACE_TEST_SERVED", "")
    if not is_behind_a_server(item):
        return asked != "only"
    return is_served_story(item) and (asked in ("all", "only") or _module(item) in SHARE)


def is_served_story(item: pytest.Item) -> bool:
    function = cast(pytest.Function, item)
    uses = set(function.fixturenames)
    if "book" not in uses or "any_engine" in uses:
        return False
    if function._fixtureinfo.name2fixturedefs["book"][-1].baseid.endswith(".py"):
        return False  # the module opens its book in another way
    return not any(function.originalname in names for names in EXCLUDED.values())


def _module(item: pytest.Item) -> str:
    name: str = cast(pytest.Function, item).module.__name__
    return name.rpartition(".")[2]
