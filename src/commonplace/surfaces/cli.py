"""The `commonplace` command: the verbs of a book for a shell.

A command is a verb (`memory list` is `book.memory.list`), or a function of this package where a shell needs more than
a call: asking first, following, drawing. Nothing of a book is imported before a command needs it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from ..participant import Participant
    from ..verbs import Verb
    from .shell import Shell

ABOUT = "One memory for a team of AI agents: an append-only ledger, and views of it."


class Group(NamedTuple):
    """Commands of one group: the namespaces and handles whose verbs they are, what verbs are called here that have
    another name or live elsewhere (None: not offered in a shell), and functions of this package that stand in for verbs
    (`module:function`)."""

    about: str
    of: tuple[str, ...] = ()
    named: Mapping[str, str | None] = {}
    own: Mapping[str, str] = {}


TOP = {
    "init": ("Create the book, if it is not there yet.", "book:init"),
    "demo": ("Show what a book does, with a scripted team.", "book:demo"),
    "status": ("Show where the book stands.", "book:status"),
    "doctor": ("Check the book's health.", "book:doctor"),
    "log": ("Show what happened, one sentence for each event.", "book:log"),
    "record": ("Record one event.", "record"),
    "remember": ("Keep something for later.", "remember"),
    "search": ("Find items and events that answer a query.", "search"),
    "digest": ("What is remembered about a task, in a budget.", "digest"),
    "prompt": ("A task and all that an agent should know for it.", "prompt"),
    "forget": ("Forget items; with --erase for good.", "book:forget"),
    "import": ("Take in an export, or another tool's memory.", "book:import_"),
    "run": ("Run a workflow to its end.", "running:run"),
    "validate": ("List what is wrong with a workflow's files.", "running:validate"),
    "resume": ("All that is needed to go on with a task.", "learn.resume"),
    "inbox": ("All that waits for a person.", "inbox"),
    "serve": ("Serve the book over HTTP.", "serving:serve"),
    "mcp": ("Serve the book to a model over stdio.", "stdio:mcp"),
}
"""The everyday commands: what `--help` says of each, and where it is."""

OF_WORKS = {
    "decide": "work.decide", "discover": "work.discover", "artifact": "work.artifact", "nudge": "work.nudge",
    "approve": "work.approvals.grant", "promote": "work.promote",
}  # fmt: skip
"""Everyday commands about works."""

RECORDS = {
    "decisions": "decision", "discoveries": "discovery", "artifacts": "artifact", "approvals": "approval",
    "escalations": "escalation", "branches": "branch",
}  # fmt: skip
"""Commands that list one kind of what was recorded about a work: `work.records` of that kind."""

GROUPS = {
    "memory": Group(
        "What is remembered: items, disputes, cores, upkeep.",
        ("memory",),
        {"memory.get": "show", "memory.import_": None, "memory.repository_fact": "fact", "memory.add_many": None},
        {"add-many": "book:add_many", "curate": "learning:curate"},
    ),
    "documents": Group(
        "Notes, sessions, tasks' folders, daily logs.",
        ("documents",),
        {"documents.day": "daily"},
        {"check-notes": "book:check_notes"},
    ),
    "learn": Group(
        "What one run learns for the next.",
        ("learn",),
        {
            "learn.board.post": None, "learn.board.read": None, "learn.digests.fetch": None,
            "learn.register_tool": None, "learn.resume": None,
        },
        {
            "reflect": "learning:reflect", "promote": "learning:promote", "compact": "learning:compact",
            "hook": "hooks:hook",
        },
    ),
    "mirror": Group(
        "The memory as markdown that people edit.",
        own={"sync": "book:mirror_sync", "status": "book:mirror_status", "watch": "book:mirror_watch"},
    ),
    "receipts": Group(
        "What digests and prompts were made of.",
        ("receipts",),
        {"receipts.get": "show"},
        {"replay": "running:replay", "bisect": "running:bisect"},
    ),
    "runs": Group(
        "Runs and their states.", ("runs",), {"runs.get": None, "runs.execute": None}, {"state": "running:state"}
    ),
    "thread": Group(
        "Conversations: messages in, context out.",
        ("threads", "thread"),
        {},
        {"add": "conversing:add", "summary": "conversing:summary", "learn": "conversing:learn"},
    ),
    "access": Group(
        "Who may do and see what.", ("access",), {
            "access.redacted": None, "access.look_as": None, "access.tokens.create": "create-token",
            "access.tokens.list": "tokens", "access.tokens.revoke": "revoke-token",
        },
    ),
    "book": Group(
        "The whole book: verify, copy, erase, purge.",
        ("admin",),
        {
            "admin.status": None, "admin.index_size": None, "admin.import_": None, "admin.proof": None,
            "admin.blob": None,
        },
        {"erase": "book:erase", "export": "book:export", "import": "book:import_", "copy": "book:copy"},
    ),
    "work": Group(
        "What a team does together, and what it decides.",
        ("works", "work", "work.manage", "work.approvals"),
        {
            "work.critical_path": "path", "work.read_messages": "nudges", "work.approvals.request": "request-approval",
            "work.approvals.refuse": "disapprove", "work.manage.outlook": None,
            "works.containing": None, "works.archive_finished": None,
            "work.board": None, "work.info": None, "work.counts": None, "work.tasks": None, "work.ready": None,
            "work.records": None, "work.claim": None, "work.complete_many": None, "work.inbox": None,
            "work.watch": None, "work.reopen_claim": None,
        },
        {
            "new": "working:new", "show": "working:show", "change": "working:change", "archive": "working:archive",
            "discard": "working:discard", "do": "working:do", "lead": "working:lead", "content": "working:content",
            **{name: f"work.records kind={kind}" for name, kind in RECORDS.items()},
        },
    ),
    "task": Group(
        "Tasks: who does what, and what waits for what.",
        ("task", "claim"),
        {
            "work.add_task": "add", "work.add_tasks": "add-many", "work.claim_many": "claim-many",
            "work.review": "review", "work.context_for": "context", "task.info": "show",
            "task.add_dependencies": "link", "task.remove_dependencies": "unlink", "claim.next": None,
            "claim.nudges": None, "claim.context": None, "claim.radar": None, "claim.decide": None,
            "claim.discover": None, "claim.artifact": None,
        },
        {
            "list": "working:tasks", "claim": "working:claim", "complete-many": "working:complete_many",
            "block": "working:block",
        },
    ),
}  # fmt: skip


def listed(group: Group) -> dict[str, str]:
    """The commands of a group, and where each is. A verb that is named elsewhere is not listed with its namespace."""
    from ..registry import names_under

    elsewhere = {*OF_WORKS.values(), *(path for each in GROUPS.values() for path in each.named)}
    commands = {name: path for path, name in group.named.items() if name is not None}
    for namespace in group.of:
        for name in names_under(namespace):
            if f"{namespace}.{name}" not in elsewhere:
                commands[name.replace("_", "-")] = f"{namespace}.{name}"
    return commands | dict(group.own)


def placed(name: str, place: str) -> Verb:
    """The verb of a command. Its place is the verb's path, perhaps with a value that the command gives by itself
    (`work.records kind=decision`), or a function of this package, which is read as a verb is."""
    from ..registry import verb_at
    from ..verbs import verb_of

    path, *fixed = place.split()
    if ":" in path:
        module, _, function = path.partition(":")
        return verb_of((path,), getattr(import_module(f".{module}", __package__), function))
    verb = verb_at(path)
    if not fixed:
        return verb
    values = dict(pair.split("=") for pair in fixed)
    return verb._replace(
        path=(*verb.path[:-1], name),
        about=f"List the {name} of a work, in order. `task` shows only those that affect this task.",
        function=partial(verb.function, **values),
        parameters=tuple(parameter for parameter in verb.parameters if parameter.name not in values),
    )


# running a command


def run(verb: Verb, shell: Shell, typed: Mapping[str, Any]) -> Any:
    """Call what was asked for. Its answer becomes data for scripts and text for people."""
    from ..registry import call
    from .answers import answer_of, whole_ids
    from .typed import values

    given = values(verb, typed)
    if ":" in verb.path[0]:
        return verb.function(shell, **given)
    names = {parameter.name for parameter in verb.parameters}
    scoped = {"scope": shell.scope} if "scope" in names and shell.scope else {}
    if verb.path[0] in ("admin", "mirror"):
        me: Participant = shell.owned(mirrored=True, scoped=bool(scoped))
    elif verb.path[:2] == ("access", "tokens"):  # --scope is that of the token, not the one to act in
        me = shell.owned(scoped=bool(scoped))
    else:
        me = shell.acting(mirrored=_writes_memory(verb) and not given.get("dry_run"))
    given |= scoped
    if verb.path[0] in ("search", "digest", "prompt"):
        with shell.progress("indexing") as progress:
            if progress is not None:
                shell.open().admin.reindex(progress)
    given = whole_ids(me, verb, given)
    if "redacted" in names:
        given["redacted"] = True
    if "progress" not in names:
        return answer_of(shell, verb, call(me, verb, given))
    with shell.progress(verb.name) as progress:
        return answer_of(shell, verb, call(me, verb, {**given, "progress": progress}))


def _writes_memory(verb: Verb) -> bool:
    """Whether it is a verb about memory that writes. Every verb that reads has a parameter `at`."""
    keeps = getattr(verb.answer, "__name__", "") == "RememberResult"
    about_memory = keeps or verb.path[0] in ("memory", "documents", "learn")
    return about_memory and all(parameter.name != "at" for parameter in verb.parameters)


COMMON = (
    ("book", "--book", "URL", "A path, file:DIR, postgresql://, redis://, unix:// or http://."),
    ("user", "--user", None, "The book of this user, in place of the repository's."),
    ("actor", "--as", "ACTOR", "Who acts, and under whose rights; the owner, if not said."),
    ("scope", "--scope", "PATH", "The scope to act in, such as users/alice."),
    ("mirror", "--mirror", "DIR", "Where the markdown lies; beside a local book, if not said."),
    ("json", "--json", None, "Print one JSON document; an error is one on stderr."),
)


def _not_empty(_ctx: click.Context, option: click.Parameter, value: Any) -> Any:
    """An unset variable of a script must not mean the owner, or the book of this folder."""
    if value == "":
        raise click.BadParameter("it is empty: name one, or leave the option out", param=option)
    return value


def common() -> list[click.Parameter]:
    """The options that stand before the command or after it."""
    return [
        click.Option(
            [f"common_{name}", flag],
            help=help,
            callback=_not_empty,
            **({"is_flag": True} if metavar is None else {"metavar": metavar}),
        )
        for name, flag, metavar, help in COMMON
    ]


class Command(click.Command):
    """A command made from a verb."""

    def __init__(self, name: str, verb: Verb) -> None:
        from .typed import options

        about = verb.about.partition("\n\n")[0].replace("`", "")
        own = options(verb)
        super().__init__(
            name, params=[*own, *common()], callback=self._call, help=about, short_help=verb.summary.replace("`", ""),
            context_settings={"help_option_names": ["-h", "--help"]},
        )  # fmt: skip
        self.verb = verb

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from .typed import shielded

        return super().parse_args(ctx, shielded(args))

    def _call(self, **typed: Any) -> None:
        from .shell import Shell

        context = click.get_current_context()
        first = context.find_root().params
        chosen = {
            name: typed.pop(f"common_{name}", None) or first.get(f"common_{name}") for name, *_ in COMMON
        }
        shell = Shell(
            chosen["book"], chosen["actor"], bool(chosen["json"]), chosen["mirror"], user=bool(chosen["user"]),
            scope=chosen["scope"],
        )  # fmt: skip
        code = shell.run(lambda shell: run(self.verb, shell, typed), {})
        if code:
            context.exit(code)


class Below(click.Group):
    """A group of commands, which are made when the group is used."""

    def __init__(self, name: str, group: Group) -> None:
        super().__init__(
            name,
            help=group.about,
            no_args_is_help=True,
            context_settings={"help_option_names": ["-h", "--help"]},
        )
        self.listed = group

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return sorted(listed(self.listed))

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        found = listed(self.listed).get(name)
        return None if found is None else Command(name, placed(name, found))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from .draw import cut

        found = {name: placed(name, place) for name, place in listed(self.listed).items()}
        room = formatter.width - max(map(len, found)) - 4
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, cut(verb.summary.replace("`", ""), room)) for name, verb in sorted(found.items())]
            )


class Root(click.Group):
    """The command itself. Its help names groups and everyday commands, and imports nothing of a book."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return [*TOP, *OF_WORKS, *GROUPS]

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name in GROUPS:
            return Below(name, GROUPS[name])
        place = TOP[name][1] if name in TOP else OF_WORKS.get(name)
        return None if place is None else Command(name, placed(name, place))

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Groups"):
            formatter.write_dl([(name, group.about) for name, group in GROUPS.items()])
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (about, _) in TOP.items()])
        formatter.write_text(f"About a work: {', '.join(OF_WORKS)}.")


