"""The scripts that run on the Redis server, and the keys of a book that they work on."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from .contract import to_bytes


class Keys(NamedTuple):
    """The keys of one book, and the type of each."""

    head: bytes = b"hash"
    stream: bytes = b"stream"
    bodies: bytes = b"hash"
    ids: bytes = b"hash"
    runs: bytes = b"zset"
    rows: bytes = b"zset"
    stale: bytes = b"zset"
    blobs: bytes = b"hash"
    leases: bytes = b"hash"
    turn: bytes = b"list"

    @classmethod
    def of(cls, book: str) -> Keys:
        tag = hashlib.sha256(to_bytes(book)).hexdigest()[:32]
        return cls(*(f"commonplace:{{{tag}}}:{name}".encode() for name in cls._fields))


# --- Scripts ------------------------------------------------------------------------------------------------
# A script runs alone on the server and its effects reach the AOF as one transaction. A server without memory
# or disk, or a replica, refuses it at its first write, never later; nothing else in it can fail, because
# `open` has checked the type of every key. Arguments are walked, never unpacked.

_NAMES = f"local {', '.join(Keys._fields).upper()} = unpack(KEYS)\n"

_CLOCK = """
local moment
local function now()
  if not moment then
    local clock = redis.call('TIME')
    moment = clock[1] * 1000000 + clock[2]
  end
  return moment
end
"""

# The rule is `decide_leases` in contract.py; the conformance suite checks that both agree.
_LEASES = """
local function in_force(name)  -- holder, fence and until; nothing when free or expired
  local till, fence, holder = string.match(redis.call('HGET', LEASES, name) or '', '^(%d+) (%-?%d+) (.*)$')
  if till and tonumber(till) > now() then return holder, fence, tonumber(till) end
end

local function grantable(name, asker, number)
  local holder, fence = in_force(name)
  return not holder or (holder == asker and fence == number)
end

local function grant(name, holder, fence, micros)
  if tonumber(micros) > 0 then
    redis.call('HSET', LEASES, name, string.format('%.0f %s %s', now() + micros, fence, holder))
  else
    redis.call('HDEL', LEASES, name)
  end
  -- Nobody releases the leases of the dead: look at a few others each time, so that they never pile up.
  for _, other in ipairs(redis.call('HRANDFIELD', LEASES, 3)) do
    if not in_force(other) then redis.call('HDEL', LEASES, other) end
  end
end
"""

# A member of ROWS: space and key (together the stem), 8 bytes of position, 8 of revision, a flag, the value.
# The flag is 1 for a value, 0 for "no such row as of here", 2 for a version that was dropped.
_MEMBERS = r"""
local function stem(member, skip)  -- `skip` bytes of it name the space
  local _, last = string.find(member, '\0\1', skip + 1, true)
  return string.sub(member, 1, last)
end

