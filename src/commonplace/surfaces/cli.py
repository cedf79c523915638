"""The `commonplace` command: the verbs of a book for a shell.

A command is a verb (`memory list` is `book.memory.list`), or a function of this package where a shell needs more than
a call: asking first, following, drawing. Nothing of a book is imported before a command needs it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from ..verbs import Verb
    from .shell import Shell

ABOUT = "One memory for a team of AI agents: an append-only ledger, and views of it."


class Listed(NamedTuple):
    """Commands of one group: the namespace whose verbs they are, how verbs are called that have another name here
    (None: not offered here), and functions of this package (`module:function`)."""

    about: str
    namespace: str = ""
    renamed: Mapping[str, str | None] = {}
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
    "inbox": ("All that waits for a person.", "inbox"),
}
"""The everyday commands: what `--help` says of each, and where it is."""

GROUPS = {
    "memory": Listed(
        "What is remembered: items, disputes, cores, upkeep.",
        "memory",
        {"get": "show", "import_": None, "repository_fact": "fact"},
    ),
    "documents": Listed(
        "Notes, sessions, tasks' folders, daily logs.",
        "documents",
        {"day": "daily"},
        {"check-notes": "book:check_notes"},
    ),
    "mirror": Listed(
        "The memory as markdown that people edit.",
        "",
        {},
        {"sync": "book:mirror_sync", "status": "book:mirror_status", "watch": "book:mirror_watch"},
    ),
    "receipts": Listed(
        "What digests and prompts were made of.",
        "receipts",
        {"get": "show", "bisect": None},
        {"replay": "running:replay", "bisect": "running:bisect"},
    ),
    "runs": Listed(
        "Runs and their states.", "runs", {"get": None, "execute": None, "state": None}, {"state": "running:state"}
    ),
    "access": Listed("Who may do and see what.", "access", {"redacted": None}),
    "book": Listed(
        "The whole book: verify, copy, erase, purge.",
        "admin",
        {"status": None, "index_size": None, "erase": None, "export": None, "import_": None, "copy": None},
        {"erase": "book:erase", "export": "book:export", "import": "book:import_", "copy": "book:copy"},
    ),
}  # fmt: skip


def _held(kind: str, names: str) -> dict[str, str]:
    """Commands that are verbs of a work (or of its `manage` and `approvals`), of something `in` it that is named by its
    id, of a task or of a claim."""
    pairs = (name.partition("=")[::2] for name in names.split())
    return {name: f"{kind}/{verb or name.replace('-', '_')}" for name, verb in pairs}


RECORDS = ("decisions", "discoveries", "artifacts", "approvals", "escalations", "branches")

GROUPS |= {
    "work": Listed(
        "What a team does together, and what it decides.",
        own={
            "new": "working:new", "list": "works.list", "show": "working:show", "change": "working:change",
            "archive": "working:archive", "discard": "working:discard",
             "do": "working:do", "lead": "working:lead", "branch": "working:branch",
            "content": "working:content", "reject": "working:reject",
            **{name: f"working:{name}" for name in RECORDS},
            **_held("manage", "pause resume complete abandon export"),
            **_held("approvals", "request-approval=request"),
            **_held("in_approvals", "disapprove=refuse"),
            **_held("work", "escalate candidates contributions graph nudges=read_messages path=critical_path"),
            **_held("in", "answer choose acknowledge"),
        },
    ),
    "task": Listed(
        "Tasks: who does what, and what waits for what.",
        own={
            "list": "working:tasks", "claim": "working:claim", "claim-many": "working:claim_many",
            "complete-many": "working:complete_many", "heartbeat": "working:heartbeat", "block": "working:block",
            **_held("work", "add=add_task add-many=add_tasks"),
            **_held("task", "show=info assign unassign unblock retry cancel edit assign-review radar"),
            **_held("task", "link=add_dependencies unlink=remove_dependencies"),
            **_held("in", "review context=context_for"),
            **_held("claim", "complete fail release split"),
        },
    ),
}  # fmt: skip
OF_WORKS = {
    **_held("work", "decide discover artifact nudge"),
    **_held("in_approvals", "approve=grant"),
    "promote": "working:promote",
}
"""Everyday commands about works."""


def verb_at(path: str) -> Verb:
    """The verb of a book that has this path."""
    from ..book import Book
    from ..verbs import namespace_of, verb_of

    names = path.split(".")
    holder: type = Book
    for name in names[:-1]:
        holder = namespace_of(holder, name)
    return verb_of(names, getattr(holder, names[-1]))


def listed(group: Listed) -> dict[str, str]:
    """The commands of a group, and where each is."""
    found = {}
    if group.namespace:
        from ..book import Book
        from ..verbs import namespace_of

        for name, member in vars(namespace_of(Book, group.namespace)).items():
            called = group.renamed.get(name, name)
            if getattr(member, "is_verb", False) and called is not None:
                found[called.replace("_", "-")] = f"{group.namespace}.{name}"
    return found | dict(group.own)


def placed(place: str) -> Verb:
    return held(place) if "/" in place else own(place) if ":" in place else verb_at(place)


def held(place: str) -> Verb:
    """A verb of a work, of something in it or of a claim, with what it is called on as its first parameters."""
    from ..verbs import NOTHING, Parameter, verb_of
    from ..work.handles import Approvals, TaskHandle, WorkManagement
    from ..work.holding import Claim
    from ..work.verbs import Work

    kind, _, name = place.partition("/")
    work = Parameter("work", str, NOTHING, "the id of the work", True)
    task = Parameter("task", str, NOTHING, "the id of the task", True)
    token = Parameter("token", int, NOTHING, "what the claim of the task has answered", True)
    holder, first = {
        "work": (Work, (work,)), "manage": (WorkManagement, (work,)), "approvals": (Approvals, (work,)),
        "in": (Work, ()), "in_approvals": (Approvals, ()), "task": (TaskHandle, (task,)),
        "claim": (Claim, (task, token)),
    }[kind]  # fmt: skip
    verb = verb_of((place,), getattr(holder, name))
    return verb._replace(parameters=(*first, *verb.parameters))


def own(place: str) -> Verb:
    """A command that a function of this package is: what it is told is read as a verb's is."""
    from ..verbs import verb_of

    module, _, name = place.partition(":")
    return verb_of((place,), getattr(import_module(f".{module}", __package__), name))


