"""The shape of workflow files in JSON Schema: what may stand where, in every dialect of the format.

Keywords of our own serve the messages and bring every dialect into one form (`normal` in `files.py`):

    want         what to write instead, for messages
    rule         the number of a rule in the format's reference
    short        a value that is no mapping stands for a mapping with this one key
    listed       a value that is no list stands for a list of one
    stands_for   the usual name of this key
    synonyms     other words for the same word

Nothing (`null`) may stand for anything optional. What a schema cannot say is in `rules.py`.
"""

from __future__ import annotations

from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from msgspec import Meta, Struct
from msgspec.structs import fields

from ..access.rights import TIERS, Permission
from ..state.policy import Model, Persistence, Start, StateLimits, Strategy, Strictness
from . import model

Schema = dict[str, Any]

_NUMERIC, _LABEL = r"(0|[1-9][0-9]*)", r"[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*"
_VERSION = rf"^{_NUMERIC}\.{_NUMERIC}\.{_NUMERIC}(-{_LABEL})?(\+{_LABEL})?\Z"
_A_VERSION = 'a full version in quotes, such as "1.0.0",'
_A_NAME = "a name of 2 to 64 characters (a-z, 0-9, _ and -, a letter first, no _ or - last)"
_AN_ID = "an id of 2 to 48 characters (a-z, 0-9 and _, a letter first, no _ last)"


def _kind(kinds: str, want: str, **words: Any) -> Schema:
    return {"type": [*kinds.split(), "null"], "want": want, **words}


def _one_of(*words: str) -> Schema:
    return {"enum": [*words, None], "want": f"one of {', '.join(words)}"}


def _number(kind: str, low: float = 0, high: float = 1e9, **more: Any) -> Schema:
    want = f"a {'whole ' if kind == 'integer' else ''}number from {low:,} to {high:,.0f}"
    return _kind(kind, want, minimum=low, maximum=high, **more)


def _needed(schema: Schema, rule: str = "") -> Schema:
    """The same, where nothing may not stand."""
    kinds = [kind for kind in schema.get("type", ()) if kind != "null"]
    words = [word for word in schema.get("enum", ()) if word is not None]
    return schema | ({"enum": words} if words else {"type": kinds}) | {"rule": rule}


def _list(items: Schema, others: str = "", want: str = "a list") -> Schema:
    """A list; a value of one of the other kinds may stand for a list of one."""
    return _kind(f"array {others}", want, items=items, listed=bool(others))


def _mapping(properties: dict[str, Schema], *required: str) -> Schema:
    """A mapping of these properties, and of others that are not read."""
    return _kind("object", "a mapping (name: value)", properties=properties, required=[*required])


def _or(short: Schema, name: str, mapping: Schema) -> Schema:
    """A mapping, or a value of the shape `short` that stands for {name: value}."""
    kinds = [kind for kind in short["type"] if kind != "null"]
    want = f"{short['want'].rstrip(',')}, or a mapping,"
    return {**short, **mapping, "type": ["object", *kinds, "null"], "want": want, "short": name}


def _of(kind: type[Struct], /, **more: Schema) -> Schema:
    """The shape of a struct of the model, with these fields in another shape or beside its own."""
    own = {field.name: _of_type(field.type) for field in fields(kind) if field.name not in more}
    return _mapping(own | more)


def _also(schema: Schema, **names: str) -> Schema:
    """The mapping, with other names of its properties."""
    properties = schema["properties"]
    others = {other: properties[name] | {"stands_for": name} for other, name in names.items()}
    return schema | {"properties": properties | others}


