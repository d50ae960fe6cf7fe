-- share: states what a session has of a shared name from now on, and what it wants in total: so it asks, gives back,
-- waits, withdraws and confirms. A copy of the last epoch changes none of that.
--
-- KEYS  1 hold  2 record
-- ARGV  1 session  2 epoch  3 kind: r or p
--       4 keep: units of what it has  5 want: units in total  6 least: in total, with which it is content
--       7 limit: units of all sessions together
--       8 under: the token under which it got the first of its units
--       9 tail: the last token that a writer used of its block, or 0
--      10 tokens wanted with a grant of ALL  11 highest token this session has seen; of a reader: of this name
--      12 lease, ms  13 grant TTL, ms  14 patience, ms: the place is dropped when not refreshed for so long
--      15 not after: Redis time, us, from which this copy is refused  16 memory: the latest that any copy had
--      17 channel prefix  18 seconds that the record is kept
-- Returns  {code, now, units, placed (1 or 0), first token, last token, may, share, epoch}
--   1 shared: units of this session, with or without a place; may: what it may keep so that the head of the queue
--     fits; share: the limit divided by the sessions, 0 for r    2 stale: epoch is a higher one of this session
--   3 lost: keep is more than the live units under that token; it has none now, and no place    4 late
--   or an error, and nothing is touched: WRONGTYPE, the name is that of another kind of lock; FARTOKEN, see common.lua
-- Keeps    a grant and the units of the others are within the limit of the granted request; only the head is granted;
--          what a higher epoch has; tokens rise; a lease never shrinks.
-- Twice    the second run gives live units a full lease and the place a new deadline, and returns the present state.

local session, epoch = ARGV[1], tonumber(ARGV[2])
local keep, want, least, limit = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local under, tail, tokens, seen = tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10], ARGV[11]
local lease, grant, patience = tonumber(ARGV[12]) * 1000, ARGV[13], tonumber(ARGV[14]) * 1000
local notafter, memory = tonumber(ARGV[15]), tonumber(ARGV[16])
local SHARED, STALE, LOST, LATE = 1, 2, 3, 4

now, s, kind, channel = clock(), shared(KEYS[1], KEYS[2]), ARGV[3], ARGV[17]
if not s or s.kind and s.kind ~= kind then return wrong() end
if now > notafter then return {LATE, now, 0, 0, 0, 0, 0, 0, 0} end
local me = s.by[session]
if me and epoch < tonumber(me.epoch) then return {STALE, now, 0, 0, 0, 0, 0, 0, tonumber(me.epoch)} end

local refused = want > keep and beyond(tokens, seen)
if refused then return refused end

s.kind = kind
if not me then
  me = {session = session, epoch = '-1', units = 0, till = 0, memory = 0, first = 0, under = 0, limit = limit,
    order = 0, want = 0, least = 0, deadline = 0, grant = '0', tokens = '0', seen = '0'}
  s.list[#s.list + 1] = me
end
settle()

-- retain leaves the session so many of its units, and gives back the tokens that a writer did not use.
local function retain(units)
  if kind == 'r' and me.units == ALL and units < ALL then
    if me.under == under and me.first <= tail and tail < s.token and tail % 2 == 0 then s.token = tail end
    me.first = s.token
  end
  me.units = units
  if units > 0 then
    prolong(me, lease)
  else
    me.first, me.till = 0, 0
  end
end

-- queue gives the session a place, updates the one it has, or takes it away. A session with its fair share of permits
-- gets none: nothing, or what is free if no session waits.
local function queue()
  if want == keep then return clear(me) end
  local enough = least
  if kind == 'p' and me.units >= least then
    local units, _, sessions, places = count(me)
    if me.units >= math.floor(limit / (sessions + 1)) then
      clear(me)
      local free = math.min(want, limit - units)
      if places == 0 and free > me.units then
        give(me, free, 1, seen)
        prolong(me, lease)
      end
      return
    end
    enough = me.units + 1 -- what it has already is no grant
  end
  if me.order == 0 then
    local last = 0
    for _, e in ipairs(s.list) do last = math.max(last, e.order) end
    me.order = last + 1
  end
  me.want, me.least, me.deadline, me.grant, me.tokens, me.seen = want, enough, now + patience, grant, tokens, seen
end

local code = SHARED
me.memory, me.dirty = math.max(me.memory, notafter, memory), true
if epoch > tonumber(me.epoch) then
  local has = me.under == under and me.units or 0
  me.epoch, me.limit = ARGV[2], limit
  if keep > has then
    code = LOST
    me.units, me.first, me.till = 0, 0, 0
    clear(me)
  else
    retain(keep)
    queue()
  end
else
  if me.units > 0 then prolong(me, lease) end
  if me.order > 0 then me.deadline = now + patience end
end

local granted = serve(me, lease)
local may = allowance()
save(KEYS[2], me, ARGV[18])
announce(KEYS[1], me, granted, may)

local share = 0
if kind == 'p' then
  local _, _, sessions = count(me)
  share = math.floor(limit / (sessions + 1))
end
return {code, now, me.units, me.order > 0 and 1 or 0, me.first, kind == 'r' and me.units == ALL and s.token or me.first,
  may(me), share, tonumber(me.epoch)}