local function number(member, from)  -- by hand: comparing strings would follow the server's locale
  local _, a, b, c, d, e, f, g = string.byte(member, from + 1, from + 8)
  return (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
end

local function last_in(low, high)
  return redis.call('ZREVRANGEBYLEX', ROWS, high, low, 'LIMIT', 0, 1)[1]
end

local function visible(key, late, revision)  -- what a snapshot sees; `late`: the first position too late
  local high = '(' .. key .. late
  while true do
    local last = last_in('[' .. key, high)
    if not last then return nil end
    if number(last, #key + 8) > revision then high = '(' .. string.sub(last, 1, #key + 16)
    elseif string.byte(last, #key + 17) == 2 then high = '(' .. string.sub(last, 1, #key + 8)
    else return last end
  end
end

local function cut(low, high, budget, skip)  -- remove at most `budget` members; how many, and were those all
  local next = redis.call('ZRANGEBYLEX', ROWS, low, high, 'LIMIT', budget, 1)[1]
  if next then  -- end the range before this member by its name: its value must not be copied into the AOF
    high = '(' .. string.sub(next, 1, #stem(next, skip or #stem(next, 0)) + 16)
  end
  return redis.call('ZREMRANGEBYLEX', ROWS, low, high), not next
end

local function sweep(before, most)  -- remove what became stale before then, and all that it had replaced
  local old = redis.call('ZRANGEBYSCORE', STALE, '-inf', before, 'LIMIT', 0, most)
  for _, name in ipairs(old) do
    redis.call('ZREMRANGEBYLEX', ROWS, '[' .. string.sub(name, 1, -9), '[' .. name .. '\255')
    redis.call('ZREM', STALE, name)
  end
  return #old
end
"""


class Script(NamedTuple):
    text: str
    sha: str


def _script(*parts: str) -> Script:
    text = _NAMES + "".join(parts)
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


# ARGV: 1 create?, 2 the book's name, 3 layout, 4 genesis, 5… the types of the keys
OPEN = _script("""
local kind = redis.call('TYPE', HEAD).ok
if kind == 'none' then
  for i = 2, #KEYS do
    if redis.call('EXISTS', KEYS[i]) == 1 then return {'foreign', KEYS[i]} end
  end
  if ARGV[1] == '0' then return {'absent'} end
  -- Revisions start at the clock: a book dropped and made again never repeats one that a Tx remembers.
  local clock = redis.call('TIME')
  redis.call('HSET', HEAD, 'layout', ARGV[3], 'name', ARGV[2], 'pos', 0, 'hash', ARGV[4], 'at', 0, 'meta', '',
    'rev', string.format('%.0f', clock[1] * 1000000 + clock[2]))
  return {'made'}
end
if kind ~= 'hash' then return {'foreign', HEAD} end
local head = redis.call('HMGET', HEAD, 'layout', 'name', 'pos')
if not head[1] or head[2] ~= ARGV[2] then return {'foreign', HEAD} end
if tonumber(head[1]) > tonumber(ARGV[3]) then return {'newer', head[1]} end
for i = 2, #KEYS do
  kind = redis.call('TYPE', KEYS[i]).ok
  if kind ~= 'none' and kind ~= ARGV[4 + i] then return {'foreign', KEYS[i]} end
end
return {'there', head[3], redis.call('XLEN', STREAM), redis.call('HLEN', IDS)}
""")

DROP = _script("""
if redis.call('TYPE', HEAD).ok ~= 'hash' or redis.call('HGET', HEAD, 'name') ~= ARGV[1] then return 0 end
redis.call('UNLINK', unpack(KEYS))
return 1
""")

# ARGV: 1 revision, 2 the next one, 3 the same in 8 bytes, 4 microseconds of grace, 5 meta, 6–12 how many of
# each follow: leases, erase, drops, blob drops, records, rows, blobs. Answers 1, or 0 when nothing was done.
APPLY = _script(
    _CLOCK,
    _LEASES,
    _MEMBERS,
    r"""
if redis.call('HGET', HEAD, 'rev') ~= ARGV[1] then return 0 end  -- and a turn that was held is spent
local function pass_turn()
  if redis.call('LLEN', TURN) == 0 then redis.call('RPUSH', TURN, 1) end
end
local arg = 13
local function each(count, width, act)  -- `act` gets the index of the first of `width` arguments
  for _ = 1, tonumber(count) do
    act(arg)
    arg = arg + width
  end
end

local free = true
each(ARGV[6], 4, function(i) free = free and grantable(ARGV[i], ARGV[i + 1], ARGV[i + 2]) end)
if not free then
  pass_turn()
  return 0
end

local function replace(name)  -- what this version was until now stays for open snapshots, on the list to go
  local old = last_in('[' .. name, '[' .. name .. '\255')
  if old then
    sweep(string.format('%.0f', now() - ARGV[4]), 16)
    redis.call('ZADD', STALE, now(), string.sub(old, 1, #name + 8))
  end
  return old
end

-- What frees memory goes first: a server that is full still lets content be erased.
each(ARGV[7], 1, function(i) redis.call('HDEL', BODIES, ARGV[i]) end)
each(ARGV[8], 1, function(i)
  if replace(ARGV[i]) then
    redis.call('ZADD', ROWS, 0, ARGV[i] .. ARGV[3] .. '\2')
    -- Keys of rows at position 0 come and go at one end of a range that is scanned from there: scans would have to pass
    -- all that was removed within the time of grace, so these stay for a few seconds only.
    local early = string.sub(ARGV[i], -8) == string.rep('\0', 8) and math.max(0, ARGV[4] - 5000000) or 0
    redis.call('ZADD', STALE, now() - early, ARGV[i] .. ARGV[3])
  end
end)
each(ARGV[9], 1, function(i) redis.call('HDEL', BLOBS, ARGV[i]) end)
local last
each(ARGV[10], 9, function(i)  -- position, id, created_at, header, hash, run, run member or '', body?, body
  local at, id = ARGV[i], ARGV[i + 1]
  if ARGV[i + 6] == '' then
    redis.call('XADD', STREAM, at .. '-0', 'i', id, 't', ARGV[i + 2], 'h', ARGV[i + 3], 'x', ARGV[i + 4])
  else
    redis.call('XADD', STREAM, at .. '-0', 'i', id, 't', ARGV[i + 2], 'h', ARGV[i + 3], 'x', ARGV[i + 4],
      'r', ARGV[i + 5])
    redis.call('ZADD', RUNS, 0, ARGV[i + 6])
  end
  redis.call('HSET', IDS, id, at)
  if ARGV[i + 7] == '1' then redis.call('HSET', BODIES, at, ARGV[i + 8]) end
  last = i
end)
each(ARGV[11], 2, function(i)  -- the version's name, the whole member
  replace(ARGV[i])
  redis.call('ZADD', ROWS, 0, ARGV[i + 1])
end)
-- The same digest is the same content: the first one stays, with the revision since which it is there.
each(ARGV[12], 2, function(i) redis.call('HSETNX', BLOBS, ARGV[i], ARGV[i + 1]) end)
arg = 13
each(ARGV[6], 4, function(i) grant(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]) end)
if last then
  redis.call('HSET', HEAD, 'rev', ARGV[2], 'meta', ARGV[5],
    'pos', ARGV[last], 'hash', ARGV[last + 4], 'at', ARGV[last + 2])
else
  redis.call('HSET', HEAD, 'rev', ARGV[2], 'meta', ARGV[5])
end
pass_turn()
return 1
""",
)

PASS_TURN = _script("""
if redis.call('EXISTS', HEAD) == 1 and redis.call('LLEN', TURN) == 0 then redis.call('RPUSH', TURN, 1) end
return 1
""")

# ARGV: 1 the snapshot's revision, 2 first position too late, 3… stems
GET = _script(
    _MEMBERS,
    """
local found = {}
for i = 3, #ARGV do
  found[#found + 1] = visible(ARGV[i], ARGV[2], tonumber(ARGV[1])) or ''
end
return found
""",
)

# ARGV: 1–2 as in get, 3 low, 4 high, 5 limit, 6 reverse?, 7 length of the space's name in a member.
# Answers with the bound to go on from ('' at the end) and then the rows. Keys are found by windows of members
# and their versions jumped over: the window grows where keys have few versions and shrinks where many.
SCAN = _script(
    _MEMBERS,
    r"""
local revision, late, low, high = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local limit, reverse, skip = tonumber(ARGV[5]), ARGV[6] == '1', tonumber(ARGV[7])
local too_late, window, looked, bytes, found = number(late, 0), 8, 0, 0, {''}

local function take(key, only)  -- `only`: the key's one member, if it has just one
  local row = only
  if not only or number(only, #key) >= too_late or number(only, #key + 8) > revision then
    row = visible(key, late, revision)
  end
  if row and string.byte(row, #key + 17) == 1 then
    found[#found + 1] = row
    bytes = bytes + #row
  end
end

while #found <= limit do
  local page
  if reverse then page = redis.call('ZREVRANGEBYLEX', ROWS, high, low, 'LIMIT', 0, window)
  else page = redis.call('ZRANGEBYLEX', ROWS, low, high, 'LIMIT', 0, window) end
  local key, only, keys = nil, nil, 0
  for _, member in ipairs(page) do
    local this = stem(member, skip)
    if this == key then only = nil
    else
      if key then take(key, only) end
      key, only, keys = this, member, keys + 1
    end
  end
  local whole = #page < window
  if key then take(key, whole and only or nil) end  -- else the window may end in the middle of this key
  if whole then return found end
  if reverse then high = '(' .. key else low = '[' .. string.sub(key, 1, -2) .. '\2' end
  looked = looked + window + 8
  if looked > 4000 or bytes > 4194304 then  -- let others have the server
    found[1] = reverse and high or low
    return found
  end
  if keys == 1 then window = math.max(2, math.floor(window / 2))
  elseif keys * 2 >= window then window = math.min(64, window * 2) end
end
return found
""",
)

# ARGV: 1 low, 2 high. Answers how many went; a Tx that had read one of them goes again.
DROP_SPACES = _script(
    _MEMBERS,
    """
local gone = cut(ARGV[1], ARGV[2], 2000)
if gone > 0 then redis.call('HINCRBY', HEAD, 'rev', 1) end
return gone
""",
)

# ARGV: 1 low, 2 high, 3 first position beyond the horizon, 4 length of the space's name in a member.
# Answers with the bound to go on from ('' at the end) and how many went. No read at or above the horizon can
# tell the difference, so the revision stays. The stale go first: what is left has one member a version.
TRIM = _script(
    _MEMBERS,
    r"""
local low, gone, looked, skip = ARGV[1], 0, 0, tonumber(ARGV[4])
if sweep('+inf', 1000) == 1000 then return {low, 0} end
while gone < 2000 and looked < 500 do
  local first = redis.call('ZRANGEBYLEX', ROWS, low, ARGV[2], 'LIMIT', 0, 1)[1]
  if not first then return {'', gone} end
  local key = stem(first, skip)
  local after = '[' .. string.sub(key, 1, -2) .. '\2'
  local last = last_in('[' .. key, '(' .. key .. ARGV[3])
  if last then
    local alive = string.byte(last, #key + 17) == 1
    local bound = '(' .. string.sub(last, 1, #key + 16) .. (alive and '' or '\1')
    local count, whole = cut('[' .. key, bound, 2000, skip)
    gone = gone + count
    if not whole then after = low end
  end
  low, looked = after, looked + 1
end
return {low, gone}
""",
)

SWEEP = _script(_MEMBERS, "return sweep('+inf', 1000)")

# ARGV: 1 name, 2 holder, 3 fence, 4 microseconds. Answers with holder, fence and microseconds left.
LEASE = _script(
    _CLOCK,
    _LEASES,
    """
if redis.call('EXISTS', HEAD) == 0 then return {} end
if grantable(ARGV[1], ARGV[2], ARGV[3]) then grant(ARGV[1], ARGV[2], ARGV[3], ARGV[4]) end
local holder, fence, till = in_force(ARGV[1])
if not holder then return {ARGV[2], ARGV[3], '0'} end
return {holder, fence, string.format('%.0f', till - now())}
""",
)

LEASES_NOW = _script(
    _CLOCK,
    _LEASES,
    """
local found = {}
for i = 1, #ARGV do
  local holder, fence, till = in_force(ARGV[i])
  found[i] = holder and {holder, fence, string.format('%.0f', till - now())} or {}
end
return found
""",
)