def _show_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted:
        from .. import __version__

        print(f"commonplace {__version__}")
        context.exit()


app = Root(
    "commonplace",
    help=ABOUT,
    no_args_is_help=True,
    params=[
        *common(),
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            hidden=True,
            expose_value=False,
            callback=_show_version,
            help="Print the version.",
        ),
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.callback = lambda **_: None


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command by its name, those of a group as `group command`."""
    context = click.Context(app)
    for name in app.list_commands(context):
        command = app.get_command(context, name)
        if isinstance(command, Below):
            for inner in command.list_commands(context):
                below = command.get_command(context, inner)
                assert below is not None
                yield f"{name} {inner}", below
        elif command is not None:
            yield name, command


def main() -> None:
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  until the end
        getattr(sys, name).reconfigure(errors="backslashreplace")
    words = sys.argv[1:]
    code: object
    try:
        if not all(map(_is_text, words)):
            raise click.UsageError("an argument is not UTF-8 text")
        code = app.main(words, "commonplace", standalone_mode=False)
    except click.UsageError as error:
        if "--json" in words:
            from .shell import dump

            print(
                dump({"error": {"code": "usage", "status": 400, "message": error.format_message()}}),
                file=sys.stderr,
            )
        else:
            error.show()
        code = error.exit_code
    except click.Abort:
        code = 130
    if ("learn", "hook") in pairwise(words):
        code = 0  # a host takes other codes for an order: 2 would keep it from stopping
    sys.exit(code if isinstance(code, int) else 0)


def _is_text(word: str) -> bool:
    """Whether the bytes that were typed are UTF-8; Python keeps others as lone surrogates."""
    return not any("\ud800" <= char <= "\udfff" for char in word)


if __name__ == "__main__":
    main()
