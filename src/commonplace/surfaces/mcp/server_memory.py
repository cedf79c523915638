"""The nine tools of the reference memory server over a book: a drop-in for its clients.

An entity is the notes that have its name as their title: one that carries its type, in its provenance, and one for each
observation. A relation is a link between two entities, or where one of its ends is no entity, a note that says so. The
file of the reference server becomes the same when it is imported, apart from the first observation, which carries the
type there.

Nothing is locked between processes, because nothing needs to be: what two of them create at once is one entity, with
the observations of both.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server

from ...errors import BadInput, CommonplaceError, Conflict, NotFound, shown
from ...telemetry import tell_of_call
from ...version import __version__
from .feed import Feeds
from .host import Host, protocol_errors, with_tasks
from .tracing import traced

if TYPE_CHECKING:
    from ...ledger.events import Event
    from ...memory.items import Item
    from ...participant import Participant

BROUGHT = "an observation of a knowledge graph is kept as it was written"
GRAPH = "memory://knowledge-graph"
ATTEMPTS = 5
"""How often a deletion is tried while others change the same entity."""

# what the tools take and answer, in the words of the reference server

DRAFT = {"$schema": "http://json-schema.org/draft-07/schema#"}
OPEN: dict[str, Any] = {}
CLOSED = {"additionalProperties": False}


def _text(about: str = "") -> dict[str, Any]:
    return {"type": "string", "description": about} if about else {"type": "string"}


def _texts(about: str = "") -> dict[str, Any]:
    return {"type": "array", "items": _text(), **({"description": about} if about else {})}


def _object(fields: Mapping[str, Any], more: Mapping[str, Any] = OPEN) -> dict[str, Any]:
    required = {"required": list(fields)} if fields else {}
    return {"type": "object", "properties": dict(fields), **required, **more}


def _objects(fields: Mapping[str, Any], more: Mapping[str, Any] = OPEN, about: str = "") -> dict[str, Any]:
    described = {"description": about} if about else {}
    return {"type": "array", "items": _object(fields, more), **described}


ENTITY = {
    "name": _text("The name of the entity"),
    "entityType": _text("The type of the entity"),
    "observations": _texts("An array of observation contents associated with the entity"),
}
RELATION = {
    "from": _text("The name of the entity where the relation starts"),
    "to": _text("The name of the entity where the relation ends"),
    "relationType": _text("The type of the relation"),
}
ADDED = {"entityName": _text(), "addedObservations": _texts()}
WHOLE = {"entities": _objects(ENTITY, CLOSED), "relations": _objects(RELATION, CLOSED)}
DONE = {"success": {"type": "boolean"}, "message": _text()}


class GraphTool(NamedTuple):
    """A tool of the reference server. What it answers is an object with `answers`; a tool that reads answers it as it
    is, one that deletes says what it did, and the others answer the value of its one field."""

    about: str
    takes: Mapping[str, Any]
    answers: Mapping[str, Any]
    reads: bool = False
    deletes: bool = False

    def described(self, name: str) -> types.Tool:
        hints = types.ToolAnnotations(
            read_only_hint=self.reads, destructive_hint=self.deletes,
            idempotent_hint=self.reads or self.deletes, open_world_hint=False,
        )  # fmt: skip
        return types.Tool(
            name=name, title=name.replace("_", " ").title(), description=self.about, annotations=hints,
            input_schema={**DRAFT, **_object(self.takes)},
            output_schema={**DRAFT, **_object(self.answers, CLOSED)},
        )  # fmt: skip


TOOLS: Mapping[str, GraphTool] = {
    "create_entities": GraphTool(
        "Create multiple new entities in the knowledge graph",
        {"entities": _objects(ENTITY)}, {"entities": _objects(ENTITY, CLOSED)},
    ),
    "create_relations": GraphTool(
        "Create multiple new relations between entities in the knowledge graph. Relations should be in active voice",
        {"relations": _objects(RELATION)}, {"relations": _objects(RELATION, CLOSED)},
    ),
    "add_observations": GraphTool(
        "Add new observations to existing entities in the knowledge graph",
        {
            "observations": _objects(
                {
                    "entityName": _text("The name of the entity to add the observations to"),
                    "contents": _texts("An array of observation contents to add"),
                }
            )
        },
        {"results": _objects(ADDED, CLOSED)},
    ),
    "delete_entities": GraphTool(
        "Delete multiple entities and their associated relations from the knowledge graph",
        {"entityNames": _texts("An array of entity names to delete")}, DONE, deletes=True,
    ),
    "delete_observations": GraphTool(
        "Delete specific observations from entities in the knowledge graph",
        {
            "deletions": _objects(
                {
                    "entityName": _text("The name of the entity containing the observations"),
                    "observations": _texts("An array of observations to delete"),
                }
            )
        },
        DONE, deletes=True,
    ),
    "delete_relations": GraphTool(
        "Delete multiple relations from the knowledge graph",
        {"relations": _objects(RELATION, about="An array of relations to delete")}, DONE, deletes=True,
    ),
    "read_graph": GraphTool("Read the entire knowledge graph", {}, WHOLE, reads=True),
    "search_nodes": GraphTool(
        "Search for nodes in the knowledge graph based on a query",
        {"query": _text("The search query to match against entity names, types, and observation content")},
        WHOLE, reads=True,
    ),
    "open_nodes": GraphTool(
        "Open specific nodes in the knowledge graph by their names",
        {"names": _texts("An array of entity names to retrieve")}, WHOLE, reads=True,
    ),
}  # fmt: skip

Row = Mapping[str, str]


class KnowledgeGraph:
    """The entities and relations that a participant may see, as they are now."""

    def __init__(self, me: Participant) -> None:
        self._me = me
        self._titled: dict[str, list[Item]] = {}
        for item in me.memory.list(kind="note", limit=None):
            if item.title:
                self._titled.setdefault(item.title, []).append(item)
        names = [name for name, items in self._titled.items() if any(map(_type_of, items))]
        self.entities = {name: self._entity(name) for name in names}

    def _entity(self, name: str) -> dict[str, Any]:
        notes = [item for item in self._titled[name] if not _is_relation(item)]
        kind = next(filter(None, map(_type_of, notes)))[0]
        said = [item.body for item in notes if not (_type_of(item) and item.body == _named(name, kind))]
        return {"name": name, "entityType": kind, "observations": list(dict.fromkeys(said))}

    def _carrier(self, name: str) -> Item:
        return next(item for item in self._titled[name] if _type_of(item))

    def _ends(self) -> Iterator[tuple[Item, Row]]:
        """Every relation, with the item that it belongs to."""
        names = {item.id: name for name in self.entities for item in self._titled[name]}
        for name, items in self._titled.items():
            for item in items:
                yield from ((item, row) for row in _rows_of(item))
                if item.id in names:
                    yield from (
                        (item, {"from": name, "to": names[to], "relationType": relation})
                        for relation, to in item.links
                        if to in names
                    )

    def relations(self) -> list[Row]:
        once = {(row["from"], row["relationType"], row["to"]): row for _, row in self._ends()}
        return [{name: row[name] for name in RELATION} for row in once.values()]

    def _about(self, names: Collection[str]) -> dict[str, Any]:
        edges = [row for row in self.relations() if row["from"] in names or row["to"] in names]
        return {
            "entities": [each for name, each in self.entities.items() if name in names],
            "relations": edges,
        }

    def _add(self, notes: list[dict[str, Any]]) -> set[tuple[str, str]]:
        """Keep notes, and answer title and text of those that were not there yet. Raises BadInput for one that is
        refused."""
        kept = set()
        results = self._me.memory.add_many([{"kind": "note", "override": BROUGHT, **note} for note in notes])
        for note, result in zip(notes, results, strict=True):
            if result.outcome not in ("stored", "merged"):
                raise BadInput(f"{shown(note['text'])} was not kept: {result.reason}")
            if result.outcome == "stored":
                kept.add((note["title"], note["text"]))
        return kept

    # the tools

    def create_entities(self, entities: list[dict[str, Any]]) -> Any:
        new = {each["name"]: each for each in reversed(entities) if each["name"] not in self.entities}
        notes = []
        for name, each in reversed(new.items()):
            kind = each["entityType"]
            tags = [kind] if kind.strip() else []
            carrier = {"title": name, "text": _named(name, kind), "tags": tags}
            notes.append({**carrier, "provenance": {"metadata": {"entityType": kind}}})
            said = dict.fromkeys(each["observations"])
            notes += [{"title": name, "text": text, "tags": tags} for text in said]
        kept = self._add(notes) if notes else set()
        return [
            {
                **each,
                "observations": [
                    text for text in dict.fromkeys(each["observations"]) if (name, text) in kept
                ],
            }
            for name, each in reversed(new.items())
        ]

    def create_relations(self, relations: list[Row]) -> Any:
        known, created = self.relations(), list[Row]()
        for row in relations:
            if row in known or row in created:
                continue
            begin, relation, end = row["from"], row["relationType"], row["to"]
            if begin in self.entities and end in self.entities:
                self._me.memory.link(self._carrier(begin).id, relation, self._carrier(end).id)
            else:
                provenance = {"metadata": {"relations": [row]}}
                self._add([{"title": begin, "text": f"{begin} {relation} {end}", "provenance": provenance}])
            created.append(row)
        return created

    def add_observations(self, observations: list[dict[str, Any]]) -> Any:
        for each in observations:
            if each["entityName"] not in self.entities:
                raise NotFound(f"Entity with name {each['entityName']} not found")
        new = [
            (each["entityName"], text)
            for each in observations
            for text in dict.fromkeys(each["contents"])
            if text not in self.entities[each["entityName"]]["observations"]
        ]
        kept = (
            self._add([{"title": name, "text": text} for name, text in dict.fromkeys(new)]) if new else set()
        )
        return [
            {
                "entityName": each["entityName"],
                "addedObservations": [
                    text for text in dict.fromkeys(each["contents"]) if (each["entityName"], text) in kept
                ],
            }
            for each in observations
        ]

    def delete_entities(self, entityNames: list[str]) -> Any:
        self._cut(row for row in self.relations() if row["from"] in entityNames or row["to"] in entityNames)
        for name in dict.fromkeys(entityNames):
            for item in self._titled[name] if name in self.entities else ():
                self._forget(item)
        return "Entities deleted successfully"

    def delete_observations(self, deletions: list[dict[str, Any]]) -> Any:
        for each in deletions:
            name = each["entityName"]
            for item in self._titled[name] if name in self.entities else ():
                if item.body not in each["observations"] or _is_relation(item):
                    continue
                kind = _type_of(item)
                if kind:  # it carries the type and the relations of the entity, so only its text goes
                    self._me.memory.revise(item.id, body=_named(name, kind[0]), if_position=item.position)
                else:
                    self._forget(item)
        return "Observations deleted successfully"

    def delete_relations(self, relations: list[Row]) -> Any:
        self._cut(relations)
        return "Relations deleted successfully"

    def _cut(self, relations: Iterable[Row]) -> None:
        """Take relations away, from each item at once."""
        unwanted = [{name: row[name] for name in RELATION} for row in relations]
        names = {item.id: name for name in self.entities for item in self._titled[name]}
        for item in {item.id: item for item, row in self._ends() if dict(row) in unwanted}.values():
            rows = [row for row in _rows_of(item) if row not in unwanted]
            if _is_relation(item) and not rows:
                self._forget(item)
                continue
            links = [
                [relation, to]
                for relation, to in item.links
                if {"from": item.title, "to": names.get(to), "relationType": relation} not in unwanted
            ]
            kept = {**item.provenance.get("metadata", {}), "relations": rows}
            provenance = {**item.provenance, "metadata": kept} if _rows_of(item) else item.provenance
            self._me.memory.revise(item.id, links=links, provenance=provenance, if_position=item.position)

    def _forget(self, item: Item) -> None:
        self._me.forget(item.id, reason="deleted from the knowledge graph", confirm="FORGET")

    def read_graph(self) -> Any:
        return {"entities": list(self.entities.values()), "relations": self.relations()}

    def search_nodes(self, query: str) -> Any:
        wanted = query.lower()
        return self._about(
            {
                name
                for name, each in self.entities.items()
                if any(wanted in text.lower() for text in (name, each["entityType"], *each["observations"]))
            }
        )

    def open_nodes(self, names: list[str]) -> Any:
        return self._about(set(names) & self.entities.keys())


def _named(name: str, kind: str) -> str:
    return f"{name} ({kind})" if kind.strip() else name


def _type_of(item: Item) -> tuple[str, ...]:
    """The type of the entity, of a note that carries it; nothing of any other."""
    kind = item.provenance.get("metadata", {}).get("entityType")
    return (kind,) if isinstance(kind, str) else ()


def _rows_of(item: Item) -> list[Row]:
    """Relations that are no links, because one of their ends is no entity."""
    rows = item.provenance.get("metadata", {}).get("relations")
    return [
        {name: row[name] for name in RELATION}
        for row in (rows if isinstance(rows, list | tuple) else ())
        if isinstance(row, dict) and all(isinstance(row.get(name), str) for name in RELATION)
    ]


def _is_relation(item: Item) -> bool:
    return bool(_rows_of(item)) and not _type_of(item)


# the server


class _Graphs:
    """The answers to a client's requests."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._writing = anyio.Lock()  # what a model asks for at once is done one after the other
        self._feeds = Feeds(host, _changed, _check_address)

    def server(self) -> Server[Any]:
        server = Server[Any](
            "memory-server", version=__version__, lifespan=with_tasks,
            on_list_tools=self.list_tools, on_call_tool=self.call_tool,
            on_list_resources=self.list_resources, on_read_resource=self.read_resource,
            on_subscribe_resource=self._feeds.subscribe, on_unsubscribe_resource=self._feeds.unsubscribe,
            on_subscriptions_listen=self._feeds.listen,
        )  # fmt: skip
        return traced(server, TOOLS)

    async def list_tools(self, _ctx: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool.described(name) for name, tool in TOOLS.items()])

    async def call_tool(self, ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        def call() -> Any:
            given = _checked(params.name, params.arguments or {})
            me = self._host.participant(ctx)
            tell_of_call(me._session, given)
            for left in reversed(range(ATTEMPTS)):
                try:
                    return getattr(KnowledgeGraph(me), params.name)(**given)
                except Conflict:  # somebody else has changed the same entity since it was read
                    if not left:
                        raise
            return None

        try:
            async with self._writing:
                answer = await self._host.run(ctx, call)
        except CommonplaceError as error:
            return types.CallToolResult(content=[types.TextContent(text=str(error))], is_error=True)
        tool = TOOLS[params.name]
        if tool.deletes:
            text, data = answer, {"success": True, "message": answer}
        else:
            text = json.dumps(answer, indent=2, ensure_ascii=False)
            data = answer if tool.reads else {next(iter(tool.answers)): answer}
        return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=data)

    async def list_resources(self, _ctx: Any, _params: Any) -> types.ListResourcesResult:
        graph = types.Resource(
            uri=GRAPH, name="knowledge-graph", title="Knowledge Graph", mime_type="application/json",
            description="The full knowledge graph with all entities and relations",
        )  # fmt: skip
        return types.ListResourcesResult(resources=[graph])

    async def read_resource(
        self, ctx: Any, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)

        def read() -> str:
            _check_address(uri)
            return json.dumps(
                KnowledgeGraph(self._host.participant(ctx)).read_graph(), indent=2, ensure_ascii=False
            )

        with protocol_errors():
            text = await self._host.run(ctx, read)
        content = types.TextResourceContents(uri=uri, mime_type="application/json", text=text)
        return types.ReadResourceResult(contents=[content])