def _of_type(kind: Any) -> Schema:
    limits = Meta()
    if get_origin(kind) is Annotated:
        kind, limits = get_args(kind)
    if NoneType in get_args(kind):
        return _of_type(get_args(kind)[0])
    if get_origin(kind) is Literal:
        return _one_of(*get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _of(kind)
    if kind in (int, float):
        bounds = {"low": limits.ge, "high": limits.le}
        stated = {name: bound for name, bound in bounds.items() if bound is not None}
        return _number("integer" if kind is int else "number", **stated)
    shapes: dict[Any, Schema] = {bool: FLAG, str: TEXT, bool | str: FLAG_OR_TEXT, tuple: NAMES, dict: OPEN}
    return shapes[kind if kind in shapes else get_origin(kind)]


def _each(names: str, schema: Schema) -> dict[str, Schema]:
    return dict.fromkeys(names.split(), schema)


TEXT = _kind("string", "text (in quotes)")
FLAG = _kind("boolean", "true or false")
FLAG_OR_TEXT = _kind("boolean string", "true, false or an expression")
OPEN = _kind("object", "a mapping (name: value)")
NAMES = _list(_needed(TEXT), "string", "a list of names")
ANYTHING: Schema = {}

ID = _needed(_kind("string", _AN_ID, pattern=r"^[a-z][a-z0-9_]{0,46}[a-z0-9]\Z"), "R12")
DEPTH = _of_type(model.Depth) | {"rule": "R32"}
ON_FAILURE = _one_of("stop", "abort", "continue", "retry", "skip") | {"synonyms": {"abort": "stop"}}
RETRIES = _number("integer", 0, 99)
SECONDS = _of_type(model.Seconds)
BUDGET = _also(
    _of(model.DelegationBudget, max_depth=DEPTH, max_total_tokens=_number("integer", 1)),
    max_iterations="max_loops",
    max_workers="max_total_workers",
    max_chars="max_total_chars",
    max_seconds="max_wall_time",
)
DELEGATION = _also(
    _of(
        model.Delegation,
        budget=BUDGET,
        max_depth=DEPTH,
        context_budget=_mapping(_each("total_chars min_per_entry preview_chars", _number("integer", 1))),
    ),
    manager_agent="manager",
)
RETRY = _also(
    _of(model.Retry, max_retries=RETRIES),
    **dict.fromkeys(("retryable_errors", "retry_on"), "retryable"),
    backoff_base="base",
    max_delay="max",
)
DEPENDENCY = _or(TEXT, "id", _also(_mapping(_each("id condition when", TEXT)), agent="id", expr="condition"))
NODE = _of(
    model.Node,
    id=ID,
    depends_on=_list(DEPENDENCY, "string object", "a list of ids") | {"properties": DEPENDENCY["properties"]},
    share_input=_list(_needed(TEXT), "string object", "a list of names, or {producer: [fields]},")
    | {"additionalProperties": NAMES},
    on_failure=ON_FAILURE,
    timeout=_or(SECONDS, "per_agent", _mapping({"per_agent": SECONDS})),
    retry=RETRY,
    fan_out=_of(model.FanOut, source=_needed(TEXT)) | {"required": ["source"]},
    subworkflow=_or(TEXT, "path", _also(_mapping({"path": TEXT}), folder="path")),
    max_depth=DEPTH,
    budget=BUDGET,
    type=TEXT,
    config=DELEGATION,
    delegation_loop=DELEGATION,
    delegation=ANYTHING,
    **_each("inherited_state_keys forbidden_inheritance_keys", NAMES),
)
EXECUTION = _of(
    model.Execution,
    timeout=_mapping(_each("per_agent total idle", SECONDS)),
    on_error=ON_FAILURE,
    error_handling=_mapping({**_each("default on_final_failure", ON_FAILURE), "max_retries": RETRIES}),
    retry=RETRY,
)
DEGRADATION = _also(
    _of(model.Degradation), id="node", agent="node", strategy="action", fallback_agent="fallback"
)
RULE = _also(_mapping({"from": TEXT, "to": NAMES, "fields": NAMES}), from_agent="from", to_agents="to")
SHARING = {
    "strategy": _needed(_of_type(Strategy), "R16"),
    "rules": _list(RULE),
    **_each("never_share sensitive_fields", NAMES),
    "validation": _of_type(Strictness),
}
STATE = _of(
    Start,
    model=_of_type(Model),
    persistence=_or(FLAG, "enabled", _of(Persistence)),
    limits=_of(StateLimits),
    sharing=_mapping(SHARING, "strategy"),
)

_OF_A_TIER: dict[str, Schema] = {
    **_each("enabled inject auto_write auto_curate", FLAG),
    **_each("file directory index_path path backend similarity_metric embedding_model", TEXT),
    **_each("max_tokens max_entries", _number("integer")),
    "retention_days": _number("integer", 0, 36_500),
    "max_size_kb": _number("number", 1, 1e6),
    "curate_interval": _one_of("after_run", "daily", "manual"),
}
_OTHERS = {"retention": "retention_days", "inject_into_prompt": "inject", "type": "backend"}
DAILY_LOG = _or(FLAG, "enabled", _also(_mapping(_OF_A_TIER), **_OTHERS))
TIER = _or(FLAG, "enabled", _also(_mapping({**_OF_A_TIER, "daily_log": DAILY_LOG}), **_OTHERS))
_TIERS = {**dict.fromkeys(TIERS, TIER), "daily_log": DAILY_LOG}
PERMISSIONS = _mapping(dict.fromkeys(TIERS, _of_type(Permission))) | {"additionalProperties": False}
MEMORY = {
    **_each("enabled search_enabled", FLAG),
    "workspace_dir": TEXT,
    "tiers": _mapping(_TIERS),
    **_TIERS,
    "access_control": _mapping({}) | {"additionalProperties": PERMISSIONS},
    "curation": _or(FLAG, "enabled", _of(model.Curation)),
}
PATTERNS = _kind("array", "a list", rule="R14")
REDACTION = _or(FLAG, "enabled", _mapping({"patterns": PATTERNS}))
SECURITY = {"sensitive_fields": NAMES, "redaction": REDACTION, "redact_patterns": PATTERNS}
ORCHESTRATION = {
    "engine": _one_of("dag", "delegation_loop"),
    "graph": _list(_needed(NODE | {"required": ["id"]})),
    "execution": EXECUTION,
    "degradation": _list(DEGRADATION),
    "delegation_loop": DELEGATION,
    "context_budget": DELEGATION["properties"]["context_budget"],
}
_NAME = _needed(_kind("string", _A_NAME, pattern=r"^[a-z][a-z0-9_-]{0,62}[a-z0-9]\Z"), "R2")
WORKFLOW = _mapping(
    {
        "awp": _needed(_kind("string", _A_VERSION, pattern=_VERSION), "R1"),
        "workflow": _needed(_mapping({"name": _NAME, "version": TEXT, "description": TEXT}, "name"), "R2"),
        "orchestration": _mapping(ORCHESTRATION),
        "state": STATE,
        "memory": _or(FLAG, "enabled", _mapping(MEMORY)),
        "delegation_loop": DELEGATION,
        "settings": _mapping({"max_concurrent": _number("integer", 1), "delegation_loop": DELEGATION}),
        "security": _or(FLAG, "enabled", _mapping(SECURITY)),
        "observability": _or(FLAG, "enabled", _mapping({"redaction": REDACTION})),
        **_each("communication env capabilities tools custom_tools", ANYTHING),
    },
    "awp",
    "workflow",
)

_OF_AN_AGENT = _also(
    _mapping({**_each("enabled inject auto_write", FLAG), "max_tokens": _number("integer")}),
    inject_into_prompt="inject",
)
MEMORY_OF_AN_AGENT = _of(
    model.AgentMemorySettings,
    tiers=_list(_needed(_one_of(*TIERS)), "string object", f"a list of {', '.join(TIERS)},")
    | {"pattern": rf"^({'|'.join(TIERS)})\Z"}
    | {"properties": dict.fromkeys(TIERS, _or(FLAG, "enabled", _OF_AN_AGENT)), "additionalProperties": False},
    daily_log=_or(FLAG, "enabled", _OF_AN_AGENT),
    long_term=_or(FLAG, "inject", _OF_AN_AGENT),
)
_COMMAND = "a list, [program, argument, …],"
RUNTIME = {
    "callable": _kind("string", "module:function", pattern=r"^[\w.]+:[\w.]+\Z"),
    "command": _kind("array", _COMMAND, items=_needed(TEXT), minItems=1),
}
AGENT = _mapping(
    {
        "awp_agent": _kind("string", _A_VERSION, pattern=_VERSION, rule="R1"),
        "identity": _needed(_mapping({"id": ID, "role": TEXT, "description": TEXT}, "id"), "R12"),
        "runtime": _mapping(RUNTIME),
        "output": _mapping({"format": TEXT, "contract": OPEN | {"rule": "R9"}}),
        "memory": _or(FLAG, "enabled", MEMORY_OF_AN_AGENT),
        "may_emit": NAMES,
        **_each("model prompt tools capabilities custom_tools", ANYTHING),
    },
    "identity",
)