# running a command


def run(verb: Verb, shell: Shell, typed: Mapping[str, Any]) -> Any:
    """Call what was asked for. Its answer becomes data for scripts and text for people."""
    from .answers import answer_of, whole_ids
    from .typed import values

    given = values(verb, typed)
    if ":" in verb.path[0]:
        return verb.function(shell, **given)
    if "/" in verb.path[0]:
        from .working import call

        return call(shell, verb, given)
    writes = all(parameter.name != "at" for parameter in verb.parameters) and not given.get("dry_run")
    about_memory = verb.path[0] in ("remember", "memory", "documents")
    owners = verb.path[0] in ("admin", "mirror")
    holder: Any = shell.owned(mirrored=True) if owners else shell.acting(mirrored=writes and about_memory)
    if verb.path[0] in ("search", "digest", "prompt"):
        with shell.progress("indexing") as progress:
            if progress is not None:
                shell.open().admin.reindex(progress)
    given = whole_ids(holder, verb, given)
    for name in verb.path[:-1]:
        holder = getattr(holder, name)
    if any(parameter.name == "redacted" for parameter in verb.parameters):
        given["redacted"] = True
    if not any(parameter.name == "progress" for parameter in verb.parameters):
        return answer_of(shell, verb, verb.function(holder, **given))
    with shell.progress(verb.name) as progress:
        return answer_of(shell, verb, verb.function(holder, progress=progress, **given))


COMMON = (
    ("book", "--book", "URL", "A path, file:DIR, postgresql://…, redis://… or unix://…"),
    ("user", "--user", None, "The book of this user, in place of the repository's."),
    ("actor", "--as", "ACTOR", "Who acts, and under whose rights; the owner, if not said."),
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
            chosen["book"], chosen["actor"], bool(chosen["json"]), chosen["mirror"], user=bool(chosen["user"])
        )
        code = shell.run(lambda shell: run(self.verb, shell, typed), {})
        if code:
            context.exit(code)


class Below(click.Group):
    """A group of commands, which are made when the group is used."""

    def __init__(self, name: str, group: Listed) -> None:
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
        return None if found is None else Command(name, placed(found))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from .draw import cut

        found = {name: placed(place) for name, place in listed(self.listed).items()}
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
        return None if place is None else Command(name, placed(place))

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
    sys.exit(code if isinstance(code, int) else 0)


def _is_text(word: str) -> bool:
    """Whether the bytes that were typed are UTF-8; Python keeps others as lone surrogates."""
    return not any("\ud800" <= char <= "\udfff" for char in word)


if __name__ == "__main__":
    main()