def compatible(compat: str, host: Host) -> Server[Any]:
    """A server with these tools alone."""
    if compat != "server-memory":
        raise BadInput(f"there is no compatibility with {shown(compat)}: server-memory is the one there is")
    return _Graphs(host).server()


def _check_address(uri: str) -> None:
    if uri != GRAPH:
        raise NotFound(f"Resource {uri} not found")


def _changed(event: Event) -> Collection[str]:
    return (GRAPH,) if event.kind.startswith("memory.item.") else ()


# arguments


def _checked(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call without fields that the tool does not know, which the reference server leaves out of
    account, too. Raises BadInput in its words."""
    if name not in TOOLS:
        raise BadInput(f"MCP error -32602: Tool {name} not found")
    schema = _object(TOOLS[name].takes)
    problems = list(_problems(given, schema, ""))
    if problems:
        told = "\n".join(problems)
        raise BadInput(f"MCP error -32602: Input validation error: Invalid arguments for tool {name}: {told}")
    known: dict[str, Any] = _known(given, schema)
    return known


def _problems(value: Any, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    kind = schema["type"]
    if not isinstance(value, {"object": Mapping, "array": list, "string": str}[kind]):
        yield f"Invalid input: expected {kind}, received {_kind_of(value)} at {place}"
    elif kind == "array":
        for number, each in enumerate(value):
            yield from _problems(each, schema["items"], f"{place}[{number}]")
    elif kind == "object":
        for name, inner in schema["properties"].items():
            yield from _problems(value.get(name, ...), inner, f"{place}.{name}" if place else name)


def _kind_of(value: Any) -> str:
    kinds = {bool: "boolean", int: "number", float: "number", str: "string", dict: "object", list: "array"}
    return "undefined" if value is ... else kinds.get(type(value), "null")


def _known(value: Any, schema: Mapping[str, Any]) -> Any:
    if schema["type"] == "array":
        return [_known(each, schema["items"]) for each in value]
    if schema["type"] == "object":
        return {name: _known(value[name], inner) for name, inner in schema["properties"].items()}
    return value
