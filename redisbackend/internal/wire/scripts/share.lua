-- share: states what a session has of a shared name from now on, and what it wants in total. So a session asks, gives
-- back, waits, withdraws and confirms, all by this script. A copy of the session's last epoch changes neither.
--
-- KEYS  1 record; if the session keeps nothing and wants some, a Lock's keys too, which must be missing: 2 hold 3 queue
-- ARGV  1 session  2 epoch  3 kind: r or p
--       4 keep: how many of its units it keeps  5 want: units in total  6 least: units in total that suffice
--       7 limit: units of all sessions together
--       8 under: the token under which it got the first of its units
--       9 tail: the last token that a writer used of its block, or 0
--      10 tokens wanted with a grant of ALL  11 highest token this session has seen; of a reader: of this name
--      12 lease, ms  13 grant TTL, ms  14 patience, ms: the place is dropped when not refreshed for so long
--      15 not after: Redis time, us, from which this copy is refused  16 memory: the latest not after of any copy
--      17 channel prefix  18 seconds that the record is kept  19 the hold key's name
--      20 try: 1 to be refused, and not to wait, if the others use their units, or others wait; else 0
--      21 answer: the order of the try that asked this session, which answers by what it keeps; else 0
-- Returns  {code, now, units, placed (1 or 0), first token, last token, may, share, epoch, try}
--   1 shared: units of this session, with or without a place; may: what it may keep so that the head of the queue
--     fits; share: the limit divided by the sessions, rounded up, 0 for r; try: the head's order if it is the try of
--     another session, else 0
--   2 stale: epoch is a higher one of this session
--   3 lost: the session has fewer live units under that token than keep; it has none now, and no place    4 late
--   or an error, and nothing is touched: WRONGTYPE, the name is that of another kind of lock; FARTOKEN, see common.lua
-- Keeps    what is granted and the units of the others are within the limit of the granted request; only the head gets
--          units; what a higher epoch has stays; tokens rise; a lease never shrinks.
-- Twice    the second run gives live units a full lease and the place a new deadline, and returns the present state.
-- Late     after its not after it does nothing; before, it is stale if the session has sent a higher epoch.

local session, epoch, kind = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local keep, want, least, limit = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local under, tail, tokens, seen = tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10], ARGV[11]
local lease, grant, patience = tonumber(ARGV[12]) * 1000, ARGV[13], tonumber(ARGV[14]) * 1000
local notafter, memory = tonumber(ARGV[15]), tonumber(ARGV[16])
local try, answer = ARGV[20] == '1', tonumber(ARGV[21])
local SHARED, STALE, LOST, LATE = 1, 2, 3, 4

key, hold, channel = KEYS[1], ARGV[19], ARGV[17]
local refused = open(kind, session, KEYS[2], KEYS[3])
if refused then return refused end
if now > notafter then return {LATE, now, 0, 0, 0, 0, 0, 0, 0, 0} end
local me = entry(session)
if me and epoch < tonumber(me.epoch) then return {STALE, now, 0, 0, 0, 0, 0, 0, tonumber(me.epoch), 0} end

refused = want > keep and beyond(tokens, seen)
if refused then return refused end

settle()
me = entry(session)
if not me then
  me = {session = session, epoch = '-1', units = 0, till = 0, memory = 0, first = 0, under = 0, limit = limit,
    order = 0, want = 0, least = 0, deadline = 0, grant = '0', tokens = '0', seen = '0', since = 0, pending = -1,
    asked = 0, got = '0'}
  entries[session] = me
end
mark(me)
me.memory = math.max(me.memory, notafter, memory)

-- retain takes units from the session so that it has that many left, and gives back the tokens that a writer did not
-- use.
local function retain(units)
  if kind == 'r' and me.units == ALL and units < ALL then
    if me.under == under and me.first <= tail and tail < s.token and tail % 2 == 0 then s.token = tail end
    me.first = s.token
  end
  change(me, units, me.order)
  if units > 0 then
    prolong(me, lease)
  else
    me.first, me.till = 0, 0
  end
end

-- queue gives the session a place at the tail, updates the place that it has already, or takes the place away.
local function queue()
  if want == keep then return leave(me) end
  if me.order == 0 then
    s.last = s.last + 1
    places[s.last], me.since = session, now
    change(me, me.units, s.last)
  end
  left = left or want < me.want
  me.want, me.least, me.deadline, me.grant, me.tokens, me.seen = want, least, now + patience, grant, tokens, seen
  me.pending = -1
  ends(me.deadline)
end

local code, beat = SHARED, epoch == tonumber(me.epoch)
if beat then
  if me.units > 0 then prolong(me, lease) end
  if me.order > 0 then me.deadline = now + patience end -- soonest stays: it is a lower bound
else
  local has = me.under == under and me.units or 0
  me.epoch, me.limit = ARGV[2], limit
  if keep > has then
    code = LOST
    leave(me)
    change(me, 0, 0)
    me.first, me.till = 0, 0
  else
    retain(keep)
  end
  if me.asked > 0 and (me.asked == answer or me.units == 0) then answered(me) end
  if code == SHARED then queue() end
end
if me.units == 0 and me.order == 0 then ends(me.memory + SWEEP) end

local news, first = serve(me, lease)
local asks = try and not beat and first == me -- it does not fit, and no session waits before it
if asks then
  ask(me)
elseif try and not beat then
  leave(me)
end
local most, send = announce(me, news, first, beat and first == me, asks)
save(ARGV[18])
send()

local share = 0
if kind == 'p' then
  share = math.ceil(limit / math.max(1, s.sessions + ((me.units > 0 or me.order > 0) and 0 or 1)))
end
return {code, now, me.units, me.order > 0 and 1 or 0, me.first, kind == 'r' and me.units == ALL and s.token or me.first,
  first == me and ALL or most, share, tonumber(me.epoch), first ~= me and trying(first) or 0}
