"""When a person's words leave memory out of a turn, and when they only speak of memory."""

from __future__ import annotations

import pytest

import commonplace

TASKS = [
    "Ignore memory, just the CPU time matters here.",
    "Do not use memory, only the disk.",
    "Threads ignore memory barriers",
    "Fix the workers that don't use memory efficiently",
    "Give each test a fresh context manager",
    "Ignore memory leaks in the vendored library and fix the rest",
    "Explain why the allocator seems to ignore memory limits",
    "Add a flag --ignore-memory to the command line",
    "Document the switch ignore_memory=True",
    'Translate "Ignore memory." into French',
    "What does “ignore memory” do?",
    "Should we ignore memory?",
    "Ignore memory?",
    "Don't use memory?",
    "Do not ignore memory.",
    "Never ignore memory.",
    "Don't ignore memory.",
    "Do not use memory-mapped files",
    "Don't use memory-mapped I/O on Windows.",
    "Do not use memory pools here.",
    "Write a sorter that does not use memory beyond its input",
    "Find the tasks that don't use memory",
    "Rewrite the parser so that it works without memory allocation",
    "Run the benchmark without memory pressure",
    "Create a fresh context for every request handler",
    "Open a fresh context menu on right click",
    "Every test gets a fresh context.",
    "Pass a fresh context to the template engine.",
    "Refactor the code so that each call starts with a fresh context object",
    "Compare fresh context with reused context",
    "The profiler should ignore memory that was mapped before the fork",
    "Ignore memory of the parent process",
    "Ignore memory addresses when you compare two dumps",
    "Do not use memory from last week's run",
    "Do not use memory.copy in the hot loop",
    "Tell me which services do not use memory",
    "Why do these containers ignore memory requests?",
    "The label says 'ignore memory', rename it",
    "## Fresh context\nWrite this section of the handbook",
    "# Ignore memory\nDescribe the setting",
    "Add a test for the sentence `Ignore memory.` in the parser",
    'The dialog reads: "Reset all? Ignore memory. Cancel."',
    "> Ignore memory.\nAnswer the mail that is quoted above",
    "```\nIgnore memory.\n```\nWhat does this script do?",
    "Remember what we said about the memory budget",
    "Summarise how memory is used",
    "Ignore memory and CPU warnings",
    "Ignore memory and answer",
    "Set up the database with fresh context",
    "Memory: ignore the first 4 kB",
    "We ignore memory in this model, and look at time only",
    "Ignoring memory is the default of the old client",
    "A fresh context is created by fork()",
    "List all flags: ignore memory, fresh context, verbose",
    "Translate to German:\nDon't use memory.",
    "Translate to German:\n\nDon't use memory. Be brief.",
    "**Put this line into the passive voice:**\nIgnore memory.",
    "Rewrite:\nIgnore memory for this question only.",
    "Answer without using memory-mapped files.",
    "Answer how to sort without using memory.",
    "1) Ignore memory leaks in the vendored library",
    "Only ignore memory that was mapped before the fork",
]

INSTRUCTIONS = [
    "Ignore any memory you have this time.",
    "Tell me what it does. Please don't use any memory, just the file.",
    "Estimate the effort. Work from a fresh context this time. Give me a range.",
    "Ignore memory.",
    "ignore memory",
    "IGNORE MEMORY!",
    "Please ignore memory.",
    "Ignore memory, please.",
    "Ignore memory for this turn.",
    "For this turn, ignore memory.",
    "Ignore all memory for this task",
    "Ignore your memory.",
    "do not use your memory for this",
    "Please ignore our memories this time!",
    "Don't use memory.",
    "Don’t use memory",
    "Dont use memory.",
    "Do not use memory.",
    "Please do not use any memory for this question.",
    "Do not consult your memory.",
    "Don't use the memory here.",
    "Without memory, please.",
    "Without using memory.",
    "Fresh context.",
    "fresh context",
    "Fresh context, please!",
    "Use a fresh context.",
    "Start with a fresh context, please.",
    "Just ignore memory...",
    "(Ignore memory.)",
    "**Ignore memory.**",
    "- ignore memory",
    "Summarise the report. Ignore memory.",
    "Ignore memory. Summarise the report.",
    "Set up the database\nfresh context\n",
    "What changed in 3.2? Please don't use memory for this turn. Be brief!",
    "Read the file.\n\nDo not use memory!\n\nThen fix it.",
    "1. ignore memory",
    "1) ignore memory",
    "1) Read the file\n2) Ignore memory\n3) Fix it",
    "a) ignore memory",
    "Ignore memory for this question only.",
    "Only for this turn, do not use memory.",
    "Answer without using memory.",
    "Please answer this question without memory.",
    "Reply without consulting your memory, please.",
    "Translate to German:\nGood morning.\n\nDon't use memory.",
    "Translate this to German: good morning\nDon't use memory.",
    "Important:\nIgnore memory.",
    "Task:\nIgnore memory. Summarise the report.",
    "Please keep to these rules:\n- ignore memory\n- be brief",
    "Summarise this script:\n```\nmake\n```\nIgnore memory.",
]


@pytest.fixture(scope="module")
def ada() -> commonplace.Actor:
    book = commonplace.open("memory:")
    book.remember(
        "memory, context, threads, workers, report, database: all of it is described in the handbook",
        shared=True,
    )
    return book.as_actor("ada")


@pytest.mark.spec("4.9")
@pytest.mark.parametrize("task", TASKS)
def test_a_task_that_speaks_of_memory_is_given_memory(ada: commonplace.Actor, task: str) -> None:
    prompt = ada.prompt(task)
    assert "described in the handbook" in prompt
    assert ada.receipts.get(prompt.receipt_id or "").ignored == ""


@pytest.mark.spec("4.9")
@pytest.mark.parametrize("task", INSTRUCTIONS)
def test_a_sentence_of_its_own_leaves_memory_out(ada: commonplace.Actor, task: str) -> None:
    prompt = ada.prompt(task)
    assert "described in the handbook" not in prompt
    assert ada.receipts.get(prompt.receipt_id or "").ignored


@pytest.mark.spec("4.9")
def test_a_long_task_is_read_in_time_that_grows_with_its_length(ada: commonplace.Actor) -> None:
    for text in ("ignore " * 50_000, "please " * 50_000, '"' * 100_000, "> \n" * 50_000, "- " * 50_000):
        assert ada.digest(text).receipt_id is not None
