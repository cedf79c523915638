"""The nine tools of the reference memory server over a book: a drop-in for its clients.

An entity is the notes that have its name as their title, one for each observation, as `import` makes them of the
server's file. The first one carries the entity's type in its provenance, and its relations as links.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server

from ...errors import BadInput, CommonplaceError, shown
from ...telemetry import tell_of_call
from ...version import __version__
from .tracing import traced

if TYPE_CHECKING:
    from ...memory.items import Item
    from ...participant import Participant

BROUGHT = "an observation of a knowledge graph is kept as it was written"

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}


def _objects(**fields: Any) -> dict[str, Any]:
    return {
        "type": "array",
        "items": {
            "type": "object",
            "properties": fields,
            "required": list(fields),
            "additionalProperties": False,
        },
    }


def _takes(**fields: Any) -> dict[str, Any]:
    return (
        {"type": "object", "properties": fields, "required": list(fields)}
        if fields
        else {"type": "object", "properties": {}}
    )


_RELATIONS = _objects(**{"from": _TEXT, "to": _TEXT, "relationType": _TEXT})

TOOLS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "create_entities": (
        "Create multiple new entities in the knowledge graph",
        _takes(entities=_objects(name=_TEXT, entityType=_TEXT, observations=_TEXTS)),
    ),
    "create_relations": (
        "Create multiple new relations between entities in the knowledge graph. Relations should be in active voice",
        _takes(relations=_RELATIONS),
    ),
    "add_observations": (
        "Add new observations to existing entities in the knowledge graph",
        _takes(observations=_objects(entityName=_TEXT, contents=_TEXTS)),
    ),
    "delete_entities": (
        "Delete multiple entities and their associated relations from the knowledge graph",
        _takes(entityNames=_TEXTS),
    ),
    "delete_observations": (
        "Delete specific observations from entities in the knowledge graph",
        _takes(deletions=_objects(entityName=_TEXT, observations=_TEXTS)),
    ),
    "delete_relations": ("Delete multiple relations from the knowledge graph", _takes(relations=_RELATIONS)),
    "read_graph": ("Read the entire knowledge graph", _takes()),
    "search_nodes": ("Search for nodes in the knowledge graph based on a query", _takes(query=_TEXT)),
    "open_nodes": ("Open specific nodes in the knowledge graph by their names", _takes(names=_TEXTS)),
}
"""The tools with the input that the reference server takes."""


class KnowledgeGraph:
    """The entities and relations that a participant may see."""

    def __init__(self, me: Participant) -> None:
        self._me = me
        self._load()

    def _load(self) -> None:
        self.notes: dict[str, list[Item]] = {}
        titled: dict[str, list[Item]] = {}
        for item in self._me.memory.list(kind="note", limit=None):
            if item.title:
                titled.setdefault(item.title, []).append(item)
        for name, items in titled.items():
            if any(self._type(item) is not None for item in items):
                self.notes[name] = sorted(items, key=lambda item: self._type(item) is None)
        self._names = {item.id: name for name, items in self.notes.items() for item in items}

    @staticmethod
    def _type(item: Item) -> str | None:
        kind = item.provenance.get("metadata", {}).get("entityType")
        return kind if isinstance(kind, str) else None

    def entity(self, name: str) -> dict[str, Any]:
        items = self.notes[name]
        kind = self._type(items[0]) or ""
        said = [item.body for item in items if item.body not in (f"{name} ({kind})", name)]
        return {"name": name, "entityType": kind, "observations": said}

    def relations(self) -> list[dict[str, str]]:
        return [
            {"from": name, "to": self._names[to], "relationType": relation}
            for name, items in self.notes.items()
            for item in items
            for relation, to in item.links
            if to in self._names
        ]

    def graph(self, names: set[str] | None = None) -> dict[str, Any]:
        chosen = [name for name in self.notes if names is None or name in names]
        edges = [each for each in self.relations() if names is None or {each["from"], each["to"]} & names]
        return {"entities": [self.entity(name) for name in chosen], "relations": edges}

    def _keep(self, name: str, kind: str, text: str, first: bool) -> None:
        provenance = {"source_kind": "import", "metadata": {"entityType": kind}} if first else None
        self._me.remember(
            text,
            kind="note",
            title=name,
            tags=[kind] if kind else [],
            provenance=provenance,
            override=BROUGHT,
        )

    def _known(self, name: str) -> list[Item]:
        if name not in self.notes:
            raise BadInput(f"Entity with name {name} not found")
        return self.notes[name]

    def create_entities(self, entities: list[dict[str, Any]]) -> Any:
        created = [each for each in entities if each["name"] not in self.notes]
        for each in created:
            name, kind = each["name"], each["entityType"]
            for number, text in enumerate(each["observations"] or [f"{name} ({kind})"]):
                self._keep(name, kind, text, number == 0)
        return created

    def create_relations(self, relations: list[dict[str, str]]) -> Any:
        known, created = self.relations(), []
        for each in relations:
            begin, end = self._known(each["from"])[0], self._known(each["to"])[0]
            if each not in known:
                self._me.memory.link(begin.id, each["relationType"], end.id)
                created.append(each)
        return created

    def add_observations(self, observations: list[dict[str, Any]]) -> Any:
        results = []
        for each in observations:
            name = each["entityName"]
            self._known(name)
            entity = self.entity(name)
            added = [text for text in each["contents"] if text not in entity["observations"]]
            for text in added:
                self._keep(name, entity["entityType"], text, False)
            results.append({"entityName": name, "addedObservations": added})
        return results

    def delete_entities(self, entityNames: list[str]) -> Any:
        for name in entityNames:
            for item in self.notes.get(name, ()):
                self._me.forget(item.id, reason="deleted from the graph", confirm="FORGET")
        return "Entities deleted successfully"

    def delete_observations(self, deletions: list[dict[str, Any]]) -> Any:
        for each in deletions:
            name = each["entityName"]
            items, gone = self.notes.get(name, []), set(each["observations"])
            for item in items:
                if item.body in gone:
                    if (
                        item is items[0]
                    ):  # it carries the type and the relations of the entity, so only its text goes
                        self._me.memory.revise(item.id, body=f"{name} ({self._type(item)})")
                    else:
                        self._me.forget(item.id, reason="deleted from the graph", confirm="FORGET")
        return "Observations deleted successfully"

    def delete_relations(self, relations: list[dict[str, str]]) -> Any:
        for name, items in self.notes.items():
            for item in items:
                left = [
                    [relation, to]
                    for relation, to in item.links
                    if {"from": name, "to": self._names.get(to, ""), "relationType": relation}
                    not in relations
                ]
                if len(left) < len(item.links):
                    self._me.memory.revise(item.id, links=left)
        return "Relations deleted successfully"

    def read_graph(self) -> Any:
        return self.graph()

    def search_nodes(self, query: str) -> Any:
        wanted = query.lower()
        return self.graph(
            {
                name
                for name in self.notes
                for entity in [self.entity(name)]
                if wanted in "\n".join([name, entity["entityType"], *entity["observations"]]).lower()
            }
        )

    def open_nodes(self, names: list[str]) -> Any:
        return self.graph(set(names))


def compatible(compat: str, find: Callable[[Any], Participant]) -> Server[Any]:
    """A server with these tools alone."""
    if compat != "server-memory":
        raise BadInput(f"there is no compatibility with {shown(compat)}: server-memory is the one there is")
    writing = anyio.Lock()  # two calls at once would both find that an entity is not there yet

    async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(name=name, description=about, input_schema=schema)
                for name, (about, schema) in TOOLS.items()
            ]
        )

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        def call() -> Any:
            if params.name not in TOOLS:
                raise BadInput(f"there is no tool {shown(params.name)}: the tools are {', '.join(TOOLS)}")
            given = params.arguments or {}
            _check(given, TOOLS[params.name][1], params.name)
            me = find(ctx)
            tell_of_call(me._session, given)
            return getattr(KnowledgeGraph(me), params.name)(**given)

        try:
            async with writing:
                answer = await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
        except CommonplaceError as error:
            return types.CallToolResult(content=[types.TextContent(text=str(error))], is_error=True)
        text = answer if isinstance(answer, str) else json.dumps(answer, indent=2, ensure_ascii=False)
        return types.CallToolResult(content=[types.TextContent(text=text)])

    server = Server[Any](
        "memory-server", version=__version__, on_list_tools=list_tools, on_call_tool=call_tool
    )
    return traced(server, TOOLS)


def _check(value: Any, schema: Mapping[str, Any], place: str) -> None:
    """Raise BadInput if a value is not what a schema of these tools says. Fields that it does not name are left out
    of account, as the reference server does."""
    kind = {"object": dict, "array": list, "string": str}[schema["type"]]
    if not isinstance(value, kind):
        raise BadInput(f"{place} takes {schema['type']}, not {shown(value)}")
    if isinstance(value, list):
        for each in value:
            _check(each, schema["items"], place)
    elif isinstance(value, dict):
        for name in list(value):
            if name not in schema["properties"]:
                del value[name]
        for name, inner in schema["properties"].items():
            if name not in value:
                raise BadInput(f"{place} needs {name}")
            _check(value[name], inner, f"{place}.{name}")
