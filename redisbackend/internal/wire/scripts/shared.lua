-- shared.lua: what the scripts of shared names have in common: read-write locks and semaphores. It follows common.lua.
--
-- Keys of a shared name N (its record is the key that a lock's record has, so a name is one or the other):
--   hold     not there; messages and slots are named by it
--   record   hash  "=" -> "kind token"    kind: r a read-write lock, p a semaphore; token: the last one given out
--                  session -> "epoch units until memory first under limit order want least deadline grant tokens seen"
--                      units, until   what the session has, and when its lease is over
--                      memory         the entry is kept until then: a copy of an older epoch may still be under way
--                      first          the token under which it has its units; 0 with none
--                      under          the one under which it got the first of them: it stays while the session has any
--                      order          of its place in the queue, which rises; 0: it has none
--                      want, least, deadline, grant (TTL in ms), tokens, seen   of that place
-- Tokens are even. A writer has a block: first, first + 2 and so on, up to the record's token.

local ALL = 2147483647
local FORMAT = '%s %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %s %s %s'
local PATTERN = '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$'

-- read returns a session's entry.
local function read(session, raw)
  local epoch, units, till, memory, first, under, limit, order, want, least, deadline, grant, tokens, seen =
    string.match(raw, PATTERN)
  return {session = session, epoch = epoch, units = tonumber(units), till = tonumber(till), memory = tonumber(memory),
    first = tonumber(first), under = tonumber(under), limit = tonumber(limit), order = tonumber(order),
    want = tonumber(want), least = tonumber(least), deadline = tonumber(deadline), grant = grant, tokens = tokens, seen = seen}
end

local function write(e)
  return string.format(FORMAT, e.epoch, e.units, e.till, e.memory, e.first, e.under, e.limit, e.order, e.want, e.least,
    e.deadline, e.grant, e.tokens, e.seen)
end

-- wrong is the error of a name that is in use as another kind of lock. errors.go recognises it by its code.
local function wrong()
  return redis.error_reply('WRONGTYPE the name is that of another kind of lock')
end

-- shared reads the whole state of a name, or returns nil if the name is a lock's.
local function shared(hold, key)
  local raw = redis.pcall('HGETALL', key)
  if raw.err or not raw[1] and redis.call('PTTL', hold) ~= -2 then return nil end -- it is there
  local s = {token = 0, list = {}, by = {}}
  for i = 1, #raw, 2 do
    if raw[i] == '=' then
      local kind, token = string.match(raw[i + 1], '^(%a) (%d+)$')
      s.kind, s.token = kind, tonumber(token)
    else
      local e = read(raw[i], raw[i + 1])
      s.list[#s.list + 1], s.by[e.session] = e, e
    end
  end
  return s
end
