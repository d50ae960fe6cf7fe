-- shared.lua: what the scripts of shared names (read-write locks and semaphores) have in common. It follows common.lua.
--
-- Keys of a shared name N (its record is the key that a lock's record has, so a name is one or the other):
--   hold     not there; its name is in messages, and decides the slot
--   record   hash  "=" -> "kind token units holders sessions soonest first last told"
--                      kind           r a read-write lock, p a semaphore
--                      token          the last one given out
--                      units          of all sessions; holders: sessions that have some; sessions: those that have some or a
--                                     place. They are exact until soonest.
--                      soonest        nothing ends before that: no lease, and no place; nor can an empty entry be deleted
--                      first, last    the queue is the places first to last; some may be missing
--                      told           the most units that a session, except the head, may believe it can keep while others wait
--                  "#" order -> session, of each place
--                  "#n" session -> "got text": its note, if got is that of the entry, and the session has units
--                  session -> "epoch units until memory first under limit order want least deadline grant tokens seen
--                              since pending asked got"
--                      units, until   what the session has, and when its lease is over
--                      memory         the entry is kept until that time: a copy of an older epoch may be under way till then
--                      first          the token under which it has its units; 0 with none
--                      under          the token under which it got the first of them; it stays while the session has any
--                      order          of its place in the queue, which rises; 0: it has none
--                      want, least, deadline, grant (TTL in ms), tokens, seen   of that place
--                      since          when that place was taken
--                      pending        of a try's place: how many sessions have not answered yet; else -1
--                      asked          the order of the try that this session was asked for, until it answers; else 0
--                      got            when the session was last granted units; share_inspect shows it, and its note belongs to it
-- Tokens are even. A writer has a block: first, first + 2 and so on, up to the record's token.

local ALL = 2147483647
local FORMAT = '%s %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %s %s %s %.0f %.0f %.0f %s'
local PATTERN = '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%-?%d+) (%d+) (%d+)$'
local SUMMARY = '^([rp]) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$'

-- read returns a session's entry, or nil if the text is none.
local function read(session, raw)
  local epoch, units, till, memory, first, under, limit, order, want, least, deadline, grant, tokens, seen, since, pending,
    asked, got = string.match(raw, PATTERN)
  if not epoch then return nil end
  return {session = session, epoch = epoch, units = tonumber(units), till = tonumber(till), memory = tonumber(memory),
    first = tonumber(first), under = tonumber(under), limit = tonumber(limit), order = tonumber(order),
    want = tonumber(want), least = tonumber(least), deadline = tonumber(deadline), grant = grant, tokens = tokens, seen = seen,
    since = tonumber(since), pending = tonumber(pending), asked = tonumber(asked), got = got}
end

local function write(e)
  return string.format(FORMAT, e.epoch, e.units, e.till, e.memory, e.first, e.under, e.limit, e.order, e.want, e.least,
    e.deadline, e.grant, e.tokens, e.seen, e.since, e.pending, e.asked, e.got)
end

-- isplace reports whether a field of the record is a place of the queue, or a note.
local function isplace(field) return string.sub(field, 1, 1) == '#' end

-- notefield returns the field of a session's note.
local function notefield(session) return '#n' .. session end

-- wrong returns the error of a name that is in use as another kind of lock. errors.go recognises the error by its code.
local function wrong()
  return redis.error_reply('WRONGTYPE the name is that of another kind of lock')
end
